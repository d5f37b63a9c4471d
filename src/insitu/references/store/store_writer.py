"""Write an insitu store: new row files first, then the root in one atomic step.

Rows are written block by block in bounded memory. Then the root that names the new files replaces
the old root. A crash before that leaves the old state. If two writers save at once, the slower one
gets an error and its files are removed.
"""

from __future__ import annotations

import os
import re
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from insitu.errors import InsituError, InsituWarning, SourceError, error_context
from insitu.model import Tile, VirtualArray, VirtualGroup
from insitu.references.atomic_write import Folder, open_folder
from insitu.references.store import root
from insitu.references.store.file_merging import files_to_merge, split_retired, trailing_files_to_merge
from insitu.references.store.json_values import dtype_to_json, pack
from insitu.references.store.native_names import inner_url
from insitu.references.store.pools import AXES, SOURCES, Pools
from insitu.references.store.previous_root import previous_names, read_previous
from insitu.references.store.row_file import ROWS_PER_GROUP, RowFile
from insitu.references.store.row_file_writer import RowFileWriter, describe_file
from insitu.references.store.store_reader import OpenStore
from insitu.references.store.table_writer import ChunkFiles, TableWriter
from insitu.references.urls import with_other_files

__all__ = [
    "StoreConflictError",
    "StoreUpdate",
    "is_unfinished",
    "write_store",
]

UrlFormatter = Callable[[str], str]
NOTHING_PINNED = VirtualGroup({})


_LEFT_BEHIND = re.compile(
    r"\.lock|((chunks|sources|axes|packings)-[0-9a-f]{12}(-\d+)?\.parquet|root\.json)(\.[0-9a-f]{8}\.tmp)?"
)
"""Names of the files that a writer makes before the root, and before it is complete."""


def is_unfinished(path: str) -> bool:
    """Return whether a local directory holds nothing but what a first save left that was killed."""
    names = os.listdir(path)
    return root.NAME not in names and all(map(_LEFT_BEHIND.fullmatch, names))


class StoreConflictError(SourceError):
    """Another writer changed the store at the same time."""


def write_store(
    group: VirtualGroup,
    url: str,
    *,
    name_source: UrlFormatter | None = None,
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
    name_source
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
    if not _StoreWriter(to, before, None, name_source, recipe).try_save(group):
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

    def file_sizes(self) -> list[int]:
        """Return the bytes of each file of rows and sources."""
        return [part.nbytes for part in (*self.opened.chunks, *self.opened.sources.parts)]

    def replace(
        self,
        group: VirtualGroup,
        name_source: UrlFormatter | None = None,
        recipe: Mapping[str, Any] | None = None,
        pinned: VirtualGroup = NOTHING_PINNED,
    ) -> bool:
        """Replace the tree, the pinned parts, and the recipe if one is given; return False, and change
        nothing, if the store changed since it was read.

        If the store has many small files, these are merged.
        """
        return self._writer(self.opened, name_source, recipe).try_save(group, pinned)

    def compact(self, name_source: UrlFormatter | None = None) -> bool:
        """Write all rows and sources that are in use anew, into as few files as possible; return
        False, and change nothing, if the store changed since it was read.
        """
        return self._writer(None, name_source).try_save(*self.opened.layers())

    def _writer(
        self, reused: OpenStore | None, name_source: UrlFormatter | None, recipe: Mapping[str, Any] | None = None
    ) -> _StoreWriter:
        to, opened = open_folder(self.opened.url, self.storage_options), self.opened
        return _StoreWriter(to, opened.data, reused, name_source, recipe or opened.recipe(), replaced=opened.document)


class _StoreWriter:
    """Writes one tree: files, then the root.

    Only the root says which state is the present one, so one conditional write decides it: a save
    that is killed before leaves files that no root names, one that is killed after it is complete.

    Parameters
    ----------
    to
        The store.
    before
        The root that is replaced; None: there is none.
    opened
        The store whose rows and sources are kept; None: all are written.
    name_source
        Formats the URL of a source.
    recipe
        How files were combined into the tree.
    replaced
        The document of the root that is replaced, if its readers may go on reading its files.
    """

    def __init__(
        self,
        to: Folder,
        before: bytes | None,
        opened: OpenStore | None,
        name_source: UrlFormatter | None,
        recipe: Mapping[str, Any] | None = None,
        replaced: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder, self.opened, self.recipe = to, opened, recipe
        self.replaced_root, self.replaced_document = before, replaced or {}
        self.older_root: bytes | None = None
        self.older_root_names: list[str] = []
        self.late_failures: list[str] = []
        """Failures after the save had its effect; they become warnings."""
        self.save_id = uuid.uuid4().hex[:12]
        self.created: list[str] = []
        self.name_source = name_source or (lambda url: url)
        self.pools = Pools(opened, lambda url: inner_url(url, to.url) or self.name_source(url))

    def try_save(self, group: VirtualGroup, pinned: VirtualGroup = NOTHING_PINNED) -> bool:
        """Write the files, then the root; return False if another writer changed the store before
        that.
        """
        new_root = None
        try:
            document = self._document(group, pinned)
            new_root = root.serialize(document)
            if self.replaced_root is not None:
                self._keep_previous(root.previous_name(document), self.replaced_root)
            if not self._try_swap(root.NAME, new_root, self.replaced_root):
                self._undo(None)
                return False
        except BaseException:
            self._undo(new_root)
            raise
        self._remove_unused(document)
        for failure in self.late_failures:
            warnings.warn(f"saved, but {failure}", InsituWarning, stacklevel=2)
        return True

    def _keep_previous(self, name: str, before: bytes) -> None:
        """Keep the root that is replaced, for a rollback.

        Under the id of the new root, so that it counts only once that is in place. Under one fixed
        name a killed save left the present root twice, and a rollback found nothing to restore.
        """
        self.older_root, self.older_root_names = read_previous(self.folder, before), previous_names(before)
        with self.folder.create(name) as file:
            self.created.append(name)
            file.write(before)

    def _try_swap(self, name: str, new_root: bytes, before: bytes | None) -> bool:
        """Replace a root; return whether the new one is there, even if the answer was an error."""
        try:
            # If the answer to a successful request was lost, its repetition fails: so look.
            return self.folder.swap(name, new_root, before) or self.folder.read(name) == new_root
        except SourceError as problem:
            if self.folder.read(name) != new_root:
                raise
            # The root is there: an error would make the caller repeat the change.
            self.late_failures.append(f"a later step failed: {problem}")
            return True

    def _undo(self, new_root: bytes | None) -> None:
        """Remove the files of a failed save, unless its root is in place: then they are the store.

        An error says nothing about that: the answer to a write that succeeded may be lost.
        """
        if new_root is None or self.folder.read(root.NAME) != new_root:
            self.folder.remove(self.created)

    def _document(self, group: VirtualGroup, pinned: VirtualGroup) -> dict[str, Any]:
        existing: Mapping[str, Any] = self.opened.document if self.opened is not None else {}
        parts: list[dict[str, Any]] = existing.get("chunks", [])
        merged = files_to_merge([part["rows"] for part in parts])
        unmerged = [number for number in range(len(parts)) if number not in merged]
        with ChunkFiles.create(self.folder, self.save_id, self.created, len(unmerged)) as files:
            self.tables = TableWriter(
                files,
                self.pools,
                None if self.opened is None else self.opened.sources,
                {old: new for new, old in enumerate(unmerged)},
                int(existing.get("tiles", 0)),
            )
            tree = self._group(group)
            native = self._group(pinned) if any(True for _ in pinned.all_arrays()) else None
            files.close()
        pools = self.pools
        axes = self._write("axes", AXES, [pools.axis_columns()], AXES.names) if pools.axis_rows else None
        document = {
            "id": self.save_id,
            "saved": round(time.time(), 3),
            "tiles": self.tables.tiles,
            "encodings": [root.encoding_to_json(encoding) for encoding in pools.encodings],
            "packings": pools.packing_document(lambda kind, schema, columns: self._write(kind, schema, [columns])),
            "axes": axes,
            "sources": self._source_parts(),
            "chunks": [*(parts[number] for number in unmerged), *files.parts],
            "tree": tree,
            **({} if native is None else {"pinned": native}),
            **({"recipe": with_other_files(self.recipe, self.name_source)} if self.recipe is not None else {}),
        }
        retired, self.expired = split_retired(self._retired_files(document), time.time())
        return {**document, "retired": retired} if retired else document

    def _source_parts(self) -> list[dict[str, Any]]:
        """Write the new sources, and those of small files that are merged; return all files."""
        parts: list[dict[str, Any]] = [] if self.opened is None else self.opened.document["sources"]
        files = () if self.opened is None else self.opened.sources.parts
        first = trailing_files_to_merge([part["rows"] for part in parts])
        if first == len(parts) and not self.pools.sources:
            return parts
        blocks = [block for file in files[first:] for block in _iter_columns(file)]
        if self.pools.sources:
            blocks.append(self.pools.source_columns())
        return [*parts[:first], self._write("sources", SOURCES, blocks, ("size",))]

    def _retired_files(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the files of earlier roots that this one does not use, and since when."""
        rows = [*self.replaced_document.get("chunks", ()), *self.replaced_document.get("sources", ())]
        retired = {
            **dict.fromkeys((row["file"] for row in rows), time.time()),
            **self.replaced_document.get("retired", {}),
        }
        used = _file_names(document)
        return {name: moment for name, moment in retired.items() if name not in used}

    def _write(
        self, kind: str, schema: Any, blocks: Iterable[Mapping[str, Any]], delta: Sequence[str] = ()
    ) -> dict[str, Any]:
        name = f"{kind}-{self.save_id}.parquet"
        with self.folder.create(name) as file:
            self.created.append(name)
            writer = RowFileWriter(file, schema, delta)
            for columns in blocks:
                writer.add(columns)
            writer.close()
            description = describe_file(file)
        return {"file": name, "rows": writer.rows, **description}

    def _remove_unused(self, document: Mapping[str, Any]) -> None:
        """Remove files that neither the new root nor the one before it names, and that nobody is
        expected to read any more.
        """
        if self.older_root is None or self.replaced_root is None:
            return
        try:
            oldest = root.parse_root(self.older_root, self.folder.url)
            old = root.parse_root(self.replaced_root, self.folder.url)
        except InsituError:
            return  # of another version, or damaged: leave its files alone
        try:
            unused = _file_names(oldest) | self.expired
            self.folder.remove(
                sorted(unused - _file_names(old) - _file_names(document) - document.get("retired", {}).keys())
            )
            self.folder.remove(self.older_root_names)
        except SourceError as problem:
            self.late_failures.append(f"files that are no longer needed could not be removed: {problem}")

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
        with error_context(variable=name):
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

    def _tile(self, tile: Tile) -> dict[str, Any]:
        encodings = [self.pools.encoding(encoding) for encoding in tile.encodings]
        packings = [self.pools.packing(tile.packings[row]) for row in range(len(tile.packings))]
        run = packings == list(range(packings[0], packings[0] + len(packings)))
        return {
            "layout": list(tile.dimensions),
            "axes": [self.pools.axis(axis) for axis in tile.axes],
            "encodings": encodings,
            "packings": {"first": packings[0], "count": len(packings)} if run else packings,
            "chunks": self.tables.entry(tile.chunks, np.array(encodings), np.array(packings)),
        }


def _iter_columns(file: RowFile) -> Iterator[Mapping[str, Any]]:
    return (file.columns(group, SOURCES.names) for group in range(-(-file.rows // ROWS_PER_GROUP)))


def _file_names(document: Mapping[str, Any]) -> set[str]:
    """Return the names of the files that a root uses."""
    rows = [*document.get("sources", ()), *document.get("chunks", ())]
    packings = document.get("packings") or {}
    rows += [row for row in (document.get("axes"), packings.get("part")) if row]
    return {row["file"] for row in rows if isinstance(row, Mapping) and isinstance(row.get("file"), str)}
