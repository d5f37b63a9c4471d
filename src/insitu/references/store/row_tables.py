"""Chunk tables whose rows lie in an insitu store, loaded lazily.

The row number of a cell is computed. Its group of rows is loaded when first needed, without
constant columns, and cached. `GridRows` is a full grid, `SparseRows` has the written cells of one,
and `StackedTables` joins several tables along an axis: what was saved first and what was appended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError
from insitu.lru import LruCache
from insitu.model import INLINE, UNWRITTEN, WHOLE, ChunkLocations, ChunkState, ChunkTable, Source
from insitu.model.axis import Indices
from insitu.model.chunks import COLUMN_NAMES, get_chunk_state
from insitu.model.derived_tables import ExpandedTable, SelectedTable
from insitu.references import arrow
from insitu.references.sparse_table import flat_cell_numbers
from insitu.references.store.row_file import ROWS_PER_GROUP, RowFile
from insitu.sources.listing import local_path
from insitu.sources.threads import gather

__all__ = ["GridRows", "PageCache", "SparseRows", "StackedTables", "new_page_cache"]

_PAGES_BYTES = 128 << 20


@dataclass(frozen=True, slots=True, eq=False)
class RowPage:
    """One group of rows in memory."""

    columns: Mapping[str, npt.NDArray[Any]]
    ends: npt.NDArray[np.int64] | None
    """Offsets of the inline bytes of each row, and their end; None: there are none."""
    inline: bytes


PageCache = LruCache[tuple[int, int, tuple[str, ...]], RowPage]
"""Pages by the number of the file, the group of rows and the columns."""


def _page_bytes(page: RowPage) -> int:
    return 256 + len(page.inline) + sum(column.nbytes for column in page.columns.values())


def new_page_cache() -> PageCache:
    """Return an empty page cache for one store."""
    return LruCache(_PAGES_BYTES, _page_bytes, min_items=1)


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """A range of rows of one file of the store."""

    part: RowFile
    number: int
    """Number of the file, for the cache."""
    first: int
    """The first row."""
    count: int
    constant: Mapping[str, int]
    """Columns that have one value in all of these rows."""
    pages: PageCache = field(repr=False)
    encoding_map: Indices = field(repr=False)
    """From the store's encodings and packings to the tile's; -1: not one of the tile's."""
    packing_map: Indices = field(repr=False)
    sources: int
    """How many sources the store has."""

    def names(self) -> tuple[str, ...]:
        """Return the columns to load."""
        varying = tuple(name for name in COLUMN_NAMES if name not in self.constant)
        inline = self.constant.get("source", INLINE) == INLINE
        return (*varying, "inline") if inline else varying

    def load(self, groups: Sequence[int]) -> None:
        """Fetch several remote groups in parallel."""
        if len(groups) > 1 and local_path(self.part.url) is None:
            missing = [group for group in groups if (self.number, group, self.names()) not in self.pages]
            gather(lambda group, stop: self.page(group), missing)

    def page(self, group: int, names: tuple[str, ...] | None = None) -> RowPage:
        """Return one group of rows."""
        wanted = self.names() if names is None else names
        return self.pages.get_or_load((self.number, group, wanted), partial(_read_page, self.part, group, wanted))

    def rows(self, row: Indices) -> ChunkLocations:
        """Return where the cells of these rows lie."""
        row = row + self.first
        group = row // ROWS_PER_GROUP
        inside = row - group * ROWS_PER_GROUP
        needed = np.unique(group).tolist()
        self.load(needed)
        found = {name: np.full(len(row), value, np.int64) for name, value in self.constant.items()}
        for name in COLUMN_NAMES:
            if name not in found:
                found[name] = np.empty(len(row), np.int64)
        inline = bytearray()
        for k in needed:
            page = self.page(k)
            here: Any = slice(None) if len(needed) == 1 else group == k
            at = inside[here]
            for name, column in page.columns.items():
                found[name][here] = column[at]
            if page.ends is not None:
                kept = found["source"][here] == INLINE
                if kept.any():
                    begin, end = page.ends[at], page.ends[at + 1]
                    found["offset"][here] = np.where(kept, begin + len(inline), found["offset"][here])
                    found["length"][here] = np.where(kept, end - begin, found["length"][here])
                    inline += page.inline
        self._check(found)
        encoding, packing = (
            self._to_tile_numbers(found["encoding"], self.encoding_map),
            self._to_tile_numbers(found["packing"], self.packing_map),
        )
        return ChunkLocations(
            found["source"], found["offset"], found["length"], found["filter_mask"], encoding, packing, bytes(inline)
        )

    def _check(self, found: Mapping[str, Indices]) -> None:
        """Raise `FormatError` if a row has an invalid source, offset or length."""
        if not len(found["source"]):
            return
        source, stored = found["source"], found["source"] >= 0
        if int(source.max()) >= self.sources or int(source.min()) < INLINE:
            raise FormatError(
                "a row has a source number that the store does not have", url=self.part.url, structure="source"
            )
        for name, least in (("offset", 0), ("length", WHOLE)):
            if stored.any() and int(found[name][stored].min()) < least:
                raise FormatError(f"a row has a negative {name}", url=self.part.url, structure=name)

    def _to_tile_numbers(self, numbers: Indices, known: Indices) -> Indices:
        if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) >= len(known)):
            raise FormatError(
                "a row has an encoding or packing number that the store does not have",
                url=self.part.url,
                structure="rows",
            )
        local: Indices = known[numbers]
        if len(local) and int(local.min()) < 0:
            raise FormatError(
                "a row has an encoding or packing number of another array", url=self.part.url, structure="rows"
            )
        return local


def _read_page(part: RowFile, group: int, names: tuple[str, ...]) -> RowPage:
    columns = part.columns(group, names)
    ends, inline = None, b""
    try:
        if "inline" in columns:
            raw = columns.pop("inline")
            if raw.null_count < len(raw):
                ends, inline = arrow.offsets_and_bytes(raw)
        return RowPage({name: arrow.to_integers(column) for name, column in columns.items()}, ends, inline)
    except TypeError as problem:
        raise FormatError(f"the rows cannot be read: {problem}", url=part.url, structure=f"group {group}") from None


@dataclass(frozen=True, slots=True, eq=False)
class GridRows:
    """Chunk table of a full grid: one row for each cell."""

    shape: tuple[int, ...]
    sources: Sequence[Source]
    stored: StoredRows

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return where cells lie."""
        return self.stored.rows(flat_cell_numbers(cells, self.shape))

    def take(self, axis: int, cells: Indices | slice) -> SelectedTable:
        """Return the table of these cells along one axis."""
        return SelectedTable.of(self, axis, cells)

    def with_new_axis(self) -> ExpandedTable:
        """Return the table with one more axis, of one cell, at the end."""
        return ExpandedTable(self)

    def __getitem__(self, cell: int | tuple[int, ...]) -> ChunkState:
        return get_chunk_state(self, cell)


@dataclass(frozen=True, slots=True, eq=False)
class SparseRows:
    """Chunk table with rows for some cells of a grid, in ascending order; the others were never
    written.
    """

    shape: tuple[int, ...]
    sources: Sequence[Source]
    stored: StoredRows
    starts: Indices
    """The number of the first cell in each group of rows."""

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return where cells lie."""
        wanted = flat_cell_numbers(cells, self.shape)
        stored = self.stored
        group = np.searchsorted(self.starts, wanted, side="right") - 1
        row = np.full(len(wanted), -1, np.int64)
        for k in np.unique(group).tolist():
            here = np.flatnonzero(group == k)
            there = np.zeros(len(here), bool)
            if k >= 0:
                begin, numbers = self._numbers(k)
                at = np.minimum(np.searchsorted(numbers, wanted[here]), len(numbers) - 1)
                there = numbers[at] == wanted[here]
                row[here[there]] = begin + at[there]
            # A cell behind all rows of its group may be in the next group, if that one does not
            # begin where the root says: check it.
            if k + 1 < len(self.starts) and (k < 0 or (wanted[here] > numbers[-1]).any()):
                self._numbers(k + 1)
        found = row >= 0
        result = {name: np.zeros(len(wanted), np.int64) for name in COLUMN_NAMES}
        result["source"][:] = UNWRITTEN
        if not found.any():
            return ChunkLocations(**result, inline=b"")
        rows = stored.rows(row[found])
        for name, column in result.items():
            column[found] = getattr(rows, name)
        return ChunkLocations(**result, inline=rows.inline)

    def _numbers(self, k: int) -> tuple[int, Indices]:
        """Return the first row of a group, counted from the table's first, and the cells of its
        rows.
        """
        stored = self.stored
        start = (stored.first // ROWS_PER_GROUP + k) * ROWS_PER_GROUP
        low, high = max(stored.first - start, 0), min(stored.first + stored.count - start, ROWS_PER_GROUP)
        numbers = stored.page(start // ROWS_PER_GROUP, ("cell",)).columns["cell"][low:high]
        if int(numbers[0]) != int(self.starts[k]):
            raise FormatError(
                f"a group of rows begins with cell {numbers[0]}, but the root records {self.starts[k]}",
                url=stored.part.url,
                structure="cell",
            )
        return start + low - stored.first, numbers

    def take(self, axis: int, cells: Indices | slice) -> SelectedTable:
        """Return the table of these cells along one axis."""
        return SelectedTable.of(self, axis, cells)

    def with_new_axis(self) -> ExpandedTable:
        """Return the table with one more axis, of one cell, at the end."""
        return ExpandedTable(self)

    def __getitem__(self, cell: int | tuple[int, ...]) -> ChunkState:
        return get_chunk_state(self, cell)


@dataclass(frozen=True, slots=True, eq=False)
class StackedTables:
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

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return where cells lie."""
        full = [c.reshape(-1) for c in np.broadcast_arrays(*cells)]
        along = full[self.axis]
        which = np.searchsorted(self.starts, along, side="right") - 1
        needed = np.unique(which).tolist()
        result = {name: np.zeros(len(along), np.int64) for name in COLUMN_NAMES}
        inline = bytearray()
        for k in needed:
            here: Any = slice(None) if len(needed) == 1 else which == k
            index = [c[here] for c in full]
            index[self.axis] = index[self.axis] - self.starts[k]
            rows = self.tables[k].locate(index)
            for name, column in result.items():
                column[here] = getattr(rows, name)
            if rows.inline:
                offset = result["offset"][here]
                result["offset"][here] = np.where(np.asarray(rows.source) == INLINE, offset + len(inline), offset)
                inline += rows.inline
        return ChunkLocations(**result, inline=bytes(inline))

    def take(self, axis: int, cells: Indices | slice) -> SelectedTable:
        """Return the table of these cells along one axis."""
        return SelectedTable.of(self, axis, cells)

    def with_new_axis(self) -> ExpandedTable:
        """Return the table with one more axis, of one cell, at the end."""
        return ExpandedTable(self)

    def __getitem__(self, cell: int | tuple[int, ...]) -> ChunkState:
        return get_chunk_state(self, cell)
