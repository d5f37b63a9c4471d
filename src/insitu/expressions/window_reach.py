"""How much is read for a box of an array with windows, and boxes for which that is bounded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from insitu.expressions.nodes import Expression, WindowsOf, iterate_nodes
from insitu.expressions.windows import KEPT

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
    most: tuple[int, ...]
    """Along each dimension: all elements that there are to be read."""
    hidden: int = 1
    """Elements that are read for each of a box along dimensions that it does not have any more."""

    def __bool__(self) -> bool:
        return any(self.overlaps) or self.hidden > 1 or any(distance > 1 for distance in self.distances)

    def count(self, size: Sequence[int]) -> int:
        """Return how many elements are read, or computed of them, for a box of a size."""
        return max(self.hidden * math.prod(self._lengths(size)), math.prod(size))

    def _lengths(self, size: Sequence[int]) -> list[int]:
        lengths = zip(size, self.distances, self.overlaps, self.most, strict=True)
        return [min(n * own + more, most) for n, own, more, most in lengths]

    def shorten(self, size: Sequence[int], axis: int, room: int, least: int) -> list[int]:
        """Return a size that is shorter along one dimension, if more is read than there is room for."""
        count = self.count(size)
        if count <= room:
            return list(size)
        lengths = self._lengths(size)
        read = max(self.hidden * math.prod(lengths), 1)
        fitting = min(
            (room * lengths[axis] // read - self.overlaps[axis]) // self.distances[axis] if read > room else size[axis],
            room * size[axis] // max(math.prod(size), 1),
        )
        shorter = min(max(fitting, least, 1), size[axis])
        cut = [shorter if number == axis else n for number, n in enumerate(size)]
        return cut if self.count(cut) < count else list(size)


def find_reach(expression: Expression) -> WindowReach:
    """Return what is read for boxes of an expression because of windows, its own and those of its operands."""
    found: dict[int, WindowReach] = {}
    for node in iterate_nodes([expression]):
        reach = WindowReach((1,) * node.ndim, (0,) * node.ndim, node.shape)
        if isinstance(node, WindowsOf):
            reach = _reach_of(node, found[id(node.of)])
        else:
            for operand in node.operands:
                reach = _larger(reach, found[id(operand)])
        found[id(node)] = reach
    return found[id(expression)]


def _larger(one: WindowReach, other: WindowReach) -> WindowReach:
    return WindowReach(
        tuple(map(max, one.distances, other.distances)),
        tuple(map(max, one.overlaps, other.overlaps)),
        tuple(map(max, one.most, other.most)),
        max(one.hidden, other.hidden),
    )


def _reach_of(windows: WindowsOf, inside: WindowReach) -> WindowReach:
    distances, overlaps, most = [], [], []
    for kind, axis in windows.layout:
        if kind != KEPT:
            distances.append(1)
            overlaps.append(0)
            most.append(1)  # elements of windows are those of the array
            continue
        own, more = inside.distances[axis], inside.overlaps[axis]
        if axis in windows.along:
            window = windows.along[axis]
            distance = int(abs(np.diff(window.starts)).max(initial=1))
            own, more = distance * own, max(window.overlap + 1 - distance, 0) * own + more
        distances.append(own)
        overlaps.append(more)
        most.append(max(inside.most[axis], windows.of.shape[axis]))
    kept_axes = {axis for kind, axis in windows.layout if kind == KEPT}
    hidden = math.prod(window.overlap + 1 for axis, window in windows.along.items() if axis not in kept_axes)
    return WindowReach(tuple(distances), tuple(overlaps), tuple(most), hidden * inside.hidden)


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
    overlaps = [-(-more // own) for more, own in zip(reach.overlaps, reach.distances, strict=True)]
    size = [min(max(n, 4 * more), length) for n, more, length in zip(size, overlaps, shape, strict=True)]
    along = [axis for axis, more in enumerate(overlaps) if more]
    others = [axis for axis, more in enumerate(overlaps) if not more]
    others.sort(key=lambda axis: reach.most[axis] == 1)  # what is cut there reads the same again
    limits = [
        *((axis, room, chunks[axis]) for axis in others),
        *((axis, room, 4 * overlaps[axis]) for axis in along),
        *((axis, most, overlaps[axis]) for axis in along),
        *((axis, most, 1) for axis in (*others, *along)),
    ]
    for axis, limit, least in limits:
        size = reach.shorten(size, axis, limit, least)
    return size
