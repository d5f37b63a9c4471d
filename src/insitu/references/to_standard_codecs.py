"""Which arrays hold what only we can decode, and how are they kept where other readers come?

Text in the heaps of an HDF5 file: its values are read and kept inline, as Zarr's readers expect texts (`vlen-utf8`). Small arrays with a codec that nobody else
has (texts that end where the file says, numbers of few bits): decoded, and kept inline as plain numbers. Larger ones are refused, by name, when they are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.codecs.registry import OUTSIDE_VALUES
from insitu.errors import UnsupportedError
from insitu.model import Codec, Encoding, Tile, VirtualArray
from insitu.references.inlining import inlined
from insitu.zarr_metadata import naming

__all__ = ["portable"]

_HEAP = "hdf5_vlen"
LARGEST_TEXT = 64 << 20
"""Bytes of text that one array may keep inline."""
SMALL = 64 << 10
"""Bytes up to which other values are kept inline."""


def portable(array: VirtualArray, storage_options: Mapping[str, Any] | None = None) -> VirtualArray:
    """The array in a form that others can decode, if need be and if it can be had; else as it is.

    Raises
    ------
    UnsupportedError
        If text lies in heaps, and cannot be kept inline.
    """
    encodings = [encoding for tile in array.tiles for encoding in tile.encodings]
    if any(_in_heap(encoding) for encoding in encodings):
        return replace(array, tiles=tuple(_texts(tile, storage_options) for tile in array.tiles))
    if array.dtype.hasobject and encodings and all(_is_inline_text(tile) for tile in array.tiles):
        return replace(array, tiles=tuple(_varying_texts(tile, storage_options) for tile in array.tiles))
    if len(encodings) != 1 or naming.is_known(encodings[0]) or encodings[0].dtype.hasobject:
        return array  # a mosaic is refused for being one, not for its codecs
    if array.size * encodings[0].dtype.itemsize > SMALL:
        return array
    return replace(array, tiles=(_plain(array.tiles[0], storage_options),))


def _plain(tile: Tile, storage_options: Mapping[str, Any] | None) -> Tile:
    encoding = Encoding(tile.encodings[0].dtype, (), None, tile.encodings[0].fill)
    # Chunks are stored whole, also at the edge: a few values may have a large chunk.
    return inlined(tile, encoding, _raw, limit=16 * SMALL, storage_options=storage_options)


def _raw(values: npt.NDArray[Any]) -> bytes:
    return np.ascontiguousarray(values).tobytes()


def _in_heap(encoding: Encoding) -> bool:
    return bool(encoding.codecs) and encoding.codecs[0].name in OUTSIDE_VALUES


def _texts(tile: Tile, storage_options: Mapping[str, Any] | None) -> Tile:
    if not all(_in_heap(encoding) for encoding in tile.encodings):
        raise UnsupportedError("some of its files keep text in heaps and others do not")
    for encoding in tile.encodings:
        codec = encoding.codecs[0]
        if codec.name != _HEAP or codec.configuration.get("kind", "string") != "string":
            raise UnsupportedError("its values are sequences of varying length, which Zarr's readers do not know")
    return _varying_texts(tile, storage_options, next((encoding.fill for encoding in tile.encodings), None))


def _is_inline_text(tile: Tile) -> bool:
    """Return whether a tile holds texts of one length that were in memory, whatever the length that the array says."""
    return (
        not tile.chunks.sources
        and tile.packings.identity
        and all(encoding.dtype.kind == "U" for encoding in tile.encodings)
    )


def _varying_texts(tile: Tile, storage_options: Mapping[str, Any] | None, fill: bytes | None = None) -> Tile:
    encoding = Encoding(np.dtype(object), (Codec("vlen-utf8"),), None, fill)
    return inlined(tile, encoding, _utf8, limit=LARGEST_TEXT, storage_options=storage_options)


def _utf8(values: npt.NDArray[Any]) -> bytes:
    """A chunk's texts, as `vlen-utf8` writes them."""
    from numcodecs.vlen import VLenUTF8

    texts = [
        value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values.reshape(-1)
    ]
    return bytes(VLenUTF8().encode(np.array(texts, object)))
