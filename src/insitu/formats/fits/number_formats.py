"""Number formats of FITS images and columns: stored type, codecs, scale, offset and fill value.

Big-endian integers and floats. Scale and zero (BSCALE, BZERO; TSCAL, TZERO of columns) become
`scale_factor` and `add_offset`, BLANK and TNULL become `_FillValue`, as CF has them. The zeros that
only make integers unsigned (section 4.4.2.5, table 11) are undone in the encoding: the values are
unsigned integers, of 64 bits too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from insitu.model import Codec

__all__ = ["NumberFormat", "number_format"]

ZEROS = {"u1": (-128, "i1"), "i2": (2**15, "u2"), "i4": (2**31, "u4"), "i8": (2**63, "u8")}


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """The type of some values, and how they are packed."""

    dtype: np.dtype[Any]
    codecs: tuple[Codec, ...]
    attributes: dict[str, Any]


def number_format(stored: np.dtype[Any], scale: Any, zero: Any, blank: Any) -> NumberFormat:
    """Return the format that a scale, a zero and a blank describe, each None where it is not given."""
    scale = 1 if not _is_number(scale) else scale
    zero = 0 if not _is_number(zero) else zero
    attributes: dict[str, Any] = {}
    dtype = stored
    codecs: tuple[Codec, ...] = ()
    moved = ZEROS.get(stored.str[1:])
    shift = 0
    if moved is not None and scale == 1 and zero == moved[0]:
        dtype, codecs = np.dtype(f">{moved[1]}"), (Codec("offset_binary"),)
        shift = int(zero)
    elif (scale, zero) != (1, 0) and stored.kind == "c":
        # CF's scale_factor is for real numbers only. Scale and zero have no imaginary part (section
        # 7.3.2).
        dtype = np.dtype("c16")
        codecs = (Codec("fits_scaled", {"base": stored.str, "scale": float(scale), "zero": float(zero)}),)
    elif (scale, zero) != (1, 0) and stored.kind in "iuf":
        attributes = {"scale_factor": float(scale), "add_offset": float(zero)}
    if stored.kind in "iu" and isinstance(blank, int) and not isinstance(blank, bool):
        limits, native = np.iinfo(dtype), dtype.newbyteorder("=")
        if limits.min <= blank + shift <= limits.max:
            attributes["_FillValue"] = native.type(blank + shift)
    return NumberFormat(dtype, codecs, attributes)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
