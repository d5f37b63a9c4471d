"""How are chunks kept whose bytes mean nothing to other readers? Decoded now, and written inline in a form that everybody knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.codecs import decode
from insitu.errors import InsituError, UnsupportedError
from insitu.model import INLINE, Columns, Encoding, Located, Tile
from insitu.sources import open_source, read_all

__all__ = ["inlined"]

_MOST = 1 << 20
"""Chunks of one array that are decoded."""


def inlined(
    tile: Tile,
    encoding: Encoding,
    encode: Callable[[npt.NDArray[Any]], bytes],
    *,
    limit: int,
    storage_options: Mapping[str, Any] | None = None,
) -> Tile:
    """The tile with all of its chunks inline.

    Parameters
    ----------
    tile
        The tile.
    encoding
        What its chunks will be encoded as.
    encode
        Does that.
    limit
        Bytes that there may be in all.
    storage_options
        See `insitu.sources.open_source`.

    Raises
    ------
    UnsupportedError
        If there is too much.
    """
    shape = tile.chunks.shape
    total = int(np.prod(shape, dtype=object))
    if total > _MOST:
        raise UnsupportedError(f"its values lie in {total} chunks: too many to keep inline")
    index = np.unravel_index(np.arange(total), shape) if shape else ()
    rows = tile.chunks.locate(list(index))
    source = np.array(rows.source, np.int64)
    offset, length = np.zeros(total, np.int64), np.zeros(total, np.int64)
    data = bytearray()
    for row in np.flatnonzero((source >= 0) | (source == INLINE)).tolist():
        cell = [np.array([axis[row]]) for axis in index]
        sizes = tuple(int(axis.show(at).stored[0]) for axis, at in zip(tile.axes, cell, strict=True))
        chunk = encode(_decoded(tile, rows, row, tuple(size for size in sizes if size), storage_options))
        source[row], offset[row], length[row] = INLINE, len(data), len(chunk)
        data += chunk
        if len(data) > limit:
            raise UnsupportedError(f"its values have more than {limit} bytes: too much to keep inline")
    chunks = Columns(
        shape, (), source.reshape(shape), offset.reshape(shape), length.reshape(shape),
        packing=np.asarray(rows.packing).reshape(shape), inline=bytes(data),
    )  # fmt: skip
    return Tile(tile.axes, (encoding,), chunks, tile.packings, tile.layout)


def _decoded(
    tile: Tile, rows: Located, row: int, shape: tuple[int, ...], storage_options: Mapping[str, Any] | None
) -> npt.NDArray[Any]:
    """The values of one chunk."""
    encoding = tile.encodings[int(rows.encoding[row])]
    begin, size, mask = int(rows.offset[row]), int(rows.length[row]), int(rows.filter_mask[row])
    if int(rows.source[row]) == INLINE:
        return np.asarray(decode(rows.inline[begin : begin + size], encoding, shape, filter_mask=mask))
    about = tile.chunks.sources[int(rows.source[row])]
    with open_source(about.url, storage_options, expected=about) as source:
        try:
            stored = source.read(begin, size) if size >= 0 else read_all(source, begin)
            return np.asarray(decode(stored, encoding, shape, filter_mask=mask, fetch=source.read_many))
        except InsituError as problem:
            raise problem.located(url=about.url, offset=begin) from None
