"""Codec `hdf5_number`: integers that do not fill their bytes, and floats that are not IEEE 754.

HDF5 stores for every number which bits are its value (12 of 16), and for a float where its sign,
exponent and mantissa are. Such a number becomes the NumPy type that h5py gives for it: the next
larger integer, or the smallest float that holds all its values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.configuration import reading_configuration
from insitu.errors import CodecError

__all__ = ["convert_numbers", "hdf5_number"]

NAME = "hdf5_number"


def hdf5_number(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare from the layout of a number: see `convert_numbers`."""
    dtype = form.dtype
    if dtype is None or not form.exact or dtype.kind not in "iuf":
        raise CodecError("hdf5_number needs numeric elements of a known fixed size", codec=NAME)
    with reading_configuration(NAME):
        size = int(configuration["size"])
        convert_numbers(b"", configuration, dtype)
    stored = BufferSpec(form.count * size, True, np.dtype(f"V{size}"), form.shape)

    def run(data: Data, out: Octets | None) -> Data:
        values = convert_numbers(as_octets(data), configuration, dtype).view(np.uint8)
        if out is None:
            return values
        out[:] = values
        return out

    return DecodeStep(NAME, run, stored, fills=True)


def convert_numbers(data: Any, layout: Mapping[str, Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    r"""Return the numbers that are stored in `data`, as NumPy has them.

    Parameters
    ----------
    data
        The bytes.
    layout
        `size` in bytes, `big` (endian) or `vax` (if it is so), `offset` and `precision` in bits; of
        an integer `signed`; of a float the bits of `sign`, `exponent` and `mantissa` (place and
        number of bits each), the `bias` of the exponent, and whether a leading one is `implied`.
    dtype
        What they become.

    Examples
    --------
    >>> layout = {"size": 2, "big": False, "offset": 4, "precision": 12, "signed": True}
    >>> convert_numbers(b"\x10\x00\xf0\xff", layout, np.dtype("<i2")).tolist()
    [1, -1]
    """
    size = int(layout["size"])
    if not 1 <= size <= 16:
        raise CodecError(f"numbers of {size} bytes are not supported", codec=NAME)
    rows = np.frombuffer(data, np.uint8).reshape(-1, size)
    if layout.get("vax"):  # words of two bytes, the highest first
        if size % 2:
            raise CodecError(f"numbers of {size} bytes cannot be in VAX byte order", codec=NAME)
        rows = rows.reshape(-1, size // 2, 2)[:, ::-1].reshape(-1, size)
    elif layout["big"]:
        rows = rows[:, ::-1]
    if size > 8:
        return _to_extended(rows, layout, dtype)
    whole = np.zeros(len(rows), np.uint64)
    for number in range(size):
        whole |= rows[:, number].astype(np.uint64) << np.uint64(8 * number)
    if "exponent" in layout:
        return _to_float(whole, layout, dtype)
    precision = int(layout["precision"])
    value = _extract_bits(whole, int(layout["offset"]), precision)
    if layout["signed"]:
        spare = np.uint64(64 - precision)
        return ((value << spare).view(np.int64) >> spare.astype(np.int64)).astype(dtype)
    return value.astype(dtype)


def _extract_bits(whole: NDArray[np.uint64], place: int, count: int) -> NDArray[np.uint64]:
    if not (place >= 0 and 0 < count <= 64 and place + count <= 64):
        raise CodecError(f"a field of {count} bits from bit {place} does not fit into a number of 64 bits", codec=NAME)
    return (whole >> np.uint64(place)) & np.uint64((1 << count) - 1)


def _to_float(whole: NDArray[np.uint64], layout: Mapping[str, Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    place, count = layout["exponent"]
    exponent = _extract_bits(whole, place, count).astype(np.int64)
    largest = (1 << count) - 1
    place, width = layout["mantissa"]
    mantissa = _extract_bits(whole, place, width)
    wide = np.longdouble if dtype.itemsize > 8 else np.float64
    if width > np.finfo(wide).nmant:
        raise CodecError(f"a mantissa of {width} bits is not supported", codec=NAME)
    negative = _extract_bits(whole, int(layout["sign"]), 1).astype(bool)
    bias = int(layout["bias"])
    if layout["implied"]:
        full = np.where(exponent == 0, mantissa, mantissa | np.uint64(1 << width)).astype(wide)
        power = np.maximum(exponent, 1) - bias - width
    else:
        full, power = mantissa.astype(wide), exponent - bias - (width - 1)
    value = np.ldexp(full, np.clip(power, -(1 << 20), 1 << 20).astype(np.int32))
    value = np.where(exponent == largest, np.where(mantissa == 0, math.inf, math.nan), value)
    return np.where(negative, -value, value).astype(dtype)


def _to_extended(rows: NDArray[np.uint8], layout: Mapping[str, Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Decode 80-bit x87 numbers.

    They are stored in another number of bytes than here, or become quadruple precision on a machine
    without such numbers.
    """
    form = (layout.get("sign"), list(layout.get("exponent", ())), list(layout.get("mantissa", ())), layout.get("bias"))
    native = np.dtype(np.longdouble)
    digits = np.finfo(native).nmant
    if form != (79, [64, 15], [0, 64], 16383) or dtype.newbyteorder("=") != native or digits not in (63, 112):
        raise CodecError(
            f"floats of {layout['size']} bytes with this layout are not supported on this machine", codec=NAME
        )
    if digits == 112:
        mantissa = np.ascontiguousarray(rows[:, :8]).view("<u8").reshape(-1)
        top = np.ascontiguousarray(rows[:, 8:10]).view("<u2").reshape(-1).astype(np.int32)
        exponent = top & 0x7FFF
        value = np.ldexp(mantissa.astype(native), np.maximum(exponent, 1) - 16383 - 63)
        endless = np.where(mantissa << np.uint64(1) == 0, native.type(np.inf), native.type(np.nan))
        value = np.where(exponent == 0x7FFF, endless, value)
        return np.where(top >> 15 & 1, -value, value).astype(dtype)
    wide = np.zeros((len(rows), dtype.itemsize), np.uint8)
    wide[:, :10] = rows[:, :10]
    return wide.reshape(-1).view(native).astype(dtype, copy=False)
