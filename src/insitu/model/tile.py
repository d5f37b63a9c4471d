"""What is one grid of cells, and what can be done to it without reading?

A tile has axes (how each is cut), a table of where the cells' chunks lie, and the pools of encodings and packings that the table
refers to. `layout` says which array dimension is which tile axis: transposing permutes it, an integer index leaves an axis of extent
1 that no dimension names.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from insitu.errors import ModelError
from insitu.model.axis import Axis, Indices
from insitu.model.chunks import INLINE, ChunkTable, Columns
from insitu.model.encoding import Encoding
from insitu.model.packing import IDENTITY, Packings
from insitu.model.selection import Stride

__all__ = ["Tile"]

SPLIT_BYTES = 16 << 20
"""About how many bytes a piece of a split cell has: large enough to stream, small enough to hold."""


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """A grid of cells."""

    axes: tuple[Axis, ...]
    encodings: tuple[Encoding, ...]
    chunks: ChunkTable
    packings: Packings = field(default=IDENTITY, repr=False)
    layout: tuple[int, ...] | None = None
    """For each array dimension its axis; None when making one: one for one."""

    def __post_init__(self) -> None:
        if self.layout is None:
            object.__setattr__(self, "layout", tuple(range(len(self.axes))))
        grid = tuple(axis.count for axis in self.axes)
        if tuple(self.chunks.shape) != grid:
            raise ModelError(f"the axes have {grid} cells, the chunk table {tuple(self.chunks.shape)}")
        if not self.encodings:
            raise ModelError("a tile needs an encoding")

    @property
    def dimensions(self) -> tuple[int, ...]:
        """For each array dimension its axis."""
        assert self.layout is not None
        return self.layout

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each array dimension."""
        return tuple(self.axes[axis].length for axis in self.dimensions)

    def axis_of(self, dimension: int) -> Axis:
        """How an array dimension is cut."""
        return self.axes[self.dimensions[dimension]]

    @property
    def is_regular(self) -> bool:
        """Whether Zarr can say it: regular cuts, one encoding, one packing."""
        return all(axis.is_regular for axis in self.axes) and len(self.encodings) == 1 and len(self.packings) == 1

    def cut(self, dimension: int, stride: Stride) -> Tile:
        """A slice along one dimension."""
        return self._replace_axis(dimension, *self.axis_of(dimension).slice(stride))

    def take(self, dimension: int, indices: Indices) -> Tile:
        """These elements along one dimension; -1: Absent."""
        return self._replace_axis(dimension, *self.axis_of(dimension).take(indices))

    def drop(self, dimension: int) -> Tile:
        """Without a dimension of length 1; its axis stays, unnamed."""
        if self.axis_of(dimension).length != 1:
            raise ModelError(f"dimension {dimension} has length {self.axis_of(dimension).length}, not 1")
        return replace(self, layout=self.dimensions[:dimension] + self.dimensions[dimension + 1 :])

    def transpose(self, order: tuple[int, ...]) -> Tile:
        """The dimensions in another order."""
        return replace(self, layout=tuple(self.dimensions[dimension] for dimension in order))

    def expand(self, dimension: int, length: int = 1) -> Tile:
        """With a new dimension along which the values repeat."""
        layout = (*self.dimensions[:dimension], len(self.axes), *self.dimensions[dimension:])
        tile = replace(self, axes=(*self.axes, Axis.repeated(1)), chunks=self.chunks.expanded(), layout=layout)
        return tile if length == 1 else tile.broadcast(dimension, length)

    def broadcast(self, dimension: int, length: int) -> Tile:
        """A dimension of length 1 repeated."""
        axis = self.axis_of(dimension)
        if length == 0:
            return self.cut(dimension, Stride(0, 1, 0))
        cell = axis.find(np.zeros(1, np.int64))
        return self._replace_axis(dimension, axis.repeat(length), cell)

    def split(self, limit: int = SPLIT_BYTES) -> Tile:
        """Uncompressed cells cut along their leading axes into pieces of about `limit` bytes, by offset arithmetic.

        A tile that is encoded in any way, whose cells are small already, or have no bytes at all (never written, absent), is returned as it is.
        """
        if len(self.encodings) != 1 or not self.encodings[0].raw or not isinstance(self.chunks, Columns):
            return self
        if not ((self.chunks.source >= 0) | (self.chunks.source == INLINE)).any():
            return self
        shown = [axis.show(np.arange(axis.count)) for axis in self.axes]
        # Only the first axis along which a chunk has several elements can be cut so that its pieces lie together.
        number = next((i for i, cells in enumerate(shown) if cells.stored.max(initial=0) > 1), None)
        if number is None or (shown[number].step == 0).any():
            return self
        row = self.encodings[0].dtype.itemsize
        for cells in shown[number + 1 :]:
            if not len(cells.stored) or cells.stored.min() != cells.stored.max():
                return self  # chunks of several widths: one offset rule does not fit them all
            row *= max(int(cells.stored[0]), 1)
        if int(shown[number].stored.max()) * row <= limit:
            return self
        return self._divided(number, row, max(limit // max(row, 1), 1)).split(limit)

    def _divided(self, number: int, row: int, piece: int) -> Tile:
        """One axis cut into pieces of `piece` stored elements of `row` bytes each."""
        axis, chunks = self.axes[number], self.chunks
        assert isinstance(chunks, Columns)
        shown = axis.show(np.arange(axis.count))
        columns = zip(shown.extent.tolist(), shown.skip.tolist(), shown.step.tolist(), strict=True)
        pieces = [_pieces(extent, skip, step, piece) for extent, skip, step in columns]
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
        """The tile with one axis selected from."""
        number = self.dimensions[dimension]
        if isinstance(cells, slice) and cells == slice(None):
            return self
        axes = (*self.axes[:number], axis, *self.axes[number + 1 :])
        return replace(self, axes=axes, chunks=self.chunks.take(number, cells))


def _pieces(extent: int, skip: int, step: int, piece: int) -> list[tuple[int, int, int, int, int]]:
    """A cell in pieces: (extent, skip, step, stored, first stored element) of each, in the order shown."""
    shown = max(piece // abs(step), 1)
    rows = []
    for begin in range(0, extent, shown):
        many = min(shown, extent - begin)
        one, other = skip + step * begin, skip + step * (begin + many - 1)
        first, last = min(one, other), max(one, other)
        rows.append((many, one - first, step, last - first + 1, first))
    return rows
