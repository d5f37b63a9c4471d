"""Values of varying length in FITS tables, which rows point to in a heap behind the table.

A row holds their number and offset in the heap (FITS standard 4.0, section 7.3.5). The values of a
block of rows usually lie together, and are then read in one request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import Configuration
from insitu.codecs.configuration import dtype_field, float_field, integer_field
from insitu.codecs.outside_values import Fetch
from insitu.errors import CodecError

__all__ = ["NAME", "Descriptors"]

NAME = "fits_heap"
USED_AGAIN = 16
NEAR = 1 << 20
"""Most bytes between the values of a block of rows that are read with them."""


@dataclass(frozen=True, slots=True)
class Descriptors:
    """Resolves descriptors (length, offset) to values."""

    dtype: np.dtype[Any]
    """Of one descriptor: `length`, `offset`."""
    base: np.dtype[Any]
    """Of the elements, as stored."""
    letter: str
    """The column's type: A text, L logical values, X bits, else numbers."""
    heap: int
    """Offset of the heap in the file."""
    size: int
    """Its bytes."""
    scale: float
    zero: float
    is_unsigned_offset: bool
    """Whether the zero only makes integers unsigned."""
    null: int | None = None
    """The stored integer that stands for a missing value (TNULL): it becomes NaN."""

    @classmethod
    def of(cls, configuration: Configuration) -> Descriptors:
        """Make one from the codec's configuration.

        Keys: `letter`, `base`, `wide` (descriptors of 16 bytes), `base_address`, `size`; `scale`,
        `zero` and `null` if there are any.
        """
        wide = bool(configuration.get("wide"))
        part = ">i8" if wide else ">i4"
        base = dtype_field(configuration, "base")
        if base.hasobject or not base.itemsize:
            raise CodecError(f"values of type {base} cannot lie in a heap", codec=NAME)
        scale, zero = configuration.get("scale", 1), configuration.get("zero", 0)
        is_unsigned_offset = base.kind == "i" and scale == 1 and zero == 1 << (8 * base.itemsize - 1)
        return cls(
            np.dtype([("length", part), ("offset", part)]),
            base,
            str(configuration.get("letter")),
            integer_field(configuration, "base_address", 0) + integer_field(configuration, "heap", 0),
            integer_field(configuration, "size"),
            float_field(configuration, "scale", 1),
            float_field(configuration, "zero", 0),
            is_unsigned_offset,
            integer_field(configuration, "null") if "null" in configuration else None,
        )

    def resolve(self, references: NDArray[Any], fetch: Fetch) -> NDArray[Any]:
        """Return the values as an object array of the same shape.

        Parameters
        ----------
        references
            Descriptors, of as many rows as are wanted together.
        fetch
            Reads (offset, length) ranges of the file; called once.
        """
        flat = references.reshape(-1)
        count, place = flat["length"].astype(np.int64), flat["offset"].astype(np.int64)
        if (count < 0).any() or (place[count > 0] < 0).any() or (count > self.size * 8).any():
            raise CodecError("a row has a negative length or offset in the heap", codec=NAME)
        nbytes = -(-count // 8) if self.letter == "X" else count * self.base.itemsize
        nonempty = nbytes > 0
        if (place[nonempty] + nbytes[nonempty] > self.size).any():
            raise CodecError("a row points behind the end of the heap", codec=NAME)
        if int(nbytes.sum()) > USED_AGAIN * self.size + NEAR:
            raise CodecError("too many rows point to the same values of the heap", codec=NAME)
        pieces = self._pieces(place[nonempty], nbytes[nonempty], fetch)
        values = np.empty(flat.size, object)
        for row, (number, full) in enumerate(zip(count.tolist(), nonempty.tolist(), strict=True)):
            values[row] = self._value(next(pieces) if full else b"", number)
        return values.reshape(references.shape)

    def _pieces(self, place: NDArray[np.int64], nbytes: NDArray[np.int64], fetch: Fetch) -> Any:
        """Yield the bytes of each row that has any."""
        if not place.size:
            return iter(())
        first, last = int(place.min()), int((place + nbytes).max())
        if last - first > 2 * int(nbytes.sum()) + NEAR:
            ranges = [(self.heap + at, size) for at, size in zip(place.tolist(), nbytes.tolist(), strict=True)]
            return iter(fetch(ranges))
        (block,) = fetch([(self.heap + first, last - first)])
        return (block[at - first : at - first + size] for at, size in zip(place.tolist(), nbytes.tolist(), strict=True))

    def _value(self, data: bytes, count: int) -> Any:
        if self.letter == "A":
            return data.split(b"\0", 1)[0].rstrip(b" ").decode("latin-1")
        if self.letter == "X":
            return np.unpackbits(np.frombuffer(data, np.uint8), count=count).astype(bool)
        if len(data) != count * self.base.itemsize:
            raise CodecError("the file is truncated within the heap", codec=NAME)
        stored = np.frombuffer(data, self.base)
        if self.letter == "L":
            return (stored == b"T") | (stored == b"\x01")  # as astropy wrote them up to 7.2
        native: NDArray[Any] = stored.astype(self.base.newbyteorder("="))
        values = native
        if self.is_unsigned_offset:
            kind = np.dtype(f"u{self.base.itemsize}")
            values = native.view(kind) ^ np.array(1 << (8 * self.base.itemsize - 1), kind)
        elif (self.scale, self.zero) != (1, 0):
            # In double precision, like columns of one length.
            values = native.astype(np.result_type(native, np.float64)) * self.scale + self.zero
        return values if self.null is None else np.where(native == self.null, np.nan, values.astype(np.float64))
