"""Zarr stores in folders of an archive.

A folder is a store if it holds Zarr metadata and no folder above it does. Its chunks are entries,
so they are ranges of the archive, and the list of entries tells which exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.containers.archive_entry import ArchiveEntry
from insitu.formats.containers.zip_entries import find_offsets
from insitu.model import Columns, Encoding, SparseTable, scatter
from insitu.sources.protocol import ByteSource

if TYPE_CHECKING:
    from insitu.zarr_metadata import ArrayMetadata

__all__ = ["ZarrFolder", "find_store_roots"]

MARKS = frozenset({"zarr.json", ".zgroup", ".zarray", ".zmetadata"})
LARGEST_DOCUMENT = 1 << 28


def find_store_roots(paths: Sequence[str]) -> list[str]:
    """Return the folders that are stores; an empty path is the archive itself.

    Examples
    --------
    >>> find_store_roots(["a.zarr/zarr.json", "a.zarr/t/zarr.json", "b.nc"])
    ['a.zarr']
    """
    marked = {path.rpartition("/")[0] for path in paths if path.rpartition("/")[2] in MARKS}
    return sorted(folder for folder in marked if not any(above in marked for above in _parent_folders(folder)))


def _parent_folders(folder: str) -> list[str]:
    parts = folder.split("/") if folder else []
    return ["/".join(parts[:number]) for number in range(len(parts))]


@dataclass(frozen=True, slots=True, eq=False)
class ZarrFolder:
    """A Zarr store in a folder of an archive, as `insitu.formats.zarr` scans it."""

    source: ByteSource
    """The archive."""
    path: str
    entries: Mapping[str, ArchiveEntry]
    """By key in the store."""
    storage_options: Mapping[str, Any] | None = None

    @property
    def url(self) -> str:
        """The archive's, and the folder's path."""
        return f"{self.source.url}::{self.path}" if self.path else self.source.url

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """Documents by key; None for those that are not there."""
        located = find_offsets([self.entries[key] for key in keys if key in self.entries], self.source)
        for entry in located:
            self._check(entry)
            if entry.length > LARGEST_DOCUMENT:
                raise FormatError(
                    f"a metadata document of {entry.length} bytes is too large", url=self.url, structure=entry.name
                )
        texts = iter(self.source.read_many([(entry.offset, entry.length) for entry in located]))
        return [next(texts) if key in self.entries else None for key in keys]

    def children(self, path: str) -> list[str]:
        """The names right under a path."""
        prefix = f"{path}/" if path else ""
        names_below = {name[len(prefix) :] for name in self.entries if name.startswith(prefix)}
        return sorted({name.partition("/")[0] for name in names_below if "/" in name})

    def table(self, path: str, array: ArrayMetadata) -> tuple[Columns | SparseTable, tuple[Encoding, ...]]:
        """Where an array's objects lie, and the encoding of its chunks."""
        prefix = f"{path}/" if path else ""
        grid = tuple(axis.count for axis in array.objects)
        cells: list[tuple[int, ...]] = []
        chunks: list[ArchiveEntry] = []
        for key, entry in self.entries.items():
            cell = array.keys.cell(key[len(prefix) :], len(grid)) if key.startswith(prefix) else None
            if cell is not None and all(at < count for at, count in zip(cell, grid, strict=True)):
                cells.append(tuple(cell))
                chunks.append(entry)
        located = find_offsets(chunks, self.source)
        for entry in located:
            self._check(entry)
        about = self.source.describe()
        if not located:
            return Columns.of_unwritten(grid), (array.encoding,)
        spans = np.array([(entry.offset, entry.length) for entry in located], np.int64)
        if not grid:
            return Columns.of_stored((), about, int(spans[0, 0]), int(spans[0, 1])), (array.encoding,)
        return scatter(grid, (about,), np.array(cells, np.int64), spans[:, 0], spans[:, 1]), (array.encoding,)

    def _check(self, entry: ArchiveEntry) -> None:
        if entry.problem:
            raise UnsupportedError(
                f"member {entry.name!r} cannot be read by range: {entry.problem}",
                url=self.url,
                hint="Make the archive without compression (zip -0), or unpack it",
            )
