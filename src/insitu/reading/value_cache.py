"""LRU cache of values that were read, bounded by bytes: the next use of an array does not read it again.

xarray keeps what it has read of a variable; this does the same for virtual arrays, within a limit for
the whole process. The values of an expression are kept under its own key; `insitu.expressions.evaluate` finds them,
also those of what an expression was derived from. Keys are objects: when an expression is gone, so are its values.
Chunks of which reads need only a part are kept here too, for each dataset. Loading a dataset, streaming reductions
and Dask put nothing into the cache.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections import deque
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy.typing as npt

from insitu.forking import fork_safe_lock
from insitu.lru import LruCache
from insitu.reading.cache import PartialChunkCache

__all__ = ["KeptKey", "Owner", "ValueCache", "default_value_cache", "memory_limit"]

Values = npt.NDArray[Any]

MAX_BYTES = 1 << 30
"""Bytes of the cache of the process, at most."""
SHARE_OF_MEMORY = 10
"""It has at most this part of the memory: a tenth."""
SHARE_OF_CACHE = 4
"""An array that is larger than this part of the cache is not kept."""


class KeptKey:
    """Identifies the values of one array in a cache."""

    __slots__ = ("_gone", "bytes_read", "number", "uses")

    _numbers = itertools.count()

    def __init__(self, gone: deque[int]) -> None:
        self.number = next(self._numbers)
        self.uses = 0
        """How often a reduction has read the array."""
        self.bytes_read = 0
        """Bytes of parts of the array that were read for a use."""
        self._gone = gone

    def __del__(self) -> None:  # weakref.finalize does the same, for 10 µs an array
        self._gone.append(self.number)


class Owner:
    """A dataset for which values are kept; they go when it is closed or gone."""

    __slots__ = ("__weakref__", "number")

    _numbers = itertools.count()

    def __init__(self) -> None:
        self.number = next(self._numbers)


class ValueCache:
    """Values of arrays, shared by all datasets of the process.

    Parameters
    ----------
    max_bytes
        Bytes of values that are kept; the least recently used ones are evicted first.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._values: LruCache[Hashable, tuple[int | None, Values]] = LruCache(max_bytes, _count_bytes)
        self._gone_keys: deque[int] = deque()
        self._gone_owners: deque[int] = deque()

    @property
    def nbytes(self) -> int:
        """Bytes of all values that are kept."""
        self._drop_gone()
        return self._values.weight

    def can_keep(self, nbytes: int) -> bool:
        """Return whether an array of this size is kept."""
        return nbytes <= self.max_bytes // SHARE_OF_CACHE

    def new_key(self) -> KeptKey:
        """Return a key; what is kept under it goes with the key."""
        return KeptKey(self._gone_keys)

    def get(self, key: KeptKey) -> Values | None:
        """Return the values that are kept under a key, read-only."""
        entry = self._values.get(key.number)
        return None if entry is None else entry[1]

    def keep(self, key: KeptKey, values: Values, owner: Owner | None) -> Values:
        """Keep values until their owner is closed; return them read-only."""
        self._drop_gone()
        view = values.view()
        view.flags.writeable = False
        self._values.put(key.number, (None if owner is None else owner.number, view))
        return view

    def chunks_of(self, owner: Owner) -> PartialChunkCache:
        """Return the cache of the chunks of one dataset, which shares the memory of this one."""
        weakref.finalize(owner, self._gone_owners.append, owner.number)
        return PartialChunkCache(_OwnedChunks(self, owner.number), self.max_bytes)

    def release(self, owner: Owner) -> None:
        """Forget all values that belong to a dataset."""
        self._values.pop_if(lambda entry: entry[0] == owner.number)

    def clear(self) -> None:
        """Forget all values."""
        self._values.clear()

    def _drop_gone(self) -> None:
        """Forget the values of arrays and datasets that are gone.

        Their finalizers only note them: the garbage collector may call one within any operation,
        also while this thread holds the lock of the cache.
        """
        while self._gone_keys:
            self._values.pop(self._gone_keys.popleft())
        gone = {self._gone_owners.popleft() for _ in range(len(self._gone_owners))}
        if gone:
            self._values.pop_if(lambda entry: entry[0] in gone)

    def __reduce__(self) -> tuple[Any, ...]:
        return default_value_cache, ()  # what was read here is not there


class _OwnedChunks:
    """The chunks of one dataset in a `ValueCache`."""

    def __init__(self, cache: ValueCache, owner: int) -> None:
        self._cache = cache
        self._owner = owner

    @property
    def weight(self) -> int:
        """Bytes of all values of the cache, also of other datasets."""
        return self._cache.nbytes

    def get(self, key: Hashable) -> Values | None:
        """Return a chunk."""
        entry = self._cache._values.get((self._owner, key))
        return None if entry is None else entry[1]

    def put(self, key: Hashable, value: Values) -> None:
        """Keep a chunk."""
        self._cache._drop_gone()
        self._cache._values.put((self._owner, key), (self._owner, value))

    def clear(self) -> None:
        """Forget the chunks, and all that is kept for the dataset."""
        self._cache._values.pop_if(lambda entry: entry[0] == self._owner)

    def __contains__(self, key: object) -> bool:
        return (self._owner, key) in self._cache._values


def _count_bytes(entry: tuple[int | None, Values]) -> int:
    return entry[1].nbytes


_default: ValueCache | None = None
_lock = fork_safe_lock()


def default_value_cache() -> ValueCache:
    """Return the cache of the process."""
    global _default
    with _lock:
        if _default is None:
            _default = ValueCache(min(memory_limit() // SHARE_OF_MEMORY, MAX_BYTES))
        return _default


def memory_limit() -> int:
    """Return the bytes of memory that the process may use: those of the machine, or of its control
    group.
    """
    limits = []
    try:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # not on Windows
        limits.append(4 << 30)
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return min(limits)
