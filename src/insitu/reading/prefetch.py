"""What will be wanted next? Whoever goes through an array step by step gets the next step read while he looks at this one.

A guess is made where two reads of one array differ in the position along one dimension only: the third lies as far on. Its chunks are fetched
and decoded in the background, into the cache of whoever reads. A wrong guess costs the bytes of one step; a failure is left to the
read itself, should it come.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from insitu.codecs import Decoder
from insitu.errors import InsituError
from insitu.lru import LruCache
from insitu.model import Packing, Selection, Stride, VirtualArray
from insitu.model.selection import Selector
from insitu.reading.cache import ChunkCache
from insitu.reading.fetch_and_decode import Run, run_all
from insitu.reading.plan import plan
from insitu.reading.source_pool import Opened
from insitu.reading.tally import Tally, log
from insitu.reading.tile_plan import Alike, Grid, Position
from insitu.sources import ByteSource
from insitu.sources.protocol import ReadsInto

__all__ = ["Ahead", "ahead_of", "following"]

REMEMBERED = 64
"""Arrays of which the last read is remembered."""

Step = tuple[VirtualArray, Selection]


@dataclass(slots=True)
class _Course:
    """What was read of one array, and what is being read ahead."""

    array: VirtualArray
    last: Selection
    guess: Selection | None = None
    under_way: Future[None] | None = None


class Ahead:
    """Reads ahead for one cache."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._courses: LruCache[int, _Course] = LruCache(REMEMBERED)
        self.guessed = 0
        """Steps that were read ahead."""
        self.right = 0
        """… and wanted then."""

    def meet(self, steps: Sequence[Step]) -> None:
        """Wait for what is under way and now wanted, so that nothing is fetched twice."""
        awaited = []
        with self._lock:
            for array, selection in steps:
                course = self._courses.get(id(array))
                if course is not None and course.guess is not None and _same(course.guess, selection):
                    self.right += 1
                    if course.under_way is not None:
                        awaited.append(course.under_way)
        for future in awaited:
            future.result()

    def go_on(self, steps: Sequence[Step], cache: ChunkCache, storage_options: Mapping[str, Any] | None) -> None:
        """Guess what comes after these reads, and begin with it."""
        for array, selection in steps:
            with self._lock:
                course = self._courses.pop(id(array))
                if course is None:
                    course = _Course(array, selection)
                    guess = None
                else:
                    guess = following(course.last, selection, array.shape)
                    course.last = selection
                self._courses.put(id(array), course)
                if course.under_way is not None and not course.under_way.done():
                    continue  # one step at a time
                course.guess, course.under_way = guess, None
                if guess is not None:
                    self.guessed += 1
                    course.under_way = _submit(array, guess, cache, storage_options)


def following(before: Selection, now: Selection, shape: tuple[int, ...]) -> Selection | None:
    """The read that comes next if the last two were steps along one dimension; None if they were not, or the end is reached.

    Examples
    --------
    >>> first, second = (Selection.of((slice(n, n + 10), 3), (25, 5)) for n in (0, 10))
    >>> following(first, second, (25, 5)).selectors
    (Stride(start=20, step=1, length=5), 3)
    """
    moved = [axis for axis, pair in enumerate(zip(before.selectors, now.selectors, strict=True)) if not _equal(*pair)]
    if len(moved) != 1:
        return None
    (axis,) = moved
    old, new = before.selectors[axis], now.selectors[axis]
    made: Selector
    if isinstance(old, int) and isinstance(new, int):
        made = 2 * new - old
        if not 0 <= made < shape[axis]:
            return None
    elif isinstance(old, Stride) and isinstance(new, Stride) and old[1:] == new[1:] and new.step > 0:
        start = 2 * new.start - old.start
        length = min(new.length, -(-(shape[axis] - start) // new.step))
        if start < 0 or length <= 0:
            return None
        made = Stride(start, new.step, length)
    else:
        return None
    selectors = (*now.selectors[:axis], made, *now.selectors[axis + 1 :])
    return replace(now, selectors=selectors)


def _equal(one: Selector, other: Selector) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.array_equal(one, other)
    return type(one) is type(other) and one == other


def _same(one: Selection, other: Selection) -> bool:
    return len(one.selectors) == len(other.selectors) and all(map(_equal, one.selectors, other.selectors))


class _Nowhere:
    """A sink that lets everything fall: the cache has it."""

    takes_many = False

    def fill(self, grid: int, position: Position, value: Any, packing: Packing | None) -> None:
        """Nothing to keep."""

    def alone(
        self,
        grid: int,
        position: Position,
        decoder: Decoder,
        data: memoryview,
        source: ByteSource | None,
        packing: Packing | None,
    ) -> None:
        """Inline data: at hand already."""

    def chunk(self, grid: int, position: Position, chunk: npt.NDArray[Any], packing: Packing | None) -> None:
        """The cache keeps it."""

    def many(self, grid: int, alike: Alike, decoder: Decoder, data: Sequence[memoryview], source: ByteSource) -> None:
        """Chunks come one by one."""
        raise AssertionError("a cache takes chunks one by one")

    def straight(self, grid: int, alike: Alike, decoder: Decoder, offset: Sequence[int], source: ReadsInto) -> bool:
        """Chunks are decoded first."""
        return False


def _load(
    array: VirtualArray, selection: Selection, cache: ChunkCache, storage_options: Mapping[str, Any] | None
) -> None:
    try:
        work = plan(array, selection)
        grids = [Grid(touched, located) for touched, located in zip(work.tiles, work.locations, strict=True)]
        with Opened(storage_options) as opened:
            run_all([Run(work, grids, _Nowhere(), opened, None, Tally(), cache)])
    except InsituError as problem:
        log.debug("reading ahead failed, the read itself will say why: %s", problem)
    except RuntimeError as problem:
        log.debug("reading ahead was given up: %s", problem)  # the interpreter ends, its pools are closed


_followers: WeakKeyDictionary[ChunkCache, Ahead] = WeakKeyDictionary()
_lock = threading.Lock()
_threads: ThreadPoolExecutor | None = None


def ahead_of(cache: ChunkCache) -> Ahead:
    """Who reads ahead for a cache."""
    with _lock:
        found = _followers.get(cache)
        if found is None:
            found = _followers[cache] = Ahead()
        return found


def _submit(
    array: VirtualArray, selection: Selection, cache: ChunkCache, storage_options: Mapping[str, Any] | None
) -> Future[None]:
    # Threads of their own: one of the pool that waits for others of the pool could wait for ever.
    global _threads
    with _lock:
        if _threads is None:
            _threads = ThreadPoolExecutor(2, thread_name_prefix="insitu-ahead")
        return _threads.submit(_load, array, selection, cache, storage_options)


def _forget() -> None:
    """In a forked child nobody finishes what is under way."""
    global _lock, _threads
    _lock, _threads = threading.Lock(), None
    _followers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
