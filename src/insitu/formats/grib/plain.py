"""Which numbers of a header need no tables to be understood?

The date of the run, the step, the member, and the height of plain levels lie at known places as plain numbers. What is left of the header when they are taken out is what ecCodes has to be asked about.
"""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple

from insitu.formats.grib.sections import Field
from insitu.formats.grib.vocabulary import UNIT_SECONDS

__all__ = ["EPOCH", "NOTHING", "Plain", "Taken", "taken_apart"]

EPOCH = datetime.datetime(1970, 1, 1)


class Plain(NamedTuple):
    """The numbers; None: not there, or not plain."""

    time: int | None = None
    """Seconds since 1970."""
    step: float | None = None
    """Hours."""
    number: int | None = None
    level: float | None = None


NOTHING = Plain()


class Taken(NamedTuple):
    """A header taken apart."""

    rest: tuple[Any, ...]
    """What tells it from others, without the plain numbers."""
    plain: Plain
    shape: tuple[int, ...]
    """The layout by which the plain numbers were found: what was seen to be right for one of a shape is right for all."""


def taken_apart(field: Field) -> Taken:
    """The header without its plain numbers, and these."""
    return _second(field) if field.edition == 2 else _first(field)


# GRIB 2: where the end of the interval lies in section 4, for products over an interval; the number of ranges follows.
_INTERVALS = {8: 34, 9: 47, 10: 35, 11: 37, 12: 36}
_INSTANTS = (0, 1, 2, 5, 6)
_MEMBERS = (1, 11)
_NO_SURFACE = 255
_PRESSURE, _HYBRID = 100, 105


def _second(field: Field) -> Taken:
    identification, product = field.identification, field.product
    template = int.from_bytes(product[7:9], "big")
    if len(identification) < 21 or not (template in _INSTANTS or template in _INTERVALS) or len(product) < 34:
        return Taken((2, field.discipline, *field[5:]), NOTHING, ())
    time = _seconds(int.from_bytes(identification[12:14], "big"), *identification[14:18])
    head = identification[:12] + identification[19:] if time is not None else identification
    rest = bytearray(product)
    step, number = None, None
    if template in _INSTANTS:
        unit = UNIT_SECONDS.get(product[17])
        if unit is not None and not product[18] & 0x80:
            step = int.from_bytes(product[18:22], "big") * unit / 3600.0
            rest[17:22] = bytes(5)
    elif len(product) > (at := _INTERVALS[template]) + 7 and product[at + 7] == 1:
        rest[at : at + 7] = bytes(7)
    if template in _MEMBERS and len(product) > 36:
        number = product[35]
        rest[35] = 0
    level = _level(product)
    if level is not None:
        rest[24:28] = bytes(4)
    shape = (2, template, product[17], *identification[5:9], product[22])
    return Taken(
        (2, field.discipline, head, field.local, field.grid, bytes(rest)), Plain(time, step, number, level), shape
    )


def _level(product: bytes) -> float | None:
    """Of pressure in whole hPa, and of hybrid levels: on these no parameter's name depends on the height."""
    surface, scale, value = product[22], product[23], int.from_bytes(product[24:28], "big")
    if scale or product[28] != _NO_SURFACE or value >= 1 << 31:
        return None
    if surface == _PRESSURE and value and value % 100 == 0:
        return value / 100.0
    return float(value) if surface == _HYBRID and value else None


def _first(field: Field) -> Taken:
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
    return Taken((1, bytes(rest), field.grid), Plain(time, step, number, level), shape)


def _seconds(year: int, month: int, day: int, hour: int, minute: int) -> int | None:
    """Since 1970, of a date that is one; seconds are not looked at, as ecCodes does not."""
    try:
        moment = datetime.datetime(year, month, day, hour, minute)
    except ValueError:
        return None
    return int((moment - EPOCH).total_seconds())
