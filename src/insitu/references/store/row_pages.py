"""Single pages of a Parquet file: found by the file's page index, decoded many at a time.

pyarrow decodes whole groups of rows, but a random chunk needs one page of a thousand rows. Pages are
found by the page index that the Parquet format defines (`OffsetIndex`). They are copied as they are
into a Parquet file in memory, whose footer is written here, and pyarrow decodes all of them in one
call and verifies their checksums.

pyarrow alone is too slow for that. In a store of 10 million chunks, 1,000 random chunks take 0.10 s
of processor with pages of 1,024 rows and 0.59 s without a page index, a point at 2,000 steps 0.17 s
and 0.58 s; only a single chunk is quicker without (0.016 s, with pages 0.028 s). Pages of 4,096
rows take 0.39 s, so smaller row groups are no substitute: of groups as small as these pages the
footer would list 10,000 (`bench/scale_store.py`, docs/benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from insitu.errors import FormatError
from insitu.model.axis import Indices
from insitu.references import arrow

__all__ = ["PageIndex", "decode_pages"]

# Thrift's compact protocol: a field is `delta of its number << 4 | type`, integers are zigzag
# varints, a struct ends with 0.
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
_STOP = b"\0"
_LOCATION = np.array([0x16, 0x15, 0x16, 0x00], np.uint8)
"""Bytes of a `PageLocation` beside its varints: offset (i64), size (i32), first row (i64), end."""
_VARINTS = 7
"""Bytes below 128, which end a varint or are one, in a `PageLocation`."""
_PHYSICAL_TYPES = {"INT32": 1, "INT64": 2}
_OPTIONAL, _DELTA, _RLE, _ZSTD = 1, 5, 3, 6  # of the enumerations in parquet.thrift
_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True, eq=False)
class PageIndex:
    """Where the pages of one file lie."""

    page_rows: int
    """Rows of each page; the last page of the file may have fewer."""
    pages_per_group: int
    columns: dict[str, tuple[int, int]]
    """Number and physical type (of parquet.thrift) of the columns whose pages can be read alone."""
    data: npt.NDArray[np.uint8]
    """All `OffsetIndex` structures: group by group, column by column."""
    begins: npt.NDArray[np.int64]
    """Where the structures of each group begin, and where the last ones end."""
    first: npt.NDArray[np.int64]
    """(groups, columns): the first page location, counted in bytes below 128 from there."""

    @classmethod
    def parse(cls, data: bytes, meta: Any) -> PageIndex | None:
        """Return the page index of a file; None if its pages cannot be read alone.

        Parameters
        ----------
        data
            The `OffsetIndex` structures.
        meta
            The footer.
        """
        columns = _independent_columns(meta)
        if not data or not columns:
            return None
        raw: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8)
        layouts: list[_GroupLayout] = []
        begins = [0]
        try:
            for _ in range(meta.num_row_groups):
                layout = _GroupLayout.find(raw, begins[-1], meta.num_columns, layouts[-1] if layouts else None)
                layouts.append(layout)
                begins.append(begins[-1] + layout.nbytes)
        except (IndexError, ValueError):
            return None  # of a writer that keeps more in its index
        most, page_rows = layouts[0].counts[0], meta.row_group(0).num_rows
        if most > 1:  # the first row of the second page
            ends = np.flatnonzero(raw[: begins[1]] < 128)
            page_rows = int(_varints(raw, ends, np.array([layouts[0].first[0] + _VARINTS + 5]))[0]) >> 1
        if page_rows < 1:
            return None
        for group, layout in enumerate(layouts):
            pages = -(-meta.row_group(group).num_rows // page_rows)
            if any(layout.counts[number] != pages for number, _ in columns.values()):
                return None
        if begins[-1] != len(data):
            return None
        return cls(page_rows, most, columns, raw, np.array(begins), np.array([layout.first for layout in layouts]))

    def locate(self, pages: Indices, names: Sequence[str]) -> tuple[Indices, Indices]:
        """Return offset and size of pages: (columns, pages)."""
        group, inside = np.divmod(pages, self.pages_per_group)
        groups, which = np.unique(group, return_inverse=True)
        found = []
        for begin, end in zip(self.begins[groups].tolist(), self.begins[groups + 1].tolist(), strict=True):
            found.append(np.flatnonzero(self.data[begin:end] < 128) + begin)
        starts = np.cumsum([0, *map(len, found[:-1])])
        ends = np.concatenate(found)
        column = np.array([self.columns[name][0] for name in names])[:, None]
        begin_at = starts[which.reshape(-1)] + self.first[group, column] + inside * _VARINTS
        varints = begin_at[..., None] + np.arange(_VARINTS)
        if (self.data[ends[varints[..., [0, 2, 4, 6]]]] != _LOCATION).any():
            raise FormatError("a page location is damaged")
        offset, size, row = (_varints(self.data, ends, varints[..., field]) >> 1 for field in (1, 3, 5))
        if (row != inside * self.page_rows).any():
            raise FormatError(f"the pages do not have {self.page_rows} rows each")
        return offset, size


def _varints(data: npt.NDArray[np.uint8], ends: Indices, numbers: Indices) -> Indices:
    """Return the varints that end at the bytes below 128 of these numbers."""
    begin, end = ends[numbers - 1] + 1, ends[numbers]
    value = np.zeros(numbers.shape, np.int64)
    for k in range(int((end - begin).max(initial=-1)) + 1):
        at = np.minimum(begin + k, end)
        value |= np.where(begin + k <= end, (data[at] & 127).astype(np.int64) << 7 * k, 0)
    return value


def _independent_columns(meta: Any) -> dict[str, tuple[int, int]]:
    """Return number and type of the columns whose pages need no dictionary."""
    found = {}
    for number in range(meta.num_columns if meta.num_row_groups else 0):
        schema_column, column = meta.schema.column(number), meta.row_group(0).column(number)
        kind = _PHYSICAL_TYPES.get(schema_column.physical_type)
        if kind is None or schema_column.max_definition_level != 1 or schema_column.max_repetition_level:
            continue
        if column.compression == "ZSTD" and not column.has_dictionary_page:
            found[schema_column.name] = (number, kind)
    return found


@dataclass(frozen=True, slots=True)
class _GroupLayout:
    """How the `OffsetIndex` structures of one group of rows follow each other, counted in bytes
    below 128, which end a varint or are one.
    """

    starts: npt.NDArray[np.int64]
    """Where the structure of each column begins."""
    first: list[int]
    """Where its first page location begins."""
    counts: list[int]
    """Its number of pages."""
    heads: npt.NDArray[np.uint8]
    """(3, columns): the first bytes of each structure, which hold its number of pages."""
    length: int
    nbytes: int

    @classmethod
    def find(cls, raw: npt.NDArray[np.uint8], begin: int, columns: int, like: _GroupLayout | None) -> _GroupLayout:
        """Return the layout of the group that begins at a byte; nearly always it is that of the
        group before, which is faster to see than to find out.
        """
        window = raw[begin : begin + (2 * like.nbytes if like is not None else len(raw))]
        ends = np.flatnonzero(window < 128)
        if like is not None and len(ends) >= like.length:
            at = ends[like.starts]
            if (window[at + np.arange(3)[:, None]] == like.heads).all() and not window[ends[like.length - 1]]:
                return replace(like, nbytes=int(ends[like.length - 1]) + 1)
        data, k = window.tobytes(), 0
        starts, first, counts = [], [], []
        for _ in range(columns):
            starts.append(k)
            location, count, k = _skip_offset_index(data, ends, k)
            first.append(location)
            counts.append(count)
        at = ends[starts]
        heads = window[at + np.arange(3)[:, None]]
        return cls(np.array(starts), first, counts, heads, k, int(ends[k - 1]) + 1)


def _skip_offset_index(data: bytes, ends: npt.NDArray[np.int64], k: int) -> tuple[int, int, int]:
    """Return the number in `ends` of an index's first page location, the number of its pages, and
    the number in `ends` of what follows the index.
    """
    first, count = _list_head(data, ends, k, _STRUCT)
    k = first + _VARINTS * count
    if data[ends[k]]:  # the sizes of texts in each page follow
        begin, sizes = _list_head(data, ends, k, _I64)
        k = begin + sizes
    if data[ends[k]] or not count:
        raise ValueError
    return first, count, k + 1


def _list_head(data: bytes, ends: npt.NDArray[np.int64], k: int, kind: int) -> tuple[int, int]:
    """Return the number in `ends` of a list's first element, and its length."""
    at = int(ends[k])
    head = data[at + 1]
    if data[at] != 0x19 or head & 15 != kind:
        raise ValueError
    count = head >> 4
    if count < 15:  # a head of 128 or more looks like the first byte of the first element
        return k + (2 if head < 128 else 1), count
    count = sum((byte & 127) << 7 * n for n, byte in enumerate(data[at + 2 : int(ends[k + 1]) + 1]))
    return k + 2, count


def decode_pages(data: npt.NDArray[np.uint8], sizes: Indices, kinds: Sequence[int], rows: int) -> Indices:
    """Return the numbers in some pages: (columns, rows).

    Parameters
    ----------
    data
        The pages, column by column, behind 4 bytes that are not used. Room for a footer need not be
        left.
    sizes
        (columns, pages): bytes of each page.
    kinds
        Physical types of the columns.
    rows
        Rows of all pages of a column.

    Raises
    ------
    pyarrow.ArrowException, OSError, ValueError, TypeError
        If the pages are damaged.
    """
    data[:4] = np.frombuffer(_MAGIC, np.uint8)
    total = sizes.sum(axis=1)
    begins = 4 + np.cumsum(total) - total
    columns = zip(kinds, begins.tolist(), total.tolist(), strict=True)
    footer = _write_footer(list(columns), rows)
    whole = b"".join([data.data, footer, len(footer).to_bytes(4, "little"), _MAGIC])
    table = pq.ParquetFile(pa.BufferReader(whole), page_checksum_verification=True).read_row_group(0, use_threads=False)
    values = np.empty((len(kinds), rows), np.int64)
    for number in range(len(kinds)):
        values[number] = arrow.to_integers(table.column(number).combine_chunks())
    return values


def _write_footer(columns: Sequence[tuple[int, int, int]], rows: int) -> bytes:
    """Return the footer of a file of one group of rows: `FileMetaData` in parquet.thrift.

    Columns are given by type, first byte and number of bytes.
    """
    names = [_text(f"c{number}") for number in range(len(columns))]
    schema = [b"\x48" + _text("schema") + _number(1, _I32, len(columns)) + _STOP]
    schema += [
        _number(1, _I32, kind) + _number(2, _I32, _OPTIONAL) + b"\x18" + name + _STOP
        for (kind, _, _), name in zip(columns, names, strict=True)
    ]
    chunks = []
    for (kind, begin, size), name in zip(columns, names, strict=True):
        metadata = (
            _number(1, _I32, kind)
            + _list(1, _I32, [_varint(_DELTA << 1), _varint(_RLE << 1)])
            + _list(1, _BINARY, [name])
            + _number(1, _I32, _ZSTD)
            + _number(1, _I64, rows)
            + _number(1, _I64, size)
            + _number(1, _I64, size)
            + _number(2, _I64, begin)
            + _STOP
        )
        chunks.append(_number(2, _I64, 0) + bytes([1 << 4 | _STRUCT]) + metadata + _STOP)
    total = sum(size for _, _, size in columns)
    group = _list(1, _STRUCT, chunks) + _number(1, _I64, total) + _number(1, _I64, rows) + _STOP
    version = _number(1, _I32, 2)
    return version + _list(1, _STRUCT, schema) + _number(1, _I64, rows) + _list(1, _STRUCT, [group]) + _STOP


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(delta: int, kind: int, value: int) -> bytes:
    return bytes([delta << 4 | kind]) + _varint(value << 1)


def _text(text: str) -> bytes:
    return _varint(len(text)) + text.encode()


def _list(delta: int, kind: int, items: Sequence[bytes]) -> bytes:
    return bytes([delta << 4 | _LIST, len(items) << 4 | kind]) + b"".join(items)
