"""Chunks of the Zarr view that are passed on as they are stored, where Zarr can describe the array.

Bytes, and ranges of them, are read from the archive's files. Nothing is decoded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from insitu.errors import NotFoundError, TruncatedError, UnsupportedError
from insitu.model import INLINE, Source, VirtualArray
from insitu.reading.source_pool import SourcePool
from insitu.reading.zarr_store.byte_span import ALL_BYTES, ByteSpan
from insitu.zarr_metadata import to_documents
from insitu.zarr_metadata.to_zarr import CELLS_PER_BLOCK, ZarrArraySpec, to_zarr_spec

__all__ = ["PORTABLE_CODECS", "StoredChunks", "StoredRange", "find_stored_chunks", "read_stored"]

_MAX_CELLS = 1 << 22
"""Limit of the cells that are compared.

Arrays with more are encoded again, which is always right.
"""
_MAX_RAW_BYTES = 64 << 20
"""Maximal bytes of an uncompressed chunk.

A larger one (a contiguous variable) is better read in pieces.
"""
PORTABLE_CODECS: Mapping[int, frozenset[str]] = {
    2: frozenset({"zlib", "gzip", "blosc", "zstd", "lz4"}),
    3: frozenset({"gzip", "zstd", "blosc", "crc32c"}),
}
"""Codecs that readers other than zarr-python support, by version of Zarr.

GDAL 3.6 supports no filters.
"""


class StoredRange(NamedTuple):
    """Where the bytes of a chunk lie."""

    source: Source
    offset: int
    length: int
    """-1: up to the end of the object."""


def read_stored(wanted: Sequence[tuple[StoredRange, ByteSpan]], opened: SourcePool) -> list[bytes | None]:
    """Return spans of chunks that lie in one source, read together; None if the source is an optional one that does
    not exist.
    """
    about = wanted[0][0].source
    ranges = []
    try:
        with opened.acquire(about) as source:
            for (_, offset, length), span in wanted:
                start, many = span.within(source.size() - offset if length < 0 else length)
                ranges.append((offset + start, many))
            found = source.read_many(ranges) if len(ranges) > 1 else [source.read(*ranges[0])]
    except NotFoundError as problem:
        if about.optional and not problem.is_dead_redirect:
            return [None] * len(wanted)
        raise
    for data, (offset, many) in zip(found, ranges, strict=True):
        if len(data) != many:
            raise TruncatedError(
                f"the object is truncated: the chunk needs {many} bytes, {len(data)} were received",
                url=about.url,
                offset=offset,
                length=many,
            )
    return list(found)


@dataclass(frozen=True, slots=True, eq=False)
class StoredChunks:
    """An array whose stored chunks are passed on."""

    array: ZarrArraySpec
    documents: dict[str, Any]
    """By name: `zarr.json`, or `.zarray` and `.zattrs`."""

    @property
    def grid(self) -> tuple[int, ...]:
        """Chunks along each dimension."""
        return self.array.grid

    def locate(self, cells: Sequence[tuple[int, ...]]) -> list[StoredRange | bytes | None]:
        """Return for each chunk where its bytes lie; the bytes, if the table of chunks has them; None if it was
        never written.
        """
        tile = self.array.tile
        index = [np.zeros(len(cells), np.int64)] * len(tile.axes)
        for dimension, axis in enumerate(tile.dimensions):
            index[axis] = np.array([cell[dimension] for cell in cells], np.int64)
        rows = tile.chunks.locate(index)
        found: list[StoredRange | bytes | None] = []
        for number, offset, length in zip(
            rows.source.tolist(), rows.offset.tolist(), rows.length.tolist(), strict=True
        ):
            if number == INLINE:
                found.append(rows.inline[offset : offset + length])
            else:
                found.append(None if number < 0 else StoredRange(tile.chunks.sources[number], offset, length))
        return found if tile.axes else found * len(cells)

    def chunk(self, cell: tuple[int, ...], opened: SourcePool, span: ByteSpan = ALL_BYTES) -> bytes | None:
        """Return the bytes of a chunk, as stored; None if it was never written."""
        (found,) = self.locate([cell])
        if isinstance(found, StoredRange):
            return read_stored([(found, span)], opened)[0]
        return None if found is None else span.of(found)

    def cells(self) -> Iterator[tuple[int, ...]]:
        """Yield the chunks that were written."""
        if not self.array.grid:
            if (np.asarray(next(self.array.blocks())[1].source) >= 0).any() or self._has_inline():
                yield ()
            return
        for begin, rows in self.array.blocks(CELLS_PER_BLOCK):
            source = np.asarray(rows.source)
            written = np.flatnonzero((source >= 0) | (source == INLINE)) + begin
            yield from zip(*(axis.tolist() for axis in np.unravel_index(written, self.array.grid)), strict=True)

    def _has_inline(self) -> bool:
        return bool((np.asarray(next(self.array.blocks())[1].source) == INLINE).any())


def find_stored_chunks(array: VirtualArray, zarr_format: int, *, portable: bool = False) -> StoredChunks | None:
    """Return a view of an array with its stored chunks; None if Zarr cannot describe them.

    Parameters
    ----------
    array
        The array.
    zarr_format
        2 or 3.
    portable
        Whether to accept only codecs that readers other than zarr-python support.
    """
    if sum(int(np.prod(tile.chunks.shape, dtype=object)) for tile in array.tiles) > _MAX_CELLS:
        return None
    try:
        known = to_zarr_spec(array)
        for _ in known.blocks():
            pass
        documents = to_documents.array_documents(known, zarr_format)
    except UnsupportedError:
        return None
    if known.encoding.dtype.hasobject and known.encoding.codecs[0].name not in ("vlen-utf8", "vlen-bytes"):
        return None
    if known.encoding.raw and math.prod(known.chunks) * known.encoding.dtype.itemsize > _MAX_RAW_BYTES:
        return None
    names = {codec.name.removeprefix("numcodecs.") for codec in known.encoding.codecs}
    plain = known.encoding.dtype.kind in "iufb" and known.encoding.dtype.itemsize <= 8
    if portable and (names - PORTABLE_CODECS[zarr_format] or not plain):
        return None
    return StoredChunks(known, documents)
