"""Axis: how an axis is cut into cells, and which part of its chunk each cell shows.

A cell shows `extent` of the `stored` elements that its chunk decodes to along this axis, from
`skip`, every `step`-th. Regular cuts (what one file holds) are three numbers; anything else (joined
files, slices, takes) is four columns. Selecting makes new cells, so it costs no I/O and any
selection is possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from insitu.errors import ModelError
from insitu.model.selection import Selector, Stride, selector_bounds

__all__ = ["Axis", "CellColumns", "Indices"]

Indices = npt.NDArray[np.int64]


class CellColumns(NamedTuple):
    """What some cells of an axis show of their chunks: columns of equal length."""

    extent: Indices
    """Number of elements shown."""
    skip: Indices
    """Position in the chunk of the first element shown."""
    step: Indices
    """Distance in the chunk from one shown element to the next; 0: one element, repeated."""
    stored: Indices
    """Number of elements of the chunk; 0: the chunk has no such axis."""


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One axis of a tile. Make it with `regular`, `irregular`, `repeated` or `join`."""

    length: int
    """Elements along the axis."""
    size: int = 0
    """Regular cuts: elements of a full cell; 0 if irregular."""
    padded: bool = True
    """Regular cuts: whether the last chunk is stored in full size (HDF5, Zarr) or clipped (TIFF
    strips).
    """
    cells: CellColumns | None = None
    """Irregular cuts: the columns, each of one element or of one for each cell."""
    starts: Indices | None = None
    """Irregular cuts: where each cell begins, and the end."""

    @classmethod
    def regular(cls, length: int, size: int, padded: bool = True) -> Axis:
        """Return an axis of cells of `size` elements; the last may show fewer."""
        if length < 0 or size < 1:
            raise ModelError(f"an axis of length {length} cannot be cut into cells of {size}")
        return cls(length, size, padded or length % size == 0)

    @classmethod
    def irregular(
        cls, extent: npt.ArrayLike, skip: npt.ArrayLike = 0, step: npt.ArrayLike = 1, stored: npt.ArrayLike = 1
    ) -> Axis:
        """Return an axis of cells given by columns; a regular axis if the columns describe one."""
        extent = np.atleast_1d(np.asarray(extent, np.int64))
        columns = CellColumns(
            extent,
            *(_collapse_constant(np.atleast_1d(np.asarray(c, np.int64)), len(extent)) for c in (skip, step, stored)),
        )
        starts = np.zeros(len(extent) + 1, np.int64)
        np.cumsum(extent, out=starts[1:])
        axis = cls(int(starts[-1]), cells=columns, starts=starts)
        return axis._to_regular() or axis

    @classmethod
    def broadcast(cls, length: int) -> Axis:
        """Return an axis that the chunks do not have: their value repeats (broadcast, stack)."""
        return cls.irregular([length], 0, 0, 0)

    @property
    def count(self) -> int:
        """Number of cells."""
        if self.starts is not None:
            return len(self.starts) - 1
        return -(-self.length // self.size)

    @property
    def longest_chunk(self) -> int:
        """Number of elements of the longest chunk along the axis, at least 1."""
        return self.size if self.cells is None else max(int(self.cells.stored.max(initial=1)), 1)

    @property
    def is_regular(self) -> bool:
        """Whether all cells but the last have the same extent, so that three numbers describe the
        axis.
        """
        return self.cells is None

    @property
    def is_contiguous(self) -> bool:
        """Whether each cell shows elements that lie one after the other in its chunk."""
        return self.cells is None or bool((self.cells.step == 1).all() and self.cells.stored.all())

    def show(self, cells: Indices) -> CellColumns:
        """Return what these cells show of their chunks."""
        if self.cells is None:
            extent = np.minimum(self.length - cells * self.size, self.size)
            shape = extent.shape
            stored = np.full(shape, self.size, np.int64) if self.padded else extent
            return CellColumns(extent, np.zeros(shape, np.int64), np.ones(shape, np.int64), stored)
        columns = self.cells
        return CellColumns(
            columns.extent[cells],
            *(c[cells] if len(c) > 1 else np.broadcast_to(c, cells.shape) for c in columns[1:]),
        )

    def stored_lengths(self, cells: Indices) -> Indices:
        """Return how many elements the chunks of these cells have along this axis."""
        if self.cells is None:
            return np.full(cells.shape, self.size, np.int64) if self.padded else self.show(cells).stored
        column = self.cells.stored
        return column[cells] if len(column) > 1 else np.full(cells.shape, column[0])

    def begin(self, cells: Indices) -> Indices:
        """Return the position of the first element of these cells."""
        return cells * self.size if self.starts is None else self.starts[cells]

    def find(self, positions: Indices) -> Indices:
        """Return the cell that contains each position."""
        if self.starts is None:
            return positions // self.size
        # side="right" so that an empty cell, which begins where the next one does, is never found.
        return np.searchsorted(self.starts, positions, side="right") - 1

    def slice(self, stride: Stride) -> tuple[Axis, Indices | slice]:
        """Return the axis of a slice, and for each of its cells the cell of this axis that it came
        from.
        """
        start, step, count = stride
        if step == 1 and start == 0 and count == self.length:
            return self, slice(None)
        if count == 0:
            return Axis.irregular(np.zeros(0, np.int64)), slice(0, 0)
        if step == 1 and self.cells is None and start % self.size == 0:
            last = -(-(start + count) // self.size)
            if self.padded or (start + count) % self.size == 0 or start + count == self.length:
                return Axis.regular(count, self.size, self.padded), slice(start // self.size, last)
        cut = self.cut(stride)
        axis = Axis.irregular(cut.extent, cut.skip, cut.step, self.show(cut.cell).stored)
        cells = cut.cell
        if len(cells) and cells[-1] - cells[0] == len(cells) - 1:  # ascending without a hole: a view will do
            return axis, slice(int(cells[0]), int(cells[-1]) + 1)
        return axis, cells

    def cut(self, stride: Stride) -> AxisCut:
        """Return the cells that a slice touches, and what it takes of each chunk."""
        low, pace, count = stride.ascending
        first, last = self.find(np.array([low, low + (count - 1) * pace]))
        cells: Indices = np.arange(int(first), int(last) + 1)
        cut = cut_cells(cells, self.begin(cells), self.show(cells), stride)
        if pace > 1 or self.starts is not None:  # a wide step passes over cells; empty cells show nothing
            taken = cut.extent > 0
            cut = cut if taken.all() else cut.take(taken)
        return cut if stride.step > 0 else cut.take(np.s_[::-1])

    def take(self, indices: npt.ArrayLike) -> tuple[Axis, Indices]:
        """Return the axis of the elements at `indices` (-1: Absent), and the cell that each of its
        cells came from (-1: none).
        """
        index = np.asarray(indices, np.int64)
        if index.ndim != 1 or (len(index) and (index.min() < -1 or index.max() >= self.length)):
            raise ModelError(f"indices must be a 1-D array of numbers from -1 to {self.length - 1}")
        if not len(index):
            return Axis.irregular(np.zeros(0, np.int64)), np.zeros(0, np.int64)
        present = index >= 0
        cell = np.where(present, self.find(np.where(present, index, 0)), -1) if self.length else np.full(len(index), -1)
        firsts = _run_starts(index, cell)
        extent = np.diff(np.append(firsts, len(index)))
        source = cell[firsts]
        absent = source < 0
        if absent.all():
            return Axis.irregular(extent, 0, 0, 0), source
        safe = np.where(absent, source[~absent][0], source)
        shown = self.show(safe)
        second = np.minimum(firsts + 1, len(index) - 1)
        pace = np.where(extent > 1, index[second] - index[firsts], 1)
        skip = shown.skip + shown.step * (index[firsts] - self.begin(safe))
        # An Absent cell keeps the stored extent of its neighbours: only tiles of equal chunks
        # are fused.
        skip, step = np.where(absent, 0, skip), np.where(absent, 0, shown.step * pace)
        return Axis.irregular(extent, skip, step, shown.stored), source

    def repeat(self, length: int) -> Axis:
        """Return this axis of one element, shown `length` times."""
        if self.length != 1:
            raise ModelError(f"only an axis of length 1 can be broadcast, not one of {self.length}")
        shown = self.show(self.find(np.zeros(1, np.int64)))
        return Axis.irregular([length], shown.skip, 0, shown.stored)

    @staticmethod
    def join(axes: Sequence[Axis]) -> Axis:
        """Concatenate axes, in one pass."""
        axes = [axis for axis in axes if axis.length] or list(axes[:1])
        first = axes[0]
        if len(axes) == 1:
            return first
        if (
            first.is_regular
            and first.size
            and all(axis.is_regular and axis.size == first.size and axis.length % axis.size == 0 for axis in axes[:-1])
        ):
            last = axes[-1]
            if last.is_regular and last.size == first.size:
                return Axis.regular(sum(axis.length for axis in axes), first.size, last.padded)
        if all(axis.is_regular for axis in axes):
            return _join_regular(axes)
        shown = [axis.show(np.arange(axis.count)) for axis in axes]
        return Axis.irregular(*(np.concatenate(column) for column in zip(*shown, strict=True)))

    def has_same_cuts(self, other: Axis) -> bool:
        """Return whether the cells of both axes show the same parts of equally long chunks."""
        if self is other:
            return True
        if self.length != other.length or self.count != other.count:
            return False
        if self.cells is None and other.cells is None:
            # One cell of a padded and of a clipped axis differ only in what is stored.
            return (self.size, self.padded) == (other.size, other.padded)
        every = np.arange(self.count)
        return all(np.array_equal(a, b) for a, b in zip(self.show(every), other.show(every), strict=True))

    def __eq__(self, other: object) -> bool:
        return self.has_same_cuts(other) if isinstance(other, Axis) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.length, self.count))

    def _to_regular(self) -> Axis | None:
        """Return the regular axis with the same cells; None if there is none."""
        assert self.cells is not None
        extent, skip, step, stored = self.cells
        if not len(extent) or skip.any() or (step != 1).any() or len(stored) > 1 or not extent[0]:
            return None
        size = int(stored[0])
        if (len(extent) > 1 and (extent[:-1] != size).any()) or not 0 < extent[-1] <= size:
            return None
        return Axis.regular(self.length, size)


def _join_regular(axes: Sequence[Axis]) -> Axis:
    """Concatenate regular axes; the cells of all of them are computed at once."""
    length = np.array([axis.length for axis in axes], np.int64)
    size = np.array([axis.size for axis in axes], np.int64)
    count = -(-length // size)
    full = np.repeat(size, count)
    extent = full.copy()
    extent[np.cumsum(count) - 1] = length - (count - 1) * size
    padded = np.repeat(np.array([axis.padded for axis in axes]), count)
    return Axis.irregular(extent, 0, 1, np.where(padded, full, extent))


class AxisCut(NamedTuple):
    """What a slice takes of the chunks along one axis: a row for each cell."""

    cell: Indices
    extent: Indices
    """Number of elements taken; 0 or less: the slice passes over the cell."""
    skip: Indices
    step: Indices
    out: Indices
    """Position in the slice of the first of these elements; the others follow it."""

    def take(self, rows: Any) -> AxisCut:
        """Return some of the rows."""
        return AxisCut(*(column[rows] for column in self))


def steps_within(begin: Indices, extent: Indices, stride: Stride) -> tuple[Indices, Indices]:
    """Return for each range of positions the first step of a slice that falls into it, counted upwards
    from its lowest position, and how many do (0 or less: none).
    """
    low, pace, count = stride.ascending
    first: Indices = np.maximum(-(-(begin - low) // pace), 0)
    return first, np.minimum(-(-(begin + extent - low) // pace), count) - first


def cut_cells(cell: Indices, begin: Indices, shown: CellColumns, stride: Stride) -> AxisCut:
    """Return what a slice takes of the chunks of some cells: the one place where a slice is cut in columns.

    Parameters
    ----------
    cell
        Numbers of the cells.
    begin
        Where each cell begins, counted as the slice counts. They need not follow each other: the cells
        may be those of several tiles.
    shown
        What the cells show of their chunks.
    stride
        The slice.
    """
    low, pace, count = stride.ascending
    first, extent = steps_within(begin, shown.extent, stride)
    skip = shown.skip + shown.step * (low + first * pace - begin)
    step = shown.step * pace
    if stride.step > 0:
        return AxisCut(cell, extent, skip, step, first)
    return AxisCut(cell, extent, skip + step * (extent - 1), -step, count - (first + extent))


class CellCut(NamedTuple):
    """What a run of positions takes of one cell, in plain numbers."""

    cell: int
    stored: int
    """Number of elements of the chunk."""
    inside: slice
    outside: slice


def cut_numbers(axis: Axis, start: int, stop: int) -> list[CellCut]:
    """Return what the positions from `start` to `stop` take of each cell of a regular axis.

    `cut_cells` in plain numbers: a cell takes 1 to 2 µs, columns 25 µs however few there are.
    """
    size, cuts = axis.size, []
    for cell in range(start // size, (stop - 1) // size + 1):
        begin = cell * size
        low, high = max(start, begin), min(stop, begin + size)
        stored = size if axis.padded else min(size, axis.length - begin)
        cuts.append(CellCut(cell, stored, slice(low - begin, high - begin), slice(low - start, high - start)))
    return cuts


def clip_stride(stride: Stride, near: int, length: int) -> tuple[Stride, int]:
    """Return the part of a slice within [near, near + length), relative to `near`, and its first
    position in the result.

    `steps_within` in plain numbers, which may be larger than 64 bits.
    """
    low, pace, count = stride.ascending
    first = max(-(-(near - low) // pace), 0)
    end = min(-(-(near + length - low) // pace), count)
    if end <= first:
        return Stride(0, 1, 0), 0
    at = first if stride.step > 0 else count - end
    return Stride(stride.start + stride.step * at - near, stride.step, end - first), at


class AxisSpan(NamedTuple):
    """How much a selector takes of an axis."""

    cells: int
    """Number of touched cells, at most."""
    wanted: int
    """Number of wanted elements, in all touched cells."""
    distinct: int
    """The same, repeated elements counted once."""
    picked: int
    """Largest number of wanted elements of one cell; an index array may repeat elements."""
    extent: int
    """Number of elements of a chunk from the first wanted one to the last, at most."""
    stored: int
    """Number of elements of a chunk."""


def span_of(axis: Axis, selector: Selector, origin: int) -> AxisSpan:
    """Return how much a selector takes of an axis that begins at `origin` of the array's dimension.

    Nothing is made for a cell or an element of a slice: there may be 2^60 of them.
    """
    stored = axis.longest_chunk
    if isinstance(selector, int):
        many = int(origin <= selector < origin + axis.length)
        return AxisSpan(many, many, many, many, many, stored)
    if not isinstance(selector, Stride):
        inside = selector[(selector >= origin) & (selector < origin + axis.length)] - origin
        if not len(inside):
            return AxisSpan(0, 0, 0, 0, 0, stored)
        distinct = np.unique(inside)
        found, counts = np.unique(axis.find(inside if len(inside) > stored else distinct), return_counts=True)
        picked = int(counts.max()) if len(inside) > stored else len(inside)
        extent = min(stored, int(distinct[-1] - distinct[0]) + 1)
        return AxisSpan(len(found), len(inside), len(distinct), picked, extent, stored)
    clipped, _ = clip_stride(selector, origin, axis.length)
    wanted = clipped.length
    if not wanted:
        return AxisSpan(0, 0, 0, 0, 0, stored)
    low, high = selector_bounds(clipped)
    if axis.is_regular:  # three times as fast as with arrays
        cells = high // axis.size - low // axis.size + 1
    else:
        cells = int(np.diff(axis.find(np.array([low, high])))[0]) + 1
    return AxisSpan(min(cells, wanted), wanted, wanted, min(stored, wanted), min(stored, high - low + 1), stored)


def _collapse_constant(column: Indices, count: int) -> Indices:
    """Return the column with one element instead of many equal ones."""
    if len(column) not in (1, count):
        raise ModelError(f"a column of {len(column)} rows does not describe {count} cells")
    return column[:1].copy() if len(column) > 1 and (column == column[0]).all() else column


def _run_starts(index: Indices, cell: Indices) -> Indices:
    """Return the starts of the runs of `index` that are evenly spaced within one cell.

    A run may begin at any element, and its second element sets the spacing. So an uneven step
    begins a run only if the element before it did not: `begins[i] = jump[i] or (uneven[i] and not
    begins[i - 1])`. Within a stretch of uneven elements that alternates.
    """
    count = len(index)
    jump = np.ones(count, bool)
    jump[1:] = cell[1:] != cell[:-1]
    distance = np.diff(index, prepend=index[:1])
    uneven = np.zeros(count, bool)
    uneven[2:] = (distance[2:] != distance[1:-1]) & (cell[2:] >= 0)
    soft = uneven & ~jump
    where = np.arange(count)
    stretch_begin = np.maximum.accumulate(np.where(soft, -1, where)) + 1  # the first of this stretch of soft elements
    before_begins = jump[np.maximum(stretch_begin - 1, 0)]
    begins = jump | (soft & ((where - stretch_begin + before_begins) % 2 == 0))
    return np.flatnonzero(begins)
