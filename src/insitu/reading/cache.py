"""LRU cache of decoded chunks, bounded by bytes, shared by reads and threads.

Of several threads that want the same chunk, one decodes it and the others wait. There is no cache
unless the caller gives one: a single pass over an archive would only evict what it just put in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.forking import fork_safe_lock, renew_after_fork
from insitu.lru import LruCache

__all__ = ["ChunkCache", "cache_from_option"]

Chunk = npt.NDArray[Any]


class _PendingChunk:
    """A chunk that some thread is decoding."""

    __slots__ = ("chunk", "landed")

    def __init__(self) -> None:
        self.landed = threading.Event()
        self.chunk: Chunk | None = None
        """None after `landed` is set: decoding failed."""


class ChunkCache:
    """Cache of decoded chunks, shared by reads and threads.

    Parameters
    ----------
    max_bytes
        Bytes of decoded chunks that are kept; the least recently used ones are evicted first.
    ahead
        Whether to prefetch: where reads go through an array step by step, the next step is read in
        the background.

    Examples
    --------
    >>> import insitu
    >>> cache = insitu.ChunkCache(256 << 20)
    >>> cache.nbytes, cache.hits, cache.misses
    (0, 0, 0)
    """

    def __init__(self, max_bytes: int, *, ahead: bool = False) -> None:
        if max_bytes < 0:
            raise ValueError(f"max_bytes is {max_bytes}; it must not be negative")
        self.max_bytes = max_bytes
        self.ahead = ahead
        self.hits = 0
        self.misses = 0
        self._kept: LruCache[Hashable, Chunk] = LruCache(max_bytes, _count_bytes)
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Reset the lock and the pending chunks in a forked child, where no other thread finishes
        decoding them.
        """
        self._lock = threading.Lock()
        self._flights: dict[Hashable, _PendingChunk] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the chunks in the cache."""
        return self._kept.weight

    def get(self, key: Hashable, make: Callable[[], Chunk]) -> Chunk:
        """Return the chunk of a key; decode it if it is not in the cache.

        Of several threads that want the same chunk, one decodes it and the others wait.

        Parameters
        ----------
        key
            Identifies the chunk.
        make
            Decodes it. If that fails, each waiting thread tries for itself, so that each gets the
            error with its own context.
        """
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self.hits += 1
                return kept
            flight = self._flights.get(key)
            mine = flight is None
            if flight is None:
                flight = self._flights[key] = _PendingChunk()
                self.misses += 1
        if not mine:
            flight.landed.wait()
            if flight.chunk is not None:
                with self._lock:
                    self.hits += 1
                return flight.chunk
            return make()
        try:
            chunk = _own_read_only(make())
            flight.chunk = chunk
            self._kept.put(key, chunk)
            return chunk
        finally:
            with self._lock:
                self._flights.pop(key, None)
            flight.landed.set()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def clear(self) -> None:
        """Empty the cache."""
        self._kept.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(ChunkCache, self.max_bytes, ahead=self.ahead), ()  # a copy elsewhere begins empty

    def __repr__(self) -> str:
        return f"<ChunkCache: {self.nbytes:,} of {self.max_bytes:,} bytes, {self.hits:,} hits, {self.misses:,} misses>"


def _count_bytes(chunk: Chunk) -> int:
    return chunk.nbytes


def _own_read_only(chunk: Chunk) -> Chunk:
    """Return the chunk read-only and with memory of its own: decoders may return views of buffers
    that are used again.
    """
    chunk = chunk.copy() if chunk.base is not None else chunk
    chunk.flags.writeable = False
    return np.asarray(chunk)


DEFAULT_BYTES = 256 << 20
"""Bytes of the cache that `cache=True` means."""
_default: ChunkCache | None = None
_default_lock = fork_safe_lock()


def cache_from_option(cache: ChunkCache | int | bool | None) -> ChunkCache | None:
    """Return the chunk cache that an option `cache=` means.

    Parameters
    ----------
    cache
        A cache; its size in bytes, for one of its own; True: the one that the process shares;
        False or None: none.
    """
    global _default
    if cache is None or cache is False:
        return None
    if isinstance(cache, ChunkCache):
        return cache
    if cache is not True:
        return ChunkCache(int(cache))
    with _default_lock:
        if _default is None:
            _default = ChunkCache(DEFAULT_BYTES)
        return _default
