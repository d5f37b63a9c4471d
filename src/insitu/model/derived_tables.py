"""Chunk tables derived from others: some cells, one more axis, several tables side by side.

Zarr keys are computed and reference files are paged in: such tables cannot be sliced by slicing
columns. These classes wrap any table and translate the cells that are looked up: `SelectedTable`
(some cells of it), `ExpandedTable` (one more axis), `JoinedTable` (several side by side).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from insitu.model.axis import Indices
from insitu.model.chunks import (
    ABSENT,
    COLUMN_NAMES,
    ChunkLocations,
    ChunkState,
    ChunkTable,
    LocationsBuilder,
    get_chunk_state,
)
from insitu.model.source import Source, SourceSequence

__all__ = ["ChunkTableBase", "ExpandedTable", "InterleavedSources", "JoinedTable", "SelectedTable"]


class ChunkTableBase:
    """Base of the chunk tables that cannot be sliced: they answer `locate`, and what is taken of
    them is a table around them.
    """

    __slots__ = ()

    def take(self: ChunkTable, axis: int, cells: Indices | slice) -> SelectedTable:
        """Return the table of these cells along one axis; -1: Absent."""
        return SelectedTable.of(self, axis, cells)

    def with_new_axis(self: ChunkTable) -> ExpandedTable:
        """Return the same table with one more axis, of one cell, at the end."""
        return ExpandedTable(self)

    def __getitem__(self: ChunkTable, cell: int | tuple[int, ...]) -> ChunkState:
        return get_chunk_state(self, cell)


@dataclass(frozen=True, slots=True, eq=False)
class SelectedTable(ChunkTableBase):
    """Some cells of a table."""

    table: ChunkTable
    cells: tuple[Indices | None, ...]
    """For each axis the cells of `table`, -1 for Absent; None: all of them."""

    @classmethod
    def of(cls, table: ChunkTable, axis: int, cells: Indices | slice) -> SelectedTable:
        """Select cells along one axis; a selection of a selection becomes one selection."""
        inner = table.cells if isinstance(table, cls) else (None,) * len(table.shape)
        old = inner[axis]
        if isinstance(cells, slice):
            new = np.arange(*cells.indices(table.shape[axis])) if old is None else old[cells]
        else:
            # Of an empty selection all cells are Absent.
            new = cells if old is None or not len(old) else np.where(cells < 0, -1, old[cells])
        return cls(table.table if isinstance(table, cls) else table, (*inner[:axis], new, *inner[axis + 1 :]))

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
        return tuple(
            whole if cells is None else len(cells) for cells, whole in zip(self.cells, self.table.shape, strict=True)
        )

    @property
    def sources(self) -> Sequence[Source]:
        """Sources of the underlying table."""
        return self.table.sources

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return the places of cells."""
        inner = [c if own is None else own[c] for c, own in zip(cells, self.cells, strict=True)]
        absent: npt.NDArray[np.bool_] = np.zeros((), bool)
        for c in inner:
            absent = absent | (c < 0)
        if not absent.any():
            return self.table.locate(inner)
        absent = absent.reshape(-1)
        full = [np.broadcast_to(c, np.broadcast_shapes(*map(np.shape, inner))).reshape(-1) for c in inner]
        places = LocationsBuilder(len(absent), ABSENT)
        if not absent.all():
            places.put(~absent, self.table.locate([c[~absent] for c in full]))
        return places.build()


@dataclass(frozen=True, slots=True, eq=False)
class ExpandedTable(ChunkTableBase):
    """A table with one more axis, of one cell, at the end."""

    table: ChunkTable

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
        return (*self.table.shape, 1)

    @property
    def sources(self) -> Sequence[Source]:
        """Sources of the underlying table."""
        return self.table.sources

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return the places of cells."""
        full = np.broadcast_arrays(*cells)
        return (
            self.table.locate([c.reshape(-1) for c in full[:-1]])
            if len(full) > 1
            else _repeat_row(self.table, full[0].size)
        )


def _repeat_row(table: ChunkTable, times: int) -> ChunkLocations:
    """Return the one row of a table without axes, repeated."""
    row = table.locate([])
    columns = {name: np.broadcast_to(getattr(row, name), (times,)) for name in COLUMN_NAMES}
    return ChunkLocations(**columns, inline=row.inline)


@dataclass(frozen=True, slots=True, eq=False)
class JoinedTable(ChunkTableBase):
    """Tables side by side along one axis, with joined pools of sources, encodings and packings."""

    tables: tuple[ChunkTable, ...]
    axis: int
    starts: Indices
    """First cell of each table along the axis, and the end."""
    sources: Sequence[Source]
    source_maps: tuple[npt.NDArray[np.int64], ...] | None
    """For each table, the positions of its sources (and below: encodings, packings) in the joined
    pools.

    None: the sources are `InterleavedSources`.
    """
    encoding_maps: tuple[npt.NDArray[np.int64], ...]
    packing_maps: tuple[npt.NDArray[np.int64], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
        first = self.tables[0].shape
        return (*first[: self.axis], int(self.starts[-1]), *first[self.axis + 1 :])

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return the places of cells."""
        full = [c.reshape(-1) for c in np.broadcast_arrays(*cells)]
        along = full[self.axis]
        part = np.searchsorted(self.starts, along, side="right") - 1
        places = LocationsBuilder(len(along))
        for number in np.unique(part):
            here = part == number
            index = [c[here] for c in full]
            index[self.axis] = index[self.axis] - self.starts[number]
            found = self.tables[number].locate(index)
            source = np.asarray(found.source, np.int64)
            stored = source >= 0
            if self.source_maps is None:
                renumbered = source * len(self.tables) + number
            else:
                renumbered = _look_up(self.source_maps[number], source)
            found = found._replace(
                source=np.where(stored, renumbered, source),
                encoding=self.encoding_maps[number][found.encoding],
                packing=self.packing_maps[number][found.packing],
            )
            places.put(here, found)
        return places.build()


class InterleavedSources(SourceSequence):
    """The sources of tables side by side, where they are computed or their number still grows.

    Source `local` of table `part` has the number `local * parts + part`, which stays valid while a
    table's sources grow.
    """

    def __init__(self, pools: Sequence[Sequence[Source]]) -> None:
        self.pools = tuple(pools)

    def __len__(self) -> int:
        return max((len(pool) for pool in self.pools), default=0) * len(self.pools)

    def find(self, number: int) -> Source:
        """Return one source."""
        local, part = divmod(number, len(self.pools))
        return self.pools[part][local]

    def __iter__(self) -> Iterator[Source]:
        # Not by number: shorter pools leave some free.
        for pool in {id(pool): pool for pool in iter_pools(self)}.values():
            yield from pool


def iter_pools(sources: Sequence[Source]) -> Iterator[Sequence[Source]]:
    """Yield the lists that sources consist of: most tables of an archive share theirs."""
    if isinstance(sources, InterleavedSources):
        for pool in sources.pools:
            yield from iter_pools(pool)
    else:
        yield sources


def _look_up(table: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return `table[numbers]`; the results for negative numbers are arbitrary."""
    return table[np.maximum(numbers, 0)] if len(table) else numbers
