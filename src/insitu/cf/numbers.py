"""CF rules for numbers: missing values, `_Unsigned`, and the type of scaled values.

The rules are xarray's; they decide how values are rounded, and so their bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from insitu.errors import FormatError

__all__ = [
    "apply_unsigned",
    "bad_attribute_error",
    "can_store_in_row",
    "dtype_name",
    "fill_values",
    "float_dtype",
    "missing_dtype",
    "packed_number",
]


def fill_values(marks: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[dict[str, Any], list[Any], list[str]]:
    """Return the attributes that name missing values of a type, those values, and warnings for the
    user.

    Parameters
    ----------
    marks
        The attributes `missing_value` and `_FillValue` that the variable has.
    dtype
        Of the values.
    """
    valid_marks = dict(marks)
    if dtype.kind == "S" and isinstance(valid_marks.get("_FillValue"), bytes):
        valid_marks["_FillValue"] = np.bytes_(valid_marks["_FillValue"])
    fills: dict[Any, None] = {}
    notes = []
    for key, value in list(valid_marks.items()):
        each = (value,) if isinstance(value, np.generic) else np.ravel(value)
        found = [fill for fill in each if not _is_null(fill)]
        if any(isinstance(fill, np.void) for fill in found):  # opaque bytes, a record: nothing equals it
            raise bad_attribute_error(key, value)
        if not found and dtype.kind in "iu":
            notes.append(f"has {key} {value!r}, but integer values: the attribute is ignored")
            del valid_marks[key]
            continue
        fills.update(dict.fromkeys(found))
    if len(fills) > 1:
        notes.append(f"has several missing values, {[*fills]}: all become NaN")
    return valid_marks, [*fills], notes


def _is_null(value: Any) -> bool:
    """Return whether a value is NaN or NaT."""
    return bool(isinstance(value, (float, complex, np.inexact, np.datetime64, np.timedelta64)) and value != value)


def can_store_in_row(value: Any) -> bool:
    """Return whether a missing value fits in a row of a table of packings."""
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 64
    return isinstance(value, float) or (isinstance(value, np.number) and value.nbytes <= 8)


def apply_unsigned(dtype: np.dtype[Any], unsigned: Any, mark: Any, fills: list[Any]) -> tuple[np.dtype[Any], list[Any]]:
    """Return the type of integers with the sign that `_Unsigned` gives them, and the missing values
    in it.

    Parameters
    ----------
    dtype
        Of the stored integers.
    unsigned
        The attribute: "true" or "false"; anything else changes nothing.
    mark
        The attribute `_FillValue`, of the stored type, or None.
    fills
        All missing values.
    """
    if (dtype.kind, unsigned) == ("i", "true"):
        unsigned_type = np.dtype(f"u{dtype.itemsize}")
    elif (dtype.kind, unsigned) == ("u", "false"):
        unsigned_type = np.dtype(f"i{dtype.itemsize}")
    else:
        return dtype, fills
    if mark is None:
        return unsigned_type, fills
    try:
        own = np.array(mark, dtype.newbyteorder("=")).reshape(()).view(unsigned_type)[()]
    except (ValueError, OverflowError) as problem:
        raise bad_attribute_error("_FillValue", mark) from problem
    others = [value for value in fills if value != np.ravel(mark)[0]]
    # A plain number, as in xarray, takes the type of the values that it is compared with.
    return unsigned_type, [*others, own.item() if unsigned_type.kind == "u" else own]


def missing_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that values of a type have when some of them may be missing."""
    if dtype.kind in "fcmM":
        return dtype
    if dtype.kind in "iu":
        return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)
    return np.dtype(object)


def float_dtype(dtype: np.dtype[Any], scale: Any, offset: Any) -> np.dtype[Any]:
    """Return the type of packed values: that of the scale, wider where an offset or 32-bit integers
    would lose digits.

    Parameters
    ----------
    dtype
        Type of the values before scaling.
    scale, offset
        The attributes, of which one may be None.
    """
    scale_type, offset_type = _type_of("scale_factor", scale), _type_of("add_offset", offset)
    if scale_type is not None and scale_type == offset_type and scale_type in (np.float32, np.float64):
        wide = dtype.itemsize == 4 and dtype.kind in "iu"
        return np.dtype(np.float64) if wide else scale_type
    if offset_type is not None or scale_type is None:
        return np.dtype(np.float64)
    return scale_type


def _type_of(key: str, value: Any) -> np.dtype[Any] | None:
    if value is None:
        return None
    dtype = np.dtype(type(_single_number(key, value)))
    if dtype.kind not in "iufb":
        raise bad_attribute_error(key, value)
    return dtype


def _single_number(key: str, value: Any) -> Any:
    """Return the one number of an attribute."""
    if isinstance(value, (np.generic, float, int)):
        return value
    if np.size(value) != 1:
        raise bad_attribute_error(key, value)
    if np.ndim(value) == 0:
        return value[()] if isinstance(value, np.ndarray) else value
    return np.asarray(value).item()


def packed_number(key: str, value: Any) -> tuple[float | None, str | None]:
    """Return a scale or offset as a float for a packing's row, and the name of its type."""
    if value is None:
        return None, None
    number = _single_number(key, value)
    try:
        exact = float(number)
    except (TypeError, ValueError, OverflowError) as problem:
        raise bad_attribute_error(key, value) from problem
    if isinstance(number, (str, bytes)) or (exact != number and exact == exact):
        raise bad_attribute_error(key, value)
    if isinstance(number, np.generic):
        return exact, dtype_name(number.dtype)
    return exact, "bool" if isinstance(number, bool) else "int" if isinstance(number, int) else "float"


@lru_cache(maxsize=1024)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return a type as text, in native byte order."""
    if dtype.kind == "O":
        return "object"
    return dtype.newbyteorder("=").name if dtype.kind in "iufcb" else dtype.str


def bad_attribute_error(key: str, value: Any, option: str = "mask_and_scale=False") -> FormatError:
    """Return the error for an invalid attribute, with the option that ignores it."""
    return FormatError(f"the attribute {key} has the invalid value {value!r}", hint=f"Open the file with {option}")
