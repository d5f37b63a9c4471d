"""Counts of cells by state (stored, inline, unwritten, absent), and the stored byte ranges."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from insitu.model.chunks import ABSENT, INLINE, UNWRITTEN, ChunkTable, Columns
from insitu.model.sparse_chunks import SparseTable

if TYPE_CHECKING:
    from insitu.model.array import VirtualArray

__all__ = ["CellCounts", "byte_ranges", "count_cells", "count_table"]

_BLOCK = 1 << 20
"""Cells of a table that are processed together."""


@dataclass(frozen=True, slots=True)
class CellCounts:
    """Number of cells of an array by state, and their bytes."""

    cells: int = 0
    stored: int = 0
    inline: int = 0
    unwritten: int = 0
    absent: int = 0
    nbytes: int = 0
    """Bytes of the stored and inline cells; a chunk that two cells share counts twice."""

    def __add__(self, other: CellCounts) -> CellCounts:
        return CellCounts(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


def count_cells(array: VirtualArray) -> CellCounts:
    """Count the cells of an array by state."""
    return sum((count_table(tile.chunks) for tile in array.tiles), CellCounts())


def count_table(table: ChunkTable) -> CellCounts:
    """Count the cells of a table by state."""
    cells = math.prod(table.shape)
    if isinstance(table, SparseTable):
        nbytes = _sum_lengths(table.length, len(table.number))
        return CellCounts(cells, len(table.number), 0, cells - len(table.number), 0, nbytes)
    if isinstance(table, Columns) and table.source.size == 1:
        source = int(table.source.flat[0])
        nbytes = _sum_lengths(table.length, cells) if cells and (source >= 0 or source == INLINE) else 0
        return _count_states(np.full(1, source), nbytes, cells)
    total = CellCounts()
    for source_column, length in _iterate_columns(table):
        known = (source_column >= 0) | (source_column == INLINE)
        total += _count_states(source_column, int(np.maximum(length, 0)[known].sum(dtype=np.int64)))
    return total


def _count_states(source: npt.NDArray[np.int64], nbytes: int, times: int = 1) -> CellCounts:
    """Count rows by state, each `times` times."""
    states = (source >= 0, source == INLINE, source == UNWRITTEN, source == ABSENT)
    stored, inline, unwritten, absent = (int(np.count_nonzero(state)) * times for state in states)
    return CellCounts(len(source) * times, stored, inline, unwritten, absent, nbytes)


def _sum_lengths(length: npt.NDArray[np.int64], rows: int) -> int:
    """Return the sum of a column that may be one element for all rows."""
    if length.size == 1:
        return max(int(length.flat[0]), 0) * rows
    return int(np.maximum(length, 0).sum(dtype=np.int64)) * (rows // length.size)


def _iterate_columns(table: ChunkTable) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    cells = math.prod(table.shape)
    for begin in range(0, cells, _BLOCK):
        numbers = np.arange(begin, min(begin + _BLOCK, cells))
        rows = table.locate(np.unravel_index(numbers, table.shape) if table.shape else [])
        yield np.asarray(rows.source), np.asarray(rows.length)


def byte_ranges(
    array: VirtualArray,
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield the byte ranges of the stored cells in blocks of columns: position in `array.sources`,
    offset, length.
    """
    numbers = {source: number for number, source in enumerate(array.sources)}
    for tile in array.tiles:
        table = tile.chunks
        known = np.array([numbers[source] for source in table.sources] or [0], np.int64)
        if isinstance(table, SparseTable):
            count = len(table.number)
            yield (
                np.zeros(count, np.int64) + known[0],
                _expand_column(table.offset, count),
                _expand_column(table.length, count),
            )
            continue
        if isinstance(table, Columns) and table.source.size == 1 and int(table.source.flat[0]) < 0:
            continue
        cells = math.prod(table.shape)
        for begin in range(0, cells, _BLOCK):
            index = np.unravel_index(np.arange(begin, min(begin + _BLOCK, cells)), table.shape) if table.shape else []
            rows = table.locate(index)
            stored = np.asarray(rows.source) >= 0
            yield known[rows.source[stored]], rows.offset[stored].astype(np.int64), rows.length[stored].astype(np.int64)


def _expand_column(column: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    return np.broadcast_to(column, (count,)).astype(np.int64)
