"""Decoding of the objects of a target: a chunk, or a shard of chunks."""

from __future__ import annotations

import itertools
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from insitu.codecs.chain import decode
from insitu.copying.target_arrays import TargetArray
from insitu.errors import ChecksumError

__all__ = ["decode_object"]


def decode_object(data: bytes, array: TargetArray) -> npt.NDArray[Any]:
    """Return the values of an object of a target, with what fills it up at the end of the array."""
    if array.shards is None:
        return decode(data, array.encoding, array.chunks)
    grid = [whole // size for whole, size in zip(array.shards, array.chunks, strict=True)]
    size = int(np.prod(grid)) * 16
    index = np.frombuffer(data[-size - 4 : -4], "<u8").reshape(*grid, 2)
    if google_crc32c.value(data[-size - 4 : -4]) != int.from_bytes(data[-4:], "little"):
        raise ChecksumError("the index of a shard is damaged")
    values = np.full(array.shards, array.encoding.fill_value(), array.encoding.dtype)
    for cell in itertools.product(*map(range, grid)):
        offset, length = index[cell].tolist()
        if offset == (1 << 64) - 1:
            continue
        box = tuple(slice(at * size, (at + 1) * size) for at, size in zip(cell, array.chunks, strict=True))
        values[box] = decode(data[offset : offset + length], array.encoding, array.chunks)
    return values
