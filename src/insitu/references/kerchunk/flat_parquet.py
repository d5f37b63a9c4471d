"""Read and write references as one flat Parquet table.

The table has a row for each key: key, URL, offset, length, and inline data; metadata are inline
rows. Writers use different column names, so several are accepted (zaro's list).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from insitu.errors import FormatError
from insitu.model import VirtualGroup
from insitu.references.kerchunk.json import tree_from_references
from insitu.references.kerchunk.templates import Templates
from insitu.references.urls import UrlResolver
from insitu.references.zarr_blocks import ZarrExport

__all__ = ["read_flat", "write_flat"]

_KEYS = ("key", "path", "name")
_URLS = ("url", "uri", "path", "file")
_OFFSETS = ("offset", "start", "byte_offset")
_LENGTHS = ("length", "size", "byte_length")
_INLINE = ("raw", "value", "data", "inline", "content")
_SCHEMA = pa.schema([
    ("key", pa.string()), ("url", pa.string()), ("offset", pa.int64()), ("length", pa.int64()), ("raw", pa.binary()),
])  # fmt: skip


def read_flat(data: bytes, base: UrlResolver, *, errors: str = "raise") -> VirtualGroup:
    """Return the tree of a flat table of references."""
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read()
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise FormatError(f"this is not a readable Parquet file: {problem}", structure="references") from None
    columns = {name.lower(): table.column(at) for at, name in enumerate(table.column_names)}
    column_of_role: dict[str, str] = {}
    for role, names in (("key", _KEYS), ("url", _URLS), ("offset", _OFFSETS), ("length", _LENGTHS), ("raw", _INLINE)):
        found = next((name for name in names if name in columns and name not in column_of_role.values()), None)
        if found is not None:
            column_of_role[role] = found
    if "key" not in column_of_role or not ({"url", "raw"} & column_of_role.keys()):
        raise FormatError(
            f"this table does not hold kerchunk references: its columns are {', '.join(columns)}",
            structure="references",
            hint="It needs a column for the key, and one for the URL or for inline data",
        )
    if "length" in column_of_role and "offset" not in column_of_role:
        raise FormatError(
            f"there are lengths, but no offsets: the columns are {', '.join(columns)}", structure="references"
        )
    try:
        lists = {role: columns[name].to_pylist() for role, name in column_of_role.items()}
    except UnicodeDecodeError as problem:
        raise FormatError(f"the file holds invalid text: {problem}", structure="references") from None
    empty: list[Any] = [None] * table.num_rows
    rows = zip(*(lists.get(role, empty) for role in ("key", "url", "offset", "length", "raw")), strict=True)
    return tree_from_references(dict(_iter_references(rows)), Templates(), base, errors=errors)


def _iter_references(rows: Any) -> Iterator[tuple[str, Any]]:
    for key, url, offset, length, raw in rows:
        if not isinstance(key, str):
            raise FormatError(f"a key must be text, not {key!r}", structure="references")
        if raw is not None:
            yield key, raw
        elif url:
            yield key, [url] if offset is None and length is None else [url, offset or 0, length]
        elif offset or length:
            raise FormatError(
                f"{key}: there is an offset {offset} and a length {length}, but no URL", structure="references"
            )


def write_flat(writing: ZarrExport, file: IO[bytes]) -> None:
    """Write a tree as one flat table."""
    with pq.ParquetWriter(file, _SCHEMA, compression="zstd", use_dictionary=["url"]) as writer:
        _write(writing, writer)


def _write(writing: ZarrExport, writer: Any) -> None:
    documents = writing.documents()
    texts = [json.dumps(value).encode() for value in documents.values()]
    none = pa.nulls(len(texts), pa.int64())
    head = [
        pa.array(documents.keys(), pa.string()),
        pa.nulls(len(texts), pa.string()),
        none,
        none,
        pa.array(texts, pa.binary()),
    ]
    writer.write_table(pa.Table.from_arrays(head, schema=_SCHEMA))
    for path, array in writing.arrays.items():
        pattern = ".".join(["%d"] * len(array.grid)) or "0"
        for block in writing.blocks(path):
            present = np.flatnonzero(block.stored | block.inline)
            index = np.unravel_index(block.begin + present, array.grid) if array.grid else ()
            cells = zip(*(axis.tolist() for axis in index), strict=True) if array.grid else [()] * len(present)
            names = [f"{path}/{pattern % cell}" for cell in cells]
            whole = block.length[present] < 0
            inline = block.inline[present]
            urls = [
                None if url < 0 or raw else block.urls[url]
                for url, raw in zip(block.url[present].tolist(), inline, strict=True)
            ]
            raws = [block.data.get(row) for row in present.tolist()]
            rows = [
                pa.array(names, pa.string()),
                pa.array(urls, pa.string()),
                pa.array(block.offset[present], pa.int64(), mask=whole | inline),
                pa.array(block.length[present], pa.int64(), mask=whole | inline),
                pa.array(raws, pa.binary()),
            ]
            writer.write_table(pa.Table.from_arrays(rows, schema=_SCHEMA))
