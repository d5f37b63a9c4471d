"""LRU cache of decoded chunks, bounded by bytes, shared by reads and threads.

Of several threads that want the same chunk, one decodes it and the others wait. Functions have no
cache unless the caller gives one: a single pass over an archive would only evict what it just put
in. Datasets have a `PartialChunkCache`, which such a pass leaves alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from insitu.forking import fork_safe_lock, renew_after_fork
from insitu.lru import LruCache
from insitu.sources.address import is_remote

__all__ = ["ChunkCache", "PartialChunkCache", "cache_from_option"]

Chunk = npt.NDArray[Any]


MIN_PARTIAL_BYTES = 32 << 10
"""Chunks that are smaller on average are decoded again as fast as they are found."""
KEPT_AT_ONCE_BYTES = 32 << 20
"""The chunks of a read are kept at once if they amount to no more than this, decoded."""
NOTED_CHUNKS = 1 << 14
"""Chunks of which a `PartialChunkCache` knows that they were read."""
SHARE_OF_READ = 4
"""A read whose chunks would fill more than this part of a `PartialChunkCache` leaves it alone."""


class ChunkStore(Protocol):
    """What keeps the chunks of a cache."""

    @property
    def weight(self) -> int:
        """Bytes of all chunks."""

    def get(self, key: Hashable) -> Chunk | None:
        """Return the chunk of a key."""

    def put(self, key: Hashable, value: Chunk) -> Any:
        """Keep a chunk."""

    def clear(self) -> Any:
        """Forget all chunks."""

    def __contains__(self, key: object) -> bool: ...


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
        self._chunks: ChunkStore = LruCache(max_bytes, _count_bytes)
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
        return self._chunks.weight

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
            found = self._chunks.get(key)
            if found is not None:
                self.hits += 1
                return found
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
            self._chunks.put(key, chunk)
            return chunk
        finally:
            with self._lock:
                self._flights.pop(key, None)
            flight.landed.set()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._chunks

    def clear(self) -> None:
        """Empty the cache."""
        self._chunks.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(ChunkCache, self.max_bytes, ahead=self.ahead), ()  # a copy elsewhere begins empty

    def __repr__(self) -> str:
        return f"<ChunkCache: {self.nbytes:,} of {self.max_bytes:,} bytes, {self.hits:,} hits, {self.misses:,} misses>"


_READ, _CACHED = b"read", b"cached"
"""What a `PartialChunkCache` notes of a chunk."""


class PartialChunkCache(ChunkCache):
    """Cache of chunks of which reads need only a part.

    Who reads an array step by step, in steps shorter than a chunk, decodes each chunk once. Reads of
    whole chunks do not use the cache. Where one read needs parts of many local chunks, they are only
    noted, and kept from the second such read on, so a pass over an archive neither fills the cache nor
    takes longer.

    Parameters
    ----------
    store
        What keeps the chunks, possibly shared with others.
    max_bytes
        Its capacity.
    """

    def __init__(self, store: ChunkStore, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self._chunks = store
        self._noted: LruCache[tuple[str, int], bytes] = LruCache(NOTED_CHUNKS)

    def is_wanted(self, url: str, offsets: Sequence[int], chunk_bytes: int, chunks: int) -> bool:
        """Return whether a read of parts of chunks goes through the cache.

        Parameters
        ----------
        url, offsets
            The chunks: their object, and where they lie in it.
        chunk_bytes
            Bytes of one decoded chunk.
        chunks
            Number of chunks of the whole read.
        """
        if chunk_bytes < MIN_PARTIAL_BYTES or chunk_bytes * chunks > self.max_bytes // SHARE_OF_READ:
            return False
        places = [(url, offset) for offset in offsets]
        at_once = is_remote(url) or chunk_bytes * chunks <= KEPT_AT_ONCE_BYTES
        known = at_once or any(place in self._noted for place in places)
        for place in places:
            self._noted.put(place, _CACHED if known else _READ)
        return known

    def was_cached(self, places: Sequence[tuple[str, int]]) -> bool:
        """Return whether chunks, given by URL and offset, were put into the cache; they may have been evicted since."""
        return all(self._noted.get(place) is _CACHED for place in places)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # tasks elsewhere keep nothing


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
