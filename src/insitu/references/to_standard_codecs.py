"""Convert arrays with codecs that only insitu decodes, so that other Zarr readers can read them.

Text in the heaps of an HDF5 file is read and kept inline as `vlen-utf8`, which Zarr readers know.
Small arrays with a codec of ours (texts with an end mark, numbers of few bits) are decoded and kept
inline as plain numbers. Larger ones stay as they are, and the writer refuses them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.codecs.chain import decode
from insitu.codecs.registry import OUTSIDE_VALUES
from insitu.errors import UnsupportedError, error_context
from insitu.model import INLINE, ChunkLocations, Codec, Columns, Encoding, Tile, VirtualArray
from insitu.sources import open_source, read_all
from insitu.zarr_metadata import naming

__all__ = ["to_standard_codecs"]

_HEAP_CODEC = "hdf5_vlen"
MOST_TEXT_BYTES = 64 << 20
"""Bytes of text that one array may keep inline."""
MOST_INLINE_BYTES = 64 << 10
"""Bytes up to which other values are kept inline."""
_MOST_CHUNKS = 1 << 20
"""Most chunks of one array that are decoded."""


def to_standard_codecs(array: VirtualArray, storage_options: Mapping[str, Any] | None = None) -> VirtualArray:
    """Return the array with codecs that other Zarr readers have, where that is possible; else as it
    is.

    Raises
    ------
    UnsupportedError
        If text lies in heaps and cannot be kept inline.
    """
    encodings = [encoding for tile in array.tiles for encoding in tile.encodings]
    if any(_is_in_heap(encoding) for encoding in encodings):
        return replace(array, tiles=tuple(_heap_texts_to_utf8(tile, storage_options) for tile in array.tiles))
    if array.dtype.hasobject and encodings and all(_is_inline_text(tile) for tile in array.tiles):
        return replace(array, tiles=tuple(_to_vlen_utf8(tile, storage_options) for tile in array.tiles))
    if len(encodings) != 1 or naming.is_standard(encodings[0]) or encodings[0].dtype.hasobject:
        return array  # a mosaic is refused elsewhere, whatever its codecs
    if array.size * encodings[0].dtype.itemsize > MOST_INLINE_BYTES:
        return array
    return replace(array, tiles=(_to_plain_numbers(array.tiles[0], storage_options),))


def _to_plain_numbers(tile: Tile, storage_options: Mapping[str, Any] | None) -> Tile:
    encoding = Encoding(tile.encodings[0].dtype, (), None, tile.encodings[0].fill)
    # Edge chunks are stored in full size: few values can have a large chunk.
    return inline_chunks(tile, encoding, _to_bytes, limit=16 * MOST_INLINE_BYTES, storage_options=storage_options)


def _to_bytes(values: npt.NDArray[Any]) -> bytes:
    return np.ascontiguousarray(values).tobytes()


def _is_in_heap(encoding: Encoding) -> bool:
    return bool(encoding.codecs) and encoding.codecs[0].name in OUTSIDE_VALUES


def _heap_texts_to_utf8(tile: Tile, storage_options: Mapping[str, Any] | None) -> Tile:
    if not all(_is_in_heap(encoding) for encoding in tile.encodings):
        raise UnsupportedError("some of its files store text in heaps and others do not")
    for encoding in tile.encodings:
        codec = encoding.codecs[0]
        if codec.name != _HEAP_CODEC or codec.configuration.get("kind", "string") != "string":
            raise UnsupportedError("its values are sequences of varying length, which Zarr cannot hold")
    return _to_vlen_utf8(tile, storage_options, next((encoding.fill for encoding in tile.encodings), None))


def _is_inline_text(tile: Tile) -> bool:
    """Return whether a tile holds only fixed-length texts that are kept inline."""
    return (
        not tile.chunks.sources
        and tile.packings.identity
        and all(encoding.dtype.kind == "U" for encoding in tile.encodings)
    )


def _to_vlen_utf8(tile: Tile, storage_options: Mapping[str, Any] | None, fill: bytes | None = None) -> Tile:
    encoding = Encoding(np.dtype(object), (Codec("vlen-utf8"),), None, fill)
    return inline_chunks(tile, encoding, _encode_vlen_utf8, limit=MOST_TEXT_BYTES, storage_options=storage_options)


def _encode_vlen_utf8(values: npt.NDArray[Any]) -> bytes:
    """Return the texts of a chunk, encoded as `vlen-utf8`."""
    from numcodecs.vlen import VLenUTF8

    texts = [
        value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values.reshape(-1)
    ]
    return bytes(VLenUTF8().encode(np.array(texts, object)))


def inline_chunks(
    tile: Tile,
    encoding: Encoding,
    encode: Callable[[npt.NDArray[Any]], bytes],
    *,
    limit: int,
    storage_options: Mapping[str, Any] | None = None,
) -> Tile:
    """Return the tile with all of its chunks decoded, encoded anew and kept inline.

    Parameters
    ----------
    tile
        The tile.
    encoding
        The new encoding of its chunks.
    encode
        Encodes a chunk so.
    limit
        Most bytes of all chunks together.
    storage_options
        See `insitu.sources.open_source`.

    Raises
    ------
    UnsupportedError
        If there are too many chunks or bytes.
    """
    shape = tile.chunks.shape
    total = int(np.prod(shape, dtype=object))
    if total > _MOST_CHUNKS:
        raise UnsupportedError(f"its {total} chunks are too many to keep inline")
    index = np.unravel_index(np.arange(total), shape) if shape else ()
    rows = tile.chunks.locate(list(index))
    source = np.array(rows.source, np.int64)
    offset, length = np.zeros(total, np.int64), np.zeros(total, np.int64)
    data = bytearray()
    for row in np.flatnonzero((source >= 0) | (source == INLINE)).tolist():
        cell = [np.array([axis[row]]) for axis in index]
        sizes = tuple(int(axis.show(at).stored[0]) for axis, at in zip(tile.axes, cell, strict=True))
        chunk = encode(_read_chunk(tile, rows, row, tuple(size for size in sizes if size), storage_options))
        source[row], offset[row], length[row] = INLINE, len(data), len(chunk)
        data += chunk
        if len(data) > limit:
            raise UnsupportedError(f"its values have more than {limit} bytes, which is too much to keep inline")
    chunks = Columns(
        shape, (), source.reshape(shape), offset.reshape(shape), length.reshape(shape),
        packing=np.asarray(rows.packing).reshape(shape), inline=bytes(data),
    )  # fmt: skip
    return Tile(tile.axes, (encoding,), chunks, tile.packings, tile.layout)


def _read_chunk(
    tile: Tile, rows: ChunkLocations, row: int, shape: tuple[int, ...], storage_options: Mapping[str, Any] | None
) -> npt.NDArray[Any]:
    """Return the values of one chunk."""
    encoding = tile.encodings[int(rows.encoding[row])]
    begin, size, mask = int(rows.offset[row]), int(rows.length[row]), int(rows.filter_mask[row])
    if int(rows.source[row]) == INLINE:
        return np.asarray(decode(rows.inline[begin : begin + size], encoding, shape, filter_mask=mask))
    chunk_source = tile.chunks.sources[int(rows.source[row])]
    opened = open_source(chunk_source.url, storage_options, expected=chunk_source)
    with opened as source, error_context(url=chunk_source.url, offset=begin):
        stored = source.read(begin, size) if size >= 0 else read_all(source, begin)
        return np.asarray(decode(stored, encoding, shape, filter_mask=mask, fetch=source.read_many))
