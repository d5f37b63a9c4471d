"""How much is read for a box of an array with windows, and boxes for which that is bounded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from insitu.lazy_array.deferred_values import DeferredValues
from insitu.lazy_array.windows import TakeWindows, Windows, has_windows, operands_of

__all__ = ["COPIES", "MOST_BYTES", "WindowReach", "find_reach", "fit_windows"]

MOST_BYTES = 64 << 20
"""Bytes that are read for a box before chunks are cut, which are then decoded for several boxes."""
COPIES = 10
"""What computing needs of memory beside, in times of what is read: a rolling mean takes sums and counts,
of several lengths and in wider types.
"""


@dataclass(frozen=True, slots=True)
class WindowReach:
    """What is read for a box, beyond its own elements."""

    distances: tuple[int, ...]
    """Along each dimension: elements that are read for each of a box."""
    overlaps: tuple[int, ...]
    """Along each dimension: elements that are read more, once."""
    hidden: int = 1
    """Elements that are read for each of a box along dimensions that it does not have any more."""

    def __bool__(self) -> bool:
        return any(self.overlaps) or self.hidden > 1 or any(distance > 1 for distance in self.distances)

    def count(self, size: Sequence[int]) -> int:
        """Return how many elements are read for a box of a size."""
        return self.hidden * math.prod(self._lengths(size))

    def _lengths(self, size: Sequence[int]) -> list[int]:
        return [n * own + more for n, own, more in zip(size, self.distances, self.overlaps, strict=True)]

    def shorten(self, size: Sequence[int], axis: int, room: int, least: int) -> list[int]:
        """Return a size that is shorter along one dimension, if more is read than there is room for."""
        lengths = self._lengths(size)
        count = self.hidden * math.prod(lengths)
        if count <= room:
            return list(size)
        fitting = (room * lengths[axis] // count - self.overlaps[axis]) // self.distances[axis]
        shorter = min(max(fitting, least, 1), size[axis])
        return [shorter if number == axis else n for number, n in enumerate(size)]


def find_reach(array: DeferredValues) -> WindowReach:
    """Return what is read for boxes of an array because of windows, its own and those of its operands."""
    reach = WindowReach((1,) * array.ndim, (0,) * array.ndim)
    for step in array.steps[has_windows(array.steps) or 0 :]:
        if isinstance(step, TakeWindows):
            reach = _reach_of(step.windows)
        else:
            for operand in operands_of(step):
                reach = _larger(reach, find_reach(operand))
    return reach


def _larger(one: WindowReach, other: WindowReach) -> WindowReach:
    return WindowReach(
        tuple(map(max, one.distances, other.distances)),
        tuple(map(max, one.overlaps, other.overlaps)),
        max(one.hidden, other.hidden),
    )


def _reach_of(windows: Windows) -> WindowReach:
    inside = find_reach(windows.inner)
    distances, overlaps = [], []
    for kind, axis in windows.layout:
        if kind != "kept":
            distances.append(1)
            overlaps.append(0)
            continue
        own, more = inside.distances[axis], inside.overlaps[axis]
        if axis in windows.along:
            window = windows.along[axis]
            distance = int(abs(np.diff(window.starts)).max(initial=1))
            own, more = distance * own, max(window.overlap + 1 - distance, 0) * own + more
        distances.append(own)
        overlaps.append(more)
    kept = {axis for kind, axis in windows.layout if kind == "kept"}
    hidden = math.prod(window.overlap + 1 for axis, window in windows.along.items() if axis not in kept)
    return WindowReach(tuple(distances), tuple(overlaps), hidden * inside.hidden)


def fit_windows(
    size: Sequence[int], reach: WindowReach, shape: Sequence[int], chunks: Sequence[int], room: int, most: int
) -> list[int]:
    """Return the lengths of a box for which a bounded number of elements is read.

    Along windows that overlap a box is longer than what they do, so that little is read twice.
    Other dimensions are cut to chunks first; within chunks only where too much would be read.

    Parameters
    ----------
    size
        Lengths of a box without windows.
    reach
        What is read for it.
    shape
        Of the array.
    chunks
        Lengths of its chunks; 1 where they can be read in parts.
    room, most
        Elements that should be read, and that may be read if chunks are not cut for that.
    """
    overlaps = reach.overlaps
    size = [min(max(n, 4 * more), length) for n, more, length in zip(size, overlaps, shape, strict=True)]
    along = [axis for axis, more in enumerate(overlaps) if more]
    others = [axis for axis, more in enumerate(overlaps) if not more]
    limits = [
        *((axis, room, chunks[axis]) for axis in others),
        *((axis, room, 4 * overlaps[axis]) for axis in along),
        *((axis, most, overlaps[axis]) for axis in along),
        *((axis, most, 1) for axis in (*others, *along)),
    ]
    for axis, limit, least in limits:
        size = reach.shorten(size, axis, limit, least)
    return size
