"""Sparse chunk table: the written cells of a grid that is mostly unwritten.

A grid can be far larger than what was ever written to it (an unlimited axis grown by one wrong
index), so the written cells are kept as sorted numbers and found by bisection. Dense grids stay
plain `Columns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import gt
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import ModelError
from insitu.model.axis import Indices
from insitu.model.chunks import UNWRITTEN, ChunkLocations, Columns, flat_cell_numbers, narrow_column
from insitu.model.derived_tables import ChunkTableBase
from insitu.model.source import Source

__all__ = ["SparseTable", "scatter"]

# A dense cell costs about 14 bytes, a sparse one 8 more: below a third of the grid, sparse is
# smaller.
_SPARSE_FACTOR = 3


@dataclass(frozen=True, slots=True, eq=False)
class SparseTable(ChunkTableBase):
    """Chunk table of a mostly unwritten grid: the written cells, by number."""

    shape: tuple[int, ...]
    sources: tuple[Source, ...]
    number: Indices
    """Number of each written cell, in C order of the grid; ascending."""
    offset: npt.NDArray[Any]
    length: npt.NDArray[Any]
    filter_mask: npt.NDArray[Any]

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return the places of cells."""
        wanted = flat_cell_numbers(cells, self.shape)
        at = np.minimum(np.searchsorted(self.number, wanted), max(len(self.number) - 1, 0))
        found = self.number[at] == wanted if len(self.number) else np.zeros(len(wanted), bool)
        rows = [
            np.where(found, column[at if len(column) > 1 else 0], 0) if len(column) else np.zeros(len(wanted), np.int64)
            for column in (self.offset, self.length, self.filter_mask)
        ]
        zero = np.broadcast_to(np.int8(0), wanted.shape)
        return ChunkLocations(np.where(found, 0, UNWRITTEN), rows[0], rows[1], rows[2], zero, zero, b"")

    @property
    def nbytes(self) -> int:
        """Memory of the columns."""
        return sum(column.nbytes for column in (self.number, self.offset, self.length, self.filter_mask))


def scatter(
    shape: Sequence[int],
    sources: tuple[Source, ...],
    index: npt.NDArray[np.integer[Any]],
    offset: npt.ArrayLike,
    length: npt.ArrayLike,
    filter_mask: npt.ArrayLike = 0,
) -> Columns | SparseTable:
    """Return the table of one source's written cells; all others are Unwritten.

    Parameters
    ----------
    shape
        Cells along each axis.
    sources
        The one source, in a tuple.
    index
        The written cells, as an array of (cells, axes). If a cell occurs twice, the last row
        counts.
    offset, length, filter_mask
        For each written cell, or one number for all.
    """
    shape = tuple(int(count) for count in shape)
    total = 1
    for count in shape:
        total *= count  # Python integers: a hostile shape must not wrap around
    if total >= 2**63:
        raise ModelError(f"a grid of {shape} has more cells than 64 bits can count")
    written = len(index)
    if not written:
        return Columns.of_unwritten(shape)
    if index.shape != (written, len(shape)):
        raise ModelError(f"the cells have {index.shape[-1]} axes, but the grid has the shape {shape}")
    # As unsigned numbers, negative ones are huge: one comparison finds both kinds.
    if any(map(gt, index.astype(np.int64, copy=False).view(np.uint64).max(axis=0).tolist(), (n - 1 for n in shape))):
        raise ModelError(f"a written cell lies outside the grid of {shape}")
    columns = [_broadcast_column(column, written) for column in (offset, length, filter_mask)]
    number = np.zeros(written, np.int64)
    for axis, count in enumerate(shape):
        number *= count
        number += index[:, axis]
    if written == total and (written == 1 or (number[1:] > number[:-1]).all()):  # every cell in order: the usual file
        offsets, lengths, masks = (_reshape_column(column, shape) for column in columns)
        return Columns(shape, sources, 0, offsets, lengths, masks)  # type: ignore[arg-type]
    if total <= _SPARSE_FACTOR * written or total <= 1024:
        source = np.full(total, UNWRITTEN, np.int8)
        source[number] = 0
        dense = []
        for column in columns:
            wide = np.zeros(total, narrow_column(column, 1).dtype)
            wide[number] = column
            dense.append(wide.reshape(shape))
        return Columns(shape, sources, source.reshape(shape), dense[0], dense[1], dense[2])
    order = np.argsort(number, kind="stable")
    last = np.append(np.diff(number[order]) != 0, True)
    order = order[last]
    return SparseTable(shape, sources, number[order], *(narrow_column(column[order], 1) for column in columns))


def _broadcast_column(values: npt.ArrayLike, written: int) -> npt.NDArray[Any]:
    """Return a column of one number for each written cell."""
    column = np.asarray(values)
    return column if column.shape == (written,) else np.broadcast_to(column, (written,))


def _reshape_column(column: npt.NDArray[Any], shape: tuple[int, ...]) -> Any:
    """Return a column of the grid's shape, or one number where all rows are the same element."""
    return int(column[0]) if column.strides == (0,) or column.size == 1 else column.reshape(shape)
