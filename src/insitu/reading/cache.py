"""Which decoded chunks are kept? Those used last, up to a number of bytes; and nobody decodes what another thread is decoding.

Off unless a cache is given: a single pass over an archive would only push out what it just put in.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.forking import renew_after_fork

__all__ = ["ChunkCache"]

Chunk = npt.NDArray[Any]


class _Flight:
    """A chunk that some thread is decoding."""

    __slots__ = ("chunk", "landed")

    def __init__(self) -> None:
        self.landed = threading.Event()
        self.chunk: Chunk | None = None
        """None after landing: it failed."""


class ChunkCache:
    """Decoded chunks, shared by reads and threads.

    Parameters
    ----------
    max_bytes
        How much is kept.
    ahead
        Whether the next step is read in the background while you look at this one, where reads go through an array step by step.

    Examples
    --------
    >>> import insitu
    >>> cache = insitu.ChunkCache(256 << 20)
    >>> cache.nbytes, cache.hits, cache.misses
    (0, 0, 0)
    """

    def __init__(self, max_bytes: int, *, ahead: bool = False) -> None:
        if max_bytes < 0:
            raise ValueError(f"a cache cannot hold {max_bytes} bytes")
        self.max_bytes = max_bytes
        self.ahead = ahead
        self.nbytes = 0
        self.hits = 0
        self.misses = 0
        self._kept: OrderedDict[Hashable, Chunk] = OrderedDict()
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Set up what a forked child does not share: nobody there goes on with what other threads were decoding."""
        self._lock = threading.Lock()
        self._flights: dict[Hashable, _Flight] = {}
        self.nbytes = sum(chunk.nbytes for chunk in self._kept.values())

    def get(self, key: Hashable, make: Callable[[], Chunk]) -> Chunk:
        """The chunk of a key, made if it is not here; of several threads that want it, one makes it and the others wait.

        Parameters
        ----------
        key
            What tells the chunk from all others.
        make
            Decodes it. If that fails, each waiting thread tries for itself, so that each gets the error with its own whereabouts.
        """
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
                self.hits += 1
                return kept
            flight = self._flights.get(key)
            mine = flight is None
            if flight is None:
                flight = self._flights[key] = _Flight()
                self.misses += 1
        if not mine:
            flight.landed.wait()
            if flight.chunk is not None:
                with self._lock:
                    self.hits += 1
                return flight.chunk
            return make()
        try:
            chunk = _owned(make())
            flight.chunk = chunk
            self._keep(key, chunk)
            return chunk
        finally:
            with self._lock:
                self._flights.pop(key, None)
            flight.landed.set()

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._kept

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()
            self.nbytes = 0

    def _keep(self, key: Hashable, chunk: Chunk) -> None:
        if chunk.nbytes > self.max_bytes:
            return
        with self._lock:
            self._kept[key] = chunk
            self.nbytes += chunk.nbytes
            while self.nbytes > self.max_bytes:
                _, old = self._kept.popitem(last=False)
                self.nbytes -= old.nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(ChunkCache, self.max_bytes, ahead=self.ahead), ()  # what is kept does not travel

    def __repr__(self) -> str:
        return f"<ChunkCache: {self.nbytes:,} of {self.max_bytes:,} bytes, {self.hits:,} hits, {self.misses:,} misses>"


def _owned(chunk: Chunk) -> Chunk:
    """A chunk that nobody else writes to: decoders may lend out buffers, and views into what was fetched."""
    chunk = chunk.copy() if chunk.base is not None else chunk
    chunk.flags.writeable = False
    return np.asarray(chunk)
