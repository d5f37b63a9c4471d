"""What does one codec see, and what does it hand on?

When a chunk was written, each codec was given an array or a run of bytes (its *form*) and handed another form to the next codec.
Walking the chain in that direction says beforehand how many bytes every decoding step must yield: so a step can write into a buffer
of the right size, and data that holds more than was declared is refused before memory is spent on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.errors import CodecError

__all__ = ["Configuration", "Data", "Form", "Make", "Octets", "Step", "octets"]

Data = bytes | bytearray | memoryview | NDArray[Any]
"""Bytes in whatever holds them; an object array where a codec yields texts."""
Octets = NDArray[np.uint8]
"""A one-dimensional, contiguous run of bytes."""
Configuration = Mapping[str, Any]

LARGEST = 2**31 - 1
"""Most bytes of a form whose size nothing declares (texts): what blosc, lz4 and numcodecs can hold in one buffer."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a codec was given when it encoded."""

    limit: int
    """Number of bytes, at most."""
    exact: bool
    """Whether it is exactly `limit`."""
    dtype: np.dtype[Any] | None = None
    """The element type, where the form is an array."""
    shape: tuple[int, ...] | None = None
    """Its shape, C order."""

    @classmethod
    def array(cls, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Form:
        """Return the form of an array; objects have no size of their own."""
        if dtype.hasobject:
            return cls(LARGEST, False, dtype, shape)
        return cls(math.prod(shape) * dtype.itemsize, True, dtype, shape)

    @property
    def count(self) -> int:
        """The number of elements of an array."""
        if self.shape is None:
            raise CodecError("the codec needs an array, but stands behind one that yields bytes")
        return math.prod(self.shape)

    def compressed(self, factor: int = 1, extra: int = 4096) -> Form:
        """Return what a compressor makes of it: anything up to a little more than the input."""
        return Form(min(self.limit * factor + self.limit // 8 + extra, max(LARGEST, self.limit)), False)

    def followed_by(self, extra: int) -> Form:
        """Return the form with a checksum added."""
        return Form(self.limit + extra, self.exact)

    def as_bytes(self) -> Form:
        """Return the form without its element type."""
        return Form(self.limit, self.exact)


Run = Callable[[Data, Octets | None], Data]


@dataclass(frozen=True, slots=True)
class Step:
    """One codec, ready to decode."""

    name: str
    """The codec, for messages."""
    run: Run
    """Decode; the second argument is where to, if `fills`. Return that very buffer if it was filled, else another."""
    encoded: Form
    """What the codec made of its form: what the next codec was given."""
    fills: bool = False
    """Whether `run` writes into a buffer of the form's exact size."""
    box: Callable[..., None] | None = None
    """Decode only the box at `start` of a chunk of `shape`, straight into a strided array, where the codec can: called with data, shape,
    start and the array; or with a place in the array and the box's extent too."""
    idle: bool = False
    """Whether there is nothing to do: the chain goes on as if the codec were not there."""


Make = Callable[[Configuration, Form], Step]
"""Prepares a step from a codec's configuration and the form that it was given."""


def octets(data: Data) -> Octets:
    """Return `data` as one run of bytes, without copying where it is contiguous."""
    if isinstance(data, np.ndarray):
        flat = data if data.ndim == 1 and data.flags.c_contiguous else np.ascontiguousarray(data).reshape(-1)
        return flat if flat.dtype == np.uint8 else flat.view(np.uint8)
    return np.frombuffer(data, np.uint8)
