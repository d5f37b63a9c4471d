"""Units of time and reference dates, as CF writes them: "days since 1850-01-01"."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from insitu.forking import import_before_fork

__all__ = [
    "INT64_MAX",
    "NANOSECONDS",
    "RESOLUTIONS",
    "UNITS",
    "OutOfRangeError",
    "convert_count",
    "numpy_unit",
    "parse_reference_date",
    "split_units",
]

NANOSECONDS = {
    "ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "D": 86400 * 10**9,
}  # fmt: skip
UNITS = {
    "nanoseconds": "ns", "microseconds": "us", "milliseconds": "ms", "seconds": "s", "minutes": "m", "hours": "h",
    "days": "D",
}  # fmt: skip
RESOLUTIONS = ("s", "ms", "us", "ns")
INT64_MAX = int(np.iinfo(np.int64).max)


class OutOfRangeError(Exception):
    """datetime64 cannot hold these times."""


def split_units(units: str) -> tuple[str, str]:
    """Return unit and reference date of "UNIT since DATE"; raise ValueError for anything else.

    Examples
    --------
    >>> split_units("days since 1850-1-1")
    ('days', '1850-1-1')
    """
    matches = re.match(r"(.+) since (.+)", units)
    if not matches:
        raise ValueError(f"{units!r} is not of the form 'UNIT since DATE'")
    unit, date = (text.strip() for text in matches.groups())
    if re.match(r".*\d{4}.*", date):
        return unit, date
    # Without four digits year and day cannot be told apart: the first number is taken for the year.
    digits = re.match(r"(\d+)(.*)", date)
    if not digits:
        raise ValueError(f"{date!r} is not a reference date")
    return unit, f"{int(digits[1]):04d}{digits[2]}"


def numpy_unit(unit: str) -> str:
    """Return NumPy's name of a unit; raise KeyError if it has none."""
    name = unit.lower()
    return UNITS[name if name.endswith("s") else f"{name}s"]


_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?$")


@lru_cache(maxsize=1024)
def parse_reference_date(date: str) -> tuple[int, str]:
    """Return a reference date as a number since 1970, in the coarsest unit that holds it, and that
    unit.

    Raise ValueError if it is not a date.

    Examples
    --------
    >>> parse_reference_date("1970-01-02 00:00:00.5")
    (86400500, 'ms')
    """
    parts = _DATE.match(date)
    if parts and int(parts[1]):
        year, month, day, hour, minute, second, fraction = parts.groups("0")
        text = f"{year}-{int(month):02}-{int(day):02}T{int(hour):02}:{int(minute):02}:{int(second):02}"
        number = int(np.datetime64(text, "s").astype(np.int64)) * 10**9 + int(fraction.ljust(9, "0"))
    else:
        # Dates in any other form are parsed by pandas, as in xarray.
        stamp = import_before_fork("pandas").Timestamp(date)
        if stamp.tz is not None:
            stamp = stamp.tz_convert("UTC").tz_convert(None)
        exact = np.asarray(stamp.to_datetime64())
        number = int(exact.astype(np.int64)) * NANOSECONDS[str(np.datetime_data(exact.dtype)[0])]
    unit = next(unit for unit in RESOLUTIONS if number % NANOSECONDS[unit] == 0)
    return number // NANOSECONDS[unit], unit


def convert_count(number: int, unit: str, target_unit: str) -> int:
    """Convert a date from one unit to another, rounded down.

    Raise `OutOfRangeError` if it does not fit.
    """
    ratio = NANOSECONDS[target_unit] // NANOSECONDS[unit]
    number = number // ratio if ratio > 1 else number * (NANOSECONDS[unit] // NANOSECONDS[target_unit])
    if abs(number) > INT64_MAX:
        raise OutOfRangeError("a date is out of range")
    return number
