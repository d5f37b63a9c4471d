"""LRU cache of values that were read, bounded by bytes: the next use of an array does not read it again.

xarray keeps what it has read of a variable; this does the same for virtual arrays, within a limit for
the whole process. The values of an array are kept under its own key. An array that was derived from it
(a selection, a transposition, a conversion) finds them through its parents, and is computed in memory.
Keys are objects: when the last array that has a key is gone, so are its values. Loading a dataset,
streaming reductions and Dask put nothing into the cache.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from insitu.forking import fork_safe_lock
from insitu.lru import LruCache

__all__ = ["KeptKey", "ValueCache", "default_value_cache", "memory_limit"]

Values = npt.NDArray[Any]
Move = Callable[[Values], Values]

MAX_BYTES = 1 << 30
"""Bytes of the cache of the process, at most."""
SHARE_OF_MEMORY = 10
"""It has at most this part of the memory: a tenth."""
SHARE_OF_CACHE = 4
"""An array that is larger than this part of the cache is not kept."""
MAX_DEPTH = 16
"""How many steps back values are looked for."""


class KeptKey:
    """Identifies the values of one array in a cache."""

    __slots__ = ("_forget", "number", "uses")

    _numbers = itertools.count()

    def __init__(self, forget: Callable[[int], None]) -> None:
        self.number = next(self._numbers)
        self.uses = 0
        """How often a reduction has read the array."""
        self._forget = forget

    def __del__(self) -> None:  # weakref.finalize does the same, for 10 µs an array
        self._forget(self.number)


class HasKey(Protocol):
    """An array whose values may be kept, and what it was derived from."""

    key: KeptKey | None
    parent: tuple[Any, Move] | None


class ValueCache:
    """Values of arrays, shared by all datasets of the process.

    Parameters
    ----------
    max_bytes
        Bytes of values that are kept; the least recently used ones are evicted first.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._values: LruCache[int, tuple[object, Values]] = LruCache(max_bytes, _count_bytes)
        self._forgotten: deque[int] = deque()
        """Numbers of keys that are gone while the cache was in use."""

    @property
    def nbytes(self) -> int:
        """Bytes of all values that are kept."""
        self._pop_forgotten()
        return self._values.weight

    def can_keep(self, nbytes: int) -> bool:
        """Return whether an array of this size is kept."""
        return nbytes <= self.max_bytes // SHARE_OF_CACHE

    def find(self, array: HasKey) -> Values | None:
        """Return the values of an array, read-only, if it or what it was derived from was read."""
        moves: list[Move] = []
        node: Any = array
        for _ in range(MAX_DEPTH):
            kept = None if node.key is None else self._values.get(node.key.number)
            if kept is not None:
                values = kept[1]
                for move in reversed(moves):
                    values = np.asarray(move(values))
                return values
            if node.parent is None:
                return None
            node, move = node.parent
            moves.append(move)
        return None

    def keep(self, array: HasKey, values: Values, owner: object) -> Values:
        """Keep the values of an array until its owner is closed; return them read-only."""
        view = values.view()
        view.flags.writeable = False
        self._values.put(self.key_of(array).number, (owner, view))
        self._pop_forgotten()
        return view

    def key_of(self, array: HasKey) -> KeptKey:
        """Return the key of an array; what is kept under it goes with the last array that has it."""
        if array.key is None:
            array.key = KeptKey(self._forget)
        return array.key

    def _forget(self, number: int) -> None:
        """Forget the values of a key that is gone."""
        if not self._values.pop_without_waiting(number):
            self._forgotten.append(number)

    def _pop_forgotten(self) -> None:
        while self._forgotten:
            with suppress(IndexError):  # another thread was faster
                self._values.pop(self._forgotten.popleft())

    def release(self, owner: object) -> None:
        """Forget all values that belong to a dataset."""
        self._values.pop_if(lambda kept: kept[0] is owner)

    def clear(self) -> None:
        """Forget all values."""
        self._values.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        return default_value_cache, ()  # what was read here is not there


def _count_bytes(kept: tuple[object, Values]) -> int:
    return kept[1].nbytes


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
