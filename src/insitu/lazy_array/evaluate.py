"""Values of virtual arrays and of the expressions that are made of them.

What an array consists of is read in one batch; its steps are then applied. Of an expression each
stored array is read once and each shared part is computed once. A large one is evaluated in boxes
that lie on the borders of chunks, several at a time, straight into the result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from insitu.cancellation import cap_threads, carry_deadline, check_deadline
from insitu.lazy_array.boxes import Box, BoxMemory, iterate_boxes
from insitu.lazy_array.deferred_values import Access, DeferredValues
from insitu.lazy_array.kept_values import MAX_DEPTH, ValueCache
from insitu.lazy_array.steps import Apply, Step
from insitu.lazy_array.structural_moves import SelectEach
from insitu.lazy_array.window_reach import COPIES, find_reach
from insitu.lazy_array.windows import each_part, has_windows, operands_of
from insitu.lru import LruCache
from insitu.reading import PartialChunkCache, read_arrays
from insitu.reading.thread_pools import count_cores

__all__ = [
    "apply_steps",
    "box_reader",
    "evaluate_boxes",
    "find_values",
    "read_all",
    "read_and_keep",
    "threads_at_once",
]

Values = npt.NDArray[Any]
Key = tuple[int, ...]
Result = TypeVar("Result")

ROOT_BYTES = 64 << 20
"""Arrays up to this size are read whole and kept, where something that was derived from one is used."""
BOX_BYTES = 8 << 20
"""Of an expression: what is computed at a time by one thread."""
WINDOW_MEMORY = 512 << 20
"""Bytes that boxes with windows, all that are evaluated at a time, should need."""


def read_all(arrays: Sequence[DeferredValues], *, once: bool = False) -> list[Values]:
    """Return the values of several arrays, in one batch of reads; the caller may write to them.

    Parameters
    ----------
    arrays
        The arrays.
    once
        Whether they are read in one pass over many, of which nothing is to be kept.
    """
    found = [find_values(array) for array in arrays]
    missing = [number for number, values in enumerate(found) if values is None]
    for number, values in zip(missing, _evaluate([arrays[number] for number in missing], once), strict=True):
        found[number] = values if values.flags.writeable else np.array(values)
    return [np.array(values) if number not in missing else values for number, values in enumerate(found)]  # type: ignore[misc]


def find_values(array: DeferredValues) -> Values | None:
    """Return the values of an array if they were kept, read-only; None if they must be read."""
    return None if array.access.values is None else array.access.values.find(array)


def read_and_keep(array: DeferredValues) -> Values:
    """Return the values of an array for a computation that does not write to them.

    They are kept for the next one, if there is room.
    """
    found = find_values(array)
    if found is not None:
        return found
    cache = array.access.values
    if cache is None:
        return _evaluate([array])[0]
    root = _root_of(array)
    if root is not array and _is_worth_reading_whole(root, array.nbytes, cache):
        cache.keep(root, _evaluate([root])[0], root.access.owner)
        found = cache.find(array)
        if found is not None:
            return found
    values = _evaluate([array])[0]
    return cache.keep(array, values, array.access.owner) if cache.can_keep(array.nbytes) else values


def _is_worth_reading_whole(root: DeferredValues, nbytes: int, cache: ValueCache) -> bool:
    """Return whether a small array is to be read whole, of which a part is used.

    What was derived is often gone after its use (the windows of a rolling mean, one step after the
    other), but the array that it was derived from is used again. So it is read whole once its parts
    had a quarter of its bytes: that costs at most four times of what they did.
    """
    if root.nbytes > ROOT_BYTES or not cache.can_keep(root.nbytes):
        return False
    key = cache.key_of(root)
    key.bytes_read += nbytes
    return root.nbytes <= 4 * key.bytes_read


def _root_of(array: DeferredValues) -> DeferredValues:
    """Return the array that another one was derived from in the end."""
    for _ in range(MAX_DEPTH):
        if array.parent is None:
            break
        array = array.parent[0]
    return array


def apply_steps(steps: Sequence[Step], values: Values) -> Values:
    """Return values after some steps without operands."""
    for step in steps:
        values = step.apply_with(values, _no_operand, False) if isinstance(step, Apply) else step.apply(values)
    return values


def _no_operand(operand: Any) -> Values:
    raise AssertionError("a step with operands needs an evaluation")


def _evaluate(arrays: Sequence[DeferredValues], once: bool = False) -> list[Values]:
    """Return the values of several arrays; those without operands are read in one batch."""
    large = [array.leaf is not None and _reads_much(array) for array in arrays]
    together = iter(_Evaluation([a for a, alone in zip(arrays, large, strict=True) if not alone], once).run())
    return [_evaluate_large(array) if alone else next(together) for array, alone in zip(arrays, large, strict=True)]


def _reads_much(array: DeferredValues) -> bool:
    """Return whether more is read or computed for an expression than at a time."""
    reach = find_reach(array)
    return array.nbytes > BOX_BYTES or (bool(reach) and reach.count(array.shape) * array.read_itemsize > BOX_BYTES)


def _evaluate_large(array: DeferredValues) -> Values:
    """Return the values of an expression, evaluated box by box into the result."""
    result = np.empty(array.shape, array.dtype)
    for _ in evaluate_boxes(array, BoxMemory(BOX_BYTES), lambda box, values: result.__setitem__(box, values)):
        pass
    return result


def evaluate_boxes(
    array: DeferredValues, memory: BoxMemory, finish: Callable[[Box, Values], Result], known: Values | None = None
) -> Iterator[tuple[Box, Result]]:
    """Yield the boxes of an array and what is made of their values, in order.

    Several are evaluated at a time, each on a thread.

    Parameters
    ----------
    array
        The array.
    memory
        What may be held at a time.
    finish
        Makes something of a box and its values.
    known
        The values of the array, if they were kept from an earlier use.
    """
    read = box_reader(array, memory, known)

    def evaluate(box: Box) -> Result:
        return finish(box, read(box))

    boxes = iterate_boxes(array, memory=memory)
    first = list(islice(boxes, 2))
    if len(first) <= 1:
        yield from ((box, evaluate(box)) for box in first)
        return
    width = _count_threads(array, first[0])
    with ThreadPoolExecutor(width, "insitu-expression") as pool:
        pending: deque[tuple[Box, Future[Result]]] = deque()
        carried = carry_deadline(evaluate)
        try:
            for box in chain(first, boxes):
                pending.append((box, pool.submit(carried, box)))
                if len(pending) > width:
                    yield _take_first(pending)
            while pending:
                yield _take_first(pending)
        finally:
            for _, future in pending:
                future.cancel()


def threads_at_once() -> int:
    """Return how many boxes are evaluated at a time, at most."""
    return count_cores() + 1


def _count_threads(array: DeferredValues, box: Box) -> int:
    """Return how many boxes are evaluated at a time: fewer, where windows need much memory."""
    reach = find_reach(array)
    needed = reach.count([part.stop - part.start for part in box]) * array.read_itemsize * COPIES if reach else 0
    return min(cap_threads(threads_at_once()), max(WINDOW_MEMORY // max(needed, 1), 1))


def _take_first(pending: deque[tuple[Box, Future[Result]]]) -> tuple[Box, Result]:
    box, future = pending.popleft()
    return box, future.result()


def box_reader(array: DeferredValues, memory: BoxMemory, known: Values | None = None) -> Callable[[Box], Values]:
    """Return what reads boxes of an array, one after another: chunks that lie in several are kept.

    Nothing is read of values that are known.
    """
    if known is not None:
        return known.__getitem__
    chunks = PartialChunkCache(LruCache(memory.chunks, lambda chunk: chunk.nbytes), memory.chunks)

    def read(box: Box) -> Values:
        check_deadline()
        return _Evaluation([SelectEach(array.shape, box).whole(array)], True, chunks).run()[0]

    return read


class _Evaluation:
    """Values of some arrays: each stored array is read once, each shared part is computed once."""

    def __init__(
        self, arrays: Sequence[DeferredValues], once: bool = False, chunks: PartialChunkCache | None = None
    ) -> None:
        self.arrays = arrays
        self.once = once
        self.chunks = chunks
        self.values: dict[Key, Values] = {}
        """Of arrays and operands that are known; nobody writes to them."""

    def run(self) -> list[Values]:
        """Return the values of the arrays."""
        leaves: dict[Key, DeferredValues] = {}
        for array in self.arrays:
            # Windows are taken of other arrays: what an array was before them is not read.
            for part in (part for part in each_part(array) if has_windows(part.steps) is None):
                leaf = part if part.leaf is None else part.leaf
                leaves.setdefault(_key(leaf), leaf)
        missing: dict[Key, DeferredValues] = {}
        asked = {id(array) for array in self.arrays}
        for key, leaf in leaves.items():
            kept = find_values(leaf)
            if kept is not None:
                self.values[key] = kept
            elif not self.once and id(leaf) not in asked and _is_kept_whole(leaf):
                self.values[key] = read_and_keep(leaf)
            else:
                missing[key] = leaf
        read = _read_stored(list(missing.values()), self.once, self.chunks)
        self.values.update(zip(missing, read, strict=True))
        return [self._value(array) for array in self.arrays]

    def _value(self, array: DeferredValues) -> Values:
        key = _key(array)
        if key in self.values:
            return self.values[key]
        known, values = self._find_known(array, key)
        for operand in (operand for step in array.steps[known:] for operand in operands_of(step)):
            self._value(operand)
        own = False
        for step in array.steps[known:]:
            if isinstance(step, Apply):
                after = step.apply_with(values, self._value, own and values.flags.writeable)
            else:
                after = step.apply(values)
            own = own or not np.may_share_memory(after, values)
            values = after
        self.values[key] = values
        return values

    def _find_known(self, array: DeferredValues, key: Key) -> tuple[int, Values]:
        """Return how many steps are done already, and the values after them.

        Windows are taken here: what the array was before them is not needed.
        """
        first = has_windows(array.steps)
        least = 1 if first is None else first + 2
        known = max((length for length in range(least, len(key)) if key[:length] in self.values), default=None)
        if known is not None:
            return known - 1, self.values[key[:known]]
        assert first is not None, "every stored array was read"
        step = array.steps[first]
        values = step.apply(self._value(step.operands[0]))  # type: ignore[union-attr]
        if values.shape != array.shape:  # windows stay broadcast
            values = np.broadcast_to(values, array.shape)
        self.values[key[: first + 2]] = values
        return first + 1, values


def _key(array: DeferredValues) -> Key:
    return array.identity, *map(id, array.steps)


def _is_kept_whole(leaf: DeferredValues) -> bool:
    cache = leaf.access.values
    return cache is not None and leaf.nbytes <= ROOT_BYTES and cache.can_keep(leaf.nbytes)


def _read_stored(arrays: Sequence[DeferredValues], once: bool, chunks: PartialChunkCache | None = None) -> list[Values]:
    """Return the values of arrays without operands, all read at once."""
    groups: list[tuple[Access, list[int]]] = []
    for number, array in enumerate(arrays):
        how = array.access
        for like, members in groups:
            same = how.cache is like.cache and how.sources is like.sources
            if same and how.storage_options == like.storage_options:
                members.append(number)
                break
        else:
            groups.append((how, [number]))
    values: list[Any] = [None] * len(arrays)
    for how, members in groups:
        distinct = {arrays[number].identity: arrays[number] for number in members}
        requests = [array.request for array in distinct.values()]
        names = [array.access.name or "" for array in distinct.values()]
        cache = chunks if once and isinstance(how.cache, PartialChunkCache | None) else how.cache
        if how.sources is not None and how.sources.cache is not None:
            cache = None  # that of the sources
        options, sources, tally = how.storage_options, how.sources, how.tally
        read = read_arrays(requests, names=names, storage_options=options, tally=tally, cache=cache, sources=sources)
        stored = dict(zip(distinct, read, strict=True))
        if len(distinct) < len(members):
            for shared in stored.values():
                shared.flags.writeable = False
        for number in members:
            values[number] = apply_steps(arrays[number].steps, stored[arrays[number].identity])
    return values
