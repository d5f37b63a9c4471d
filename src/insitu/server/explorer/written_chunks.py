"""Which chunks of a sparse array were written: pictures of it show these, and skip what was never written.

A Zarr store of 80 TB may have a hundred objects. Its table names an object for each cell of the grid, so
that a sample of the cells would find none of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline
from insitu.model import VirtualArray
from insitu.model.sparse_chunks import ListableTable, SparseTable
from insitu.reading import ReadContext, read_array
from insitu.server.explorer.formula_array import ShownArray
from insitu.server.explorer.opened_archives import OpenedArchive

__all__ = ["WrittenChunks", "find_written_chunks"]

MAX_LISTED = 20_000
"""Objects of a store that are listed; if there are more, a sample of the cells finds some."""
LEAST_CELLS = 1000
"""Cells of a grid from which it is worth knowing which are written."""
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WrittenChunks:
    """The chunks of an array that were written."""

    array: VirtualArray
    """The array with a table that knows them: nothing is asked for the others."""
    cells: Indices
    """(chunks, dimensions): the cell of each."""
    total: int
    """Cells of the grid."""

    def count(self, key: Sequence[Any]) -> int:
        """Return how many of them a selection touches."""
        return int(np.count_nonzero(self._inside(key)))

    def decoded_bytes(self, key: Sequence[Any]) -> int:
        """Return the bytes that those decode to which a selection touches."""
        tile = self.array.tiles[0]
        itemsize = max(encoding.dtype.itemsize for encoding in tile.encodings)
        return self.count(key) * itemsize * math.prod(axis.longest_chunk for axis in tile.axes)

    def first_position(self) -> dict[str, int]:
        """Return where the first of them begins along each dimension."""
        if not len(self.cells):
            return {}
        tile = self.array.tiles[0]
        begins = (tile.axis_of(dim).begin(self.cells[:1, dim])[0] for dim in range(self.array.ndim))
        return {dim: int(begin) for dim, begin in zip(self.array.dims, begins, strict=True)}

    def prefer(self, positions: Indices, dim: int, start: int, step: int, stop: int, key: Sequence[Any]) -> Indices:
        """Return positions, one for each pixel along a dimension, moved within its pixel to a chunk that was written.

        Parameters
        ----------
        positions, dim
            The positions, and the number of the dimension.
        start, step, stop
            Where the first pixel begins, the elements of each, and where the last one ends.
        key
            What is selected along the other dimensions.
        """
        axis = self.array.tiles[0].axis_of(dim)
        others = [part if number != dim else slice(None) for number, part in enumerate(key)]
        cells = np.unique(self.cells[self._inside(others), dim])
        if not len(cells):
            return positions
        begins = axis.begin(cells)
        ends = np.where(cells + 1 < axis.count, axis.begin(np.minimum(cells + 1, axis.count - 1)), axis.length)
        pixel_begins = start + np.arange(len(positions)) * step
        pixel_ends = np.minimum(pixel_begins + step, stop)
        nearest = np.minimum(np.searchsorted(ends, pixel_begins, side="right"), len(cells) - 1)
        low = np.maximum(begins[nearest], pixel_begins)
        high = np.minimum(ends[nearest], pixel_ends)
        return np.where(low < high, (low + high - 1) // 2, positions)

    def read_plane(self, key: Sequence[Any], sides: tuple[int, int], context: ReadContext) -> npt.NDArray[Any]:
        """Return a selection of two dimensions, chunk by chunk of those that were written; elsewhere the fill value.

        Parameters
        ----------
        key
            Integers, and positions along two dimensions.
        sides
            The numbers of these dimensions: that of the rows of the result, and that of its columns.
        context
            How to read.
        """
        tile, (y, x) = self.array.tiles[0], sides
        rows, columns = np.asarray(key[y]), np.asarray(key[x])
        values = np.full((len(rows), len(columns)), self._read_fill(context), self.array.dtype)
        row_cells, column_cells = tile.axis_of(y).find(rows), tile.axis_of(x).find(columns)
        for cell in self.cells[self._inside(key)]:
            check_deadline()
            at = np.flatnonzero(row_cells == cell[y]), np.flatnonzero(column_cells == cell[x])
            part = list(key)
            part[y], part[x] = rows[at[0]], columns[at[1]]
            block = read_array(self.array, tuple(part), context)
            values[np.ix_(*at)] = block if y < x else block.T
        return values

    def _read_fill(self, context: ReadContext) -> Any:
        """Return the value of a cell that was not written, as reading gives it."""
        tile = self.array.tiles[0]
        numbers = np.ravel_multi_index(tuple(self.cells.T), [tile.axis_of(dim).count for dim in range(self.array.ndim)])
        free = int(np.setdiff1d(np.arange(len(numbers) + 1), numbers)[0])
        cell = np.unravel_index(free, [tile.axis_of(dim).count for dim in range(self.array.ndim)])
        place = tuple(int(tile.axis_of(dim).begin(np.array([at]))[0]) for dim, at in enumerate(cell))
        return np.asarray(read_array(self.array, place, context))[()]

    def _inside(self, key: Sequence[Any]) -> npt.NDArray[np.bool_]:
        """Return which of them a selection touches."""
        found = np.ones(len(self.cells), bool)
        for dim, (part, size) in enumerate(zip(key, self.array.shape, strict=True)):
            if isinstance(part, slice) and part == slice(None):
                continue
            positions = np.arange(size)[part] if isinstance(part, slice) else np.atleast_1d(part)
            found &= np.isin(self.cells[:, dim], np.unique(self.array.tiles[0].axis_of(dim).find(positions)))
        return found


def find_written_chunks(archive: OpenedArchive, path: str, array: ShownArray) -> WrittenChunks | None:
    """Return the chunks of an array that were written; None if that is not known, or all were.

    The objects of a Zarr store are listed, once for as long as the archive stays open.
    """
    if not isinstance(array, VirtualArray) or len(array.tiles) != 1:
        return None
    tile = array.tiles[0]
    if sorted(tile.dimensions) != list(range(len(tile.axes))) or array.shape != tile.shape:
        return None
    total = math.prod(tile.chunks.shape)
    known: dict[str, WrittenChunks | None] = archive.memo.setdefault("written", {})
    if total < LEAST_CELLS:
        return None
    if path not in known:
        table: Any = tile.chunks
        if isinstance(table, ListableTable):
            table = table.list_written(MAX_LISTED, archive.options)
        if isinstance(table, SparseTable) and len(table.number) < total:
            by_axis = np.unravel_index(table.number, table.shape)
            cells = np.stack([by_axis[axis] for axis in tile.dimensions], axis=1).astype(np.int64)
            known[path] = WrittenChunks(replace(array, tiles=(replace(tile, chunks=table),)), cells, total)
        else:
            known[path] = None
    return known[path]
