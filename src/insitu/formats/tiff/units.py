"""Units of GeoTIFF keys.

Linear and angular, by EPSG's number or by their size, and their text in WKT.

GDAL's names and digits are kept, so that rioxarray shows the same text.
"""

from __future__ import annotations

from functools import cache
from math import pi
from typing import Any, NamedTuple

__all__ = [
    "DEGREE",
    "LINEAR_SIZE",
    "METRE",
    "UNKNOWN_LENGTH",
    "USER_DEFINED",
    "UnitOfMeasure",
    "angular_unit",
    "linear_unit",
]

LINEAR_UNIT, LINEAR_SIZE, ANGULAR_UNIT = 3076, 3077, 2054
USER_DEFINED = 32767
_DEGREES = frozenset({9102, 9107, 9108, 9110, 9115, 9116, 9117, 9118, 9119, 9120, 9121, 9122})
"""Degrees, however they are spelled."""
_ANGLES = {
    # Not those of PROJ: its factors lack the last digit.
    9101: ("radian", 1.0), 9103: ("arc-minute", pi / 10800), 9104: ("arc-second", pi / 648000),
    9105: ("grad", pi / 200),
    9106: ("gon", pi / 200), 9109: ("microradian", 1e-6), 9112: ("centesimal minute", pi / 20000),
    9113: ("centesimal second", pi / 2000000),
}  # fmt: skip
_WITH_NUMBER = {9105}
"""Angles that GDAL writes with EPSG's number, besides degrees."""


class UnitOfMeasure(NamedTuple):
    """The name of a unit, its size in metres or radians, and EPSG's number if it is written (else
    0).
    """

    name: str
    factor: float
    code: int = 0

    @property
    def wkt(self) -> str:
        """The unit in the old WKT."""
        mark = f',AUTHORITY["EPSG","{self.code}"]' if self.code else ""
        return f'UNIT["{self.name}",{self.factor:.15G}{mark}]'


METRE = UnitOfMeasure("metre", 1.0, 9001)
UNKNOWN_LENGTH = UnitOfMeasure("unknown", 1.0)
DEGREE = UnitOfMeasure("degree", 0.0174532925199433, 9122)


def angular_unit(keys: dict[int, Any]) -> UnitOfMeasure:
    """Return the unit of a geographic system that the keys describe.

    Degrees called "unknown" where none is given.
    """
    number = keys.get(ANGULAR_UNIT)
    if number in _DEGREES:
        return DEGREE
    if number not in _ANGLES:
        return UnitOfMeasure("unknown", DEGREE.factor)
    name, factor = _ANGLES[number]
    return UnitOfMeasure(name, factor, number if number in _WITH_NUMBER else 0)


def linear_unit(proj: Any, keys: dict[int, Any], default: UnitOfMeasure = METRE) -> UnitOfMeasure | None:
    """Return the unit of projected coordinates.

    None if its number is unknown, or its size is not given.
    """
    number = keys.get(LINEAR_UNIT)
    if number is None:
        return default
    if number == USER_DEFINED:
        size = keys.get(LINEAR_SIZE)
        return UnitOfMeasure("unknown", size) if isinstance(size, float) and size > 0 else None
    return _lengths(proj).get(number)


@cache
def _lengths(proj: Any) -> dict[int, UnitOfMeasure]:
    from pyproj.database import get_units_map

    found = get_units_map(auth_name="EPSG", category="linear", allow_deprecated=True)
    units = {int(unit.code): UnitOfMeasure(unit.name, unit.conv_factor, int(unit.code)) for unit in found.values()}
    return {**units, 9003: UnitOfMeasure("US survey foot", 12 / 39.37, 9003)}
