"""CF times: decodes numbers ("days since 1850-01-01") to datetime64, timedelta64 or cftime.

Numbers become datetime64 by integer arithmetic where the calendar is the usual one and the dates
fit; else objects of cftime. What decides, and how numbers with a fraction are rounded, is xarray's
rule. It depends on all values of a variable, so the decision is taken once (`choose_date_decoding`)
and kept in the packing; `decode_time_numbers` then turns any part of the values into the same
times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.errors import CodecError, FormatError, UnsupportedError
from insitu.forking import import_before_fork
from insitu.model import PackingKind
from insitu.model.time_units import (
    INT64_MAX,
    NANOSECONDS,
    RESOLUTIONS,
    OutOfRangeError,
    convert_count,
    numpy_unit,
    parse_reference_date,
    split_units,
)

__all__ = [
    "TimeDecoding",
    "choose_date_decoding",
    "choose_timedelta_decoding",
    "decode_time_numbers",
]

USUAL_CALENDARS = frozenset({"standard", "gregorian", "proleptic_gregorian"})
NAT = int(np.iinfo(np.int64).min)
GREGORIAN_REFORM = int(np.datetime64("1582-10-15", "s").astype(np.int64)) * 10**9
"""Start of the Gregorian calendar: before it, dates of the standard calendar differ from
datetime64.
"""


@dataclass(frozen=True, slots=True)
class TimeDecoding:
    """How the numbers of a variable become times: fields for a packing."""

    dtype: str
    unit: str
    base: str | None = None
    fine: str | None = None
    epoch: str | None = None
    calendar: str | None = None
    number: int = 0
    """The reference date as a number, in the unit of `dtype`."""
    cast: str | None = None
    """The type that the numbers are cast to before decoding."""
    warning: str | None = None
    """A warning for the user."""


def choose_date_decoding(
    numbers: NDArray[Any], units: str, calendar: str | None, use_cftime: bool | None = None, time_unit: str = "ns"
) -> TimeDecoding:
    """Return how the numbers of a variable become dates, by xarray's rules, which depend on all of
    them.

    Parameters
    ----------
    numbers
        The values of the variable, masked and scaled; empty if they are unknown.
    units, calendar
        The attributes.
    use_cftime
        True: always objects of cftime; False: never; None: where datetime64 will not do.
    time_unit
        The resolution wanted: s, ms, us or ns.
    """
    name = calendar or "standard"
    unit, date = _split_units_or_raise(units)
    if use_cftime:
        _check_calendar(units, name)
        return TimeDecoding("object", unit, epoch=units, calendar=name)
    try:
        return _choose_datetime64(numbers, unit, date, name, time_unit)
    except (OutOfRangeError, KeyError) as problem:
        if use_cftime is not None:
            raise FormatError(
                f"times in {units!r} ({name}) do not fit in datetime64: {problem}",
                hint="Open the file without use_cftime=False",
            ) from problem
    return _choose_cftime(numbers, unit, units, name, time_unit)


def _split_units_or_raise(units: str) -> tuple[str, str]:
    try:
        return split_units(units)
    except ValueError as problem:
        raise FormatError(
            f"the units of time are invalid: {problem}", hint="Open the file with decode_times=False"
        ) from problem


def _choose_datetime64(numbers: NDArray[Any], unit: str, date: str, calendar: str, time_unit: str) -> TimeDecoding:
    if calendar.lower() not in USUAL_CALENDARS:
        raise OutOfRangeError(f"the calendar {calendar!r} needs cftime")
    own = numpy_unit(unit)
    try:
        moment = parse_reference_date(date)
    except ValueError as problem:
        raise OutOfRangeError(str(problem)) from problem
    base = _finest_unit(moment[1], own, time_unit)
    number = convert_count(*moment, base)
    if calendar != "proleptic_gregorian" and number * NANOSECONDS[base] < GREGORIAN_REFORM:
        raise OutOfRangeError("the reference date lies before the Gregorian calendar (1582-10-15)")
    clock = TimeDecoding(f"datetime64[{base}]", own, base=base, fine=base, number=number)
    if not numbers.size:
        return clock
    if numbers.dtype.kind == "f" and base != "ns":
        fine = _to_whole_numbers(numbers.astype(np.float64) * np.int64(NANOSECONDS[own] // NANOSECONDS[base]), base)[1]
        if fine != base:
            clock = replace(
                clock, dtype=f"datetime64[{fine}]", fine=fine, number=convert_count(*moment, fine),
                warning=f"Can't decode floating point datetimes to {base!r} without precision loss: "
                f"decoded as datetime64[{fine}]",
            )  # fmt: skip
    _to_ticks(numbers, clock.unit, base, clock.fine, clock.number)
    return clock


def _finest_unit(*units: str) -> str:
    """Return the finest of some units and seconds."""
    return min((*units, "s"), key=NANOSECONDS.__getitem__)


def _to_whole_numbers(numbers: NDArray[Any], unit: str) -> tuple[NDArray[Any], str]:
    """Return numbers, converted in place, and the coarsest unit in which none has a fraction."""
    for finer in RESOLUTIONS[RESOLUTIONS.index(unit) :]:
        if finer == "ns" or not (numbers % 1 > 0).any():
            return numbers, finer
        numbers *= 1000
    return numbers, "ns"


def _to_ticks(
    numbers: NDArray[Any], unit: str, base: str, fine: str | None, epoch: int
) -> tuple[NDArray[np.int64], str]:
    """Return numbers as integers since 1970 in the unit `fine`, NaT for missing ones, and that
    unit.

    Raise `OutOfRangeError` if they are out of range.
    """
    kind = numbers.dtype.kind
    if kind not in "iuf":
        raise CodecError(f"values of {numbers.dtype} are not times")
    ratio = NANOSECONDS[unit] // NANOSECONDS[base]
    nat = np.isnan(numbers) if kind == "f" else numbers == NAT if kind == "i" else None
    if nat is not None and not nat.any():
        nat = None
    found = base
    if kind == "f":
        scaled = np.multiply(numbers, np.int64(ratio)) if ratio > 1 else numbers.copy()
        if fine is not None:
            for _ in range(RESOLUTIONS.index(fine) - RESOLUTIONS.index(base)):
                scaled *= 1000
            found = fine
            # Values that were unknown when the unit was chosen may need a finer one: never truncate
            # them silently.
            if fine != "ns" and (scaled % 1 > 0).any():
                raise OutOfRangeError(f"they have a fraction of {fine}")
        elif base != "ns":
            scaled, found = _to_whole_numbers(scaled, base)
        low, high = _min_and_max(scaled, nat)
        if not (low > -(2.0**63) and high < 2.0**63):
            raise OutOfRangeError("they are out of range")
        with np.errstate(invalid="ignore"):
            ticks = np.asarray(scaled).astype(np.int64)
        low, high = int(low), int(high)
    else:
        low, high = _min_and_max(numbers, nat)
        low, high = int(low) * ratio, int(high) * ratio
        if max(abs(low), abs(high)) > INT64_MAX:
            raise OutOfRangeError("they are out of range")
        ticks = np.asarray(np.multiply(numbers.astype(np.int64), np.int64(ratio)))
    if high + epoch > INT64_MAX or low + epoch < -INT64_MAX:
        raise OutOfRangeError("they are out of range")
    if epoch:
        ticks = np.asarray(ticks + np.int64(epoch))
    if nat is not None:
        ticks = np.where(nat, np.int64(NAT), ticks)
    return ticks, found


def _min_and_max(numbers: NDArray[Any], nat: NDArray[np.bool_] | None) -> tuple[Any, Any]:
    """Return minimum and maximum of the numbers that are not NaT; (0, 0) if there are none."""
    finite = numbers if nat is None else numbers[~nat]
    return (finite.min(), finite.max()) if finite.size else (0, 0)


def _choose_cftime(numbers: NDArray[Any], unit: str, units: str, calendar: str, time_unit: str) -> TimeDecoding:
    _check_calendar(units, calendar)
    clock = TimeDecoding("object", unit, epoch=units, calendar=calendar, cast="float64")
    if calendar.lower() not in USUAL_CALENDARS:
        return clock
    finite = numbers[np.isfinite(numbers)] if numbers.dtype.kind == "f" else numbers
    if not finite.size:
        return clock
    first, last = _cftime_dates(np.array([finite.min(), finite.max()], np.float64), units, calendar)
    own = type(first)
    if first < own(1582, 10, 15):
        return replace(clock, warning=_cftime_warning("before the Gregorian calendar (1582-10-15)"))
    low, high = own(1677, 9, 21, 0, 12, 43, 145224), own(2262, 4, 11, 23, 47, 16, 854775)
    if time_unit == "ns" and (first < low or last > high):
        return replace(
            clock, warning=_cftime_warning("out of the range of datetime64[ns]; a coarser time_unit would hold them")
        )
    return replace(clock, dtype=f"datetime64[{time_unit}]")


@lru_cache(maxsize=1024)
def _check_calendar(units: str, calendar: str) -> None:
    """Check units and calendar with cftime when the file is opened, not only when values are read."""
    _cftime_dates(np.zeros(1), units, calendar)


def _cftime_warning(reason: str) -> str:
    # The warnings begin with the same words as xarray's, so that filters of users match them.
    return (
        "Unable to decode time axis into full numpy.datetime64 objects: there are dates "
        f"{reason}. They are decoded to cftime objects; use_cftime=True silences this warning"
    )


def _cftime_dates(numbers: NDArray[Any], units: str, calendar: str) -> NDArray[Any]:
    """Return dates as cftime objects."""
    try:
        cftime = import_before_fork("cftime")
    except ImportError as problem:
        raise UnsupportedError(
            f"times in {units!r} ({calendar}) need the package cftime",
            hint="Try `pip install cftime`, or open the file with decode_times=False",
        ) from problem
    try:
        found = cftime.num2date(numbers.reshape(-1), units, calendar, only_use_cftime_datetimes=True)
    except (ValueError, OverflowError, TypeError) as problem:  # all three are what cftime raises at a strange date
        raise CodecError(
            f"times in {units!r} ({calendar}) cannot be decoded: {problem}",
            hint="Open the file with decode_times=False",
        ) from problem
    return np.asarray(found, object).reshape(numbers.shape)


def choose_timedelta_decoding(numbers: NDArray[Any] | None, unit: str, time_unit: str = "ns") -> TimeDecoding:
    """Return how the numbers of a variable become differences of time.

    Parameters
    ----------
    numbers
        The values of the variable, masked and scaled; None if they are unknown.
    unit
        The attribute `units`.
    time_unit
        The resolution wanted: s, ms, us or ns. A finer one is taken if the values have it.
    """
    own = numpy_unit(unit)
    base = _finest_unit(own)
    if numbers is None:
        return TimeDecoding(f"timedelta64[{_finest_unit(base, time_unit)}]", own, base=base)
    try:
        ticks, fine = _to_ticks(numbers, own, base, None, 0)
    except OutOfRangeError as problem:
        raise FormatError(f"differences of time in {unit!r} do not fit in timedelta64: {problem}") from problem
    if numbers.size and bool((ticks == NAT).all()):
        result = time_unit
    else:
        result = _finest_unit(fine, time_unit)
    warning = None
    if numbers.dtype.kind == "f" and fine != base and NANOSECONDS[time_unit] > NANOSECONDS[fine]:
        warning = (
            f"Can't decode floating point timedelta to {base!r} without precision loss: decoded as timedelta64[{fine}]"
        )
    return TimeDecoding(f"timedelta64[{result}]", own, base=base, fine=fine, warning=warning)


def decode_time_numbers(numbers: NDArray[Any], kind: PackingKind, dtype: np.dtype[Any], epoch: int) -> NDArray[Any]:
    """Decode numbers to times.

    Parameters
    ----------
    numbers
        Masked and scaled values.
    kind
        Unit, base, and where it needs one calendar and epoch.
    dtype
        Type of the times.
    epoch
        The reference date as a number, in the unit of `dtype`.
    """
    assert kind.unit is not None
    if kind.epoch is not None:
        dates = _cftime_dates(numbers, kind.epoch, kind.calendar or "standard")
        return dates if dtype.kind == "O" else _to_datetime64(dates, dtype)
    assert kind.base is not None
    try:
        if dtype.kind == "M":
            if numbers.dtype.kind == "f":
                numbers = numbers.astype(np.float64)
            return _to_ticks(numbers, kind.unit, kind.base, kind.fine, epoch)[0].view(dtype)
        ticks, fine = _to_ticks(numbers, kind.unit, kind.base, kind.fine, 0)
        return _convert_unit(ticks, fine, dtype)
    except OutOfRangeError as problem:
        raise CodecError(
            f"times do not fit in {dtype}: {problem}",
            hint="Open the file with use_cftime=True or decode_times=False",
        ) from problem


def _convert_unit(ticks: NDArray[np.int64], unit: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return differences of time in the unit of `dtype`."""
    target_unit = str(np.datetime_data(dtype)[0])
    ratio = NANOSECONDS[unit] // NANOSECONDS[target_unit]
    nat = ticks == NAT
    if not ratio and not nat.all():
        raise OutOfRangeError(f"they have a fraction of {target_unit}")
    finite = ticks[~nat] if nat.any() else ticks
    if finite.size and max(abs(int(finite.max())), abs(int(finite.min()))) * ratio > INT64_MAX:
        raise OutOfRangeError("they are out of range")
    finer = ticks * np.int64(ratio)
    return np.where(nat, NAT, finer).view(dtype)


def _to_datetime64(dates: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert dates of cftime to datetime64."""
    unit = str(np.datetime_data(dtype)[0])
    result = np.empty(dates.size, np.int64)
    for position, date in enumerate(dates.reshape(-1)):
        moment = np.datetime64(date.isoformat(), "us")
        try:
            result[position] = convert_count(int(moment.astype(np.int64)), "us", unit)
        except OutOfRangeError as problem:
            raise CodecError(f"{date} does not fit in {dtype}", hint="Open the file with use_cftime=True") from problem
    return result.reshape(dates.shape).view(dtype)
