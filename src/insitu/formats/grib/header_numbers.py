"""Read the plain numbers of a GRIB header without tables.

Date of the run, step, member, plain levels.

They lie at known offsets. What is left of the header without them is what ecCodes has to be asked
about.
"""

from __future__ import annotations

import datetime
import struct
from functools import lru_cache
from typing import Any, NamedTuple

from insitu.formats.grib.sections import GribField
from insitu.formats.grib.vocabulary import UNIT_SECONDS

__all__ = ["EPOCH", "INSTANTS", "INTERVALS", "NO_NUMBERS", "HeaderNumbers", "SplitHeader", "split_header"]

EPOCH = datetime.datetime(1970, 1, 1)


class HeaderNumbers(NamedTuple):
    """Plain numbers of a header; None: missing, or not plain."""

    time: int | None = None
    """Seconds since 1970."""
    step: float | None = None
    """Hours."""
    number: int | None = None
    level: float | None = None


NO_NUMBERS = HeaderNumbers()


class SplitHeader(NamedTuple):
    """A header, split into plain numbers and the rest."""

    rest: tuple[Any, ...]
    """The header without the plain numbers, as a key."""
    plain: HeaderNumbers
    shape: tuple[Any, ...]
    """The layout of the header: plain numbers that are right for one header of a layout are right
    for all.
    """


def split_header(field: GribField) -> SplitHeader:
    """Split a header into its plain numbers and the rest."""
    return _split_edition2(field) if field.edition == 2 else _split_edition1(field)


# GRIB 2: where the end of the interval lies in section 4, for products over an interval; the number
# of ranges follows.
INTERVALS = {8: 34, 9: 47, 10: 35, 11: 37, 12: 36}
INSTANTS = frozenset((0, 1, 2, 5, 6))
_KNOWN = INSTANTS | INTERVALS.keys()
_MEMBERS = (1, 11)
# Template; unit and forecast time; first surface, its scale factor and value; second surface.
_PRODUCT = struct.Struct(">7xH8xBIBBIB")
_NO_SURFACE = 255
_PRESSURE, _HYBRID = 100, 105


def _split_edition2(field: GribField) -> SplitHeader:
    identification, product = field.identification, field.product
    if len(identification) < 21 or len(product) < 34:
        return SplitHeader((2, field.discipline, *field[5:]), NO_NUMBERS, ())
    template, unit, forecast, surface, scale, value, second = _PRODUCT.unpack_from(product)
    if template not in _KNOWN:
        return SplitHeader((2, field.discipline, *field[5:]), NO_NUMBERS, ())
    time, head = _split_run_time(identification)
    rest = bytearray(product)
    step, number, level = None, None, None
    if template in INSTANTS:
        seconds = UNIT_SECONDS.get(unit)
        if seconds is not None and forecast < 1 << 31:
            step = forecast * seconds / 3600.0
            rest[17:22] = bytes(5)
    elif len(product) > (at := INTERVALS[template]) + 7 and product[at + 7] == 1:
        rest[at : at + 7] = bytes(7)
    if template in _MEMBERS and len(product) > 36:
        number = product[35]
        rest[35] = 0
    # Pressure in whole hPa, and hybrid levels: on these no parameter's name depends on the height.
    if not scale and second == _NO_SURFACE and 0 < value < 1 << 31:
        if surface == _PRESSURE and value % 100 == 0:
            level = value / 100.0
        elif surface == _HYBRID:
            level = float(value)
        if level is not None:
            rest[24:28] = bytes(4)
    shape = (2, template, unit, identification[5:9], surface)
    return SplitHeader(
        (2, field.discipline, head, field.local, field.grid, bytes(rest)),
        HeaderNumbers(time, step, number, level),
        shape,
    )


@lru_cache(maxsize=1024)
def _split_run_time(identification: bytes) -> tuple[int | None, bytes]:
    """Return the time of a run, and section 1 without it."""
    time = _seconds(int.from_bytes(identification[12:14], "big"), *identification[14:18])
    return time, identification[:12] + identification[19:] if time is not None else identification


def _split_edition1(field: GribField) -> SplitHeader:
    product = field.identification
    rest = bytearray(product)
    rest[26:28] = b"\0\0"  # the decimal scale factor
    time = _seconds((product[24] - 1) * 100 + product[12], *product[13:17]) if product[24] else None
    if time is not None:
        rest[12:17], rest[24] = bytes(5), 0
    step, number, level = None, None, None
    unit = UNIT_SECONDS.get(product[17])
    if unit is not None and product[17] < 13 and product[20] in (0, 10):
        value = product[18] if product[20] == 0 else int.from_bytes(product[18:20], "big")
        step = value * unit / 3600.0
        rest[18:20] = bytes(2)
    local = product[40] if len(product) >= 52 else 0
    if product[4] == 98 and local in (1, 2, 5, 6, 26, 30):
        number = product[49]
        rest[49] = 0
    if product[9] == _PRESSURE:
        level = float(int.from_bytes(product[10:12], "big")) or None
        if level is not None:
            rest[10:12] = bytes(2)
    shape = (1, product[20], product[17], product[4], local, product[9])
    return SplitHeader((1, bytes(rest), field.grid), HeaderNumbers(time, step, number, level), shape)


def _seconds(year: int, month: int, day: int, hour: int, minute: int) -> int | None:
    """Return seconds since 1970; None if the date is not valid.

    The header's seconds are ignored, as in ecCodes.
    """
    try:
        moment = datetime.datetime(year, month, day, hour, minute)
    except ValueError:
        return None
    return int((moment - EPOCH).total_seconds())
