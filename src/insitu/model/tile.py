"""Tile: a grid of cells with its chunk table, encodings and packings.

A tile has axes (how each is cut), a table of where the cells' chunks lie, and the pools of
encodings and packings that the table refers to. `layout` maps array dimensions to tile axes:
transposing permutes it, an integer index leaves an axis of extent 1 that no dimension names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from insitu.errors import ModelError
from insitu.model.axis import Axis, Indices
from insitu.model.chunks import INLINE, ChunkTable, Columns
from insitu.model.derived_tables import iter_pools
from insitu.model.encoding import Encoding
from insitu.model.packing import IDENTITY, Packings
from insitu.model.selection import Stride
from insitu.model.source import Source

__all__ = ["Tile", "distinct_sources"]

SPLIT_BYTES = 16 << 20
"""Approximate bytes of a piece of a split cell: large enough to stream, small enough to hold in
memory.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """A grid of cells, each of which shows a part of a chunk."""

    axes: tuple[Axis, ...]
    encodings: tuple[Encoding, ...]
    chunks: ChunkTable
    packings: Packings = field(default=IDENTITY, repr=False)
    layout: tuple[int, ...] | None = None
    """The axis of each array dimension.

    None in the constructor: dimensions and axes are the same.
    """

    def __post_init__(self) -> None:
        if self.layout is None:
            object.__setattr__(self, "layout", tuple(range(len(self.axes))))
        grid = tuple([axis.count for axis in self.axes])
        if tuple(self.chunks.shape) != grid:
            raise ModelError(f"the axes have {grid} cells, but the chunk table {tuple(self.chunks.shape)}")
        if not self.encodings:
            raise ModelError("a tile needs at least one encoding")

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The axis of each array dimension."""
        assert self.layout is not None
        return self.layout

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each array dimension."""
        axes = self.axes
        return tuple([axes[axis].length for axis in self.dimensions])

    def axis_of(self, dimension: int) -> Axis:
        """Return the axis of an array dimension."""
        return self.axes[self.dimensions[dimension]]

    @property
    def is_regular(self) -> bool:
        """Whether Zarr can describe the tile: regular cuts, one encoding, one packing."""
        return all(axis.is_regular for axis in self.axes) and len(self.encodings) == 1 and len(self.packings) == 1

    def cut(self, dimension: int, stride: Stride) -> Tile:
        """Slice along one dimension."""
        return self._replace_axis(dimension, *self.axis_of(dimension).slice(stride))

    def take(self, dimension: int, indices: Indices) -> Tile:
        """Select elements along one dimension by index; -1: Absent."""
        return self._replace_axis(dimension, *self.axis_of(dimension).take(indices))

    def drop(self, dimension: int) -> Tile:
        """Remove a dimension of length 1; its axis stays, unnamed."""
        if self.axis_of(dimension).length != 1:
            raise ModelError(f"dimension {dimension} has length {self.axis_of(dimension).length}, not 1")
        return replace(self, layout=self.dimensions[:dimension] + self.dimensions[dimension + 1 :])

    def transpose(self, order: tuple[int, ...]) -> Tile:
        """Reorder the dimensions."""
        return replace(self, layout=tuple(self.dimensions[dimension] for dimension in order))

    def expand(self, dimension: int, length: int = 1) -> Tile:
        """Insert a new dimension along which the values repeat."""
        layout = (*self.dimensions[:dimension], len(self.axes), *self.dimensions[dimension:])
        tile = replace(self, axes=(*self.axes, Axis.broadcast(1)), chunks=self.chunks.with_new_axis(), layout=layout)
        return tile if length == 1 else tile.broadcast(dimension, length)

    def broadcast(self, dimension: int, length: int) -> Tile:
        """Repeat a dimension of length 1."""
        axis = self.axis_of(dimension)
        if length == 0:
            return self.cut(dimension, Stride(0, 1, 0))
        cell = axis.find(np.zeros(1, np.int64))
        return self._replace_axis(dimension, axis.repeat(length), cell)

    def split(self, limit: int = SPLIT_BYTES) -> Tile:
        """Cut uncompressed cells along their leading axes into pieces of about `limit` bytes, by
        offset arithmetic.

        A tile that is encoded in any way, or whose cells are small or have no bytes (never written,
        absent), is returned as it is.
        """
        if len(self.encodings) != 1 or not self.encodings[0].raw or not isinstance(self.chunks, Columns):
            return self
        if not ((self.chunks.source >= 0) | (self.chunks.source == INLINE)).any():
            return self
        shown = [axis.show(np.arange(axis.count)) for axis in self.axes]
        # Only a cut along the first axis with several elements leaves pieces of contiguous bytes.
        number = next((i for i, cells in enumerate(shown) if cells.stored.max(initial=0) > 1), None)
        if number is None or (shown[number].step == 0).any():
            return self
        row = self.encodings[0].dtype.itemsize
        for cells in shown[number + 1 :]:
            if not len(cells.stored) or cells.stored.min() != cells.stored.max():
                return self  # chunks of several widths have different strides
            row *= max(int(cells.stored[0]), 1)
        if int(shown[number].stored.max()) * row <= limit:
            return self
        return self._divide_axis(number, row, max(limit // max(row, 1), 1)).split(limit)

    def _divide_axis(self, number: int, row: int, piece: int) -> Tile:
        """Cut one axis into pieces of `piece` stored elements of `row` bytes each."""
        axis, chunks = self.axes[number], self.chunks
        assert isinstance(chunks, Columns)
        shown = axis.show(np.arange(axis.count))
        columns = zip(shown.extent.tolist(), shown.skip.tolist(), shown.step.tolist(), strict=True)
        pieces = [_split_cell(extent, skip, step, piece) for extent, skip, step in columns]
        origin = np.repeat(np.arange(axis.count), [len(cell) for cell in pieces])
        extent, skip, step, stored, first = np.array([p for cell in pieces for p in cell], np.int64).reshape(-1, 5).T
        moved = chunks.take(number, origin)
        along = tuple(len(origin) if i == number else 1 for i in range(len(self.axes)))
        has_bytes = (moved.source >= 0) | (moved.source == INLINE)
        offset = moved.offset.astype(np.int64) + np.where(has_bytes, (first * row).reshape(along), 0)
        length = np.where(has_bytes, (stored * row).reshape(along), 0)
        cut = replace(moved, offset=offset, length=length)
        axes = (*self.axes[:number], Axis.irregular(extent, skip, step, stored), *self.axes[number + 1 :])
        return replace(self, axes=axes, chunks=cut)

    def _replace_axis(self, dimension: int, axis: Axis, cells: Indices | slice) -> Tile:
        """Return the tile with another axis in place of a dimension's, and these cells of the table
        along it.
        """
        number = self.dimensions[dimension]
        if isinstance(cells, slice) and cells == slice(None):
            return self
        axes = (*self.axes[:number], axis, *self.axes[number + 1 :])
        if not self.axes[number].count and axis.count:  # of nothing, only Absent places can be taken
            return replace(self, axes=axes, chunks=Columns.of_absent([each.count for each in axes]))
        return replace(self, axes=axes, chunks=self.chunks.take(number, cells))


def _split_cell(extent: int, skip: int, step: int, piece: int) -> list[tuple[int, int, int, int, int]]:
    """Split a cell: (extent, skip, step, stored, first stored element) of each piece, in the order
    shown.
    """
    shown = max(piece // abs(step), 1)
    rows = []
    for begin in range(0, extent, shown):
        many = min(shown, extent - begin)
        one, other = skip + step * begin, skip + step * (begin + many - 1)
        first, last = min(one, other), max(one, other)
        rows.append((many, one - first, step, last - first + 1, first))
    return rows


def distinct_sources(tiles: Iterable[Tile]) -> tuple[Source, ...]:
    """Return the archive objects that hold the chunks of tiles, each once."""
    pools = {id(pool): pool for tile in tiles for pool in iter_pools(tile.chunks.sources)}
    return tuple(dict.fromkeys(source for pool in pools.values() for source in pool))
