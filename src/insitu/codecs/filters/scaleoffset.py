"""Decoder of HDF5's scale-offset filter (6).

A chunk is 21 bytes of parameters (bits per value, 4 bytes; size of the minimum, 1; the minimum, 16)
and the differences from the minimum in that many bits each, most significant bit first. The largest
difference stands for the fill value, if the dataset has one. Floats were multiplied by a power of
ten and rounded ("D-scaling"); they are restored by the same arithmetic as in the HDF5 library, so
to the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.configuration import integers_field
from insitu.codecs.filters.bit_fields import unpack_bits
from insitu.errors import CodecError

__all__ = ["scaleoffset"]

HEADER = 21
DECIMAL, EXPONENT, INTEGER = 0, 1, 2
"""Scale types (H5Z_SO_scale_type_t); the library never wrote the second."""


@dataclass(frozen=True, slots=True)
class _Parameters:
    """The client values of the filter (H5Zscaleoffset.c: H5Z_SCALEOFFSET_PARM_*)."""

    scale_type: int
    factor: int
    count: int
    dtype: np.dtype[Any]
    fill: bytes | None

    @classmethod
    def of(cls, values: tuple[int, ...]) -> _Parameters:
        if len(values) < 8:
            raise CodecError(f"scaleoffset has too few client values: {len(values)} of 20", codec="scaleoffset")
        if any(not 0 <= value < 1 << 32 for value in values):
            raise CodecError("a client value of scaleoffset is not an unsigned integer of 32 bits", codec="scaleoffset")
        scale_type, factor, count, kind, size, sign, order, filled = values[:8]
        if factor >= 2**31:
            factor -= 2**32
        code = "f" if kind == 1 else "i" if sign == 1 else "u"
        allowed = (4, 8) if code == "f" else (1, 2, 4, 8)
        if size not in allowed or (kind == 1) != (scale_type == DECIMAL):
            raise CodecError(
                f"scaleoffset parameters are invalid: class {kind}, size {size}, scale type {scale_type}",
                codec="scaleoffset",
            )
        words = b"".join(value.to_bytes(4, "little") for value in values[8:20])
        return cls(
            scale_type,
            factor,
            count,
            np.dtype(f"{'>' if order == 1 else '<'}{code}{size}"),
            words[:size].ljust(size, b"\0") if filled == 1 else None,
        )


def scaleoffset(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step, from `cd_values`, the 20 client values that HDF5 stores."""
    parameters = _Parameters.of(integers_field(configuration, "cd_values"))
    size = parameters.dtype.itemsize
    nbytes = parameters.count * size
    if form.exact and nbytes != form.limit:
        raise CodecError(f"scaleoffset declares {nbytes} bytes, but the chunk has {form.limit}", codec="scaleoffset")
    if parameters.scale_type == INTEGER and parameters.factor == size * 8:
        return DecodeStep("scaleoffset", lambda data, out: data, form.as_bytes())

    def run(data: Data, out: Octets | None) -> Data:
        room = np.empty(nbytes, np.uint8) if out is None else out
        room.view(parameters.dtype)[:] = _decode(as_octets(data), parameters)
        return room

    return DecodeStep("scaleoffset", run, form.compressor_output(), fills=form.exact)


def _decode(data: Octets, parameters: _Parameters) -> NDArray[Any]:
    if data.size < HEADER:
        raise CodecError(f"the data is too short for its parameters of {HEADER} bytes")
    dtype = parameters.dtype.newbyteorder("<")
    size = dtype.itemsize
    bits = int.from_bytes(data[:4].tobytes(), "little")
    smallest = data[5 : 5 + min(int(data[4]), 8)].tobytes().ljust(8, b"\0")
    if bits > size * 8:
        raise CodecError(f"the data declares {bits} bits per value, but a value has only {size} bytes")
    packed = data[HEADER:]
    if bits == size * 8:
        if packed.size < parameters.count * size:
            raise CodecError("the data is truncated: its last values are missing")
        return packed[: parameters.count * size].view(dtype)
    unsigned = np.dtype(f"u{size}")
    if bits:
        differences = unpack_bits(packed, 0, bits, bits, parameters.count, unsigned)
    else:
        differences = np.zeros(parameters.count, unsigned)
    filled = differences == (1 << bits) - 1 if parameters.fill is not None else None
    values: NDArray[Any]
    if dtype.kind == "f":
        ten = np.array(10.0**parameters.factor, f"f{size}")
        minimum = np.frombuffer(smallest[:size], dtype)[0]
        with np.errstate(over="ignore", invalid="ignore"):
            values = differences.view(f"i{size}").astype(f"f{size}") / ten + minimum
    else:
        # Wraps around as in C: the minimum of a signed type arrives as its two's complement.
        values = (differences + np.frombuffer(smallest[:size], unsigned.newbyteorder("<"))[0]).view(
            f"{dtype.kind}{size}"
        )
    if filled is not None and parameters.fill is not None:
        values[filled] = np.frombuffer(parameters.fill, dtype)[0]
    return values
