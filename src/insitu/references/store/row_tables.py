"""Chunk tables whose rows lie in an insitu store.

The row number of a cell is computed, and `StoredRows` loads it. `GridRows` is a full grid,
`SparseRows` has the written cells of one, and `StackedTables` joins several tables along an axis:
what was saved first and what was appended, or one table in several files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from insitu.errors import FormatError
from insitu.model import ChunkLocations, ChunkTable, Columns, Source
from insitu.model.axis import Indices
from insitu.model.chunks import LocationsBuilder, flat_cell_numbers
from insitu.model.derived_tables import ChunkTableBase
from insitu.references.store.row_file import ROWS_PER_GROUP
from insitu.references.store.stored_rows import StoredRows, rows_together
from insitu.sources.listing import local_path
from insitu.sources.threads import MAX_REQUESTS, gather

__all__ = ["GridRows", "SparseRows", "StackedTables"]


@dataclass(frozen=True, slots=True, eq=False)
class GridRows(ChunkTableBase):
    """Chunk table of a full grid: one row for each cell."""

    shape: tuple[int, ...]
    sources: Sequence[Source]
    stored: StoredRows

    @property
    def is_local(self) -> bool:
        """Whether the rows lie in a file of this machine."""
        return self.stored.is_local

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return where cells lie."""
        return self.stored.rows(flat_cell_numbers(cells, self.shape))

    def locate_together(
        self, tables: Sequence[ChunkTable], cells: Sequence[Indices], starts: Indices
    ) -> ChunkLocations | None:
        """Return the places of cells of several tables; None if one is of another kind or store, or may
        have inline bytes.
        """
        grids = [table for table in tables if isinstance(table, GridRows)]
        if len(grids) < len(tables):
            return None
        counts, row = np.diff(starts), np.zeros(int(starts[-1]), np.int64)
        shapes = np.array([grid.shape for grid in grids], np.int64)
        for index, lengths in zip(cells, shapes.T, strict=True):
            row = row * np.repeat(lengths, counts) + index
        return rows_together([grid.stored for grid in grids], row, counts)


@dataclass(frozen=True, slots=True, eq=False)
class SparseRows(ChunkTableBase):
    """Chunk table with rows for some cells of a grid, in ascending order; the others were never
    written.
    """

    shape: tuple[int, ...]
    sources: Sequence[Source]
    stored: StoredRows
    starts: Indices
    """The number of the first cell in each group of rows."""

    @property
    def is_local(self) -> bool:
        """Whether the rows lie in a file of this machine."""
        return self.stored.is_local

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return where cells lie."""
        cell_numbers = flat_cell_numbers(cells, self.shape)
        stored = self.stored
        group = np.searchsorted(self.starts, cell_numbers, side="right") - 1
        row = np.full(len(cell_numbers), -1, np.int64)
        for k in np.unique(group).tolist():
            here = np.flatnonzero(group == k)
            is_written = np.zeros(len(here), bool)
            if k >= 0:
                begin, numbers = self._numbers(k)
                at = np.minimum(np.searchsorted(numbers, cell_numbers[here]), len(numbers) - 1)
                is_written = numbers[at] == cell_numbers[here]
                row[here[is_written]] = begin + at[is_written]
            # A cell behind all rows of its group may be in the next group, if that one does not
            # begin where the root says: check it.
            if k + 1 < len(self.starts) and (k < 0 or (cell_numbers[here] > numbers[-1]).any()):
                self._numbers(k + 1)
        found, places = row >= 0, LocationsBuilder(len(cell_numbers))
        if found.any():
            places.put(found, stored.rows(row[found]))
        return places.build()

    def cell_numbers(self) -> Iterator[Indices]:
        """Return the cells that have rows, in ascending order, group by group."""
        return (self._numbers(k)[1] for k in range(len(self.starts)))

    def _numbers(self, k: int) -> tuple[int, Indices]:
        """Return the first row of a group, counted from the table's first, and the cells of its
        rows.
        """
        stored = self.stored
        start = (stored.first // ROWS_PER_GROUP + k) * ROWS_PER_GROUP
        low, high = max(stored.first - start, 0), min(stored.first + stored.count - start, ROWS_PER_GROUP)
        numbers = stored.group(start // ROWS_PER_GROUP, ("cell",)).values[0, low:high]
        if int(numbers[0]) != int(self.starts[k]):
            raise FormatError(
                f"a group of rows begins with cell {numbers[0]}, but the root records {self.starts[k]}",
                url=stored.part.url,
                structure="cell",
            )
        return start + low - stored.first, numbers


def _is_remote(table: ChunkTable) -> bool:
    """Return whether the rows of a table are a round trip away."""
    if isinstance(table, StackedTables):
        return any(map(_is_remote, table.tables))
    return isinstance(table, GridRows | SparseRows) and local_path(table.stored.part.url) is None


@dataclass(frozen=True, slots=True, eq=False)
class StackedTables(ChunkTableBase):
    """Chunk tables of one store, joined along an axis."""

    tables: tuple[ChunkTable, ...]
    axis: int
    starts: Indices
    """First cell of each table along the axis, and the end."""
    sources: Sequence[Source]

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
        first = self.tables[0].shape
        return (*first[: self.axis], int(self.starts[-1]), *first[self.axis + 1 :])

    @property
    def is_local(self) -> bool:
        """Whether all tables lie in files of this machine."""
        return all(getattr(table, "is_local", isinstance(table, Columns)) for table in self.tables)

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return where cells lie."""
        full = [c.reshape(-1) for c in np.broadcast_arrays(*cells)]
        along = full[self.axis]
        which = np.searchsorted(self.starts, along, side="right") - 1
        needed: list[int] = np.unique(which).tolist()
        places: list[Any] = [slice(None)] if len(needed) == 1 else [np.flatnonzero(which == k) for k in needed]

        def locate_in(number: int) -> ChunkLocations:
            k, index = needed[number], [c[places[number]] for c in full]
            index[self.axis] = index[self.axis] - self.starts[k]
            return self.tables[k].locate(index)

        # Files far away are read side by side.
        remote = any(_is_remote(self.tables[k]) for k in needed)
        found = gather(lambda number, stop: locate_in(number), range(len(needed)), width=MAX_REQUESTS if remote else 1)
        result = LocationsBuilder(len(along))
        for here, rows in zip(places, found, strict=True):
            result.put(here, rows)
        return result.build()
