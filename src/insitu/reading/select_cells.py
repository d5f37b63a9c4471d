"""Selection of cells: what a selection takes of each tile, and where that goes in the output.

Pure: every axis of a tile is computed on its own, in columns; a cell is a combination of the axes'
rows. The chunk table is not used here, since that may need I/O.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from insitu.model import Axis, ChunkLocations, Encoding, Packings, Selection, Source, Stride, Tile, VirtualArray
from insitu.model.axis import AxisCut, Indices, clip_stride
from insitu.model.tile import SPLIT_BYTES

if TYPE_CHECKING:
    from insitu.reading.many_tiles import ListedTiles, TileGroup

__all__ = [
    "AxisSelection",
    "ListedSelection",
    "Picker",
    "Slices",
    "TileSelection",
    "count_places",
    "select_cells",
    "select_on_axis",
]

MIN_GROUP_SIZE = 8
"""Smallest number of tiles that are grouped: for fewer, grouping costs more than it saves."""
Picker = slice | npt.NDArray[np.int64]
"""What to take along one axis: a slice or an index array."""


def count_places(outside: Picker) -> int:
    """Return the number of places of the output that a picker selects."""
    return len(outside) if isinstance(outside, np.ndarray) else int(outside.stop - outside.start)


@dataclass(frozen=True, slots=True, eq=False)
class Slices(Sequence[slice]):
    """Many slices, as columns: a Python object is made only of a slice that is needed."""

    start: Indices
    stop: Indices
    """-1 after a negative step: to the first element."""
    step: Indices

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, row: Any) -> Any:
        stop = int(self.stop[row])
        return slice(int(self.start[row]), None if stop < 0 else stop, int(self.step[row]))

    def __iter__(self) -> Iterator[slice]:
        for start, stop, step in zip(self.start.tolist(), self.stop.tolist(), self.step.tolist(), strict=True):
            yield slice(start, None if stop < 0 else stop, step)

    def count_elements(self) -> Indices:
        """Return the number of elements that each slice takes."""
        return (self.stop - self.start + self.step - np.sign(self.step)) // self.step

    def bounds(self) -> tuple[Indices, Indices]:
        """Return the lowest and the highest element that each slice takes."""
        last = self.start + (self.count_elements() - 1) * self.step
        return np.minimum(self.start, last), np.maximum(self.start, last)


@dataclass(frozen=True, slots=True, eq=False)
class AxisSelection:
    """What a selection takes along one axis of a tile: a row for each touched cell."""

    cell: Indices
    """Cell of the tile's grid."""
    inside: Sequence[Picker]
    """Elements of the decoded chunk; a slice of one element is repeated to fill `outside`."""
    outside: Sequence[Picker]
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

    def count_elements(self) -> Indices:
        """Return the number of elements of the chunk that each row takes."""
        if isinstance(self.inside, Slices):
            return self.inside.count_elements()
        return np.array(
            [
                len(picker) if isinstance(picker, np.ndarray) else len(range(*picker.indices(stored)))
                for picker, stored in zip(self.inside, self.stored.tolist(), strict=True)
            ],
            np.int64,
        )

    def count_places(self) -> Indices:
        """Return the number of places of the output that each row fills."""
        if isinstance(self.outside, Slices):
            return self.outside.stop - self.outside.start
        return np.array([count_places(picker) for picker in self.outside], np.int64)


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

    @property
    def encodings(self) -> tuple[Encoding, ...]:
        """What the column `encoding` of its locations refers to."""
        return self.tile.encodings

    @property
    def packings(self) -> Packings:
        """What the column `packing` refers to."""
        return self.tile.packings

    @property
    def sources(self) -> Sequence[Source]:
        """What the column `source` refers to."""
        return self.tile.chunks.sources

    def locate(self) -> ChunkLocations:
        """Return where the chunks of its rows lie: the table may page itself in."""
        return self.tile.chunks.locate(np.ix_(*(part.cell for part in self.parts)))

    def rows_of_axes(self, rows: Indices) -> tuple[Indices, ...]:
        """Return for each axis the rows of its columns that rows of the plan combine."""
        return tuple(np.unravel_index(rows, self.grid)) if self.parts else ()

    def count_shown(self) -> int:
        """Return the number of elements of the output that it fills."""
        return math.prod(int(part.count_places().sum()) for part in self.parts)

    def largest_chunk(self) -> int:
        """Return the number of elements of the largest chunk, or fetched part of one."""
        return math.prod(int(part.stored.max(initial=0)) for part in self.parts)

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


@dataclass(frozen=True, slots=True, eq=False)
class ListedSelection(TileSelection):
    """What a selection takes of many tiles that are cut differently: the axes' columns have a row for
    each cell, so that a row of the plan is the same row of all of them.
    """

    listed: ListedTiles

    @classmethod
    def of(cls, listed: ListedTiles) -> ListedSelection:
        """Return the selection of listed cells."""
        tile = listed.tiles[0]
        parts = tuple(
            _to_axis_selection(stored, cut, 0) for cut, stored in zip(listed.cuts, listed.stored, strict=True)
        )
        place = tuple(tile.dimensions.index(axis) if axis in tile.dimensions else None for axis in range(len(parts)))
        return cls(tile, parts, place, listed)

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of rows: they are one list."""
        return (int(self.listed.starts[-1]),)

    @property
    def encodings(self) -> tuple[Encoding, ...]:
        """Those of all tiles."""
        return self.listed.encodings

    @property
    def packings(self) -> Packings:
        """Those of all tiles."""
        return self.listed.packings

    @property
    def sources(self) -> Sequence[Source]:
        """Those of all tiles."""
        return self.listed.sources

    def locate(self) -> ChunkLocations:
        """Return where the chunks of its rows lie."""
        return self.listed.locate()

    def rows_of_axes(self, rows: Indices) -> tuple[Indices, ...]:
        """Return the rows for each axis."""
        return (rows,) * len(self.parts)

    def count_shown(self) -> int:
        """Return the number of elements of the output that it fills."""
        return int(np.prod([part.count_places() for part in self.parts], axis=0).sum())

    def largest_chunk(self) -> int:
        """Return the number of elements of the largest chunk."""
        return int(np.prod([part.stored for part in self.parts], axis=0).max())


def select_cells(array: VirtualArray, selection: Selection) -> Iterator[TileSelection]:
    """Yield what a selection takes of each tile; tiles that it does not touch are left out."""
    wanted = math.prod(selection.result_shape) * array.dtype.itemsize
    numbers = array.touched_tiles(selection.selectors).tolist()
    if len(numbers) >= MIN_GROUP_SIZE:
        from insitu.reading.many_tiles import group_tiles, list_tiles

        groups, numbers = group_tiles(array, selection, numbers, MIN_GROUP_SIZE, wanted > 2 * SPLIT_BYTES)
        for group in groups:
            yield from _select_in_group(array, selection, group)
        if len(numbers) >= MIN_GROUP_SIZE:
            listed, numbers = list_tiles(array, selection, numbers)
            yield from map(ListedSelection.of, listed)
    for number in numbers:
        tile = array.tiles[number]
        if wanted > 2 * SPLIT_BYTES:  # a small part is cut out of a large uncompressed cell anyway
            tile = tile.split()
        place: list[int | None] = [None] * len(tile.axes)
        parts: list[AxisSelection] = [_EMPTY] * len(tile.axes)
        for dimension, axis_number in enumerate(tile.dimensions):
            place[axis_number] = dimension
            axis, origin = tile.axes[axis_number], int(array.origins[number, dimension])
            parts[axis_number] = select_on_axis(axis, selection.selectors[dimension], origin)
        for axis_number, axis in enumerate(tile.axes):
            if place[axis_number] is None:
                parts[axis_number] = _select_stride(axis, Stride(0, 1, 1), 0)
        if all(len(part.cell) for part in parts):
            yield TileSelection(tile, tuple(parts), tuple(place))


def _select_in_group(array: VirtualArray, selection: Selection, group: TileGroup) -> Iterator[TileSelection]:
    """Yield what a selection takes of a group of tiles, as if they were one tile."""
    from insitu.reading.many_tiles import fuse_group

    along, members = group
    selector = selection.selectors[along]
    assert not isinstance(selector, np.ndarray)
    tile, cut = fuse_group(array, group, Stride(selector, 1, 1) if isinstance(selector, int) else selector)
    place: list[int | None] = [None] * len(tile.axes)
    parts: list[AxisSelection] = [_EMPTY] * len(tile.axes)
    for dimension, number in enumerate(tile.dimensions):
        place[number] = dimension
        axis = tile.axes[number]
        if dimension == along:
            parts[number] = _to_axis_selection(axis.stored_lengths(cut.cell), cut, 0) if len(cut.cell) else _EMPTY
        else:
            parts[number] = select_on_axis(
                axis, selection.selectors[dimension], int(array.origins[members[0], dimension])
            )
    for number, axis in enumerate(tile.axes):
        if place[number] is None:
            parts[number] = _select_stride(axis, Stride(0, 1, 1), 0)
    if all(len(part.cell) for part in parts):
        yield TileSelection(tile, tuple(parts), tuple(place))


def select_on_axis(axis: Axis, selector: int | Stride | Indices, origin: int) -> AxisSelection:
    """Return what a selector takes of an axis that begins at `origin` of the array's dimension."""
    if isinstance(selector, int):
        selector = Stride(selector, 1, 1)
    if isinstance(selector, Stride):
        inner, at = clip_stride(selector, origin, axis.length)
        return _select_stride(axis, inner, at) if inner.length else _EMPTY
    return _select_indices(axis, selector, origin)


def _select_stride(axis: Axis, stride: Stride, at: int) -> AxisSelection:
    """Select by a slice: each touched cell gives one slice of its chunk to one slice of the
    output.
    """
    cut = axis.cut(stride)
    return _to_axis_selection(axis.stored_lengths(cut.cell), cut, at)


def _to_axis_selection(stored: Indices, cut: AxisCut, at: int) -> AxisSelection:
    """Return the axis selection of a cut of chunks of these lengths."""
    begin = cut.out + at
    # A step of 0 repeats one element. -1 is the end of a slice that runs backwards to the first element: as a
    # number of a slice it would be the last one.
    end = np.where(cut.step == 0, cut.skip + 1, np.maximum(cut.skip + cut.step * cut.extent, -1))
    inside = Slices(cut.skip, end, np.where(cut.step == 0, 1, cut.step))
    outside = Slices(begin, begin + cut.extent, np.ones_like(begin))
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


def _select_indices(axis: Axis, index: Indices, origin: int) -> AxisSelection:
    """Select by an index array: each touched cell is decoded once and gives all its wanted
    elements.
    """
    where = np.flatnonzero((index >= origin) & (index < origin + axis.length))
    if not len(where):
        return _EMPTY
    position = index[where] - origin
    cell = axis.find(position)
    # Indices may go to and fro between cells: by cell, each chunk is decoded once, in whatever order they are.
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
