"""Write the rows of chunk tables to files of a store, and describe them for its root.

Tables that follow each other along an axis are written as one, block by block in bounded memory.
Tables that the store has already are not written again, unless their file is merged into others.
Files are cut at a number of rows, so that the footer of one stays small enough to be fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from insitu.errors import UnsupportedError
from insitu.model import ABSENT, INLINE, UNWRITTEN, ChunkTable, Columns, SparseTable
from insitu.model.axis import Indices
from insitu.model.chunks import COLUMN_NAMES
from insitu.model.derived_tables import JoinedTable
from insitu.references import arrow
from insitu.references.atomic_write import Folder
from insitu.references.store.pools import Pools
from insitu.references.store.row_file import ROWS_PER_GROUP
from insitu.references.store.row_file_writer import PAGE_ROWS, RowFileWriter, describe_file
from insitu.references.store.row_tables import GridRows, SparseRows, StackedTables

__all__ = ["MAX_FILE_ROWS", "ChunkFiles", "TableWriter"]

MAX_FILE_ROWS = 1 << 24
"""Rows of a file: 64 MB with a page index and footer of 2 MB, which the first chunk waits for."""
_MOST_CELLS = 1 << 34
"""Most cells of a grid that are written one by one; larger grids must be sparse."""
_CHUNK_SCHEMA = pa.schema([
    ("tile", pa.int32()), ("cell", pa.int64()), ("source", pa.int32()), ("offset", pa.int64()), ("length", pa.int64()),
    ("filter_mask", pa.int64()), ("encoding", pa.int32()), ("packing", pa.int32()), ("inline", pa.large_binary()),
])  # fmt: skip
_NUMBERS = tuple(name for name in _CHUNK_SCHEMA.names if name != "inline")
_COLUMN_TYPES: dict[str, type[Any]] = {
    "source": np.int32, "offset": np.int64, "length": np.int64, "filter_mask": np.int64,
    "encoding": np.int32, "packing": np.int32,
}  # fmt: skip


class ChunkFiles:
    """The files of rows that one save writes. Create it with `ChunkFiles.create`."""

    def __init__(self, to: Folder, save_id: str, created: list[str], first: int, stack: ExitStack) -> None:
        self._folder, self._save_id, self._created, self._first, self._stack = to, save_id, created, first, stack
        self.parts: list[dict[str, Any]] = []
        """The root's entries about files that are complete."""

    @classmethod
    @contextmanager
    def create(cls, to: Folder, save_id: str, created: list[str], first: int) -> Iterator[ChunkFiles]:
        """Begin the first file; a file that is not complete when the context ends is removed.

        Parameters
        ----------
        to
            The store.
        save_id
            What the names of the files begin with.
        created
            Names of files are added to it when they exist.
        first
            Number of the first of them among the files of the store.
        """
        with ExitStack() as stack:
            files = cls(to, save_id, created, first, stack)
            files._open()
            yield files

    @property
    def part(self) -> int:
        """Number of the file that is written."""
        return self._first + len(self.parts)

    @property
    def rows(self) -> int:
        """Rows in it so far."""
        return self._writer.rows

    def add(self, columns: Mapping[str, Any]) -> None:
        """Add rows."""
        self._writer.add(columns)

    def reserve(self, rows: int) -> int:
        """Begin a new file if this one has no room for so many rows; return the number of the row
        that comes next.
        """
        if self.rows and self.rows + rows > MAX_FILE_ROWS:
            self.close()
            self._open()
        return self.rows

    def close(self) -> None:
        """Complete the file."""
        self._writer.close()
        description = describe_file(self._file)
        self._stack.close()
        self.parts.append({"file": self._name, "rows": self._writer.rows, **description})

    def _open(self) -> None:
        number = f"-{len(self.parts) + 1}" if self.parts else ""
        self._name = f"chunks-{self._save_id}{number}.parquet"
        self._file = self._stack.enter_context(self._folder.create(self._name))
        self._created.append(self._name)
        self._writer = RowFileWriter(self._file, _CHUNK_SCHEMA, _NUMBERS, PAGE_ROWS)
        self._stack.callback(self._writer.abandon)


@dataclass(frozen=True, slots=True, eq=False)
class _Leaf:
    """A table, and the numbers of its encodings and packings in the store."""

    table: ChunkTable
    encodings: Indices
    packings: Indices
    known: dict[int, int] = field(default_factory=dict)
    """Sources of the table: their numbers in the store."""


@dataclass(slots=True, eq=False)
class TableWriter:
    """Writes chunk tables."""

    files: ChunkFiles
    pools: Pools
    existing_sources: Any
    """The sources of the store that is changed: their numbers stay."""
    existing_parts: Mapping[int, int]
    """Files of that store that are kept: old and new number. Rows of others are written again."""
    tiles: int
    """How many tables were written so far."""

    def entry(self, table: ChunkTable, encodings: Indices, packings: Indices) -> dict[str, Any]:
        """Return a chunk table as the root describes it; write the rows that the store lacks."""
        axis = table.axis if isinstance(table, JoinedTable | StackedTables) else 0
        entries: list[dict[str, Any]] = []
        pending: list[_Leaf] = []

        def write_pending() -> None:
            if pending:
                entries.append(self._dense(pending, axis))
                pending.clear()

        for leaf in _leaves(_Leaf(table, encodings, packings), axis):
            make_entry = self._entry_without_rows(leaf)
            if make_entry is None:
                pending.append(leaf)
                continue
            write_pending()
            entries.append(make_entry())
        write_pending()
        return entries[0] if len(entries) == 1 else _join_entries(axis, entries)

    def _entry_without_rows(self, leaf: _Leaf) -> Callable[[], dict[str, Any]] | None:
        """Return what gives the entry of a table that is not written as a grid of rows; None: it
        is.
        """
        table = leaf.table
        if isinstance(table, GridRows | SparseRows) and table.sources is self.existing_sources:
            part_number = self.existing_parts.get(table.stored.number)
            if part_number is not None:
                return lambda: _existing_entry(table, part_number)
        if isinstance(table, JoinedTable | StackedTables):  # along another axis
            return lambda: self.entry(table, leaf.encodings, leaf.packings)
        if isinstance(table, Columns) and table.source.size == 1 and int(table.source.flat[0]) in (ABSENT, UNWRITTEN):
            state = int(table.source.flat[0])
            return lambda: {"kind": "constant", "shape": list(table.shape), "source": state}
        if isinstance(table, SparseTable):
            return lambda: self._sparse(leaf, len(table.number), _cut(table.number))
        if isinstance(table, SparseRows):
            return lambda: self._sparse(leaf, table.stored.count, table.cell_numbers())
        return None

    def _dense(self, leaves: Sequence[_Leaf], axis: int) -> dict[str, Any]:
        """Write a row for each cell of some tables side by side."""
        first = leaves[0].table.shape
        starts = np.cumsum([0, *(leaf.table.shape[axis] for leaf in leaves)]) if first else np.array([0, 1])
        shape = (*first[:axis], int(starts[-1]), *first[axis + 1 :]) if first else ()
        total = int(np.prod(shape, dtype=object))
        if total > _MOST_CELLS:
            raise UnsupportedError(
                f"cannot save a table of {total} cells: at most {_MOST_CELLS} cells of a grid that is not sparse"
            )
        # Cut along the first axis of several cells, the rows of each slab follow each other.
        cut = next((number for number, length in enumerate(shape) if length > 1), 0)
        length = shape[cut] if shape else 1
        steps = max(MAX_FILE_ROWS * length // max(total, 1), 1)
        entries = []
        for begin in range(0, max(length, 1), steps):
            slab = (*shape[:cut], min(steps, length - begin), *shape[cut + 1 :]) if shape else ()
            entries.append(self._slab(leaves, axis, starts, slab, cut, begin))
        return entries[0] if len(entries) == 1 else _join_entries(cut, entries)

    def _slab(
        self, leaves: Sequence[_Leaf], axis: int, starts: Indices, shape: tuple[int, ...], cut: int, begin: int
    ) -> dict[str, Any]:
        total, constant = int(np.prod(shape, dtype=object)), _ConstantColumns()
        # In one file: the root finds the rows of a table by the first of them and their count.
        first = self.files.reserve(total)
        for at in range(0, total, ROWS_PER_GROUP):
            numbers = np.arange(at, min(at + ROWS_PER_GROUP, total))
            cells = list(np.unravel_index(numbers, shape)) if shape else []
            if cells:
                cells[cut] = cells[cut] + begin
            self._add(numbers, *self._locate(leaves, axis, starts, cells), constant)
        return self._rows_entry("rows", shape, first, total, constant)

    def _sparse(self, leaf: _Leaf, total: int, blocks: Iterable[Indices]) -> dict[str, Any]:
        """Write a row for each of some cells, whose numbers are given in ascending order."""
        shape, constant = tuple(leaf.table.shape), _ConstantColumns()
        first = self.files.reserve(total)
        starts: list[int] = []
        for numbers in blocks:
            # The first cell in each group of rows, as they will lie in the file.
            row = self.files.rows
            cuts = [0] if row == first else []
            cuts += [at for at in range(-row % ROWS_PER_GROUP, len(numbers), ROWS_PER_GROUP) if at or row != first]
            starts += [int(numbers[at]) for at in cuts]
            self._add(numbers, *self._final_rows(leaf, list(np.unravel_index(numbers, shape))), constant)
        return {**self._rows_entry("sparse", shape, first, total, constant), "starts": starts}

    def _rows_entry(
        self, kind: str, shape: Sequence[int], first: int, total: int, constant: _ConstantColumns
    ) -> dict[str, Any]:
        self.tiles += 1
        row = {"kind": kind, "shape": list(shape), "part": self.files.part, "row": first, "count": total}
        return {**row, "constant": constant.values()}

    def _locate(
        self, leaves: Sequence[_Leaf], axis: int, starts: Indices, cells: list[Indices]
    ) -> tuple[dict[str, Indices], list[bytes | None] | None]:
        """Return the columns of cells of tables side by side, and their inline bytes."""
        if len(leaves) == 1:
            return self._final_rows(leaves[0], cells)
        which = np.searchsorted(starts, cells[axis], side="right") - 1
        columns = {name: np.zeros(len(which), np.int64) for name in COLUMN_NAMES}
        texts: list[bytes | None] | None = None
        for k in np.unique(which).tolist():
            here = np.flatnonzero(which == k)
            inner = [c[here] for c in cells]
            inner[axis] = inner[axis] - starts[k]
            found, inline = self._final_rows(leaves[k], inner)
            for name, column in columns.items():
                column[here] = found[name]
            if inline is not None:
                texts = texts or [None] * len(which)
                for at, text in zip(here.tolist(), inline, strict=True):
                    texts[at] = text
        return columns, texts

    def _final_rows(self, leaf: _Leaf, cells: list[Indices]) -> tuple[dict[str, Indices], list[bytes | None] | None]:
        """Return the columns of cells, with the numbers of the store, and their inline bytes."""
        rows = leaf.table.locate(cells)
        source = np.array(rows.source, np.int64)
        stored = source >= 0
        if leaf.table.sources is not self.existing_sources and stored.any():
            used, at = np.unique(source[stored], return_inverse=True)
            for number in used.tolist():
                if number not in leaf.known:
                    leaf.known[number] = self.pools.source(leaf.table.sources[number])
            source[stored] = np.array([leaf.known[number] for number in used.tolist()])[at.reshape(-1)]
        columns = {
            "source": source,
            "offset": np.where(stored, rows.offset, 0),
            "length": np.where(stored, rows.length, 0),
            "filter_mask": np.asarray(rows.filter_mask, np.int64),
            "encoding": leaf.encodings[rows.encoding],
            "packing": leaf.packings[rows.packing],
        }
        inline = np.flatnonzero(source == INLINE)
        if not len(inline):
            return columns, None
        texts: list[bytes | None] = [None] * len(source)
        for row, begin, size in zip(inline, rows.offset[inline].tolist(), rows.length[inline].tolist(), strict=True):
            texts[row] = rows.inline[begin : begin + size]
        return columns, texts

    def _add(
        self,
        numbers: Indices,
        columns: dict[str, Indices],
        inline: list[bytes | None] | None,
        constant: _ConstantColumns,
    ) -> None:
        """Write some rows."""
        constant.add(columns)
        raw = (
            pa.nulls(len(numbers), pa.large_binary())
            if inline is None
            else arrow.binary_array(inline, pa.large_binary())
        )
        wide = {name: arrow.number_array(np.asarray(column), _COLUMN_TYPES[name]) for name, column in columns.items()}
        tile = arrow.number_array(np.full(len(numbers), self.tiles), np.int32)
        self.files.add({**wide, "tile": tile, "cell": arrow.number_array(numbers, np.int64), "inline": raw})


def _leaves(leaf: _Leaf, axis: int) -> Iterator[_Leaf]:
    """Return the tables that are joined along an axis, whatever joined them."""
    table = leaf.table
    if isinstance(table, JoinedTable) and table.axis == axis:
        for part, one, other in zip(table.tables, table.encoding_maps, table.packing_maps, strict=True):
            yield from _leaves(_Leaf(part, leaf.encodings[one], leaf.packings[other]), axis)
    elif isinstance(table, StackedTables) and table.axis == axis:
        for part in table.tables:
            yield from _leaves(_Leaf(part, leaf.encodings, leaf.packings), axis)
    else:
        yield leaf


def _existing_entry(table: GridRows | SparseRows, part: int) -> dict[str, Any]:
    """Return the root's entry about a table that is in the store already."""
    stored = table.stored
    row = {"kind": "rows", "shape": list(table.shape), "part": part, "row": stored.first, "count": stored.count,
           "constant": dict(stored.constant)}  # fmt: skip
    return {**row, "kind": "sparse", "starts": table.starts.tolist()} if isinstance(table, SparseRows) else row


def _join_entries(axis: int, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the entry of joined tables; nested joins along the same axis are flattened."""
    tables: list[dict[str, Any]] = []
    for row in entries:
        tables += row["tables"] if row["kind"] == "joined" and row["axis"] == axis else [row]
    return {"kind": "joined", "axis": axis, "tables": tables}


def _cut(numbers: Indices) -> Iterator[Indices]:
    return (numbers[at : at + ROWS_PER_GROUP] for at in range(0, len(numbers), ROWS_PER_GROUP))


class _ConstantColumns:
    """Finds the columns that have one value in all rows."""

    def __init__(self) -> None:
        self._values: dict[str, int | None] = {}

    def add(self, columns: Mapping[str, Any]) -> None:
        for name, column in columns.items():
            if not len(column) or self._values.get(name, 0) is None:
                continue
            value = int(column[0])
            same = self._values.get(name, value) == value and bool((np.asarray(column) == value).all())
            self._values[name] = value if same else None

    def values(self) -> dict[str, int]:
        return {name: value for name in COLUMN_NAMES if (value := self._values.get(name)) is not None}
