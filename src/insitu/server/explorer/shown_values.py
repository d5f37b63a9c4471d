"""Values as the explorer shows them: kinds of types, numbers for pictures and their range, texts, units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.model import VirtualArray
from insitu.server.explorer.formula_array import ShownArray

__all__ = [
    "attribute_texts",
    "calendar_of",
    "is_calendar_time",
    "kind_of",
    "label_kind",
    "label_units",
    "long_name_of",
    "shown_labels",
    "to_json_values",
    "to_number_array",
    "to_text",
    "to_texts",
    "type_name",
    "units_of",
    "value_range",
    "with_units",
]

MAX_TEXT_CHARS = 20_000
"""Longest text of one value."""
PERCENTILES = (2, 98)
PERCENTILE_VALUES = 1 << 20
"""Values that percentiles are computed from, evenly chosen: those of all 16 million of the largest
picture take 20 times as long, and lie 0.02 % of the range apart.
"""
SMALL_NUMBERS = (np.dtype("f2"), np.dtype("f4"), *(np.dtype(name) for name in ("i1", "u1", "i2", "u2")))
"""Types whose values float32 has exactly."""

ABSOLUTE_DAYS = "day as %Y%m%d"
"""How units of dates begin that are numbers, 20200131.25 for six in the morning: ICON and CDO write them."""
DURATION_UNITS = {"minutes": ("min", 60), "hours": ("h", 3600), "days": ("d", 86400)}
"""Units in which files give durations, with their seconds."""


def kind_of(array: ShownArray) -> str:
    """Return how values are shown: `number`, `time`, `text`, `bool` or `other`."""
    kind = array.dtype.kind
    if kind in "iufm":
        return "number"
    if kind == "M" or (kind == "O" and is_calendar_time(array)):
        return "time"
    if kind == "b":
        return "bool"
    if kind in "SU" or (kind == "O" and not _is_sequence(array)):
        return "text"
    return "other"


def _is_sequence(array: ShownArray) -> bool:
    return isinstance(array, VirtualArray) and array.details.varying == "sequence"


def type_name(array: ShownArray) -> str:
    """Return the name of the type of the values."""
    dtype = array.dtype
    if dtype.names:
        return "{" + ", ".join(f"{name}: {dtype[name]}" for name in dtype.names) + "}"
    if dtype.kind == "O":
        return "sequence" if _is_sequence(array) else "object"
    return str(dtype.newbyteorder("="))


def is_calendar_time(array: ShownArray) -> bool:
    """Return whether the values are dates of a calendar that NumPy does not have."""
    return array.dtype.kind == "O" and "calendar" in array.encoding and "since" in str(array.encoding.get("units"))


def calendar_of(array: ShownArray) -> str | None:
    """Return the calendar of dates that NumPy does not have; None for those that it has."""
    return str(array.encoding["calendar"]).lower() if is_calendar_time(array) else None


def units_of(array: ShownArray) -> str | None:
    """Return the units of the values as they are shown; durations are shown in seconds."""
    if array.dtype.kind == "m":
        return "s"
    found = array.attributes.get("units")
    return None if found is None or kind_of(array) == "time" else to_text(found)


def is_absolute_date(array: ShownArray) -> bool:
    """Return whether labels are dates that are written as numbers, of a calendar that NumPy has."""
    calendar = str(array.attributes.get("calendar", "standard")).lower()
    is_usual = calendar in ("standard", "gregorian", "proleptic_gregorian")
    return array.dtype.kind in "fiu" and is_usual and str(array.attributes.get("units")).startswith(ABSOLUTE_DAYS)


def label_kind(array: ShownArray) -> str:
    """Return how the labels of a dimension are shown."""
    return "time" if is_absolute_date(array) else kind_of(array)


def label_units(array: ShownArray) -> str | None:
    """Return the units of labels as they are shown: of durations those of the file."""
    if array.dtype.kind == "m":
        return DURATION_UNITS.get(str(array.encoding.get("units")), ("s", 1))[0]
    return None if is_absolute_date(array) else units_of(array)


def shown_labels(array: ShownArray, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return labels of a dimension as they are shown: dates that are numbers as times, durations as numbers."""
    values = np.asarray(values)
    if array.dtype.kind == "m":
        seconds = DURATION_UNITS.get(str(array.encoding.get("units")), ("s", 1))[1]
        numbers = np.asarray(to_number_array(values) / seconds)
        is_whole = bool(np.isfinite(numbers).all() and (numbers == np.floor(numbers)).all())
        return numbers.astype(np.int64) if is_whole else numbers
    return _dates_of_numbers(values) if is_absolute_date(array) else values


def _dates_of_numbers(values: npt.NDArray[Any]) -> npt.NDArray[np.datetime64]:
    """Return the dates of numbers: NaT for those that are none.

    Examples
    --------
    >>> _dates_of_numbers(np.array([20200131.25, 20201301])).tolist()
    [datetime.datetime(2020, 1, 31, 6, 0), None]
    """
    numbers = np.asarray(values, np.float64)
    days = np.floor(np.where(np.isfinite(numbers), numbers, 0)).astype(np.int64)
    year, month, day = days // 10_000, days // 100 % 100, days % 100
    months = (year - 1970).astype("M8[Y]").astype("M8[M]") + (month - 1)
    dates = months.astype("M8[D]") + (day - 1)
    is_date = np.isfinite(numbers) & (month > 0) & (month <= 12) & (day > 0) & (dates.astype("M8[M]") == months)
    seconds = np.where(is_date, np.round((numbers - days) * 86400), 0).astype("m8[s]")
    return np.where(is_date, dates.astype("M8[s]") + seconds, np.datetime64("NaT"))


def with_units(text: str, units: str | None) -> str:
    """Return a value with its units; `1`, the unit of plain numbers (CF 3.1), is left out."""
    return f"{text} {units}" if units and units != "1" else text


def to_number_array(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return values as floating-point numbers, missing ones as NaN: times in milliseconds since 1970,
    durations in seconds.

    Examples
    --------
    >>> to_number_array(np.array(["1970-01-02", "NaT"], "M8[D]")).tolist()
    [86400000.0, nan]
    """
    values = np.asarray(values)
    if values.dtype.kind == "M":
        return _scaled_times(values.astype("M8[us]") if values.dtype.kind == "M" else values, 1e-3)
    if values.dtype.kind == "m":
        return _scaled_times(values.astype("m8[us]"), 1e-6)
    if values.dtype.kind == "O":
        return np.array([_date_milliseconds(value) for value in values.reshape(-1)], "f8").reshape(values.shape)
    small = values.dtype.kind == "b" or values.dtype.newbyteorder("=") in SMALL_NUMBERS
    return values.astype("f4" if small else "f8")


def _scaled_times(values: npt.NDArray[Any], scale: float) -> npt.NDArray[np.float64]:
    numbers = values.view("i8") * scale
    return np.where(np.isnat(values), np.nan, numbers)


def _date_milliseconds(value: Any) -> float:
    """Return a date of any calendar as milliseconds since 1970, counted in that calendar."""
    calendar = getattr(value, "calendar", None)
    if calendar is None:
        return float(np.datetime64(value, "ms").astype("i8")) if hasattr(value, "isoformat") else float("nan")
    from cftime import date2num

    return float(date2num(value, "milliseconds since 1970-01-01", calendar))


def to_text(value: Any) -> str:
    """Return one value as text: numbers with the digits that their type has, times in ISO 8601.

    Examples
    --------
    >>> to_text(np.float32(0.1)), to_text(np.datetime64("2000-01-01T00:00:00.000000000")), to_text(b"ab")
    ('0.1', '2000-01-01T00:00:00', 'ab')
    """
    if isinstance(value, np.ndarray):
        if value.ndim == 0:
            return to_text(value[()])
        text = ", ".join(to_text(item) for item in value.reshape(-1)[:100])
        return (text + (", …" if value.size > 100 else ""))[:MAX_TEXT_CHARS]
    if isinstance(value, (list, tuple)):
        return ", ".join(to_text(item) for item in value[:100])[:MAX_TEXT_CHARS]
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace").rstrip("\0")
    if isinstance(value, np.datetime64):
        return _time_text(value)
    if isinstance(value, np.timedelta64):
        return "NaT" if np.isnat(value) else f"{to_number_array(np.array(value))[()]:g} s"
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    if isinstance(value, np.generic) and not isinstance(value, np.void):
        value = value if isinstance(value, np.floating) else value.item()
    return str(value)[:MAX_TEXT_CHARS]


def _time_text(value: np.datetime64) -> str:
    """Return a time without digits that are all zero."""
    if np.isnat(value):
        return "NaT"
    text = str(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def to_texts(values: npt.NDArray[Any]) -> list[str]:
    """Return the texts of values in flat order."""
    return [to_text(value) for value in np.asarray(values).reshape(-1)]


def to_json_values(values: npt.NDArray[Any]) -> list[Any]:
    """Return values for JSON: numbers, ISO times or texts."""
    if values.dtype.kind in "iufb":
        return list(values.tolist())
    if values.dtype.kind == "m":
        return list(to_number_array(values).tolist())
    return to_texts(values)


def attribute_texts(attributes: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return attributes as names and texts."""
    return [{"name": str(name), "value": to_text(value)} for name, value in attributes.items()]


def long_name_of(array: ShownArray, path: str) -> str:
    """Return how a variable is called: its long name, its standard name, or its name."""
    names = (array.attributes.get(key) for key in ("long_name", "standard_name"))
    return to_text(next((name for name in names if isinstance(name, str) and name), path.rpartition("/")[2]))


def value_range(values: npt.NDArray[Any]) -> dict[str, float | None]:
    """Return the extremes of numbers and the 2nd and 98th percentile; null if all are missing.

    Examples
    --------
    >>> value_range(np.array([1.0, 2.0, np.nan])) == {"min": 1.0, "max": 2.0, "low": 1.02, "high": 1.98}
    True
    """
    finite = values[np.isfinite(values)].astype(np.float64)
    if not finite.size:
        return dict.fromkeys(("min", "max", "low", "high"))
    low, high = np.percentile(finite[:: max(finite.size // PERCENTILE_VALUES, 1)], PERCENTILES)
    return {"min": float(finite.min()), "max": float(finite.max()), "low": float(low), "high": float(high)}
