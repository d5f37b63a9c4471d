"""Counts of cells by state (stored, inline, unwritten, absent), and the stored byte ranges."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline
from insitu.model.chunks import ABSENT, INLINE, UNWRITTEN, ChunkTable, Columns
from insitu.model.derived_tables import ExpandedTable, JoinedTable, SelectedTable
from insitu.model.sparse_chunks import SparseTable

if TYPE_CHECKING:
    from insitu.model.array import VirtualArray
    from insitu.model.source import Source

__all__ = ["CellCounts", "CountedTable", "ListedTable", "byte_ranges", "count_cells", "count_table", "count_written"]

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


_NONE = CellCounts()


@runtime_checkable
class CountedTable(Protocol):
    """Protocol of chunk tables that know the states of their cells without looking them up."""

    def count(self) -> CellCounts | None:
        """Return the number of cells by state; None: they have to be looked up."""


@runtime_checkable
class ListedTable(Protocol):
    """Protocol of chunk tables that list the cells that were written; the others are unwritten."""

    def cell_numbers(self) -> Iterator[npt.NDArray[np.int64]]:
        """Return the numbers of these cells, in C order of the grid, in parts."""


def count_cells(array: VirtualArray, most: int | None = None) -> CellCounts:
    """Count the cells of an array by state.

    Parameters
    ----------
    array
        The array.
    most
        How many cells of a table may be looked up, if its counts cannot be computed. Of a larger one
        an even sample is counted, and the result is an estimate.
    """
    return sum((count_table(tile.chunks, most) for tile in array.tiles), CellCounts())


def count_table(table: ChunkTable, most: int | None = None) -> CellCounts:
    """Count the cells of a table by state; see `count_cells`."""
    cells = math.prod(table.shape)
    counted = table.count() if isinstance(table, CountedTable) else None
    if counted is not None:
        return counted
    if isinstance(table, ExpandedTable):
        return count_table(table.table, most)
    if isinstance(table, JoinedTable):
        return sum((count_table(part, most) for part in table.tables), CellCounts())
    if isinstance(table, SelectedTable) and isinstance(table.table, CountedTable):
        whole = table.table.count()
        if whole is not None and whole.stored == whole.cells and not whole.nbytes:  # all alike: named by a rule
            chosen = (
                count if own is None else int(np.count_nonzero(own >= 0))
                for own, count in zip(table.cells, table.table.shape, strict=True)
            )
            stored = math.prod(chosen)
            return CellCounts(cells, stored, absent=cells - stored)
    if isinstance(table, SparseTable):
        written = len(table.number)
        if not written:
            return CellCounts(cells, unwritten=cells)
        counted = _count_states(table.source, _sum_lengths(table.length, written), written // table.source.size)
        return counted + CellCounts(cells - written, unwritten=cells - written)
    if isinstance(table, Columns) and table.source.size == 1:
        source = int(table.source.flat[0])
        nbytes = _sum_lengths(table.length, cells) if cells and (source >= 0 or source == INLINE) else 0
        return _count_states(np.full(1, source), nbytes, cells)
    if isinstance(table, ListedTable):
        listed = sum((_count_rows(table, part) for numbers in table.cell_numbers() for part in _split(numbers)), _NONE)
        return listed + CellCounts(cells - listed.cells, unwritten=cells - listed.cells)
    if most is None or cells <= most:
        return sum((_count_rows(table, np.arange(*span)) for span in _spans(cells)), _NONE)
    few = sum(
        (_count_rows(table, (np.arange(*span) * (cells / most)).astype(np.int64)) for span in _spans(most)), _NONE
    )
    scaled = CellCounts(*(round(getattr(few, name) * cells / few.cells) for name in few.__slots__))
    return replace(scaled, cells=cells)


def _count_rows(table: ChunkTable, numbers: npt.NDArray[np.int64]) -> CellCounts:
    """Look up some cells of a table, by number, and count them."""
    check_deadline()
    rows = table.locate(np.unravel_index(numbers, table.shape) if table.shape else [])
    source, length = np.asarray(rows.source), np.asarray(rows.length)
    known = (source >= 0) | (source == INLINE)
    return _count_states(source, int(np.maximum(length, 0)[known].sum(dtype=np.int64)))


def _spans(count: int) -> Iterator[tuple[int, int]]:
    """Yield the beginnings and ends of blocks."""
    return ((begin, min(begin + _BLOCK, count)) for begin in range(0, count, _BLOCK))


def _split(numbers: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    return (numbers[begin:end] for begin, end in _spans(len(numbers)))


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


def byte_ranges(
    array: VirtualArray, sources: dict[Source, int] | None = None
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield the byte ranges of the stored cells in blocks of columns: source, offset, length.

    Parameters
    ----------
    array
        The array.
    sources
        Gets the number of each source that is in use, in the order in which they occur.
    """
    numbers: dict[Source, int] = {} if sources is None else sources
    for tile in array.tiles:
        table = tile.chunks
        for columns in _stored_ranges(table):
            # A table may have far more sources than cells, and compute them.
            used, at = np.unique(columns[0], return_inverse=True)
            known = np.array([numbers.setdefault(table.sources[n], len(numbers)) for n in used.tolist()], np.int64)
            yield known[at.reshape(-1)], *columns[1:]


def _stored_ranges(
    table: ChunkTable,
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield the byte ranges of a table in blocks; sources by their numbers there."""
    if isinstance(table, SparseTable):
        count = len(table.number)
        source, offset, length = (
            _expand_column(column, count) for column in (table.source, table.offset, table.length)
        )
        stored = source >= 0
        yield source[stored], offset[stored], length[stored]
        return
    if isinstance(table, Columns) and table.source.size == 1 and int(table.source.flat[0]) < 0:
        return
    cells = math.prod(table.shape)
    for begin in range(0, cells, _BLOCK):
        index = np.unravel_index(np.arange(begin, min(begin + _BLOCK, cells)), table.shape) if table.shape else []
        rows = table.locate(index)
        stored = np.asarray(rows.source) >= 0
        yield rows.source[stored], rows.offset[stored].astype(np.int64), rows.length[stored].astype(np.int64)


def _expand_column(column: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    return np.broadcast_to(column, (count,)).astype(np.int64)


def count_written(array: VirtualArray, dimensions: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return how many chunks were written for each element along some dimensions.

    Parameters
    ----------
    array
        The array.
    dimensions
        Some of its dimensions, in the order of the result.
    """
    count = np.zeros([array.shape[dimension] for dimension in dimensions], np.int64)
    for tile, origin in zip(array.tiles, array.origins.tolist(), strict=True):
        grid = tuple(tile.chunks.shape)
        numbers = np.arange(int(np.prod(grid)))
        places = np.unravel_index(numbers, grid) if grid else ()
        source = np.asarray(tile.chunks.locate(list(places)).source)
        is_written = np.broadcast_to((source != ABSENT) & (source != UNWRITTEN), numbers.shape).reshape(grid)
        own = [tile.dimensions[dimension] for dimension in dimensions]
        written = is_written.sum(axis=tuple(axis for axis in range(len(grid)) if axis not in own), dtype=np.int64)
        written = written.transpose([sorted(own).index(axis) for axis in own])
        elements = [tile.axis_of(dimension) for dimension in dimensions]
        cells = [axis.find(np.arange(axis.length)) for axis in elements]
        box = tuple(
            slice(origin[dimension], origin[dimension] + axis.length)
            for dimension, axis in zip(dimensions, elements, strict=True)
        )
        count[box] += written[np.ix_(*cells)]
    return count
