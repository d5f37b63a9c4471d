"""How is text kept whose bytes lie in the heaps of its HDF5 file, where the format knows no heaps?

Its values are read now and kept inline, as Zarr's readers expect texts (`vlen-utf8`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from insitu.codecs import decode
from insitu.errors import InsituError, UnsupportedError
from insitu.model import INLINE, Codec, Columns, Encoding, Located, Tile, VirtualArray
from insitu.sources import open_source, read_all

__all__ = ["without_heaps"]

_HEAP = "hdf5_vlen"
LARGEST = 64 << 20
"""Bytes of text that one array may keep inline."""


def without_heaps(array: VirtualArray, storage_options: Mapping[str, Any] | None = None) -> VirtualArray:
    """The array with its texts inline; as it is, if they lie in no heap.

    Raises
    ------
    UnsupportedError
        If the values are not texts, or too many.
    """
    if not any(_in_heap(encoding) for tile in array.tiles for encoding in tile.encodings):
        return array
    return replace(array, tiles=tuple(_inlined(tile, storage_options) for tile in array.tiles))


def _in_heap(encoding: Encoding) -> bool:
    return bool(encoding.codecs) and encoding.codecs[0].name == _HEAP


def _inlined(tile: Tile, storage_options: Mapping[str, Any] | None) -> Tile:
    if not all(_in_heap(encoding) for encoding in tile.encodings):
        raise UnsupportedError("some of its files keep text in heaps and others do not")
    for encoding in tile.encodings:
        if encoding.codecs[0].configuration.get("kind", "string") != "string":
            raise UnsupportedError("its values are sequences of varying length, which Zarr's readers do not know")
    shape = tile.chunks.shape
    total = int(np.prod(shape, dtype=object))
    if total > 1 << 20:
        raise UnsupportedError(f"its text lies in {total} chunks of heap references: too many to keep inline")
    index = np.unravel_index(np.arange(total), shape) if shape else ()
    rows = tile.chunks.locate(list(index))
    source = np.array(rows.source, np.int64)
    offset, length = np.zeros(total, np.int64), np.zeros(total, np.int64)
    data = bytearray()
    for row in np.flatnonzero((source >= 0) | (source == INLINE)).tolist():
        cell = [np.array([axis[row]]) for axis in index]
        sizes = tuple(int(axis.show(at).stored[0]) for axis, at in zip(tile.axes, cell, strict=True))
        text = _encoded(tile, rows, row, tuple(size for size in sizes if size), storage_options)
        source[row], offset[row], length[row] = INLINE, len(data), len(text)
        data += text
        if len(data) > LARGEST:
            raise UnsupportedError(f"its text has more than {LARGEST >> 20} MiB: too much to keep inline")
    chunks = Columns(shape, (), source.reshape(shape), offset.reshape(shape), length.reshape(shape), inline=bytes(data))
    fill = next((encoding.fill for encoding in tile.encodings), None)
    encoding = Encoding(np.dtype(object), (Codec("vlen-utf8"),), None, fill)
    return Tile(tile.axes, (encoding,), chunks, tile.packings, tile.layout)


def _encoded(
    tile: Tile, rows: Located, row: int, shape: tuple[int, ...], storage_options: Mapping[str, Any] | None
) -> bytes:
    """A chunk's texts, as `vlen-utf8` writes them."""
    from numcodecs.vlen import VLenUTF8

    encoding = tile.encodings[int(rows.encoding[row])]
    begin, size = int(rows.offset[row]), int(rows.length[row])
    if int(rows.source[row]) == INLINE:
        raise UnsupportedError("its heap references were kept without their file")
    about = tile.chunks.sources[int(rows.source[row])]
    with open_source(about.url, storage_options) as source:
        try:
            stored = source.read(begin, size) if size >= 0 else read_all(source, begin)
            values = decode(stored, encoding, shape, filter_mask=int(rows.filter_mask[row]), fetch=source.read_many)
        except InsituError as problem:
            raise problem.located(url=about.url, offset=begin) from None
    texts = [
        value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values.reshape(-1)
    ]
    return bytes(VLenUTF8().encode(np.array(texts, object)))
