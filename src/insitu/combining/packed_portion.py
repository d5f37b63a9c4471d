"""A portion of files as bytes that travel between processes: a header, the files, their table.

The files are there beside the table, because joining loses what only one file has (a value that
another file's value stands for, attributes of the second file). Where the portions are no table,
or are to be combined in another way, they are combined from the files, and nothing is scanned
again. Files are compressed: of 200 files of one archive, of 7 variables each, a file takes 1,800
bytes, compressed 200, and its part of the table 400.
"""

from __future__ import annotations

import io
import pickle
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from insitu.combining.file_table import FileTable, NotOneTableError
from insitu.model import Columns, Source
from insitu.scanning.member import Member
from insitu.scanning.scan_member import Failure

__all__ = ["Header", "files_of", "header_of", "pack_files", "pack_portion", "pack_table", "table_of", "without_files"]

COMPRESSION_LEVEL = 1
"""Of zlib: 0.01 ms for a file. Level 3 takes off another 8 % and takes longer."""


class Header(NamedTuple):
    """What is said of a portion without unpacking it."""

    files: int
    failed: int
    worker: str
    identity: bytes = b""
    """Of the files, before they were scanned. A client that looked at a million files itself would
    be the slowest part of a cluster.
    """
    refused: str = ""
    """Why the files are no table, if they are none. It is no error, and workers log it as none."""


def pack_portion(header: Header, found: Sequence[Member | Failure], make_table: Callable[[], FileTable]) -> bytes:
    """Return a portion that was scanned, with its table if its files make one."""
    return _pack_with_table(header, _pack_found(found), make_table)


def pack_files(header: Header, found: Sequence[Member | Failure]) -> bytes:
    """Return a portion that was scanned, without a table."""
    return _join_parts(header, _pack_found(found), b"")


def pack_table(header: Header, make_table: Callable[[], FileTable]) -> bytes:
    """Return the table of several portions, without their files."""
    return _pack_with_table(header, b"", make_table)


def without_table(portion: bytes) -> bytes:
    """Return a portion without its table."""
    header, files, _ = _split_parts(portion)
    return _join_parts(header._replace(refused=""), files, b"")


def without_files(portion: bytes) -> bytes:
    """Return a portion without its files."""
    header, _, table = _split_parts(portion)
    return _join_parts(header, b"", table)


def header_of(portion: bytes) -> Header:
    """Return what is said of a portion."""
    header: Header = pickle.loads(portion)
    return header


def files_of(portion: bytes) -> list[Member | Failure]:
    """Return what came of each file, in order."""
    _, files, _ = _split_parts(portion)
    found: list[Member | Failure] = pickle.loads(zlib.decompress(files))
    return found


def table_of(portion: bytes) -> FileTable:
    """Return the table."""
    _, _, packed = _split_parts(portion)
    table: FileTable = pickle.loads(packed)
    return table


def _pack_with_table(header: Header, files: bytes, make_table: Callable[[], FileTable]) -> bytes:
    try:
        table = make_table()
    except NotOneTableError as refused:
        return _join_parts(header._replace(refused=str(refused)), files, b"")
    return _join_parts(header, files, _pickle_columns(table))


def _pack_found(found: Sequence[Member | Failure]) -> bytes:
    return zlib.compress(_pickle_columns(list(found)), COMPRESSION_LEVEL)


def _join_parts(header: Header, files: bytes, table: bytes) -> bytes:
    return b"".join(pickle.dumps(part, pickle.HIGHEST_PROTOCOL) for part in (header, files, table))


def _split_parts(portion: bytes) -> tuple[Header, bytes, bytes]:
    file = io.BytesIO(portion)
    return pickle.load(file), pickle.load(file), pickle.load(file)


def _pickle_columns(content: Any) -> bytes:
    file = io.BytesIO()
    _ColumnsPickler(file, pickle.HIGHEST_PROTOCOL).dump(content)
    return file.getvalue()


class _ColumnsPickler(pickle.Pickler):
    """Pickles the sources of chunk tables as columns, once for all variables that have the same, and
    the six columns of a table as one object: a file's tables are small, and an array each takes
    twice the time.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._packed: dict[tuple[int, ...], tuple[Any, _PackedSources]] = {}
        """Identities of sources: the sources, which keep them taken, and their columns."""
        self._layouts: dict[_Layout, _Layout] = {}
        """Layouts of columns, so that equal ones are pickled once."""

    def reducer_override(self, value: Any) -> Any:
        """Return how a chunk table is pickled; everything else as usual."""
        if type(value) is not Columns or not isinstance(value.sources, tuple):
            return NotImplemented
        sources = value.sources
        key = tuple(map(id, sources))
        if key not in self._packed:
            self._packed[key] = sources, _PackedSources.of(sources)
        make, (shape, _, columns, inline) = value.__reduce__()
        # The widest first, so that each column lies aligned.
        widest = sorted(columns.items(), key=lambda item: -item[1].itemsize)
        layout = tuple((name, column.dtype.str, column.shape) for name, column in widest)
        layout = self._layouts.setdefault(layout, layout)
        data = b"".join([column.tobytes() for _, column in widest])
        return _rebuild_columns, (make, shape, self._packed[key][1], layout, data, inline)


_Layout = tuple[tuple[str, str, tuple[int, ...]], ...]
"""Name, type and shape of each column."""


class _PackedSources:
    """Sources as columns."""

    __slots__ = ("columns", "sources")

    def __init__(self, *columns: list[Any]) -> None:
        self.columns = columns
        self.sources = tuple(map(Source, *columns))

    @classmethod
    def of(cls, sources: tuple[Source, ...]) -> _PackedSources:
        """Return sources as columns."""
        names = ("url", "size", "etag", "modified", "optional")
        return cls(*([getattr(source, name) for source in sources] for name in names))

    def __reduce__(self) -> tuple[Any, ...]:
        return _PackedSources, self.columns


def _rebuild_columns(
    make: Callable[..., Columns], shape: tuple[int, ...], packed: _PackedSources, layout: _Layout, data: bytes,
    inline: bytes,
) -> Columns:  # fmt: skip
    columns, begin = {}, 0
    for name, dtype, column_shape in layout:
        count = int(np.prod(column_shape, dtype=np.intp))
        columns[name] = np.frombuffer(data, dtype, count, begin).reshape(column_shape)
        begin += columns[name].nbytes
    return make(shape, packed.sources, columns, inline)
