"""Which bytes are a chunk, where Zarr can say the array as it lies?

Those that lie in the archive: they are passed on as they are, ranges of them too. Nothing is decoded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from insitu.errors import NotFoundError, TruncatedError, UnsupportedError
from insitu.model import INLINE, VirtualArray
from insitu.reading.cache import ChunkCache
from insitu.reading.source_pool import Opened
from insitu.reading.zarr_store.byte_span import ALL, Span
from insitu.zarr_metadata import to_documents
from insitu.zarr_metadata.to_zarr import BLOCK, Said, said

__all__ = ["PORTABLE", "Passed", "passed"]

_MOST_CELLS = 1 << 22
"""Cells that are looked at to find out whether they are alike; larger tables are cut anew, which is always right."""
_LARGEST_RAW = 64 << 20
"""Bytes of an uncompressed chunk; a larger one (a contiguous variable) is better read in pieces."""
PORTABLE: Mapping[int, frozenset[str]] = {
    2: frozenset({"zlib", "gzip", "blosc", "zstd", "lz4"}),
    3: frozenset({"gzip", "zstd", "blosc", "crc32c"}),
}
"""Codecs that readers other than zarr-python know too, by version of Zarr. GDAL 3.6 knows no filters."""


@dataclass(frozen=True, slots=True, eq=False)
class Passed:
    """An array whose chunks are passed on."""

    array: Said
    documents: dict[str, Any]
    """By name: `zarr.json`, or `.zarray` and `.zattrs`."""

    @property
    def grid(self) -> tuple[int, ...]:
        """Chunks along each dimension."""
        return self.array.grid

    def chunk(
        self, cell: tuple[int, ...], opened: Opened, span: Span = ALL, cache: ChunkCache | None = None
    ) -> bytes | None:
        """The bytes of a chunk; None if it was never written. Nothing is decoded, so there is nothing to keep."""
        tile = self.array.tile
        index = [np.zeros(1, np.int64)] * len(tile.axes)
        for dimension, axis in enumerate(tile.dimensions):
            index[axis] = np.array([cell[dimension]], np.int64)
        row = tile.chunks.locate(index)
        number, offset, length = int(row.source[0]), int(row.offset[0]), int(row.length[0])
        if number == INLINE:
            return span.of(row.inline[offset : offset + length])
        if number < 0:
            return None
        about = tile.chunks.sources[number]
        try:
            with opened.lease(about) as source:
                if length < 0:
                    length = source.size() - offset
                start, many = span.within(length)
                data = source.read(offset + start, many)
        except NotFoundError:
            if about.optional:
                return None
            raise
        if len(data) != many:
            raise TruncatedError(
                "the object ends before the chunk does", url=about.url, offset=offset + start, length=many, chunk=cell
            )
        return data

    def cells(self) -> Iterator[tuple[int, ...]]:
        """The chunks that were written."""
        if not self.array.grid:
            if (np.asarray(next(self.array.blocks())[1].source) >= 0).any() or self._has_inline():
                yield ()
            return
        for begin, rows in self.array.blocks(BLOCK):
            source = np.asarray(rows.source)
            kept = np.flatnonzero((source >= 0) | (source == INLINE)) + begin
            yield from zip(*(axis.tolist() for axis in np.unravel_index(kept, self.array.grid)), strict=True)

    def _has_inline(self) -> bool:
        return bool((np.asarray(next(self.array.blocks())[1].source) == INLINE).any())


def passed(array: VirtualArray, zarr_format: int, *, portable: bool = False) -> Passed | None:
    """An array as it lies, if Zarr can say it; None if it must be cut anew.

    Parameters
    ----------
    array
        The array.
    zarr_format
        2 or 3.
    portable
        Whether only codecs will do that readers other than zarr-python know too.
    """
    if sum(int(np.prod(tile.chunks.shape, dtype=object)) for tile in array.tiles) > _MOST_CELLS:
        return None
    try:
        known = said(array)
        for _ in known.blocks():
            pass
        documents = {"zarr.json": to_documents.array_v3(known)} if zarr_format == 3 else to_documents.array_v2(known)
    except UnsupportedError:
        return None
    if known.encoding.dtype.hasobject and known.encoding.codecs[0].name not in ("vlen-utf8", "vlen-bytes"):
        return None
    if known.encoding.raw and math.prod(known.chunks) * known.encoding.dtype.itemsize > _LARGEST_RAW:
        return None
    names = {codec.name.removeprefix("numcodecs.") for codec in known.encoding.codecs}
    plain = known.encoding.dtype.kind in "iufb" and known.encoding.dtype.itemsize <= 8
    if portable and (names - PORTABLE[zarr_format] or not plain):
        return None
    return Passed(known, documents)
