"""The CF attributes that a packing stands for.

Arrays that are joined of files keep the attributes that all files share. What is selected of such an array may lie in
files that are packed alike all the same: then their packing says which attributes the stored values had.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from insitu.errors import UnsupportedError
from insitu.model.cf_attributes import MISSING
from insitu.model.packing import Packing
from insitu.model.time_units import UNITS, OutOfRangeError, convert_count, numpy_unit, parse_reference_date, split_units

__all__ = ["restore_packing_attributes"]


def restore_packing_attributes(known: Mapping[str, Any], packing: Packing, stored: np.dtype[Any]) -> dict[str, Any]:
    """Return the attributes of a packing that are not known.

    Parameters
    ----------
    known
        The attributes of the array: those that all of its files share.
    packing
        Of all cells.
    stored
        Type of the stored values.

    Raises
    ------
    UnsupportedError
        If attributes cannot say the packing.

    Examples
    --------
    >>> packing = Packing(scale=0.5, kind=PackingKind(scale_dtype="float"))
    >>> restore_packing_attributes({"units": "K"}, packing, np.dtype("i2"))
    {'scale_factor': 0.5}
    """
    kind = packing.kind
    found: dict[str, Any] = {}
    # Texts of a measured length (U) have a charset by their type in the file, not by an attribute.
    if kind.charset is not None and "_Encoding" not in known and np.dtype(kind.dtype).kind == "O":
        found["_Encoding"] = kind.charset
    if kind.unsigned is not None and "_Unsigned" not in known:
        found["_Unsigned"] = "true" if kind.unsigned else "false"
    found |= _missing_values(known, packing, stored)
    for name, number, dtype in (
        ("scale_factor", packing.scale, kind.scale_dtype),
        ("add_offset", packing.offset, kind.offset_dtype),
    ):
        if number is not None and name not in known:
            found[name] = int(number) if dtype == "int" else float(number)
            if dtype not in (None, "int", "float"):
                found[name] = np.dtype(dtype).type(number)
    if kind.unit is not None:
        if "units" not in known or not _has_units(str(known["units"]), packing):
            found["units"] = _units(packing)
        if kind.calendar is not None and "calendar" not in known:
            found["calendar"] = kind.calendar
    return found


def _missing_values(known: Mapping[str, Any], packing: Packing, stored: np.dtype[Any]) -> dict[str, Any]:
    """Return the attributes for missing values that the known ones do not name."""
    values = [_to_stored(value, packing, stored) for value in (*packing.missing, *packing.kind.missing)]
    marks = [mark for name in MISSING if name in known for mark in np.ravel(known[name]).tolist()]
    if len(marks) >= len(values):
        return {}
    left = [value for value in values if value not in marks]
    free = [name for name in MISSING if name not in known]
    if not left:
        return {}
    if not free or (len(left) > 1 and "missing_value" not in free):
        raise UnsupportedError(
            f"its files name different missing values, and no attribute is left for {', '.join(map(str, left))}",
            hint="Read decoded values, or the stored values of one file at a time",
        )
    found = {free[0]: left[0]} if len(left) == 1 or free[0] == "_FillValue" else {}
    rest = left[len(found) :]
    return found | ({"missing_value": np.asarray(rest) if len(rest) > 1 else rest[0]} if rest else {})


def _to_stored(value: Any, packing: Packing, stored: np.dtype[Any]) -> Any:
    """Return a missing value in the type of the stored values, where that is exact."""
    if packing.kind.unsigned is not None and stored.kind in "iu":
        bits = 8 * stored.itemsize
        number = int(value) % (1 << bits)
        is_negative = stored.kind == "i" and number >> bits - 1
        return stored.newbyteorder("=").type(number - (1 << bits) if is_negative else number)
    if stored.kind in "iufc":
        with np.errstate(all="ignore"):
            converted = np.asarray(value).astype(stored.newbyteorder("="))[()]
        return converted if converted == value else value
    return value


def _has_units(units: str, packing: Packing) -> bool:
    """Return whether units are those of a packing: of files whose units differ, one is chosen that holds all times."""
    kind = packing.kind
    if kind.epoch is not None:
        return units == kind.epoch
    try:
        word, date = split_units(units) if " since " in units else (units, "")
        if numpy_unit(word) != kind.unit:
            return False
        return not date or convert_count(*parse_reference_date(date), _resolution(packing)) == packing.epoch
    except (ValueError, KeyError, OutOfRangeError):
        return True  # a form that only decoding knows: it was decoded


def _units(packing: Packing) -> str:
    """Return the units that a packing stands for."""
    if packing.kind.epoch is not None:
        return packing.kind.epoch
    word = next(word for word, unit in UNITS.items() if unit == packing.kind.unit)
    if np.dtype(packing.kind.dtype).kind == "m":
        return word
    return f"{word} since {np.datetime64(packing.epoch, _resolution(packing))}"


def _resolution(packing: Packing) -> Any:
    """Return the unit of the decoded type."""
    dtype: Any = np.dtype(packing.kind.dtype)
    return np.datetime_data(dtype)[0]
