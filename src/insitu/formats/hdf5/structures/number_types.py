"""NumPy dtypes of fixed-point and floating-point datatypes.

Format specification 3.0, IV.A.2.d, classes 0, 1 and 4. A number that fills its bytes is taken as it
is. Others (12 bits of 16, floats with unusual exponents) are decoded by the codec `hdf5_number`.
Numbers that the codec cannot decode are refused with an error that names them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from insitu.errors import FormatError, UnsupportedError

__all__ = ["NumberLayout", "fixed_point", "floating_point"]

NumberLayout = tuple[tuple[str, Any], ...]
"""What the codec `hdf5_number` wants to know, as items (hashable)."""

# (size, precision, exponent location, exponent bits, mantissa location, mantissa bits, bias)
_IEEE: dict[tuple[int, ...], str] = {
    (2, 16, 10, 5, 0, 10, 15): "f2",
    (4, 32, 23, 8, 0, 23, 127): "f4",
    (8, 64, 52, 11, 0, 52, 1023): "f8",
}
_EXTENDED = (16, 80, 64, 15, 0, 64, 16383)  # the x87 long double, in 16 bytes
_QUADRUPLE = (16, 128, 112, 15, 0, 112, 16383)


def fixed_point(size: int, bits: int, properties: bytes, *, signed: bool) -> tuple[np.dtype[Any], NumberLayout | None]:
    """Return the dtype of an integer or bit field, and its bits if it does not fill its bytes."""
    if len(properties) < 4:
        raise FormatError("the datatype message is cut off", structure="datatype")
    offset = int.from_bytes(properties[:2], "little")
    precision = int.from_bytes(properties[2:4], "little")
    if precision == 0 or offset + precision > 8 * size:
        raise FormatError(
            f"integers of {precision} bits from bit {offset} do not fit into {size} bytes", structure="datatype"
        )
    whole = offset == 0 and precision == 8 * size
    if size > 8:
        raise UnsupportedError(f"integers of {precision} bits in {size} bytes are not supported", structure="datatype")
    width = next(width for width in (1, 2, 4, 8) if width >= size)
    dtype = np.dtype(f"{'>' if bits & 1 else '<'}{'i' if signed else 'u'}{width}")
    if whole and width == size:
        return dtype, None
    fields = {"size": size, "big": bool(bits & 1), "offset": offset, "precision": precision, "signed": signed}
    return dtype, tuple(fields.items())


def floating_point(size: int, bits: int, properties: bytes) -> tuple[np.dtype[Any], NumberLayout | None]:
    """Return the dtype of a float, and its bits if it is not an IEEE one."""
    if len(properties) < 12:
        raise FormatError("the datatype message is cut off", structure="datatype")
    offset = int.from_bytes(properties[:2], "little")
    form = (
        size,
        int.from_bytes(properties[2:4], "little"),
        *properties[4:8],
        int.from_bytes(properties[8:12], "little"),
    )
    if offset + form[1] > 8 * size:
        raise FormatError(
            f"floats of {form[1]} bits from bit {offset} do not fit into {size} bytes", structure="datatype"
        )
    order = bits & 1 | bits >> 5 & 2
    name = _IEEE.get(form)
    # Bits 4-5: mantissa normalisation, 2 (implied leading 1) for IEEE; bits 8-15: where the sign
    # is.
    implied, sign = bits >> 4 & 3, bits >> 8 & 0xFF
    if name and offset == 0 and order in (0, 1) and implied == 2 and sign == 8 * size - 1:
        return np.dtype(f"{'>' if order else '<'}{name}"), None
    native_format = np.finfo(np.longdouble)
    native = np.dtype(np.longdouble)
    # A long double is taken where it is this machine's own.
    own = (form == _EXTENDED and native_format.nmant == 63) or (form == _QUADRUPLE and native_format.nmant == 112)
    if own and native.itemsize == 16 and order == 0 and offset == 0 and np.little_endian:
        return native, None
    # The quadruple of ARM machines fills its 16 bytes, so that NumPy can turn them round (the 80
    # bits of x87 do not).
    quadruple = own and form == _QUADRUPLE and implied == 2 and sign == 127
    if quadruple and native.itemsize == 16 and order == 1 and offset == 0 and np.little_endian:
        return native.newbyteorder(">"), None
    fields = {
        "size": size,
        "big": order == 1,
        "offset": offset,
        "precision": form[1],
        "sign": sign,
        "exponent": (form[2], form[3]),
        "mantissa": (form[4], form[5]),
        "bias": form[6],
        "implied": implied == 2,
    }
    dtype = _smallest_float(size, form[3], form[5], form[6])
    if order == 2 or dtype is None or (size > 8 and (form[1:], sign) != (_EXTENDED[1:], 79)):
        raise UnsupportedError(
            f"floats of {size} bytes with {form[3]} exponent and {form[5]} mantissa bits are not supported",
            structure="datatype",
        )
    if order == 3:
        if size % 2:
            raise FormatError(f"floats of {size} bytes cannot be in VAX byte order", structure="datatype")
        fields["vax"] = True
    _check_fields(fields, size)
    return dtype.newbyteorder(">" if order else "<"), tuple(fields.items())


def _smallest_float(size: int, exponent: int, mantissa: int, bias: int) -> np.dtype[Any] | None:
    """The smallest float that holds all values, as h5py chooses it."""
    if size > 8:
        return np.dtype(np.longdouble) if mantissa == 64 and np.finfo(np.longdouble).nmant in (63, 112) else None
    for name in ("f2", "f4", "f8"):
        info = np.finfo(name)
        if mantissa <= info.nmant and (1 << exponent) - bias - 1 <= info.maxexp and 1 - bias >= info.minexp:
            return np.dtype(name)
    info = np.finfo(np.longdouble)
    fits = mantissa <= min(info.nmant, 63) and (1 << exponent) - bias - 1 <= info.maxexp and 1 - bias >= info.minexp
    return np.dtype(np.longdouble) if fits and np.little_endian else None


def _check_fields(fields: dict[str, Any], size: int) -> None:
    """Raise for fields that are not in the number."""
    for place, count in (fields["exponent"], fields["mantissa"], (fields["sign"], 1)):
        if not count or place + count > 8 * size:
            raise FormatError(
                f"a field of {count} bits from bit {place} does not fit into a float of {size} bytes",
                structure="datatype",
            )
