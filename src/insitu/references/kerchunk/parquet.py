"""Read and write kerchunk Parquet directories, lazily.

`root/.zmetadata` holds the V2 documents and `record_size` N. `root/<array>/refs.<k>.parq` holds the
rows of chunks k·N to (k+1)·N, in C order of the grid, padded to N: `path`, `offset`, `size`, `raw`.
A file of rows is read when one of its cells is needed. Writers differ: columns may be missing, and
`path` may be a dictionary or all null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from insitu.errors import FormatError, InsituError, NotFoundError, error_context
from insitu.lru import LruCache
from insitu.model import INLINE, UNWRITTEN, WHOLE, ChunkLocations, GroupDetails, Source, Tile, VirtualGroup
from insitu.model.axis import Indices
from insitu.model.chunks import LocationsBuilder, flat_cell_numbers
from insitu.model.derived_tables import ChunkTableBase
from insitu.references import arrow
from insitu.references.atomic_write import Folder, new_directory, open_folder
from insitu.references.file_systems import check_names
from insitu.references.url_pool import UrlPool
from insitu.references.urls import UrlResolver
from insitu.references.zarr_blocks import ReferenceBlock, ZarrExport
from insitu.sources import open_source, read_all
from insitu.sources.listing import local_path
from insitu.sources.threads import gather
from insitu.zarr_metadata.array_document import ArrayMetadata
from insitu.zarr_metadata.hierarchy import build_tree, parse_nodes
from insitu.zarr_metadata.json_fields import integer_field, object_field

__all__ = ["ParquetTable", "read_parquet", "write_parquet"]

RECORD_SIZE = 100_000
_RECORDS_BYTES = 64 << 20
_COLUMNS = ("path", "offset", "size", "raw")
_ROWS_PER_URL = 10
"""Rows per URL above which URLs are dictionary-encoded, as kerchunk does."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordRows:
    """The rows of one file."""

    source: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    """Of inline rows, offset and length refer to `inline`."""
    inline: bytes

    @property
    def nbytes(self) -> int:
        """Memory of the rows, in bytes."""
        return 20 * len(self.source) + len(self.inline)


_ZERO = np.zeros((), np.int64)


def _record_bytes(record: RecordRows | None) -> int:
    return 128 if record is None else record.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class ParquetTable(ChunkTableBase):
    """Chunk table whose rows lie in Parquet files that are read when needed."""

    url: str
    """Of the array's directory."""
    shape: tuple[int, ...]
    record_size: int
    pool: UrlPool = field(repr=False)
    missing: str = "raise"
    """If a file of rows is missing: "raise" an error, or treat its chunks as "unwritten"."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    records: LruCache[int, RecordRows | None] = field(
        default_factory=lambda: LruCache(_RECORDS_BYTES, _record_bytes, min_items=1), repr=False
    )

    @property
    def sources(self) -> Sequence[Source]:
        """The sources of the files that were read so far."""
        return self.pool.sources

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return where cells lie."""
        number = flat_cell_numbers(cells, self.shape)
        record, row = np.divmod(number, self.record_size)
        places = LocationsBuilder(len(number))
        needed = np.unique(record).tolist()
        self._load([k for k in needed if k not in self.records])
        for k in needed:
            rows = self.records.get_or_load(k, partial(self._read, k))
            if rows is None:
                continue
            here = slice(None) if len(needed) == 1 else record == k
            index = row[here]
            if len(index) and int(index.max()) >= len(rows.source):
                raise FormatError(
                    f"the file has {len(rows.source)} rows, but row {int(index.max())} is needed",
                    structure=self._name(k),
                )
            columns = (rows.source[index], rows.offset[index], rows.length[index])
            places.put(here, ChunkLocations(*columns, _ZERO, _ZERO, _ZERO, rows.inline))
        return places.build()

    def _name(self, record: int) -> str:
        return f"{self.url}/refs.{record}.parq"

    def _load(self, records: list[int]) -> None:
        """Read several remote files of rows in parallel."""
        if len(records) > 1 and local_path(self.url) is None:
            gather(lambda k, stop: self.records.get_or_load(k, partial(self._read, k)), records)

    def _read(self, record: int) -> RecordRows | None:
        name = self._name(record)
        try:
            with open_source(name, self.storage_options) as source:
                data = read_all(source)
        except NotFoundError:
            if self.missing == "unwritten":
                return None
            raise FormatError(
                "a file of the reference set is missing",
                structure=name,
                hint='If the writer left out files without chunks, open with missing="unwritten"',
            ) from None
        with error_context(structure=name):
            return _parse_record(data, self.pool)


def _parse_record(data: bytes, pool: UrlPool) -> RecordRows:
    """Return the rows of one file."""
    try:
        meta = pq.read_metadata(pa.BufferReader(data))
        texts = ["path"] if "path" in meta.schema.names else []
        table = pq.ParquetFile(pa.BufferReader(data), metadata=meta, read_dictionary=texts).read().combine_chunks()
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise FormatError(f"this is not a readable Parquet file: {problem}") from None
    _check_columns(table.column_names)
    count = table.num_rows
    source: npt.NDArray[np.int32] = np.full(count, UNWRITTEN, np.int32)
    offset, length = (_integer_column(table, name, count) for name in ("offset", "size"))
    if "path" in table.column_names:
        numbers = _source_numbers(_single_chunk(table, "path"), pool)
        source = np.where(numbers >= 0, numbers, source).astype(np.int32)
    stored = source >= 0
    bad = stored & ((offset < 0) | (length < 0))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise FormatError(f"row {row} has a negative offset or size: offset {offset[row]}, size {length[row]}")
    length[stored & (offset == 0) & (length == 0)] = WHOLE
    inline = b""
    if "raw" in table.column_names:
        valid, begins, sizes, inline = _inline_column(_single_chunk(table, "raw"))
        source[valid], offset[valid], length[valid] = INLINE, begins[valid], sizes[valid]
    without_url = np.flatnonzero((source == UNWRITTEN) & ((offset != 0) | (length != 0)))
    if len(without_url):
        row = int(without_url[0])
        raise FormatError(f"row {row} has offset {offset[row]} and size {length[row]}, but no path")
    return RecordRows(source, offset, length, inline)


def _check_columns(names: Sequence[str]) -> None:
    """Raise `FormatError` where a column is missing that the others need.

    Inline data needs no other column, and whole files need neither offset nor size.
    """
    present = {name for name in names if not name.startswith("__")}  # pandas' index
    missing = [name for name in _COLUMNS if name not in present]
    needed = {"path", "raw"}.isdisjoint(present) or ("offset" in present) != ("size" in present)
    if missing and (needed or not present.issubset(_COLUMNS)):
        raise FormatError(f"there is no column {missing[0]!r}; the columns are {', '.join(names)}")


def _single_chunk(table: Any, name: str) -> Any:
    column = table.column(name)
    return (
        column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks) if column.num_chunks else column
    )


def _integer_column(table: Any, name: str, count: int) -> npt.NDArray[np.int64]:
    if name not in table.column_names:
        return np.zeros(count, np.int64)
    try:
        return arrow.to_integers(_single_chunk(table, name)).copy()
    except TypeError as problem:
        raise FormatError(f"column {name!r} does not hold integers: {problem}") from None


def _is_empty(column: Any, name: str) -> bool:
    """Return whether a column holds only nulls, or the NaN that fastparquet writes for them."""
    if column.null_count == len(column) or pa.types.is_null(column.type):
        return True
    if not pa.types.is_floating(column.type):
        return False
    values = np.frombuffer(column.buffers()[1], column.type.to_pandas_dtype())[column.offset :][: len(column)]
    if (arrow.valid_mask(column) & ~np.isnan(values)).any():
        raise FormatError(f"column {name!r} holds numbers, not text")
    return True


def _source_numbers(column: Any, pool: UrlPool) -> npt.NDArray[np.int64]:
    """Return the source number of each row; -1 for null."""
    count = len(column)
    if _is_empty(column, "path"):
        return np.full(count, -1, np.int64)
    if not isinstance(column, pa.DictionaryArray):
        if not (
            pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or pa.types.is_binary(column.type)
        ):
            raise FormatError(f"column 'path' holds {column.type}, not text")
        column = column.dictionary_encode()
    try:
        urls = column.dictionary.to_pylist()
    except UnicodeDecodeError as problem:
        raise FormatError(f"column 'path' holds invalid text: {problem}") from None
    indices = np.where(arrow.valid_mask(column.indices), arrow.to_integers(column.indices), -1)
    if len(indices) and int(indices.max()) >= len(urls):
        raise FormatError("column 'path' is damaged: an index lies outside its dictionary")
    known = np.full(len(urls) + 1, -1, np.int64)
    for at in np.unique(indices[indices >= 0]).tolist():
        url = urls[at]
        if isinstance(url, bytes):
            url = url.decode("utf-8", "surrogateescape")
        if url is not None and not isinstance(url, str):
            raise FormatError(f"column 'path' holds {url!r}, not text")
        if url:  # VirtualiZarr writes an empty text for a missing chunk
            known[at] = pool.number(url)
    numbers: npt.NDArray[np.int64] = known[indices]
    return numbers


def _inline_column(column: Any) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64], npt.NDArray[np.int64], bytes]:
    """Return which rows have inline data, its offsets and lengths, and all of it joined."""
    count = len(column)
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if _is_empty(column, "raw"):
        none = np.zeros(count, np.int64)
        return np.zeros(count, bool), none, none, b""
    try:
        ends, inline = arrow.offsets_and_bytes(column)
    except TypeError as problem:
        raise FormatError(f"column 'raw' does not hold bytes: {problem}") from None
    return arrow.valid_mask(column), ends[:-1], np.diff(ends), inline


def read_parquet(
    document: Mapping[str, Any],
    base: UrlResolver,
    *,
    errors: str = "raise",
    missing: str = "raise",
    storage_options: Mapping[str, Any] | None = None,
) -> VirtualGroup:
    """Return the tree of a directory of references; rows are read when they are needed.

    Parameters
    ----------
    document
        The parsed `.zmetadata`.
    base
        Resolves URLs; its own URL is the directory's.
    errors
        "raise", or "warn": arrays that cannot be read are left out, with the reasons in `problems`.
    missing
        If a file of rows is missing: "raise", or treat its chunks as "unwritten".
    storage_options
        See `insitu.sources.open_source`.
    """
    if missing not in ("raise", "unwritten"):
        raise ValueError(f'missing must be "raise" or "unwritten", not {missing!r}')
    assert base.url is not None
    root = local_path(base.url) or base.url.rstrip("/")
    with error_context(structure=".zmetadata"):
        documents = object_field(document.get("metadata"), "metadata")
        record_size = integer_field(document.get("record_size"), "record_size", least=1)
    pool = UrlPool(base)
    problems: dict[str, str] = {}

    def leave_out(path: str, problem: InsituError) -> None:
        problem.with_context(variable=path, url=root)
        if errors == "raise":
            raise problem
        problems[path] = str(problem)

    def tile(path: str, array: ArrayMetadata) -> Tile:
        grid = tuple(axis.count for axis in array.axes)
        table = ParquetTable(f"{root}/{path}", grid, record_size, pool, missing, storage_options)
        return Tile(array.axes, (array.encoding,), table)

    if not documents:
        raise FormatError("the directory holds no references: 'metadata' is empty", structure=".zmetadata")
    nodes = parse_nodes(documents, leave_out, open_shards=False)
    tree = build_tree(nodes, tile, leave_out, details=GroupDetails("kerchunk"))
    return replace(tree, problems=problems)


def write_parquet(
    writing: ZarrExport, url: str, *, record_size: int = RECORD_SIZE, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Write a tree as a directory of references. An old one is replaced when the new one is
    complete.
    """
    if record_size < 1:
        raise ValueError(f"record_size must be positive, not {record_size}")
    path = local_path(url)
    if path is not None:
        with new_directory(path) as to:
            check_names(writing.arrays, to.url)
            _write_directory(writing, to, record_size)
        return
    to = open_folder(url, storage_options)
    # Objects are replaced one by one. Without metadata, readers cannot mix old and new rows.
    to.remove([".zmetadata"])
    _write_directory(writing, to, record_size)


def _write_directory(writing: ZarrExport, to: Folder, record_size: int) -> None:
    for name in writing.arrays:
        for block in writing.blocks(name, record_size):
            with to.create(f"{name}/refs.{block.begin // record_size}.parq") as file:
                pq.write_table(
                    _to_arrow_table(block, record_size),
                    file,
                    compression="zstd",
                    write_statistics=["offset", "size"],
                    use_dictionary=["path"],
                )
    with to.create(".zmetadata") as file:
        file.write(json.dumps({"metadata": writing.documents(), "record_size": record_size}).encode())


def _to_arrow_table(block: ReferenceBlock, record_size: int) -> Any:
    """Return the rows of one file as an Arrow table, padded to `record_size`."""
    count = len(block.url)
    padding = record_size - count
    url = np.where(block.stored, block.url, -1)
    used, at = np.unique(url[url >= 0], return_inverse=True)
    indices = np.full(count, -1, np.int64)
    indices[url >= 0] = at.reshape(-1)
    missing = np.append(indices < 0, np.ones(padding, bool))
    paths: Any = pa.DictionaryArray.from_arrays(
        arrow.number_array(np.append(np.maximum(indices, 0), np.zeros(padding, np.int64)), np.int32, missing),
        arrow.text_array([block.urls[int(n)] for n in used]),
    )
    if int((indices >= 0).sum()) <= _ROWS_PER_URL * max(len(used), 1):
        paths = paths.dictionary_decode()
    # 0 and 0: the whole file.
    known = block.stored & (block.length >= 0)
    offset = np.append(np.where(known, block.offset, 0), np.zeros(padding, np.int64))
    size = np.append(np.where(known, block.length, 0), np.zeros(padding, np.int64))
    raw: Any = pa.nulls(record_size, pa.binary())
    if block.data:
        raw = arrow.binary_array([block.data.get(row) for row in range(record_size)], pa.binary())
    columns = [paths, arrow.number_array(offset), arrow.number_array(size), raw]
    # fastparquet reads nullable numbers, and those without null statistics, as floats, which fsspec
    # does not take for offsets.
    numbers = [pa.field(name, pa.int64(), nullable=False) for name in ("offset", "size")]
    schema = pa.schema([pa.field("path", paths.type), *numbers, pa.field("raw", pa.binary())])
    return pa.Table.from_arrays(columns, schema=schema)
