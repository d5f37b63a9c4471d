"""Unpacking of consecutive bit fields of any width into integers.

The most significant bit comes first, as HDF5's scale-offset and n-bit filters write. The C kernel
works field by field; NumPy takes a window of eight bytes around each field.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import Octets
from insitu.codecs.libraries import find_function
from insitu.errors import CodecError

__all__ = ["unpack_bits", "unpack_bits_numpy"]


def unpack_bits(data: Octets, first: int, stride: int, bits: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return `count` fields as unsigned integers.

    Parameters
    ----------
    data
        The packed bits.
    first
        The bit at which the first field starts.
    stride
        Bits from the start of one field to the next.
    bits
        Width of a field, 1 to 64.
    count
        Number of fields.
    dtype
        An unsigned integer in native order, at least `bits` wide.
    """
    if count and first + stride * (count - 1) + bits > data.size * 8:
        raise CodecError(f"{data.size} bytes are too few for {count} fields of {bits} bits")
    kernel = find_function("insitu.codecs._kernels", "unpack_bits")
    if kernel is None:
        return unpack_bits_numpy(data, first, stride, bits, count, dtype)
    fields = np.empty(count, dtype)
    kernel(data, first, stride, bits, fields)
    return fields


def unpack_bits_numpy(
    data: Octets, first: int, stride: int, bits: int, count: int, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Return the same as `unpack_bits`, computed with NumPy instead of the kernel."""
    padded = np.zeros(data.size + 9, np.uint8)
    padded[: data.size] = data
    windows = np.ndarray((data.size + 2,), ">u8", padded, strides=(1,))
    position = first + stride * np.arange(count, dtype=np.int64)
    byte, lead = position >> 3, (position & 7).astype(np.uint64)
    fields = windows[byte].astype(np.uint64) << lead
    if bits > 57:
        # The window of eight bytes ends before the field does: its last bits are in the ninth.
        fields |= padded[byte + 8].astype(np.uint64) >> (np.uint64(8) - lead)
    values: NDArray[Any] = (fields >> np.uint64(64 - bits)).astype(dtype)
    return values
