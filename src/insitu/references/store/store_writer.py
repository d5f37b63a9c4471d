"""Write an insitu store: new row files first, then the root in one atomic step.

Rows are written block by block in bounded memory. Then the root that names the new files replaces
the old root. A crash before that leaves the old state. If two writers save at once, the slower one
gets an error and its files are removed.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from insitu.errors import InsituError, InsituWarning, NotFoundError, SourceError, UnsupportedError
from insitu.model import (
    ABSENT,
    INLINE,
    UNWRITTEN,
    ChunkLocations,
    ChunkTable,
    Columns,
    Source,
    SparseTable,
    Tile,
    VirtualArray,
    VirtualGroup,
)
from insitu.model.axis import Indices
from insitu.model.chunks import COLUMN_NAMES
from insitu.model.derived_tables import JoinedTable
from insitu.references import arrow
from insitu.references.atomic_write import Folder, open_folder
from insitu.references.sparse_table import ListedCells
from insitu.references.store import root
from insitu.references.store.json_values import dtype_to_json, pack
from insitu.references.store.pools import AXES, SOURCES, Pools
from insitu.references.store.row_file import ROWS_PER_GROUP, RowFileWriter, describe_file
from insitu.references.store.row_tables import GridRows, SparseRows, StackedTables
from insitu.references.store.store_reader import OpenStore

__all__ = ["StoreConflictError", "StoreUpdate", "restore_previous", "write_store"]

_MOST_CELLS = 1 << 34
"""Most cells of a grid that are written one by one; larger grids must be sparse."""
_CHUNK_SCHEMA = pa.schema([
    ("tile", pa.int32()), ("cell", pa.int64()), ("source", pa.int32()), ("offset", pa.int64()), ("length", pa.int64()),
    ("filter_mask", pa.int64()), ("encoding", pa.int32()), ("packing", pa.int32()), ("inline", pa.large_binary()),
])  # fmt: skip
_COLUMN_TYPES: dict[str, type[Any]] = {
    "source": np.int32, "offset": np.int64, "length": np.int64, "filter_mask": np.int64,
    "encoding": np.int32, "packing": np.int32,
}  # fmt: skip
UrlFormatter = Callable[[str], str]


class StoreConflictError(SourceError):
    """Another writer changed the store at the same time."""


def write_store(
    group: VirtualGroup,
    url: str,
    *,
    named: UrlFormatter | None = None,
    mode: str = "w",
    recipe: Mapping[str, Any] | None = None,
    expected: bytes | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Save a tree as a store.

    Parameters
    ----------
    group
        The tree.
    url
        The directory.
    named
        Formats the URL of a source.
    mode
        "w": replace an old store. "x": raise if there is one.
    recipe
        How files were combined into the tree.
    expected
        The root that is replaced; None: whichever is there.
    storage_options
        See `insitu.sources.open_source`.

    Raises
    ------
    SourceError
        If another writer changed the store at the same time. Nothing changes then.
    """
    to = open_folder(url, storage_options)
    before = to.read(root.NAME) if expected is None else expected
    if before is not None and mode == "x":
        raise SourceError("the store exists already", url=url, hint='Use mode="w" to replace it, or append to it')
    if not _StoreWriter(to, before, None, named, recipe).try_save(group):
        raise StoreConflictError(
            "another writer changed the store at the same time; nothing was saved",
            url=url,
            hint="Open the store again and repeat the change",
        )


@dataclass(slots=True, eq=False)
class StoreUpdate:
    """A change of an open store; rows that it has already are not written again."""

    opened: OpenStore
    storage_options: Mapping[str, Any] | None = None

    def is_relative(self) -> bool:
        """Return whether sources are named relative to the store."""
        return self.opened.sources.is_relative()

    def replace(self, group: VirtualGroup, named: UrlFormatter | None = None) -> bool:
        """Replace the tree; return False, and change nothing, if the store changed since it was
        read.
        """
        to = open_folder(self.opened.url, self.storage_options)
        return _StoreWriter(to, self.opened.data, self.opened, named, self.opened.document.get("recipe")).try_save(
            group
        )


def restore_previous(url: str, *, storage_options: Mapping[str, Any] | None = None) -> None:
    """Exchange the root of a store and its previous root."""
    to = open_folder(url, storage_options)
    now, before = to.read(root.NAME), to.read(root.PREVIOUS)
    if now is None:
        raise NotFoundError("there is no insitu store here", url=url)
    if before is None:
        raise UnsupportedError("cannot roll back: the store was saved only once", url=url)
    root.parse_root(before, url)
    if not to.swap(root.PREVIOUS, now, before) or not to.swap(root.NAME, before, now):
        raise SourceError("another writer changed the store at the same time", url=url, hint="Try again")


class _StoreWriter:
    """Writes one tree: files, then the root."""

    def __init__(
        self,
        to: Folder,
        before: bytes | None,
        opened: OpenStore | None,
        named: UrlFormatter | None,
        recipe: Mapping[str, Any] | None = None,
    ) -> None:
        self.to, self.before, self.opened, self.recipe = to, before, opened, recipe
        self.older: bytes | None = None
        self.remarks: list[str] = []
        """Failures after the save had its effect; they become warnings."""
        self.mark = uuid.uuid4().hex[:12]
        self.made: list[str] = []
        self.pools = Pools(opened, named or (lambda url: url))
        document = opened.document if opened is not None else {}
        self.tiles = int(document.get("tiles", 0))
        self.chunk_parts: list[dict[str, Any]] = list(document.get("chunks", ()))
        self.source_parts: list[dict[str, Any]] = list(document.get("sources", ()))

    def try_save(self, group: VirtualGroup) -> bool:
        """Write the files, then the root; return False if another writer changed the store before
        that.
        """
        ours = None
        try:
            document = self._document(group)
            ours = root.serialize(document)
            if self.before is not None:
                self._keep_previous()
            if not self._try_swap(root.NAME, ours, self.before):
                self._undo(None)
                return False
        except BaseException:
            self._undo(ours)
            raise
        self._tidy(document)
        for remark in self.remarks:
            warnings.warn(f"saved, but {remark}", InsituWarning, stacklevel=2)
        return True

    def _keep_previous(self) -> None:
        """Keep the root that is replaced, for a rollback."""
        self.older = self.to.read(root.PREVIOUS)
        if self.older != self.before and self.before is not None:
            self._try_swap(root.PREVIOUS, self.before, self.older)

    def _try_swap(self, name: str, ours: bytes, before: bytes | None) -> bool:
        """Replace a root; return whether the new one is there, even if the answer was an error."""
        try:
            # If the answer to a successful request was lost, its repetition fails: so look.
            return self.to.swap(name, ours, before) or self.to.read(name) == ours
        except SourceError as problem:
            if self.to.read(name) != ours:
                raise
            # The root is there: an error would make the caller repeat the change.
            self.remarks.append(f"a later step failed: {problem}")
            return True

    def _undo(self, ours: bytes | None) -> None:
        """Remove the files of a failed save, unless its root is in place: then they are the store."""
        if ours is None or self.to.read(root.NAME) != ours:
            self.to.remove(self.made)
            if self.older is None and self.before is not None and self.to.read(root.PREVIOUS) == self.before:
                self.to.remove([root.PREVIOUS])

    def _document(self, group: VirtualGroup) -> dict[str, Any]:
        name = f"chunks-{self.mark}.parquet"
        with ExitStack() as stack:
            file = stack.enter_context(self.to.create(name))
            self.made.append(name)
            self.writer = RowFileWriter(file, _CHUNK_SCHEMA, ("cell", "source", "offset", "length"))
            stack.callback(self.writer.abandon)
            self.part = len(self.chunk_parts)
            tree = self._group(group)
            self.writer.close()
            about = describe_file(file)
        self.chunk_parts.append({"file": name, "rows": self.writer.rows, **about})
        pools = self.pools
        if pools.sources:
            self.source_parts.append(self._write("sources", SOURCES, pools.source_columns(), ("size",)))
        axes = self._write("axes", AXES, pools.axis_columns(), AXES.names) if pools.axis_rows else None
        return {
            "id": self.mark,
            "tiles": self.tiles,
            "encodings": [root.encoding_to_json(encoding) for encoding in pools.encodings],
            "packings": pools.packing_document(self._write),
            "axes": axes,
            "sources": self.source_parts,
            "chunks": self.chunk_parts,
            "tree": tree,
            **({"recipe": dict(self.recipe)} if self.recipe is not None else {}),
        }

    def _write(self, kind: str, schema: Any, columns: Mapping[str, Any], delta: Sequence[str] = ()) -> dict[str, Any]:
        name = f"{kind}-{self.mark}.parquet"
        with self.to.create(name) as file:
            self.made.append(name)
            writer = RowFileWriter(file, schema, delta)
            writer.add(columns)
            writer.close()
            about = describe_file(file)
        return {"file": name, "rows": writer.rows, **about}

    def _tidy(self, document: Mapping[str, Any]) -> None:
        """Remove files that neither the new root nor the one before it names."""
        if self.older is None or self.before is None:
            return
        try:
            oldest, old = root.parse_root(self.older, self.to.url), root.parse_root(self.before, self.to.url)
        except InsituError:
            return  # of another version, or damaged: leave its files alone
        try:
            self.to.remove(sorted(_file_names(oldest) - _file_names(old) - _file_names(document)))
        except SourceError as problem:
            self.remarks.append(f"files that are no longer needed could not be removed: {problem}")

    def _group(self, group: VirtualGroup) -> dict[str, Any]:
        return {
            "attributes": pack(dict(group.attributes)),
            "details": pack(group.details.to_document()),
            "problems": dict(group.problems),
            "coordinates": list(group.coordinates),
            "unindexed": list(group.unindexed),
            "unlimited": list(group.unlimited),
            "arrays": {name: self._array(name, array) for name, array in group.arrays.items()},
            "groups": {name: self._group(inner) for name, inner in group.groups.items()},
        }

    def _array(self, name: str, array: VirtualArray) -> dict[str, Any]:
        try:
            return {
                "shape": list(array.shape),
                "dtype": dtype_to_json(array.dtype),
                "dims": list(array.dims),
                "attributes": pack(dict(array.attributes)),
                "fill_value": pack(array.fill_value),
                "encoding": pack(dict(array.encoding)),
                "details": pack(array.details.to_document()),
                "tiles": [
                    {"origin": origin, **self._tile(tile)}
                    for origin, tile in zip(array.origins.tolist(), array.tiles, strict=True)
                ],
            }
        except InsituError as problem:
            raise problem.with_context(variable=name) from None

    def _tile(self, tile: Tile) -> dict[str, Any]:
        encodings = [self.pools.encoding(encoding) for encoding in tile.encodings]
        packings = [self.pools.packing(tile.packings[row]) for row in range(len(tile.packings))]
        run = packings == list(range(packings[0], packings[0] + len(packings)))
        return {
            "layout": list(tile.dimensions),
            "axes": [self.pools.axis(axis) for axis in tile.axes],
            "encodings": encodings,
            "packings": {"first": packings[0], "count": len(packings)} if run else packings,
            "chunks": self._table(tile.chunks, np.array(encodings), np.array(packings)),
        }

    def _table(self, table: ChunkTable, encodings: Indices, packings: Indices) -> dict[str, Any]:
        """Return a chunk table as the root describes it; write the rows that the store lacks."""
        known = self._existing_entry(table)
        if known is not None:
            return known
        if isinstance(table, JoinedTable):
            parts = zip(table.tables, table.encoding_maps, table.packing_maps, strict=True)
            rows = [self._table(part, encodings[one], packings[other]) for part, one, other in parts]
            return _join_rows(table.axis, rows)
        if isinstance(table, Columns) and table.source.size == 1 and int(table.source.flat[0]) in (ABSENT, UNWRITTEN):
            return {"kind": "constant", "shape": list(table.shape), "source": int(table.source.flat[0])}
        if isinstance(table, SparseTable | ListedCells):
            return self._sparse(table, encodings, packings)
        return self._dense(table, encodings, packings)

    def _existing_entry(self, table: ChunkTable) -> dict[str, Any] | None:
        """Return the root's entry about a table that is in the store already; None: it is not."""
        if self.opened is None:
            return None
        if isinstance(table, StackedTables):
            inner = [self._existing_entry(part) for part in table.tables]
            found = [row for row in inner if row is not None]
            return {"kind": "joined", "axis": table.axis, "tables": found} if len(found) == len(inner) else None
        if isinstance(table, GridRows | SparseRows) and table.sources is self.opened.sources:
            stored = table.stored
            row = {"kind": "rows", "shape": list(table.shape), "part": stored.number, "row": stored.first,
                   "count": stored.count, "constant": dict(stored.constant)}  # fmt: skip
            return {**row, "kind": "sparse", "starts": table.starts.tolist()} if isinstance(table, SparseRows) else row
        return None

    def _dense(self, table: ChunkTable, encodings: Indices, packings: Indices) -> dict[str, Any]:
        total = int(np.prod(table.shape, dtype=object))
        if total > _MOST_CELLS:
            raise UnsupportedError(
                f"cannot save a table of {total} cells: at most {_MOST_CELLS} cells of a grid that is not sparse"
            )
        first, constant = self.writer.rows, _ConstantColumns()
        known: dict[int, int] = {}
        for begin in range(0, total, ROWS_PER_GROUP):
            numbers = np.arange(begin, min(begin + ROWS_PER_GROUP, total))
            rows = table.locate(list(np.unravel_index(numbers, table.shape)) if table.shape else [])
            self._add(numbers, rows, table.sources, known, encodings, packings, constant)
        self.tiles += 1
        row = {"kind": "rows", "shape": list(table.shape), "part": self.part, "row": first, "count": total}
        return {**row, "constant": constant.values()}

    def _sparse(self, table: SparseTable | ListedCells, encodings: Indices, packings: Indices) -> dict[str, Any]:
        total = len(table.number)
        first, constant = self.writer.rows, _ConstantColumns()
        known: dict[int, int] = {}
        for begin in range(0, total, ROWS_PER_GROUP):
            numbers = table.number[begin : begin + ROWS_PER_GROUP]
            rows = table.locate(list(np.unravel_index(numbers, table.shape)))
            self._add(numbers, rows, table.sources, known, encodings, packings, constant)
        # The first cell in each group of rows, as they will lie in the file.
        cuts = [first, *range((first // ROWS_PER_GROUP + 1) * ROWS_PER_GROUP, first + total, ROWS_PER_GROUP)]
        self.tiles += 1
        return {
            "kind": "sparse", "shape": list(table.shape), "part": self.part, "row": first, "count": total,
            "constant": constant.values(), "starts": [int(table.number[cut - first]) for cut in cuts],
        }  # fmt: skip

    def _add(
        self,
        numbers: Indices,
        rows: ChunkLocations,
        sources: Sequence[Source],
        known: dict[int, int],
        encodings: Indices,
        packings: Indices,
        constant: _ConstantColumns,
    ) -> None:
        """Write some rows."""
        source = np.array(rows.source, np.int64)
        stored = source >= 0
        if stored.any():
            used, at = np.unique(source[stored], return_inverse=True)
            for number in used.tolist():
                if number not in known:
                    known[number] = self.pools.source(sources[number])
            source[stored] = np.array([known[number] for number in used.tolist()])[at.reshape(-1)]
        inline = np.flatnonzero(source == INLINE)
        offset = np.where(stored, rows.offset, 0)
        length = np.where(stored, rows.length, 0)
        raw: Any = pa.nulls(len(numbers), pa.large_binary())
        if len(inline):
            texts: list[bytes | None] = [None] * len(numbers)
            for row, begin, size in zip(
                inline, rows.offset[inline].tolist(), rows.length[inline].tolist(), strict=True
            ):
                texts[row] = rows.inline[begin : begin + size]
            raw = arrow.binary_array(texts, pa.large_binary())
        columns = {
            "source": source, "offset": offset, "length": length, "filter_mask": np.asarray(rows.filter_mask, np.int64),
            "encoding": encodings[rows.encoding], "packing": packings[rows.packing],
        }  # fmt: skip
        constant.add(columns)
        wide = {name: arrow.number_array(np.asarray(column), _COLUMN_TYPES[name]) for name, column in columns.items()}
        tile = arrow.number_array(np.full(len(numbers), self.tiles), np.int32)
        self.writer.add({**wide, "tile": tile, "cell": arrow.number_array(numbers, np.int64), "inline": raw})


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


def _join_rows(axis: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the entry of joined tables; nested joins along the same axis are flattened."""
    tables: list[dict[str, Any]] = []
    for row in rows:
        tables += row["tables"] if row["kind"] == "joined" and row["axis"] == axis else [row]
    return {"kind": "joined", "axis": axis, "tables": tables}


def _file_names(document: Mapping[str, Any]) -> set[str]:
    """Return the names of the files that a root uses."""
    rows = [*document.get("sources", ()), *document.get("chunks", ())]
    packings = document.get("packings") or {}
    rows += [row for row in (document.get("axes"), packings.get("part")) if row]
    return {row["file"] for row in rows if isinstance(row, Mapping) and isinstance(row.get("file"), str)}
