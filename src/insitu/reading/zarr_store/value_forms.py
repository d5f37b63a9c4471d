"""Forms in which values are written to the Zarr view: numbers, times, texts.

Numbers are written as they are. Times become integers with CF's units and calendar (V3's own types
for times are NumPy's, which few readers support), texts become UTF-8 of varying length. Other
values are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import UnsupportedError
from insitu.model import PackingKind, VirtualArray

__all__ = ["ValueForm", "choose_value_form"]

Values = npt.NDArray[Any]
_UNITS = {
    "ns": "nanoseconds",
    "us": "microseconds",
    "ms": "milliseconds",
    "s": "seconds",
    "m": "minutes",
    "h": "hours",
    "D": "days",
}
_MISSING_TIME = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class ValueForm:
    """How the values of an array are written."""

    dtype: np.dtype[Any]
    convert: Callable[[Values], Values]
    attributes: Mapping[str, Any]
    """Attributes that are added to those of the array, or replace them."""
    fill: Any = None
    """Value that pads chunks at the edge."""
    text: bool = False


def choose_value_form(array: VirtualArray) -> ValueForm:
    """Return the form of an array's values.

    Raises
    ------
    UnsupportedError
        If Zarr has no type for them.
    """
    dtype = array.dtype
    if dtype.kind == "M":
        unit = _time_unit(dtype)
        attributes = {"units": f"{_UNITS[unit]} since 1970-01-01", "calendar": "proleptic_gregorian"}
        return ValueForm(
            np.dtype("<i8"), lambda values: values.astype(f"<M8[{unit}]").view("<i8"), attributes, _MISSING_TIME
        )
    if dtype.kind == "m":
        unit = _time_unit(dtype)
        attributes = {"units": _UNITS[unit]}
        return ValueForm(
            np.dtype("<i8"), lambda values: values.astype(f"<m8[{unit}]").view("<i8"), attributes, _MISSING_TIME
        )
    if dtype.kind == "O":
        kinds = [kind for tile in array.tiles for kind in tile.packings.kinds]
        calendars = {kind.calendar for kind in kinds if kind.calendar is not None}
        if calendars and any(_is_datetime64(kind) for kind in kinds):
            calendars.add("standard")
        if len(calendars) > 1:
            raise UnsupportedError(f"its times have several calendars: {', '.join(sorted(calendars))}")
        if calendars:
            return _cftime_form(calendars.pop())
        if array.details.varying == "sequence":
            raise UnsupportedError("its values are sequences of varying length, which Zarr's readers do not support")
        return _text_form(array)
    if dtype.kind in "iufcb":
        if dtype.itemsize > (16 if dtype.kind == "c" else 8):
            wide = np.dtype("<c16" if dtype.kind == "c" else "<f8")
            return ValueForm(wide, lambda values: values.astype(wide), {})
        little = dtype.newbyteorder("<")
        return ValueForm(little, lambda values: values.astype(little, copy=False), {})
    if dtype.kind in "SU" or (dtype.kind == "V" and dtype.subdtype is None):
        little = dtype.newbyteorder("<")
        return ValueForm(little, lambda values: values.astype(little, copy=False), {})
    raise UnsupportedError(f"Zarr has no type for values of {dtype}")


def _is_datetime64(kind: PackingKind) -> bool:
    """Return whether a packing decodes to datetime64 rather than to dates of cftime."""
    return kind.dtype is not None and np.dtype(kind.dtype).kind == "M"


def _time_unit(dtype: np.dtype[Any]) -> str:
    unit, step = np.datetime_data(dtype)
    return unit if unit in _UNITS and step == 1 else "s" if unit in ("Y", "M", "W") else "ns"


def _cftime_form(calendar: str) -> ValueForm:
    units = "microseconds since 1850-01-01"

    def convert(values: Values) -> Values:
        from cftime import date2num

        out = np.full(values.shape, _MISSING_TIME, "<i8")
        known = np.array([hasattr(value, "calendar") for value in values.reshape(-1)], bool).reshape(values.shape)
        if known.any():
            out[known] = np.asarray(date2num(values[known], units, calendar)).astype(np.int64)
        return out

    return ValueForm(np.dtype("<i8"), convert, {"units": units, "calendar": calendar}, _MISSING_TIME)


def _text_form(array: VirtualArray) -> ValueForm:
    """Return the form of texts; missing texts are written as the value of the attribute
    `missing_value`.

    Zarr has no missing texts: a value that only some of the files mark as missing would hide texts
    of the others.
    """
    kinds = [kind for tile in array.tiles for kind in tile.packings.kinds]
    marks = {mark for kind in kinds for mark in kind.missing if isinstance(mark, str)}
    if len(marks) > 1 or (marks and not all(kind.missing for kind in kinds)):
        raise UnsupportedError(f"its files mark missing texts differently: {', '.join(map(repr, sorted(marks)))}")
    mark = str(next(iter(marks), ""))

    def convert(values: Values) -> Values:
        out = np.empty(values.shape, object)
        out.reshape(-1)[:] = [_to_text(value, mark) for value in values.reshape(-1)]
        return out

    return ValueForm(np.dtype(object), convert, {"missing_value": mark} if marks else {}, mark, text=True)


def _to_text(value: Any, missing: str) -> str:
    if isinstance(value, str):
        return str(value)  # attributes are NumPy's texts, which numcodecs refuses
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return missing  # a missing text, or a place that no file covers
    raise UnsupportedError(f"Zarr has no type for {type(value).__name__} objects")
