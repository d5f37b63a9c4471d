"""Read Parquet files of a store: a group of rows or single pages at a time, with checksums.

The root records the sizes of a file and its footer, so the footer is one request and a group of
rows, or single pages of it, another. It also records checksums: every fetched piece is verified
before it is used. Small files are fetched as a whole. The files are plain Parquet, which any tool
can query.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from insitu.errors import FormatError, NotFoundError, SourceError, StaleSourceError, TruncatedError
from insitu.forking import fork_safe_lock
from insitu.model.axis import Indices
from insitu.references.store.row_pages import PageIndex, decode_pages
from insitu.sources import open_source
from insitu.sources.protocol import ReadsRanges

__all__ = ["ROWS_PER_GROUP", "RowFile", "digest", "footer_bytes", "group_sections"]

ROWS_PER_GROUP = 1 << 16
"""Rows of a group, which is loaded as a whole when many of them are needed."""
SMALL_FILE = 1 << 18
"""Most bytes of a file that is fetched as a whole."""
INLINE_COLUMN = "inline"
_ARROW_ERRORS = (pa.ArrowException, OSError, ValueError)
"""What pyarrow raises for damaged files."""
TAIL_BYTES = 1 << 16
"""Bytes at the end of a file that the Parquet library reads first."""


class _PartialFile(io.RawIOBase):
    """A read-only file of which only one range of bytes was fetched."""

    def __init__(self, size: int, begin: int, data: bytes) -> None:
        self._size, self._begin, self._data = size, begin, data
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._at + size, self._size)
        begin = self._at - self._begin
        if begin < 0 or end - self._begin > len(self._data):
            raise OSError("read outside the fetched range")
        self._at = end
        return self._data[begin : end - self._begin]


@dataclass(frozen=True, slots=True, eq=False)
class RowFile:
    """One file of rows."""

    url: str
    rows: int
    nbytes: int
    footer: int
    """Bytes of the page index and the footer, including its length and the magic bytes behind it."""
    checksum: str
    """Of these bytes."""
    group_checksums: tuple[tuple[str, ...], ...]
    """Of the sections of each group of rows: see `group_sections`."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    known: dict[str, Any] = field(default_factory=dict, repr=False)
    """The parsed footer and page index, and the bytes of a small file, once they were read."""
    lock: Any = field(default_factory=fork_safe_lock, repr=False)

    def columns(self, group: int, names: Sequence[str]) -> dict[str, Any]:
        """Return columns of one group of rows, as Arrow arrays."""
        meta = self._metadata()
        if not 0 <= group < meta.num_row_groups:
            raise FormatError(
                f"group {group} is needed, but the file has {meta.num_row_groups} groups of rows",
                url=self.url,
                structure="footer",
            )
        data: bytes | None = self.known.get("data")
        begin = 0
        if data is None:
            begin, data = self._fetch_group(meta, group, names)
        file = pa.PythonFile(_PartialFile(self.nbytes, begin, data), "r")
        try:
            table = pq.ParquetFile(file, metadata=meta, page_checksum_verification=True).read_row_group(
                group, columns=list(names), use_threads=False
            )
        except _ARROW_ERRORS as problem:
            raise FormatError(f"the rows cannot be read: {problem}", url=self.url, structure=f"group {group}") from None
        return self._select(table, names)

    def page_index(self) -> PageIndex | None:
        """Return where single pages lie; None if whole groups of rows must be read."""
        self._metadata()
        index: PageIndex | None = self.known.get("index")
        return index

    def pages(self, pages: Indices, names: Sequence[str]) -> tuple[Indices, int]:
        """Return the numbers in some pages, one behind the other: (columns, rows); and the rows of a
        page.
        """
        index = self.page_index()
        if index is None:
            raise FormatError("the file has no page index", url=self.url, structure="footer")
        try:
            offset, size = index.locate(pages, names)
            rows = int(np.minimum(index.page_rows, self.rows - pages * index.page_rows).sum())
            data = self._fetch_pages(offset.reshape(-1), size.reshape(-1))
            kinds = [index.columns[name][1] for name in names]
            return decode_pages(data, size, kinds, rows), index.page_rows
        except FormatError as problem:
            raise problem.with_context(url=self.url, structure="page index") from None
        except SourceError:
            raise
        except (*_ARROW_ERRORS, TypeError) as problem:
            raise FormatError(f"the rows cannot be read: {problem}", url=self.url, structure="pages") from None

    def all_columns(self, names: Sequence[str]) -> dict[str, Any]:
        """Return columns of all rows, as Arrow arrays."""
        data = self._fetch(0, self.nbytes)
        self._verify_footer(data)
        meta = self._parse_footer(pa.BufferReader(data))
        self._verify_groups(meta, data)
        try:
            file = pq.ParquetFile(pa.BufferReader(data), metadata=meta, page_checksum_verification=True)
            table = file.read(columns=list(names), use_threads=False).combine_chunks()
        except _ARROW_ERRORS as problem:
            raise FormatError(f"the rows cannot be read: {problem}", url=self.url, structure="rows") from None
        return self._select(table, names)

    def _select(self, table: Any, names: Sequence[str]) -> dict[str, Any]:
        for name in names:
            if table.column_names.count(name) != 1:
                raise FormatError(f"the file has no column {name!r}, or several", url=self.url, structure="columns")
        return {name: table.column(name).combine_chunks() for name in names}

    def _metadata(self) -> Any:
        """Return the parsed footer."""
        with self.lock:
            if "meta" not in self.known:
                self._open()
            return self.known["meta"]

    def _open(self) -> None:
        if self.nbytes <= SMALL_FILE:
            data = self._fetch(0, self.nbytes)
            self._verify_footer(data)
            meta = self._parse_footer(pa.BufferReader(data))
            self._verify_groups(meta, data)
            self.known["data"] = data
        else:
            length = min(max(self.footer, TAIL_BYTES), self.nbytes)
            begin = self.nbytes - length
            tail = self._fetch(begin, length)
            self._verify_footer(tail)
            meta = self._parse_footer(pa.PythonFile(_PartialFile(self.nbytes, begin, tail), "r"))
            index = tail[length - self.footer : length - footer_bytes(tail)]
            self.known["index"] = PageIndex.parse(index, meta)
        self.known["meta"] = meta

    def _parse_footer(self, file: Any) -> Any:
        try:
            meta = pq.read_metadata(file)
        except _ARROW_ERRORS as problem:
            raise FormatError(f"the footer cannot be read: {problem}", url=self.url, structure="footer") from None
        self._check(meta)
        return meta

    def _check(self, meta: Any) -> None:
        """Raise `FormatError` if rows, group sizes or checksums do not match the root."""
        if meta.num_rows != self.rows:
            raise FormatError(
                f"the file has {meta.num_rows} rows, but the root records {self.rows}", url=self.url, structure="footer"
            )
        sizes = [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]
        if any(size != ROWS_PER_GROUP for size in sizes[:-1]) or any(size > ROWS_PER_GROUP for size in sizes[-1:]):
            raise FormatError(
                f"the groups of rows do not have {ROWS_PER_GROUP} rows each", url=self.url, structure="footer"
            )
        sections = len(group_sections(meta, 0)) if sizes else 0  # columns, and so sections, are those of all groups
        if [len(sums) for sums in self.group_checksums] != [sections] * len(sizes):
            raise FormatError(
                "the root does not have a checksum for each group of rows", url=self.url, structure="footer"
            )

    def verify(self) -> None:
        """Read the whole file, a group of rows at a time, and compare it with its checksums.

        Raises
        ------
        FormatError
            If it does not match its checksums.
        """
        meta = self._metadata()
        if "data" not in self.known:
            for group in range(meta.num_row_groups):
                self._fetch_group(meta, group, None)

    def _verify_footer(self, tail: bytes) -> None:
        if digest(tail[len(tail) - self.footer :]) != self.checksum:
            raise self._checksum_error("footer")

    def _verify_groups(self, meta: Any, data: bytes) -> None:
        """Compare all groups of rows of a file in memory with their checksums."""
        for group, sums in enumerate(self.group_checksums):
            for (begin, end, _), checksum in zip(group_sections(meta, group), sums, strict=True):
                if digest(data[begin:end]) != checksum:
                    raise self._checksum_error(f"group {group}")

    def _fetch_group(self, meta: Any, group: int, names: Sequence[str] | None) -> tuple[int, bytes]:
        """Fetch and verify the sections of a group that hold some columns (None: all); return
        offset and bytes.
        """
        sections = [
            (section, checksum)
            for section, checksum in zip(group_sections(meta, group), self.group_checksums[group], strict=True)
            if names is None or not section[2].isdisjoint(names)
        ]
        if not sections:
            raise FormatError(f"the file has none of the columns {names}", url=self.url, structure="columns")
        first, last = sections[0][0][0], sections[-1][0][1]
        data = self._fetch(first, last - first)
        for (begin, end, _), checksum in sections:
            if digest(data[begin - first : end - first]) != checksum:
                raise self._checksum_error(f"group {group}")
        return first, data

    def _checksum_error(self, structure: str) -> FormatError:
        return FormatError(
            "the file is damaged: it does not match the checksum in the root",
            url=self.url,
            structure=structure,
            hint="Undo the last change (insitu rollback), or save the store again",
        )

    def _fetch(self, begin: int, length: int) -> bytes:
        with self._source() as source:
            data: bytes = source.read(begin, length)
        if len(data) != length:
            raise self._truncated_error(begin, length)
        return data

    def _fetch_pages(self, offset: Indices, size: Indices) -> npt.NDArray[np.uint8]:
        """Return ranges of bytes, one behind the other, behind 4 free bytes."""
        total = int(size.sum())
        with self._source() as source:
            if isinstance(source, ReadsRanges):
                data = np.empty(4 + total, np.uint8)
                received = source.read_ranges_into(offset, size, data[4:])
            else:
                found = source.read_many(list(zip(offset.tolist(), size.tolist(), strict=True)))
                data = np.frombuffer(bytearray(b"".join([b"\0\0\0\0", *found])), np.uint8)
                received = len(data) - 4
        if received != total:
            raise self._truncated_error(int(offset.min()), int((offset + size).max() - offset.min()))
        return data

    @contextmanager
    def _source(self) -> Iterator[Any]:
        try:
            with open_source(self.url, self.storage_options) as source:
                yield source
        except NotFoundError:
            raise StaleSourceError(
                "a file of the store is gone: the store was written anew, or not copied completely",
                url=self.url,
                structure="part",
                hint="Open the store again",
            ) from None

    def _truncated_error(self, begin: int, length: int) -> TruncatedError:
        return TruncatedError(
            "a file of the store is cut short: its copy is incomplete", url=self.url, offset=begin, length=length
        )

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self.url, self.rows, self.nbytes, self.footer, self.checksum, self.group_checksums)
        return RowFile, (*arguments, self.storage_options)


def digest(data: bytes) -> str:
    """Return the checksum of some bytes: the first 16 hexadecimal digits of their SHA-256."""
    return hashlib.sha256(data).hexdigest()[:16]


def footer_bytes(tail: bytes) -> int:
    """Return the size of a Parquet footer, with its length and the magic bytes behind it."""
    return int.from_bytes(tail[-8:-4], "little") + 8


def group_sections(meta: Any, group: int) -> list[tuple[int, int, set[str]]]:
    """Return the sections of a group of rows that are fetched and verified as a whole: begin, end,
    columns.

    The column of inline bytes, which may be large and is seldom needed, is a section of its own.
    """
    row_group = meta.row_group(group)
    sections: list[tuple[int, int, set[str]]] = []
    for at in range(row_group.num_columns):
        column = row_group.column(at)
        name = column.path_in_schema.partition(".")[0]
        begin = column.data_page_offset
        if column.has_dictionary_page and column.dictionary_page_offset is not None:
            begin = min(begin, column.dictionary_page_offset)
        end = begin + column.total_compressed_size
        if not sections or name == INLINE_COLUMN:
            sections.append((begin, end, {name}))
        else:
            first, last, names = sections[-1]
            sections[-1] = (min(first, begin), max(last, end), names | {name})
    return sections
