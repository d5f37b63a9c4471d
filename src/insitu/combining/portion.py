"""`Portion`: files that were scanned, with what combining has to know of them before they are joined.

Files that this process scans are one portion. Elsewhere there are many, as bytes that travel
between processes (`pack_portion`): what the client needs lies before the files, which stay where
they were scanned. Files are compressed: of 200 files of one archive, of 7 variables each, a file
takes 1,800 bytes, compressed 200.
"""

from __future__ import annotations

import io
import pickle
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from insitu.combining.files_table import FilesTable
from insitu.combining.survey import Survey
from insitu.model import Columns, Source
from insitu.scanning.member import Member
from insitu.scanning.scan_member import Failure

__all__ = ["Header", "Portion", "ScannedFiles", "files_of", "header_of", "pack_columns", "pack_portion"]

COMPRESSION_LEVEL = 1
"""Of zlib: 0.01 ms for a file. Level 3 takes off another 8 % and takes longer."""

ScannedFiles = Sequence[Member | Failure]


@dataclass(frozen=True, slots=True, eq=False)
class Portion:
    """The files that this process scanned."""

    found: ScannedFiles
    files: FilesTable

    @classmethod
    def of(cls, found: ScannedFiles) -> Portion:
        """Return the portion of some files."""
        return cls(found, FilesTable.of(found))

    def members(self) -> ScannedFiles:
        """Return what came of each file, in order."""
        return self.found

    def pieces(self, _: object) -> Mapping[int, Member]:
        """Return the files by their numbers: there is nothing to be gained by joining some of them first."""
        return {number: item for number, item in enumerate(self.found) if isinstance(item, Member)}


class Header(NamedTuple):
    """What is said of a portion without unpacking its files."""

    files: FilesTable
    survey: Survey
    worker: str
    identity: bytes
    """Of the files, before they were scanned. A client that looked at a million files itself would
    be the slowest part of a cluster.
    """


def pack_portion(found: ScannedFiles, worker: str, identity: bytes) -> bytes:
    """Return files that were scanned, as bytes."""
    header = Header(FilesTable.of(found), Survey.join([Survey.of(found)]), worker, identity)
    packed = pickle.dumps(header, pickle.HIGHEST_PROTOCOL)
    files = zlib.compress(pack_columns(list(found)), COMPRESSION_LEVEL)
    return len(packed).to_bytes(_LENGTH, "little") + packed + files


_LENGTH = 8
"""Bytes of the length of the header."""


def header_of(portion: bytes) -> Header:
    """Return what is said of a portion."""
    header: Header = pickle.loads(memoryview(portion)[_LENGTH:])
    return header


def files_of(portion: bytes) -> list[Member | Failure]:
    """Return what came of each file of a portion, in order."""
    begin = _LENGTH + int.from_bytes(portion[:_LENGTH], "little")
    found: list[Member | Failure] = pickle.loads(zlib.decompress(memoryview(portion)[begin:]))
    return found


def pack_columns(content: Any) -> bytes:
    """Return anything that holds chunk tables as bytes, for `pickle.loads`."""
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
