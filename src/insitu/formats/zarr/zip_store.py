"""Metadata documents and chunk table of a Zarr store that is one zip file.

The central directory lists every entry, so the cells that exist are known. An entry's bytes begin
behind a local header, whose length only the header itself tells: those of the wanted entries are
read, many at a time, when cells are first asked for. Entries that the archive compressed have one
more codec at the end of their chain.
"""

from __future__ import annotations

import zipfile
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from insitu.errors import FormatError, UnsupportedError, error_context
from insitu.formats.containers.zip_entries import LOCAL_HEADER, ZipEntry, end_of_local_header, read_directory
from insitu.model import UNWRITTEN, ChunkLocations, Codec, Encoding, Source
from insitu.model.axis import Indices
from insitu.model.chunks import flat_cell_numbers
from insitu.model.derived_tables import ChunkTableBase
from insitu.sources import ByteSource, open_source
from insitu.zarr_metadata.array_document import ArrayMetadata

__all__ = ["ZipStore", "ZippedChunks"]

_METHODS = {zipfile.ZIP_DEFLATED: Codec("deflate"), zipfile.ZIP_BZIP2: Codec("bz2"), 93: Codec("zstd")}
_LARGEST_DOCUMENT = 1 << 28
_DOCUMENTS = frozenset({"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"})


@dataclass(frozen=True, slots=True, eq=False)
class ZipStore:
    """A zip file with a store in it."""

    source: Source
    entries: Mapping[str, ZipEntry] = field(repr=False)
    """By name, in the order of names."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    names: list[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", list(self.entries))

    @classmethod
    def open(cls, opened: ByteSource, storage_options: Mapping[str, Any] | None = None) -> ZipStore:
        """Read the list of entries."""
        entries = {entry.name: entry for entry in read_directory(opened, opened.size())}
        entries = dict(sorted(_strip_root_folder(entries).items()))
        return cls(opened.describe(), entries, storage_options)

    @property
    def url(self) -> str:
        """Of the zip file."""
        return self.source.url

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return documents by key; None for those that are missing."""
        infos = [self.entries[key] for key in keys if key in self.entries]
        with open_source(self.url, self.storage_options) as opened:
            begins = _read_entry_offsets(opened, [info.header for info in infos])
            stored = opened.read_many([(at, info.packed) for at, info in zip(begins, infos, strict=True)])
        texts = {info.name: self._document(info, data) for info, data in zip(infos, stored, strict=True)}
        return [texts[self.entries[key].name] if key in self.entries else None for key in keys]

    def _document(self, info: ZipEntry, data: bytes) -> bytes:
        with error_context(url=self.url, structure=info.name):
            if info.flags & 1 or info.method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise UnsupportedError("a metadata document in the zip file is neither stored nor deflated")
            if info.full > _LARGEST_DOCUMENT:
                raise FormatError(f"a metadata document of {info.full} bytes is too large")
            if info.method == zipfile.ZIP_DEFLATED:
                try:
                    data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, info.full + 1)
                except zlib.error as problem:
                    raise FormatError(f"the zip file is damaged: {problem}") from None
            if len(data) != info.full or zlib.crc32(data) != info.crc:
                raise FormatError("a metadata document in the zip file does not match its checksum")
        return data

    def _below(self, path: str) -> tuple[str, list[str]]:
        """Return a path with a slash at its end, and the entries under it."""
        if not path:
            return "", self.names
        begin = bisect_left(self.names, f"{path}/")
        return f"{path}/", self.names[
            begin : bisect_left(self.names, f"{path}0", begin)
        ]  # a slash comes right before 0

    def children(self, path: str) -> list[str]:
        """Return the names right under a path."""
        prefix, below = self._below(path)
        names = {name[len(prefix) :] for name in below}
        return sorted({name.partition("/")[0] for name in names if "/" in name})

    def table(self, path: str, array: ArrayMetadata) -> tuple[ZippedChunks, tuple[Encoding, ...]]:
        """Return the chunk table of an array, and the encodings of its chunks."""
        prefix, below = self._below(path)
        grid = tuple(axis.count for axis in array.objects)
        names = [name for name in below if name.rpartition("/")[2] not in _DOCUMENTS]
        cells = array.keys.cells([name[len(prefix) :] for name in names], len(grid))
        if cells is None:  # something else lies there, too
            known = [(name, array.keys.cell(name[len(prefix) :], len(grid))) for name in names]
            names = [name for name, cell in known if cell is not None]
            cells = np.array([cell for _, cell in known if cell is not None], np.int64).reshape(-1, len(grid))
        in_grid = np.flatnonzero((cells < np.array(grid, np.int64)).all(axis=1))
        stored_cells = np.ravel_multi_index(tuple(cells[in_grid].T), grid) if grid else np.zeros(len(in_grid), np.int64)
        rows = []
        for number, at in zip(stored_cells.tolist(), in_grid.tolist(), strict=True):
            name = names[at]
            info = self.entries[name]
            if info.flags & 1:
                raise UnsupportedError(
                    "encrypted members of a zip file are not supported", url=self.url, structure=name
                )
            rows.append((number, info.header, info.packed, info.method))
        rows.sort()
        columns = np.array(rows, np.int64).reshape(len(rows), 4)
        methods = [zipfile.ZIP_STORED, *sorted(set(columns[:, 3].tolist()) - {zipfile.ZIP_STORED})]
        for method in methods[1:]:
            if method not in _METHODS:
                raise UnsupportedError(
                    f"members of a zip file compressed by method {method} are not supported",
                    url=self.url,
                    structure=path,
                )
        encodings = [array.encoding]
        for method in methods[1:]:
            chain = (*array.encoding.codecs, _METHODS[method])
            encodings.append(Encoding(array.encoding.dtype, chain, array.encoding.order, array.encoding.fill))
        encoding = np.searchsorted(np.array(methods), columns[:, 3])
        table = ZippedChunks(
            self.source, grid, columns[:, 0], columns[:, 1], columns[:, 2], encoding, self.storage_options
        )
        return table, tuple(encodings)


def _strip_root_folder(entries: dict[str, ZipEntry]) -> dict[str, ZipEntry]:
    """Return the entries relative to the store's root: people also zip the folder itself."""
    tops = {name.partition("/")[0] for name in entries}
    if len(tops) == 1 and all("/" in name for name in entries):
        skip = len(tops.pop()) + 1
        roots = {"zarr.json", ".zgroup", ".zarray", ".zmetadata"}
        if any(name[skip:] in roots for name in entries):
            return {name[skip:]: info for name, info in entries.items()}
    return entries


@dataclass(frozen=True, slots=True, eq=False)
class ZippedChunks(ChunkTableBase):
    """The table of a grid whose chunks are entries of a zip file."""

    source: Source
    shape: tuple[int, ...]
    number: Indices
    """Of each entry's cell; ascending."""
    header: Indices
    """Where each entry's local header begins."""
    length: Indices
    encoding: Indices
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    begin: Indices = field(init=False, repr=False)
    """Where each entry's bytes begin; -1: not looked up yet."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "begin", np.full(len(self.number), -1, np.int64))

    @property
    def sources(self) -> tuple[Source, ...]:
        """The zip file."""
        return (self.source,)

    def cell_numbers(self) -> Iterator[Indices]:
        """Return the numbers of the cells that were written."""
        yield self.number

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return where cells lie."""
        numbers = flat_cell_numbers(cells, self.shape)
        zero = np.zeros(len(numbers), np.int64)
        if not len(self.number):
            return ChunkLocations(np.full(len(numbers), UNWRITTEN), zero, zero, zero, zero, zero, b"")
        at = np.minimum(np.searchsorted(self.number, numbers), len(self.number) - 1)
        found = self.number[at] == numbers
        self._look_up(np.unique(at[found]))
        offset, length, encoding = (
            np.where(found, column[at], 0) for column in (self.begin, self.length, self.encoding)
        )
        return ChunkLocations(np.where(found, 0, UNWRITTEN), offset, length, zero, encoding, zero, b"")

    def _look_up(self, rows: Indices) -> None:
        """Read the local headers of entries whose bytes have not been found yet."""
        unknown = rows[self.begin[rows] < 0]
        if not len(unknown):
            return
        with open_source(self.source.url, self.storage_options) as opened:
            self.begin[unknown] = _read_entry_offsets(opened, self.header[unknown].tolist())


def _read_entry_offsets(opened: ByteSource, headers: Sequence[int]) -> list[int]:
    """Return where the bytes of entries begin, by their local headers."""
    texts = opened.read_many([(header, LOCAL_HEADER) for header in headers])
    return [end_of_local_header(text, header, opened.url) for text, header in zip(texts, headers, strict=True)]
