"""Selection of cells: what a selection takes of each tile, and where that goes in the output.

Pure: every axis of a tile is computed on its own, in columns; a cell is a combination of the axes'
rows. The chunk table is not used here, since that may need I/O.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.model import Axis, Selection, Stride, Tile, VirtualArray
from insitu.model.array import clip_stride
from insitu.model.axis import AxisCut, Indices
from insitu.model.tile import SPLIT_BYTES
from insitu.reading.similar_tiles import MIN_GROUP_SIZE, TileGroup, fuse_tile_group, group_similar_tiles

__all__ = ["AxisSelection", "Picker", "TileSelection", "count_places", "select_cells", "select_on_axis"]

Picker = slice | npt.NDArray[np.int64]
"""What to take along one axis: a slice or an index array."""


def count_places(outside: Picker) -> int:
    """Return the number of places of the output that a picker selects."""
    return len(outside) if isinstance(outside, np.ndarray) else int(outside.stop - outside.start)


@dataclass(frozen=True, slots=True, eq=False)
class AxisSelection:
    """What a selection takes along one axis of a tile: a row for each touched cell."""

    cell: Indices
    """Cell of the tile's grid."""
    inside: tuple[Picker, ...]
    """Elements of the decoded chunk; a slice of one element is repeated to fill `outside`."""
    outside: tuple[Picker, ...]
    """Place in the output."""
    stored: Indices
    """Number of elements of the chunk (or of the part of it that is fetched), at least 1."""
    exists: bool
    """Whether the chunk has this axis."""
    whole: npt.NDArray[np.bool_]
    """Whether all elements of the chunk are wanted, in order."""
    wanted: Indices
    """Number of the chunk's elements that are wanted."""
    first: Indices
    """First element of the fetched part in the stored chunk.

    0 unless it is cut out of an uncompressed chunk.
    """


@dataclass(frozen=True, slots=True, eq=False)
class TileSelection:
    """What a selection takes of one tile."""

    tile: Tile
    parts: tuple[AxisSelection, ...]
    """One for each axis of the tile."""
    place: tuple[int | None, ...]
    """For each axis of the tile, its array dimension; None: no dimension."""

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of rows along each axis."""
        return tuple(len(part.cell) for part in self.parts)

    def window(self, out: npt.NDArray[Any], selection: Selection) -> npt.NDArray[Any]:
        """Return a view of the output with one axis for each axis of the tile: `window[outside] =
        chunk[inside]`.
        """
        # First one axis for each dimension of the array (integers give back an axis of 1) …
        index = tuple(None if isinstance(s, int) else slice(None) for s in selection.selectors)
        full = out[index] if index else out
        # … then the order of the tile's axes, and an axis of 1 for each that no dimension names.
        order = [dimension for dimension in self.place if dimension is not None]
        turned = full.transpose(order)
        # The Ellipsis keeps an array without axes an array.
        return turned[(..., *(None if dimension is None else slice(None) for dimension in self.place))]


def select_cells(array: VirtualArray, selection: Selection) -> Iterator[TileSelection]:
    """Yield what a selection takes of each tile; tiles that it does not touch are left out."""
    wanted = math.prod(selection.result_shape) * array.dtype.itemsize
    far = array.upper_corners()
    near = array.origins
    candidates = np.ones(len(array.tiles), bool)
    for dimension, selector in enumerate(selection.selectors):
        low, high = _bounds(selector)
        candidates &= (near[:, dimension] <= high) & (far[:, dimension] > low)
    numbers = np.flatnonzero(candidates).tolist()
    if len(numbers) >= MIN_GROUP_SIZE:
        alike, numbers = group_similar_tiles(array, selection, numbers, wanted > 2 * SPLIT_BYTES)
        for kind in alike:
            yield from _select_in_group(array, selection, kind)
    for number in numbers:
        tile = array.tiles[number]
        if wanted > 2 * SPLIT_BYTES:  # a small part is cut out of a large uncompressed cell anyway
            tile = tile.split()
        place: list[int | None] = [None] * len(tile.axes)
        parts: list[AxisSelection] = [_EMPTY] * len(tile.axes)
        for dimension, axis_number in enumerate(tile.dimensions):
            place[axis_number] = dimension
            axis, origin = tile.axes[axis_number], int(near[number, dimension])
            parts[axis_number] = select_on_axis(axis, selection.selectors[dimension], origin)
        for axis_number, axis in enumerate(tile.axes):
            if place[axis_number] is None:
                parts[axis_number] = _select_stride(axis, Stride(0, 1, 1), 0)
        if all(len(part.cell) for part in parts):
            yield TileSelection(tile, tuple(parts), tuple(place))


def _select_in_group(array: VirtualArray, selection: Selection, kind: TileGroup) -> Iterator[TileSelection]:
    """Yield what a selection takes of a group of similar tiles, as if they were one tile."""
    along, members = kind
    selector = selection.selectors[along]
    assert not isinstance(selector, np.ndarray)
    tile, cut = fuse_tile_group(array, kind, Stride(selector, 1, 1) if isinstance(selector, int) else selector)
    place: list[int | None] = [None] * len(tile.axes)
    parts: list[AxisSelection] = [_EMPTY] * len(tile.axes)
    for dimension, number in enumerate(tile.dimensions):
        place[number] = dimension
        axis = tile.axes[number]
        if dimension == along:
            parts[number] = _to_axis_selection(axis, cut, 0) if len(cut.cell) else _EMPTY
        else:
            parts[number] = select_on_axis(
                axis, selection.selectors[dimension], int(array.origins[members[0], dimension])
            )
    for number, axis in enumerate(tile.axes):
        if place[number] is None:
            parts[number] = _select_stride(axis, Stride(0, 1, 1), 0)
    if all(len(part.cell) for part in parts):
        yield TileSelection(tile, tuple(parts), tuple(place))


def _bounds(selector: int | Stride | Indices) -> tuple[int, int]:
    """Return the lowest and highest position that a selector touches; an empty range if none."""
    if isinstance(selector, int):
        return selector, selector
    if isinstance(selector, Stride):
        if not selector.length:
            return 0, -1
        ends = (selector.start, selector.start + selector.step * (selector.length - 1))
        return min(ends), max(ends)
    return (int(selector.min()), int(selector.max())) if len(selector) else (0, -1)


def select_on_axis(axis: Axis, selector: int | Stride | Indices, origin: int) -> AxisSelection:
    """Return what a selector takes of an axis that begins at `origin` of the array's dimension."""
    if isinstance(selector, int):
        selector = Stride(selector, 1, 1)
    if isinstance(selector, Stride):
        inner, at = clip_stride(selector, origin, axis.length)
        return _select_stride(axis, inner, at) if inner.length else _EMPTY
    return _select_indices(axis, selector, origin)


def _select_stride(axis: Axis, stride: Stride, at: int) -> AxisSelection:
    """Select by a slice: each touched cell gives one slice of its chunk to one slice of the output."""
    return _to_axis_selection(axis, axis.cut(stride), at)


def _to_axis_selection(axis: Axis, cut: AxisCut, at: int) -> AxisSelection:
    """Return the axis selection of a cut."""
    stored = axis.stored_lengths(cut.cell)
    inside = tuple(map(_element_slice, cut.skip.tolist(), cut.step.tolist(), cut.extent.tolist()))
    begin = (cut.out + at).tolist()
    outside = tuple(slice(b, b + n) for b, n in zip(begin, cut.extent.tolist(), strict=True))
    return AxisSelection(
        cell=cut.cell,
        inside=inside,
        outside=outside,
        stored=np.maximum(stored, 1),
        exists=bool(stored[0]),
        whole=np.where(stored == 0, cut.extent == 1, (cut.skip == 0) & (cut.step == 1) & (cut.extent == stored)),
        wanted=np.where(cut.step == 0, 1, cut.extent),
        first=np.zeros(len(cut.cell), np.int64),
    )


def _element_slice(skip: int, step: int, extent: int) -> slice:
    """Return the slice of `extent` elements from `skip`, every `step`-th (it must not end at -1)."""
    if step == 0:
        return slice(skip, skip + 1)
    end = skip + step * extent
    return slice(skip, end if end >= 0 else None, step)


def _select_indices(axis: Axis, index: Indices, origin: int) -> AxisSelection:
    """Select by an index array: each touched cell is decoded once and gives all its wanted
    elements.
    """
    where = np.flatnonzero((index >= origin) & (index < origin + axis.length))
    if not len(where):
        return _EMPTY
    position = index[where] - origin
    cell = axis.find(position)
    order = np.argsort(cell, kind="stable")
    cells, begins = np.unique(cell[order], return_index=True)
    shown = axis.show(cells)
    groups = np.split(order, begins[1:])
    inside, outside = [], []
    for group, begin, skip, step in zip(groups, axis.begin(cells), shown.skip, shown.step, strict=True):
        inside.append(skip + step * (position[group] - begin))
        outside.append(where[group])
    return AxisSelection(
        cell=cells,
        inside=tuple(inside),
        outside=tuple(outside),
        stored=np.maximum(shown.stored, 1),
        exists=bool(shown.stored[0]),
        whole=np.zeros(len(cells), bool),
        wanted=np.array([len(group) for group in groups]),
        first=np.zeros_like(cells),
    )


_NONE = np.zeros(0, np.int64)
_EMPTY = AxisSelection(_NONE, (), (), _NONE, True, np.zeros(0, bool), _NONE, _NONE)
