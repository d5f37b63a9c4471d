"""Chunks of the Zarr view that are read and encoded again, on a regular grid.

A mosaic may have several chunk shapes, codec chains and packings; Zarr needs one. So a regular grid
is laid over it, with chunks near the size of the stored ones, and each chunk is read on demand:
decoded values, encoded in a way that every client supports.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from insitu.errors import UnsupportedError
from insitu.forking import import_before_fork
from insitu.model import Axis, Codec, Columns, Encoding, Selection, Tile, VirtualArray
from insitu.model.cf_attributes import RELATIONS
from insitu.reading.read import read_array
from insitu.reading.read_context import ReadContext
from insitu.reading.source_pool import SourcePool
from insitu.reading.zarr_store.byte_span import ALL_BYTES, ByteSpan
from insitu.reading.zarr_store.value_forms import ValueForm, choose_value_form
from insitu.zarr_metadata import to_documents
from insitu.zarr_metadata.to_zarr import to_zarr_spec

__all__ = ["EncodedChunks", "encode_chunks", "regular_chunks"]

MAX_CHUNK_BYTES = 16 << 20
"""Maximal bytes of a chunk: it is held in memory while it is encoded."""
MIN_CHUNK_BYTES = 256 << 10
COMPRESSIONS: Mapping[str, Codec] = {
    "gzip": Codec("gzip", {"level": 1}),
    "zlib": Codec("zlib", {"level": 1}),
    "zstd": Codec("zstd", {"level": 1}),
}


@dataclass(frozen=True, slots=True, eq=False)
class EncodedChunks:
    """An array whose chunks are read and encoded again."""

    array: VirtualArray
    name: str
    form: ValueForm
    chunks: tuple[int, ...]
    encoding: Encoding
    documents: dict[str, Any]

    @property
    def grid(self) -> tuple[int, ...]:
        """Chunks along each dimension."""
        return tuple(-(-length // size) for length, size in zip(self.array.shape, self.chunks, strict=True))

    def chunk(self, cell: tuple[int, ...], opened: SourcePool, span: ByteSpan = ALL_BYTES) -> bytes | None:
        """Return the bytes of a chunk.

        If the pool has a cache, stored chunks that several of our chunks need are decoded once.
        """
        corner = [at * size for at, size in zip(cell, self.chunks, strict=True)]
        shape = [min(n - at, size) for n, at, size in zip(self.array.shape, corner, self.chunks, strict=True)]
        box = Selection.box(corner, shape, self.array.shape)
        values = read_array(self.array, box, ReadContext(self.name, sources=opened))
        return span.of(self._encode_values(self.form.convert(values)))

    def _encode_values(self, values: np.ndarray[Any, np.dtype[Any]]) -> bytes:
        if values.shape != self.chunks:
            full = np.full(self.chunks, self.encoding.fill_value(), self.encoding.dtype)
            full[tuple(slice(n) for n in values.shape)] = values
            values = full
        data: Any = values
        for codec in self.encoding.codecs:
            data = _apply_codec(codec, data)
        return bytes(data) if not isinstance(data, np.ndarray) else np.ascontiguousarray(data).tobytes()

    def cells(self) -> Iterator[tuple[int, ...]]:
        """Yield all chunks."""
        return product(*(range(count) for count in self.grid))


def _apply_codec(codec: Codec, data: Any) -> Any:
    get_codec = import_before_fork("numcodecs.registry").get_codec
    if isinstance(data, np.ndarray) and codec.name != "vlen-utf8":
        data = np.ascontiguousarray(data)
    elif isinstance(data, np.ndarray):
        data = np.ascontiguousarray(data.reshape(-1))
    return get_codec({"id": codec.name, **codec.configuration}).encode(data)


def encode_chunks(array: VirtualArray, name: str, zarr_format: int, compression: str | None = None) -> EncodedChunks:
    """Return a view of any array on a regular grid.

    Parameters
    ----------
    array
        The array.
    name
        Its path, for error messages.
    zarr_format
        2 or 3.
    compression
        "gzip", "zlib" (V2) or "zstd"; None: none.

    Raises
    ------
    UnsupportedError
        If Zarr has no type for its values.
    """
    form = choose_value_form(array)
    codecs = (Codec("vlen-utf8"),) if form.text else ()
    if compression is not None:
        if compression not in COMPRESSIONS:
            raise UnsupportedError(f"unknown compression {compression!r}; use one of: {', '.join(COMPRESSIONS)}")
        codecs = (*codecs, COMPRESSIONS[compression])
    related = {key: array.encoding[key] for key in ("coordinates", *RELATIONS) if key in array.encoding}
    attributes = {**related, **array.attributes, **form.attributes}
    fill = form.fill
    if fill is None:
        fill = attributes.get("_FillValue")
        if fill is None and array.dtype.kind == "f":
            fill = np.nan
    encoding = Encoding(form.dtype, codecs, None, _fill_bytes(fill, form.dtype))
    chunks = regular_chunks(array, form.dtype.itemsize)
    axes = tuple(Axis.regular(length, size) for length, size in zip(array.shape, chunks, strict=True))
    tile = Tile(axes, (encoding,), Columns.of_unwritten([axis.count for axis in axes]))
    known = to_zarr_spec(VirtualArray.of(tile, dims=array.dims, attributes=attributes, details=array.details))
    documents = to_documents.array_documents(known, zarr_format)
    return EncodedChunks(array, name, form, chunks, encoding, documents)


def _fill_bytes(fill: Any, dtype: np.dtype[Any]) -> bytes | None:
    if dtype.hasobject or fill is None:
        return None
    first = np.asarray(fill).reshape(-1)[:1]
    try:
        with np.errstate(all="ignore"):
            return first.astype(dtype).tobytes() or None
    except (TypeError, ValueError, OverflowError):  # an attribute of another kind, such as text
        return None


def regular_chunks(array: VirtualArray, itemsize: int) -> tuple[int, ...]:
    """Return a chunk shape near that of the largest tile's stored chunks, between 256 KiB and 16
    MiB.
    """
    if not array.shape:
        return ()
    largest = max(array.tiles, key=lambda tile: math.prod(tile.shape), default=None)
    chunks = []
    for dimension, length in enumerate(array.shape):
        size = length
        if largest is not None and largest.axis_of(dimension).count:
            axis = largest.axis_of(dimension)
            size = axis.size if axis.is_regular else int(np.median(axis.show(np.arange(axis.count)).extent))
        chunks.append(max(min(size, length), 1))
    itemsize = max(itemsize, 1)
    for dimension in range(len(chunks)):
        over = math.prod(chunks) * itemsize / MAX_CHUNK_BYTES
        if over > 1:
            chunks[dimension] = max(int(chunks[dimension] / over), 1)
    for dimension in reversed(range(len(chunks))):
        under = MIN_CHUNK_BYTES // max(math.prod(chunks) * itemsize, 1)
        if under > 1:
            chunks[dimension] = max(min(chunks[dimension] * under, array.shape[dimension]), 1)
    return tuple(chunks)
