"""Prefetching: reads the next step in the background while a caller goes through an array.

If two reads of one array differ only in the position along one dimension, the third one is
predicted to lie as far on. Its chunks are fetched and decoded in the background, into the cache of
the reader. A wrong prediction costs the bytes of one step; errors are ignored, since the read
itself would raise them again.
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

from insitu.errors import InsituError
from insitu.lru import LruCache
from insitu.model import Packing, Selection, Stride, VirtualArray
from insitu.model.selection import Selector
from insitu.reading.cache import ChunkCache
from insitu.reading.chunk_sink import ChunkSink
from insitu.reading.fetch_and_decode import PlanExecution, run_executions
from insitu.reading.plan import plan_read
from insitu.reading.read_statistics import ReadStatistics, log
from insitu.reading.source_pool import SourcePool
from insitu.reading.tile_plan import Position

__all__ = ["Prefetcher", "get_prefetcher", "predict_next"]

MAX_REMEMBERED_ARRAYS = 64
"""Number of arrays whose last read is remembered."""

ReadStep = tuple[VirtualArray, Selection]


@dataclass(slots=True)
class _ReadHistory:
    """The last read of one array, and what is being prefetched."""

    array: VirtualArray
    last: Selection
    guess: Selection | None = None
    under_way: Future[None] | None = None


class Prefetcher:
    """Prefetches into one cache."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._histories: LruCache[int, _ReadHistory] = LruCache(MAX_REMEMBERED_ARRAYS)
        self.guessed = 0
        """Number of steps that were prefetched."""
        self.right = 0
        """Number of prefetched steps that were read afterwards."""

    def wait_for_pending(self, steps: Sequence[ReadStep]) -> None:
        """Wait for prefetches that are running and now needed, so that nothing is fetched twice."""
        awaited = []
        with self._lock:
            for array, selection in steps:
                history = self._histories.get(id(array))
                if history is not None and history.guess is not None and _is_same_selection(history.guess, selection):
                    self.right += 1
                    if history.under_way is not None:
                        awaited.append(history.under_way)
        for future in awaited:
            future.result()

    def prefetch_next(
        self, steps: Sequence[ReadStep], cache: ChunkCache, storage_options: Mapping[str, Any] | None
    ) -> None:
        """Predict what comes after these reads, and start to prefetch it."""
        for array, selection in steps:
            with self._lock:
                history = self._histories.pop(id(array))
                if history is None:
                    history = _ReadHistory(array, selection)
                    guess = None
                else:
                    guess = predict_next(history.last, selection, array.shape)
                    history.last = selection
                self._histories.put(id(array), history)
                if history.under_way is not None and not history.under_way.done():
                    continue  # one step at a time
                history.guess, history.under_way = guess, None
                if guess is not None:
                    self.guessed += 1
                    history.under_way = _submit(array, guess, cache, storage_options)


def predict_next(before: Selection, now: Selection, shape: tuple[int, ...]) -> Selection | None:
    """Return the next read if the last two were steps along one dimension; None if not, or at the
    end.

    Examples
    --------
    >>> first, second = (Selection.of((slice(n, n + 10), 3), (25, 5)) for n in (0, 10))
    >>> predict_next(first, second, (25, 5)).selectors
    (Stride(start=20, step=1, length=5), 3)
    """
    moved = [
        axis
        for axis, pair in enumerate(zip(before.selectors, now.selectors, strict=True))
        if not _is_same_selector(*pair)
    ]
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


def _is_same_selector(one: Selector, other: Selector) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.array_equal(one, other)
    return type(one) is type(other) and one == other


def _is_same_selection(one: Selection, other: Selection) -> bool:
    return len(one.selectors) == len(other.selectors) and all(map(_is_same_selector, one.selectors, other.selectors))


class _DiscardSink(ChunkSink):
    """Sink that discards everything: the cache keeps the chunks."""

    def fill(self, grid: int, position: Position, value: Any, packing: Packing | None) -> None:
        """Do nothing: there is nothing to cache."""

    def decode_one(self, *_: Any, **__: Any) -> None:
        """Do nothing: inline data needs no cache."""

    def chunk(self, grid: int, position: Position, chunk: npt.NDArray[Any], packing: Packing | None) -> None:
        """Do nothing: the cache has the chunk."""


def _prefetch(
    array: VirtualArray, selection: Selection, cache: ChunkCache, storage_options: Mapping[str, Any] | None
) -> None:
    try:
        work = plan_read(array, selection)
        with SourcePool(storage_options) as opened:
            run_executions([PlanExecution(work, _DiscardSink(work.tile_plans), opened, None, ReadStatistics(), cache)])
    except InsituError as problem:
        log.debug("prefetching failed; the read itself will raise the error: %s", problem)
    except RuntimeError as problem:
        log.debug("prefetching was cancelled: %s", problem)  # the interpreter exits, its pools are closed


_prefetchers: WeakKeyDictionary[ChunkCache, Prefetcher] = WeakKeyDictionary()
_lock = threading.Lock()
_threads: ThreadPoolExecutor | None = None


def get_prefetcher(cache: ChunkCache) -> Prefetcher:
    """Return the prefetcher of a cache."""
    with _lock:
        found = _prefetchers.get(cache)
        if found is None:
            found = _prefetchers[cache] = Prefetcher()
        return found


def _submit(
    array: VirtualArray, selection: Selection, cache: ChunkCache, storage_options: Mapping[str, Any] | None
) -> Future[None]:
    # Separate threads: a thread of the read pool that waits for others of that pool could wait for
    # ever.
    global _threads
    with _lock:
        if _threads is None:
            _threads = ThreadPoolExecutor(2, thread_name_prefix="insitu-ahead")
        return _threads.submit(_prefetch, array, selection, cache, storage_options)


def _reset_after_fork() -> None:
    """Forget running prefetches in a forked child, where their threads do not exist."""
    global _lock, _threads
    _lock, _threads = threading.Lock(), None
    _prefetchers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
