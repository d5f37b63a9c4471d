"""Values that opening a dataset needs at once: labels of dimensions, single values, and times.

They are small, and every file has some, so their bytes are fetched in one batch while the file is
open anyway. If the next file has the same bytes, they are not decoded again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.codecs import decode
from insitu.errors import TruncatedError
from insitu.model import Columns, VirtualArray
from insitu.sources import ByteSource

__all__ = ["MAX_STORED_BYTES", "ChunkBytes", "fetch_chunks", "values_from_chunks"]

MAX_STORED_BYTES = 1 << 20
"""Bytes, stored: a larger variable is read like any other."""

ChunkBytes = tuple[bytes, ...]
"""The chunks of a variable, as stored."""


def fetch_chunks(arrays: Mapping[str, VirtualArray], source: ByteSource) -> dict[str, ChunkBytes]:
    """Return the chunks of those arrays that are small and plain, fetched in one batch."""
    ranges: list[tuple[int, int]] = []
    found: dict[str, slice] = {}
    own = source.describe().url if arrays else ""
    for name, array in arrays.items():
        mine = _ranges(array, own)
        if mine:
            found[name] = slice(len(ranges), len(ranges) + len(mine))
            ranges += mine
    if not ranges:
        return {}
    blocks = _read_runs(source, ranges)
    for block, (offset, length) in zip(blocks, ranges, strict=True):
        if len(block) != length:
            raise TruncatedError(
                f"only {len(block)} of {length} bytes could be read: the file ends early",
                url=source.url,
                offset=offset,
                length=length,
            )
    return {name: tuple(blocks[part]) for name, part in found.items()}


def _read_runs(source: ByteSource, ranges: list[tuple[int, int]]) -> list[bytes]:
    """Return the bytes of ranges; those that follow each other in the file are read as one.

    Labels are often cut into chunks of a few bytes.
    """
    runs: list[list[int]] = []
    for offset, length in ranges:
        if runs and runs[-1][1] == offset:
            runs[-1][1] += length
        else:
            runs.append([offset, offset + length])
    blocks = source.read_many([(start, end - start) for start, end in runs])
    pieces, run = [], 0
    for offset, length in ranges:
        while offset + length > runs[run][1] or offset < runs[run][0]:
            run += 1
        start = offset - runs[run][0]
        pieces.append(blocks[run][start : start + length])
    return pieces


def _ranges(array: VirtualArray, own: str) -> list[tuple[int, int]]:
    """Return the byte ranges of small, plain chunks in this file; else an empty list."""
    if len(array.tiles) != 1:
        return []
    tile = array.tiles[0]
    table = tile.chunks
    if not isinstance(table, Columns) or len(table.sources) != 1 or len(tile.encodings) != 1:
        return []
    if table.sources[0].url != own:
        return []  # a document that describes another file, a file with its data elsewhere
    if tile.encodings[0].dtype.hasobject or table.source.any() or not _is_contiguous_in_order(array):
        return []  # values of varying length lie in heaps elsewhere; a chunk that was never written has no bytes
    cells = math.prod(table.shape)
    if cells > MAX_STORED_BYTES // 16:
        return []
    lengths = table.length.reshape(-1).tolist() * (cells // table.length.size)
    if min(lengths, default=-1) < 0 or sum(lengths) > MAX_STORED_BYTES:
        return []
    offsets = table.offset.reshape(-1).tolist()
    return list(zip(offsets, lengths, strict=True)) if len(offsets) == cells else []


def _is_contiguous_in_order(array: VirtualArray) -> bool:
    """Return whether chunks in order make up the array: only its first axis is chunked."""
    tile = array.tiles[0]
    return (
        tile.layout == tuple(range(len(tile.axes)))
        and all(axis.is_regular and axis.padded for axis in tile.axes)
        and all(axis.count == 1 for axis in tile.axes[1:])
    )


def values_from_chunks(array: VirtualArray, blocks: ChunkBytes) -> npt.NDArray[Any]:
    """Return the values that fetched chunks hold, as stored."""
    tile = array.tiles[0]
    encoding = tile.encodings[0]
    shape = tuple(axis.size for axis in tile.axes)
    if encoding.raw and shape and all(len(block) == math.prod(shape) * encoding.dtype.itemsize for block in blocks):
        joined = np.frombuffer(b"".join(blocks), encoding.dtype).reshape(-1, *shape[1:])
    else:
        masks = (
            np.broadcast_to(tile.chunks.filter_mask.reshape(-1), (len(blocks),))
            if isinstance(tile.chunks, Columns)
            else [0]
        )
        parts = [
            decode(block, encoding, shape, filter_mask=int(mask)) for block, mask in zip(blocks, masks, strict=True)
        ]
        joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
    # With the ellipsis one element stays an array: as a scalar, bytes lose their NULs, and so their
    # type.
    shown: Any = (*(slice(0, axis.length) for axis in tile.axes), ...)
    values: npt.NDArray[Any] = joined[shown].reshape(array.shape)
    return values
