"""The plan of a copy: boxes of whole target objects, in an order in which source chunks are decoded once.

A box is read at once, and cut into the objects (chunks or shards) of the target that lie in it, so no two boxes
write to one object. A source chunk that lies in several boxes is kept from one to the next, which takes memory.
Where no boxes and no order fit into the memory, the array is copied in two passes with an array between them, whose
chunks are parts of the boxes of both (the plan of rechunker). Nothing here does I/O.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from insitu.expressions.boxes import Box

__all__ = ["PREFERRED_BOX", "Passes", "SourceGrid", "Sweep", "plan_passes"]

PREFERRED_BOX = 64 << 20
"""Bytes of a box that keep all cores busy; larger ones only take memory."""
AT_ONCE = 2
"""Boxes in memory: one is encoded and written while the next one is read."""
KEPT_LAYERS = 2
"""Layers of source chunks that are kept: those that the boxes before have left, and those that are left for the next
ones. The least recently used chunk is dropped, and chunks are used layer by layer.
"""


SHARE_OF_CHUNK = 32
"""A chunk of the array between two passes should take no more than this part of the memory."""


@dataclass(frozen=True, slots=True, eq=False)
class SourceGrid:
    """Where the chunks of a source end."""

    sizes: tuple[int, ...]
    """Length of the longest chunk along each axis; 1 where any part can be read."""
    borders: tuple[npt.NDArray[np.int64], ...] | None = None
    """Along each axis where chunks begin, and the end; None: at multiples of the sizes."""

    def is_aligned(self, axis: int, length: int, whole: int) -> bool:
        """Return whether no chunk crosses the borders of boxes of a length along an axis."""
        if length >= whole or self.sizes[axis] == 1:
            return True
        if self.borders is None:
            return length % self.sizes[axis] == 0
        return bool(np.isin(np.arange(length, whole, length), self.borders[axis]).all())

    def cut_box(self, box: Box, shape: Sequence[int]) -> Iterator[Box]:
        """Yield pieces of a box that consist of whole chunks only, or of parts of chunks only."""
        cuts = []
        for axis, part in enumerate(box):
            begin, end = self._whole_chunks(axis, part, shape[axis])
            ends = sorted({part.start, begin, end, part.stop}) if begin < end else [part.start, part.stop]
            cuts.append([slice(*pair) for pair in itertools.pairwise(ends)])
        yield from itertools.product(*cuts)

    def _whole_chunks(self, axis: int, part: slice, whole: int) -> tuple[int, int]:
        """Return where the first whole chunk of a part of an axis begins, and where the last one ends."""
        if self.sizes[axis] == 1:
            return part.start, part.stop
        if self.borders is not None:
            ends = self.borders[axis]
            inside = ends[(ends >= part.start) & (ends <= part.stop)]
            return (int(inside[0]), int(inside[-1])) if len(inside) else (part.stop, part.stop)
        size = self.sizes[axis]
        return -(-part.start // size) * size, part.stop if part.stop >= whole else part.stop // size * size


@dataclass(frozen=True, slots=True)
class Sweep:
    """One pass over an array, box by box."""

    box: tuple[int, ...]
    """Lengths of a box."""
    order: tuple[int, ...]
    """The axes, the one along which boxes follow each other last at the end."""
    cache_bytes: int
    """Bytes of source chunks that are kept from box to box."""
    memory: int
    """Bytes of boxes and kept chunks together."""
    decodes_once: bool = True
    """Whether each source chunk is decoded once; else some are decoded again."""

    def boxes(self, shape: Sequence[int]) -> Iterator[Box]:
        """Yield the boxes of a shape in the order of the pass."""
        steps = [range(0, shape[axis], self.box[axis]) for axis in self.order]
        for place in itertools.product(*steps):
            begin = dict(zip(self.order, place, strict=True))
            yield tuple(slice(begin[a], min(begin[a] + self.box[a], shape[a])) for a in range(len(shape)))

    def count(self, shape: Sequence[int]) -> int:
        """Return the number of boxes."""
        return math.prod(-(-length // size) for length, size in zip(shape, self.box, strict=True))


@dataclass(frozen=True, slots=True)
class Passes:
    """How an array is copied: in one pass, or in two with an array between them."""

    last: Sweep
    """The pass that writes the target."""
    first: Sweep | None = None
    """The pass before it, which writes the array between; None: there is none."""
    between: tuple[int, ...] = ()
    """Chunks of the array between the passes."""

    @property
    def memory(self) -> int:
        """Bytes that the passes hold at most."""
        return max(self.last.memory, 0 if self.first is None else self.first.memory)

    @property
    def count(self) -> int:
        """Number of passes."""
        return 1 if self.first is None else 2


def plan_passes(
    shape: Sequence[int], itemsize: int, source: SourceGrid, target: Sequence[int], room: int, source_itemsize: int = 0
) -> Passes:
    """Return how an array is copied.

    Parameters
    ----------
    shape, itemsize
        Of the array.
    source
        Its chunks.
    target
        Lengths of an object of the target, along each axis.
    room
        Bytes that may be held; one object of the target is held in any case.
    source_itemsize
        Bytes of an element of a decoded source chunk, if another.

    Examples
    --------
    >>> maps = SourceGrid((1, 180, 360))
    >>> plan_passes((1000, 180, 360), 4, maps, (1000, 20, 20), 1 << 30).count
    1
    >>> passes = plan_passes((1000, 180, 360), 4, maps, (1000, 20, 20), 64 << 20)
    >>> passes.count, passes.first.box[1:], passes.between[1:], passes.last.box[0]
    (2, (180, 360), (20, 20), 1000)
    """
    shape = tuple(max(length, 1) for length in shape)  # of an empty array no box is copied
    sizes = tuple(max(min(size, n), 1) for size, n in zip(target, shape, strict=True))
    kept_itemsize = source_itemsize or itemsize
    one = _plan_sweep(shape, itemsize, source, sizes, room, kept_itemsize)
    if one is not None:
        return Passes(one)
    two = _plan_two(shape, itemsize, source, sizes, room, kept_itemsize)
    return two or Passes(_cut_sweep(shape, itemsize, sizes, room))


def _plan_sweep(
    shape: tuple[int, ...], itemsize: int, source: SourceGrid, sizes: tuple[int, ...], room: int, kept_itemsize: int
) -> Sweep | None:
    """Return the pass that decodes each chunk once and holds least; None: none fits into the room."""
    axes = range(len(shape))
    choices = [_lengths_of_box(shape[axis], source.sizes[axis], sizes[axis]) for axis in axes]
    best: Sweep | None = None
    for box in itertools.product(*choices):
        if math.prod(box) * itemsize > room:
            continue
        for order in _orders(shape, box, source):
            found = _measure(shape, itemsize, source, box, order, kept_itemsize)
            if found.memory <= room and (best is None or _rank(found) < _rank(best)):
                best = found
    if best is None:
        return None
    return _lengthen(best, shape, itemsize, source, sizes, room, kept_itemsize)


def _rank(sweep: Sweep) -> tuple[int, int]:
    return sweep.memory, math.prod(sweep.box)


def _lengths_of_box(whole: int, source: int, target: int) -> list[int]:
    """Return lengths to try along an axis: an object, what whole objects and source chunks have in common, all."""
    common = math.lcm(max(source, 1), target)
    return sorted({target, *([common] if common < whole else []), -(-whole // target) * target})


def _orders(shape: tuple[int, ...], box: tuple[int, ...], source: SourceGrid) -> Iterator[tuple[int, ...]]:
    """Yield orders of the axes: those along which chunks cross the borders of boxes go last, in any order."""
    crossed = [axis for axis in range(len(shape)) if not source.is_aligned(axis, box[axis], shape[axis])]
    others = tuple(axis for axis in range(len(shape)) if axis not in crossed)
    if len(crossed) > 4:
        crossed.sort(key=lambda axis: -shape[axis])
        yield (*others, *crossed)
        return
    for last in itertools.permutations(crossed):
        yield (*others, *last)


def _measure(
    shape: tuple[int, ...],
    itemsize: int,
    source: SourceGrid,
    box: tuple[int, ...],
    order: tuple[int, ...],
    kept_itemsize: int,
) -> Sweep:
    """Return a pass with the memory that it takes."""
    lengths = [min(size, whole) for size, whole in zip(box, shape, strict=True)]
    cache_bytes = 0
    for place, axis in enumerate(order):
        if source.is_aligned(axis, box[axis], shape[axis]):
            continue
        # A layer of chunks as thick as one: whole along the axes that are gone through before the next step along
        # this one, as long as a box, and the chunks that stick out of it, along the others.
        layer = source.sizes[axis]
        for other in order[:place]:
            sticks_out = 0 if source.is_aligned(other, box[other], shape[other]) else 2 * source.sizes[other]
            layer *= min(lengths[other] + sticks_out, shape[other])
        for other in order[place + 1 :]:
            layer *= shape[other]
        cache_bytes += KEPT_LAYERS * layer * kept_itemsize
    values = math.prod(lengths) * itemsize
    at_once = 1 if list(lengths) == list(shape) else AT_ONCE + bool(cache_bytes)  # a piece of a box is read at a time
    return Sweep(box, order, cache_bytes, at_once * values + cache_bytes)


def _lengthen(
    sweep: Sweep,
    shape: tuple[int, ...],
    itemsize: int,
    source: SourceGrid,
    sizes: tuple[int, ...],
    room: int,
    kept_itemsize: int,
) -> Sweep:
    """Return the pass with longer boxes, as far as that keeps the cores busy and fits."""
    for axis in reversed(sweep.order):
        for factor in (16, 8, 4, 3, 2):
            while sweep.box[axis] < shape[axis]:
                step = sweep.box[axis] * factor
                longer = tuple(
                    min(step, -(-shape[a] // sizes[a]) * sizes[a]) if a == axis else size
                    for a, size in enumerate(sweep.box)
                )
                if math.prod(map(min, longer, shape)) * itemsize > PREFERRED_BOX:
                    break
                found = _measure(shape, itemsize, source, longer, sweep.order, kept_itemsize)
                was_aligned = [source.is_aligned(a, sweep.box[a], shape[a]) for a in range(len(shape))]
                is_aligned = [source.is_aligned(a, longer[a], shape[a]) for a in range(len(shape))]
                if found.memory > room or any(before and not now for before, now in zip(was_aligned, is_aligned)):
                    break
                sweep = found
    return sweep


def _plan_two(
    shape: tuple[int, ...], itemsize: int, source: SourceGrid, sizes: tuple[int, ...], room: int, kept_itemsize: int
) -> Passes | None:
    """Return two passes with an array between them; None if not even a source chunk fits into the room."""
    half = room // AT_ONCE
    begin = tuple(min(size, whole) for size, whole in zip(source.sizes, shape, strict=True))
    if math.prod(begin) * max(itemsize, kept_itemsize) > half or math.prod(sizes) * itemsize > half:
        return None
    # What is long in the target grows in the first pass, and what is long in the source in the second one.
    by_target = sorted(range(len(shape)), key=lambda axis: -(sizes[axis] / begin[axis]))
    written = _grow(begin, shape, by_target, half // itemsize)
    read = _grow(sizes, shape, by_target[::-1], half // itemsize)
    between = []
    for axis, whole in enumerate(shape):
        one, other = written[axis], read[axis]
        # Boxes of both passes consist of whole chunks of the array between.
        between.append(min(other, whole) if one >= whole else one if other >= whole else math.gcd(one, other))
    for axis in by_target:  # small enough for several to be encoded at a time
        is_long = math.prod(between) * itemsize > room // SHARE_OF_CHUNK
        if is_long and between[axis] == read[axis] and written[axis] >= shape[axis]:
            between[axis] = min(sizes[axis], shape[axis])
    middle = tuple(between)
    first = _measure(shape, itemsize, source, written, _best_order(shape, written, source), kept_itemsize)
    if first.memory > room:
        first = _cut_sweep(shape, itemsize, middle, room)
    grid = SourceGrid(middle)
    last = _plan_sweep(shape, itemsize, grid, sizes, room, itemsize)
    return None if last is None else Passes(last, first, middle)


def _best_order(shape: tuple[int, ...], box: tuple[int, ...], source: SourceGrid) -> tuple[int, ...]:
    return min(_orders(shape, box, source), key=lambda order: _measure(shape, 1, source, box, order, 1).cache_bytes)


def _grow(lengths: Sequence[int], shape: Sequence[int], axes: Sequence[int], room: int) -> tuple[int, ...]:
    """Return lengths extended to multiples, along some axes one after another, to at most `room` elements."""
    longer = list(lengths)
    for axis in axes:
        factor = room // max(math.prod(map(min, longer, shape)), 1)
        if factor > 1:
            whole = -(-shape[axis] // longer[axis]) * longer[axis]
            longer[axis] = min(longer[axis] * factor, whole)
    return tuple(longer)


def _cut_sweep(shape: tuple[int, ...], itemsize: int, sizes: tuple[int, ...], room: int) -> Sweep:
    """Return a pass over boxes that fit, which decodes chunks again."""
    box = _grow(sizes, shape, range(len(shape))[::-1], room // AT_ONCE // itemsize)
    values = math.prod(map(min, box, shape)) * itemsize
    return Sweep(box, tuple(range(len(shape))), 0, AT_ONCE * values, False)
