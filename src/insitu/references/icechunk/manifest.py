"""Decode the manifests of Icechunk repositories: the chunk references of their arrays.

A manifest is a header of 39 bytes and a compressed FlatBuffer (Icechunk specification, "Manifests").
The positions of all references of an array are decoded together; where the chunks lie, only for the
references that are needed. That is why they are decoded here: the library lists all references of
an array or none, and the first of a million chunks took 10.5 s of processor, now 0.09 s. Manifests
of version 2 may have URLs that are compressed with a dictionary; only the C kernels decompress
these.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from insitu.codecs.linked_libraries import decompress_texts
from insitu.errors import FormatError
from insitu.forking import cached_property

__all__ = ["ArrayReferences", "ManifestRows", "object_id", "open_manifest"]

_MAGIC = "ICE🧊CHUNK".encode()
_HEADER = 39  # magic 12, name of the writer 24, then a byte each: version of the format, kind of file, compression
_MANIFEST, _ZSTD = 2, 1
_VERSIONS = (1, 2)
_LONGEST_URL = 1 << 16
_CONTAINER = "vcc://"
"""Begins a URL that is relative to a container of the repository: `vcc://name/path`."""
_LARGEST, _PIECE = 1 << 33, 1 << 20
"""Bytes of a decompressed manifest: of the whole, and of what is decompressed at once."""
_MOST_AXES = 64
_CROCKFORD = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", b"0123456789ABCDEFGHJKMNPQRSTVWXYZ")

# Numbers of the fields in their tables, in the order of the schema.
_ID, _ARRAYS, _DICTIONARY = range(3)  # Manifest: id, arrays, location_dictionary
_NODE, _REFS = 0, 1  # ArrayManifest: node_id, refs
_INDEX, _INLINE, _OFFSET, _LENGTH, _CHUNK_ID, _LOCATION, _ETAG, _MODIFIED, _COMPRESSED = range(9)  # ChunkRef

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ManifestRows:
    """Chunk references as columns."""

    index: npt.NDArray[np.int64]
    """(rows, axes): the position in the grid."""
    path: list[str]
    """A virtual chunk's URL, a native chunk's id, or an empty text for a chunk in `inline`."""
    virtual: npt.NDArray[np.bool_]
    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    inline: dict[int, bytes]
    """By row."""
    modified: npt.NDArray[np.int64] | None = None
    """Of virtual chunks: seconds since 1970 after which the file must not have changed; 0: not
    given.
    """
    has_etag: npt.NDArray[np.bool_] | None = None
    """Of virtual chunks: whether the object must have the ETag that the repository keeps."""

    def select_virtual(self, rows: Positions) -> ManifestRows:
        """Return some references, all of virtual chunks."""
        path = [self.path[row] for row in rows.tolist()]
        return ManifestRows(self.index[rows], path, self.virtual[rows], self.offset[rows], self.length[rows], {})


def object_id(raw: bytes) -> str:
    """Return the id of an object as Icechunk writes it: Crockford's base 32.

    Examples
    --------
    >>> object_id(bytes(8))
    '0000000000000'
    """
    return base64.b32encode(raw).rstrip(b"=").translate(_CROCKFORD).decode()


def open_manifest(
    data: bytes, name: str, node: str, count: int, containers: Mapping[str | None, str] | None = None
) -> ArrayReferences:
    """Return the references of one array in a manifest.

    Parameters
    ----------
    data
        The manifest file.
    name
        The manifest's id.
    node
        The array's id.
    count
        References of all arrays in the manifest, as the snapshot says.
    containers
        URL prefixes of the repository's containers of virtual chunks, by name.

    Raises
    ------
    FormatError
        If the file is not this manifest, or damaged.
    """
    if not data.startswith(_MAGIC) or len(data) < _HEADER or data[37] != _MANIFEST:
        raise FormatError("this is not a manifest of Icechunk", structure="manifest")
    if data[36] not in _VERSIONS:
        raise FormatError(
            f"manifests of version {data[36]} are not supported",
            structure="manifest",
            hint="Install a newer version of insitu",
        )
    body = _decompress(data[_HEADER:]) if data[38] == _ZSTD else data[_HEADER:]
    return _FlatBuffer(body).references(name, node, count, containers or {})


def _decompress(data: bytes) -> bytes:
    """Return decompressed bytes, read piece by piece: a buffer for the largest manifest would reserve
    gigabytes of address space.
    """
    pieces: list[bytes] = []
    bytes_left = _LARGEST
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            while bytes_left >= 0 and (piece := stream.read(_PIECE)):
                pieces.append(piece)
                bytes_left -= len(piece)
    except (OSError, pa.ArrowException) as problem:
        raise FormatError(f"the manifest cannot be decompressed: {problem}", structure="manifest") from None
    if bytes_left < 0:
        raise FormatError(f"the manifest decompresses to more than {_LARGEST} bytes", structure="manifest")
    return b"".join(pieces)


@dataclass(frozen=True, slots=True, eq=False)
class ArrayReferences:
    """The references of one array in a manifest."""

    buffer: _FlatBuffer
    tables: Positions
    """Where the references begin."""
    index: npt.NDArray[np.int64]
    """(references, axes): the position of each in the grid."""
    containers: Mapping[str | None, str] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return len(self.buffer.data) + self.tables.nbytes + self.index.nbytes

    def rows(self, selected: Positions | None = None) -> ManifestRows:
        """Return some references, decoded; None: all of them."""
        if selected is None:
            return self.buffer.rows(self.tables, self.index, self.containers)
        return self.buffer.rows(self.tables[selected], self.index[selected], self.containers)


class _FlatBuffer:
    """A FlatBuffer that is read at many positions at once."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8)

    def numbers(self, at: Positions, kind: str) -> npt.NDArray[np.int64]:
        """Return the numbers of one type at these positions."""
        size = np.dtype(kind).itemsize
        if len(at) and (at.min() < 0 or at.max() + size > len(self.bytes)):
            raise FormatError("an offset points outside the manifest", structure="manifest")
        if not (at % size).any():  # as FlatBuffers are written: five times faster
            whole: Any = self.bytes[: len(self.bytes) // size * size].view(kind)
            return np.asarray(whole[at // size], np.int64)
        found: Any = self.bytes[at[:, None] + np.arange(size)].reshape(-1).view(kind)
        return np.asarray(found, np.int64)

    def field(self, tables: Positions, number: int) -> Positions:
        """Return the positions of a field of these tables; -1 where a table lacks it."""
        layouts = tables - self.numbers(tables, "<i4")
        size = self.numbers(layouts, "<u2")
        has = size >= 6 + 2 * number
        at = np.full(len(tables), -1, np.int64)
        offsets = self.numbers(layouts[has] + 4 + 2 * number, "<u2")
        at[has] = np.where(offsets > 0, tables[has] + offsets, -1)
        return at

    def slices(self, begin: Positions, length: Positions | int) -> list[bytes]:
        """Return the bytes from each position on."""
        end = begin + length
        if len(begin) and (begin.min() < 0 or end.max() > len(self.data)):
            raise FormatError("a text or a run of bytes reaches beyond the manifest", structure="manifest")
        return [self.data[first:last] for first, last in zip(begin.tolist(), end.tolist(), strict=True)]

    def byte_vectors(self, fields: Positions) -> list[bytes]:
        """Return the byte vectors or texts that fields point to."""
        begins = self.follow(fields)
        return self.slices(begins + 4, self.numbers(begins, "<u4"))

    def follow(self, at: Positions) -> Positions:
        """Return the positions that offsets point to."""
        return at + self.numbers(at, "<u4")

    def vector(self, at: int) -> Positions:
        """Return the positions of the tables in a vector."""
        count = int(self.numbers(np.array([at]), "<u4")[0])
        if count > len(self.bytes):
            raise FormatError(
                f"a vector claims {count} elements, more than the manifest has bytes", structure="manifest"
            )
        return self.follow(at + 4 + 4 * np.arange(count, dtype=np.int64))

    @cached_property
    def dictionary(self) -> bytes:
        """The dictionary of compressed URLs; empty if there is none."""
        at = self.field(self.follow(np.zeros(1, np.int64)), _DICTIONARY)
        return self.byte_vectors(at)[0] if at[0] >= 0 else b""

    def references(self, name: str, node: str, count: int, containers: Mapping[str | None, str]) -> ArrayReferences:
        """Return the references of one array, after comparing the manifest with what the snapshot says of it."""
        root = self.follow(np.zeros(1, np.int64))
        own = object_id(self.slices(self.field(root, _ID), 12)[0])
        if own != name:
            raise FormatError(f"this is the manifest {own}, not {name}", structure="manifest")
        arrays = self.vector(int(self.follow(self.field(root, _ARRAYS))[0]))
        nodes = [object_id(raw) for raw in self.slices(self.field(arrays, _NODE), 8)]
        refs = self.follow(self.field(arrays, _REFS))
        total = int(self.numbers(refs, "<u4").sum())
        if total != count:
            raise FormatError(
                f"the manifest holds {total} references, but the snapshot says {count}", structure="manifest"
            )
        if node not in nodes:
            raise FormatError("the manifest does not list this array, but the snapshot says so", structure="manifest")
        tables = self.vector(int(refs[nodes.index(node)]))
        return ArrayReferences(self, tables, self._positions(tables), containers)

    def _positions(self, tables: Positions) -> npt.NDArray[np.int64]:
        """Return the positions of references in the grid: (references, axes)."""
        index = self.follow(self.field(tables, _INDEX))
        axes = self.numbers(index, "<u4")
        if len(axes) and (axes != axes[0]).any():
            raise FormatError("the references of one array have different numbers of axes", structure="manifest")
        width = int(axes[0]) if len(axes) else 0
        if width > _MOST_AXES:
            raise FormatError(f"a reference claims {width} axes", structure="manifest")
        cells = self.numbers((index[:, None] + 4 + 4 * np.arange(width)).reshape(-1), "<u4")
        return cells.reshape(len(tables), width)

    def rows(
        self, tables: Positions, cells: npt.NDArray[np.int64], containers: Mapping[str | None, str]
    ) -> ManifestRows:
        """Return references, decoded, given where they begin and their positions in the grid."""
        location, packed, chunk = (self.field(tables, number) for number in (_LOCATION, _COMPRESSED, _CHUNK_ID))
        path = [""] * len(tables)
        compressed = np.flatnonzero((packed >= 0) & (location < 0))
        plain = np.flatnonzero(location >= 0)
        known: dict[bytes, str] = {}
        for rows, texts in (
            (plain, self.byte_vectors(location[plain])),
            (compressed, self._decompress(self.byte_vectors(packed[compressed]))),
        ):
            for row, raw in zip(rows.tolist(), texts, strict=True):
                if raw not in known:
                    known[raw] = _parse_url(raw, containers)
                path[row] = known[raw]
        for row, raw in zip(np.flatnonzero(chunk >= 0).tolist(), self.slices(chunk[chunk >= 0], 12), strict=True):
            path[row] = object_id(raw)
        virtual, inline = (location >= 0) | (packed >= 0), self._inline(tables)
        kinds = virtual.astype(np.int64) + (chunk >= 0)
        kinds[list(inline)] += 1
        if (kinds != 1).any():
            raise FormatError("a reference names no chunk, or more than one", structure="manifest")
        return ManifestRows(
            cells,
            path,
            virtual,
            self._scalars(tables, _OFFSET, "<u8"),
            self._scalars(tables, _LENGTH, "<u8"),
            inline,
            self._scalars(tables, _MODIFIED, "<u4"),
            self.field(tables, _ETAG) >= 0,
        )

    def _decompress(self, texts: list[bytes]) -> list[bytes]:
        """Return URLs that are compressed with the manifest's dictionary."""
        if not texts:
            return []
        try:
            return decompress_texts(self.dictionary, texts, _LONGEST_URL)
        except ValueError as problem:
            raise FormatError(f"a compressed URL is damaged: {problem}", structure="manifest") from None

    def _scalars(self, tables: Positions, number: int, kind: str) -> npt.NDArray[np.int64]:
        at = self.field(tables, number)
        values = np.zeros(len(tables), np.int64)
        values[at >= 0] = self.numbers(at[at >= 0], kind)
        if (values < 0).any():
            raise FormatError("an offset or length is beyond 2**63", structure="manifest")
        return values

    def _inline(self, tables: Positions) -> dict[int, bytes]:
        at = self.field(tables, _INLINE)
        rows = np.flatnonzero(at >= 0)
        return dict(zip(rows.tolist(), self.byte_vectors(at[rows]), strict=True))


def _parse_url(raw: bytes, containers: Mapping[str | None, str]) -> str:
    """Return the URL of a virtual chunk; one that is relative to a container becomes absolute."""
    try:
        url = raw.decode()
    except UnicodeDecodeError as problem:
        raise FormatError(f"a URL is not valid UTF-8: {problem}", structure="manifest") from None
    if not url:
        raise FormatError("a URL is empty", structure="manifest")
    if not url.startswith(_CONTAINER):
        return url
    name, _, path = url[len(_CONTAINER) :].partition("/")
    prefix = containers.get(name)
    if prefix is None:
        raise FormatError(f"the repository has no container {name!r}, which a URL refers to", structure="manifest")
    return f"{prefix.rstrip('/')}/{path}"
