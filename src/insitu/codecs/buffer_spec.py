"""Buffer specs: type, shape and size of the data that each codec of a chain was given.

When a chunk was written, each codec was given an array or a run of bytes, described by a
`BufferSpec`, and handed another one to the next codec. Walking the chain in that direction gives
the number of bytes that every decoding step must yield: so a step can write into a buffer of the
right size, and data that holds more than was declared is refused before memory is spent on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.errors import CodecError

__all__ = ["BufferSpec", "Configuration", "Data", "DecodeStep", "Octets", "StepFactory", "as_octets"]

Data = bytes | bytearray | memoryview | NDArray[Any]
"""Bytes in any buffer; an object array where a codec yields texts."""
Octets = NDArray[np.uint8]
"""A one-dimensional, contiguous run of bytes."""
Configuration = Mapping[str, Any]

MAX_UNDECLARED_BYTES = 2**31 - 1
"""Limit where no size is declared (texts): the largest buffer of blosc, lz4 and numcodecs."""


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """Type, shape and size of the data that a codec was given when it encoded."""

    limit: int
    """Maximal number of bytes."""
    exact: bool
    """Whether the number of bytes is exactly `limit`."""
    dtype: np.dtype[Any] | None = None
    """The element type, if the data is an array."""
    shape: tuple[int, ...] | None = None
    """The shape of the array, in C order."""

    @classmethod
    def array(cls, dtype: np.dtype[Any], shape: tuple[int, ...]) -> BufferSpec:
        """Return the spec of an array; the size of objects is unknown."""
        if dtype.hasobject:
            return cls(MAX_UNDECLARED_BYTES, False, dtype, shape)
        return cls(math.prod(shape) * dtype.itemsize, True, dtype, shape)

    @property
    def count(self) -> int:
        """The number of elements of an array."""
        if self.shape is None:
            raise CodecError("the codec needs an array, but the codec before it in the chain yields bytes")
        return math.prod(self.shape)

    def compressor_output(self, factor: int = 1, extra: int = 4096) -> BufferSpec:
        """Return the spec of a compressor's output: any size up to a little more than the input."""
        return BufferSpec(
            min(self.limit * factor + self.limit // 8 + extra, max(MAX_UNDECLARED_BYTES, self.limit)), False
        )

    def with_checksum(self, extra: int) -> BufferSpec:
        """Return the spec with a checksum of `extra` bytes added."""
        return BufferSpec(self.limit + extra, self.exact)

    def as_bytes(self) -> BufferSpec:
        """Return the spec without element type and shape."""
        return BufferSpec(self.limit, self.exact)


DecodeFunction = Callable[[Data, Octets | None], Data]


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """One codec, ready to decode."""

    name: str
    """Name of the codec, for error messages."""
    run: DecodeFunction
    """Decode.

    The second argument is the output buffer, if `fills`. Return that buffer if it was filled, else
    another.
    """
    encoded: BufferSpec
    """Spec of the encoded data: what the next codec was given."""
    fills: bool = False
    """Whether `run` can write into a buffer of the exact decoded size."""
    box: Callable[..., None] | None = None
    """Decode only the box at `start` of a chunk of `shape`, straight into a strided array; None if
    the codec cannot.

    Called with data, shape, start and the array; optionally with a place in the array and the box's
    extent too.
    """
    idle: bool = False
    """Whether decoding does nothing: the chain skips the step."""
    uses_library: bool = False
    """Whether `run` calls a library of others.

    Each library raises its own exceptions for damaged data, so all of them mean damaged data. What
    other steps raise, except `CodecError`, is a defect of ours.
    """


StepFactory = Callable[[Configuration, BufferSpec], DecodeStep]
"""Makes a step from a codec's configuration and the spec of the data that it was given."""


def as_octets(data: Data) -> Octets:
    """Return `data` as one run of bytes, without copying where it is contiguous."""
    if isinstance(data, np.ndarray):
        flat = data if data.ndim == 1 and data.flags.c_contiguous else np.ascontiguousarray(data).reshape(-1)
        return flat if flat.dtype == np.uint8 else flat.view(np.uint8)
    return np.frombuffer(data, np.uint8)
