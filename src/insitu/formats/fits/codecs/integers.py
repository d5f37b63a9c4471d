"""Codecs of FITS integers: unsigned integers, and integers of any width.

FITS has no unsigned integers of more than a byte: 0 is stored as the most negative number. To move
the zero back is to flip the highest bit. Some writers compress integers of two bytes as integers of
four; the length tells.
"""

from __future__ import annotations

import numpy as np

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.errors import CodecError

__all__ = ["any_width", "offset_binary"]


def offset_binary(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for integers of the other sign, whose zero lies in the middle."""
    dtype = form.dtype
    if dtype is None or dtype.kind not in "iu" or not form.exact:
        raise CodecError(f"{dtype} is not an integer type", codec="offset_binary")
    size = dtype.itemsize
    little = dtype.str[0] == "<"
    stored = np.dtype(("u" if dtype.kind == "i" else "i") + str(size)).newbyteorder("<" if little else ">")

    def run(data: Data, out: Octets | None) -> Data:
        raw = as_octets(data)
        if raw.size != form.limit:
            raise CodecError(f"the chunk has {raw.size} bytes, {form.limit} are declared")
        room = np.empty(form.limit, np.uint8) if out is None else out
        room[:] = raw
        room[size - 1 if little else 0 :: size] ^= 0x80
        return room

    return DecodeStep("offset_binary", run, BufferSpec(form.limit, True, stored, form.shape), fills=True)


def any_width(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for big-endian integers of one, two, four or eight bytes, as many as the length says."""
    dtype, count = form.dtype, form.count
    if dtype is None or dtype.kind not in "iu":
        raise CodecError(f"{dtype} is not an integer type", codec="any_width")

    def run(data: Data, out: Octets | None) -> Data:
        raw = as_octets(data)
        size = raw.size // max(count, 1)
        if size not in (1, 2, 4, 8) or size * count != raw.size:
            raise CodecError(f"{raw.size} bytes cannot hold {count} integers")
        stored = raw.view(f">{'u' if size == 1 else 'i'}{size}")
        values = stored.astype(dtype)
        if size > dtype.itemsize and not np.array_equal(values, stored):
            raise CodecError(f"integers of {size} bytes do not fit into {dtype}")
        return values

    return DecodeStep("any_width", run, BufferSpec(8 * count, False))
