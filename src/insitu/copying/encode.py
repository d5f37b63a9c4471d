"""Encoding of the objects of a target: values to the bytes of a chunk, or of a shard of chunks.

The compressors are the field's: numcodecs (Blosc, Zstandard, texts), imagecodecs (libdeflate), else zlib of the
standard library. All of them, and NumPy where it sorts bytes, release the GIL.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from insitu.codecs.libraries import find_function
from insitu.errors import ChecksumError, UnsupportedError
from insitu.forking import import_before_fork
from insitu.model import Codec, Encoding

__all__ = ["ObjectEncoder", "check_encoding", "checksum_values", "read_shard_index", "shard_index_bytes"]

Values = npt.NDArray[Any]
Step = Callable[[Any], Any]
CHECKED_BYTES = 1 << 20
_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
"""What Blosc does before it compresses, as Zarr V3 names it; numcodecs counts."""
_MISSING = (1 << 64) - 1
"""Offset and length of a chunk that a shard does not have (Zarr V3, sharding codec)."""


@dataclass(frozen=True, slots=True)
class ObjectEncoder:
    """Encodes the objects of one array."""

    encoding: Encoding
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None = None

    def __call__(self, values: Values) -> bytes:
        """Return the bytes of an object: one that lies at the end of the array is filled up."""
        if self.shards is None:
            return self._encode_chunk(values)
        return self._encode_shard(values)

    def _encode_chunk(self, values: Values) -> bytes:
        encoding = self.encoding
        if values.shape != self.chunks:
            full = np.full(self.chunks, encoding.fill_value(), encoding.dtype)
            full[tuple(slice(n) for n in values.shape)] = values
            values = full
        data: Any = np.ascontiguousarray(values, encoding.dtype)
        for step in _steps(encoding.codecs, encoding.dtype):
            data = step(data)
        return data.tobytes() if isinstance(data, np.ndarray) else bytes(data)

    def _encode_shard(self, values: Values) -> bytes:
        """Return a shard: its chunks in C order, and the index of where they lie behind them."""
        assert self.shards is not None
        grid = [whole // size for whole, size in zip(self.shards, self.chunks, strict=True)]
        index = np.full((*grid, 2), _MISSING, "<u8")
        parts: list[bytes] = []
        at = 0
        for cell in itertools.product(*map(range, grid)):
            begin = [place * size for place, size in zip(cell, self.chunks, strict=True)]
            if any(first >= length for first, length in zip(begin, values.shape, strict=True)):
                continue  # no element of the array lies there
            box = tuple(slice(first, first + size) for first, size in zip(begin, self.chunks, strict=True))
            parts.append(self._encode_chunk(values[box]))
            index[cell] = at, len(parts[-1])
            at += len(parts[-1])
        tail = index.tobytes()
        return b"".join([*parts, tail, google_crc32c.value(tail).to_bytes(4, "little")])


def shard_index_bytes(grid: Sequence[int]) -> int:
    """Return the bytes of the index at the end of a shard of so many chunks along each axis."""
    return 16 * math.prod(grid) + 4


def read_shard_index(data: bytes, grid: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return offset and length of each chunk of a shard, -1 of those that it does not have, by its index.

    Raises
    ------
    ChecksumError
        If the index is damaged.
    """
    if google_crc32c.value(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise ChecksumError("the index of a shard is damaged")
    return np.frombuffer(data[:-4], "<u8").reshape(*grid, 2).astype(np.int64)


def check_encoding(encoding: Encoding) -> None:
    """Raise an error if values cannot be encoded so: it names the codec."""
    _steps(encoding.codecs, encoding.dtype)


def checksum_values(values: Values, before: int = 0) -> int:
    """Return the CRC-32C of values in C order."""
    if values.dtype.hasobject:
        data: Any = "\0".join(map(str, values.reshape(-1))).encode("utf-8", "surrogateescape")
    else:
        data = np.ascontiguousarray(values).reshape(-1).view("u1").data if values.size else b""
    for begin in range(0, len(data), CHECKED_BYTES):  # the library takes bytes, so each part is copied
        before = int(google_crc32c.extend(before, bytes(data[begin : begin + CHECKED_BYTES])))
    return before


@lru_cache(maxsize=256)
def _steps(codecs: tuple[Codec, ...], dtype: np.dtype[Any]) -> tuple[Step, ...]:
    return tuple(_make_step(codec, dtype) for codec in codecs)


def _make_step(codec: Codec, dtype: np.dtype[Any]) -> Step:
    name, given = codec.name, codec.configuration
    if name == "shuffle":
        return lambda data: _shuffle(data, dtype.itemsize)
    if name == "zlib":
        return _find_deflate(int(given.get("level", 4)))
    registry = import_before_fork("numcodecs.registry")
    if name == "vlen-utf8":
        encode = registry.get_codec({"id": name}).encode
        return lambda data: encode(np.ascontiguousarray(data.reshape(-1)))
    if name == "gzip":
        level = int(given.get("level", 4))
        return lambda data: zlib.compress(_octets(data), level, wbits=31)
    if name == "crc32c":
        return lambda data: (whole := bytes(_octets(data))) + google_crc32c.value(whole).to_bytes(4, "little")
    if name in ("zstd", "blosc"):
        known = {key: value for key, value in given.items() if key not in ("checksum", "typesize")}
        if isinstance(known.get("shuffle"), str):
            known["shuffle"] = _SHUFFLES.index(known["shuffle"])
        make = registry.get_codec({"id": name, **known}).encode
        return lambda data: make(data)
    raise UnsupportedError(f"there is no encoder for the codec {name!r}")


def _find_deflate(level: int) -> Step:
    """Return the compressor of zlib's format: libdeflate, where imagecodecs is installed."""
    encode = find_function("imagecodecs", "deflate_encode")
    if encode is None:
        return lambda data: zlib.compress(_octets(data), level)
    return lambda data: encode(_octets(data), level, raw=False)


def _octets(data: Any) -> Any:
    return data.reshape(-1).view("u1") if isinstance(data, np.ndarray) else data


def _shuffle(values: Values, itemsize: int) -> Values:
    """Return the first bytes of all elements, then the second ones, and so on (HDF5's filter 2)."""
    planes = values.reshape(-1).view("u1").reshape(-1, itemsize)
    return np.ascontiguousarray(planes.T)


def cut_objects(shape: Sequence[int], sizes: Sequence[int]) -> list[tuple[slice, ...]]:
    """Return the boxes of all objects of a shape, in C order."""
    steps = [range(0, max(n, 1), size) for n, size in zip(shape, sizes, strict=True)]
    return [
        tuple(slice(b, min(b + s, n)) for b, s, n in zip(place, sizes, shape, strict=True))
        for place in itertools.product(*steps)
    ]
