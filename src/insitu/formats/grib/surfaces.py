"""Parse level names of wgrib2 into the fixed surfaces of a GRIB 2 header.

`500 mb` is code 100 of table 4.5 with 50,000 Pa; `0-0.1 m below ground` lies between two surfaces
of code 106. Numbers are printed with `%g`, so the stored scale factor is not known: all likely ones
are candidates, and count only if they mean the same.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

__all__ = ["BARE", "HYBRIDS", "LOCAL", "MISSING", "Layer", "Surface", "parse_level"]

LOCAL = 192
"""Codes from here on are local to a centre."""
HYBRIDS = (105, 111, 113, 118, 119, 150)
"""Levels that may have a table of coefficients, which the name does not tell."""
MISSING = b"\xff" * 5
PRINTED = 6
"""Digits of a number that `%g` prints."""


class Surface(NamedTuple):
    """A fixed surface: what octets 23 to 28 of section 4 hold."""

    code: int
    scaled: bytes
    """Scale factor and scaled value."""

    @property
    def octets(self) -> bytes:
        """Return the octets of the section."""
        return bytes((self.code,)) + self.scaled


NOWHERE = Surface(255, MISSING)
Layer = tuple[Surface, Surface]

_BARE: dict[str, int] = {
    "surface": 1, "cloud base": 2, "cloud top": 3, "0C isotherm": 4, "level of adiabatic condensation from sfc": 5,
    "max wind": 6, "tropopause": 7,
    "top of atmosphere": 8, "sea bottom": 9, "entire atmosphere": 10, "cumulonimbus base": 11, "cumulonimbus top": 12,
    "level of free convection": 14,
    "convection condensation level": 15, "level of neutral buoyancy": 16, "mean sea level": 101,
    "mixed layer depth": 117, "lake or river bottom": 162,
    "mixing layer": 166, "entire atmosphere (considered as a single layer)": 200,
    "entire ocean (considered as a single layer)": 201,
    "highest tropospheric freezing level": 204, "grid scale cloud bottom level": 206,
    "grid scale cloud top level": 207, "boundary layer cloud bottom level": 209,
    "boundary layer cloud top level": 210, "boundary layer cloud layer": 211, "low cloud bottom level": 212,
    "low cloud top level": 213, "low cloud layer": 214,
    "cloud ceiling": 215, "planetary boundary layer": 220, "middle cloud bottom level": 222,
    "middle cloud top level": 223, "middle cloud layer": 224,
    "high cloud bottom level": 232, "high cloud top level": 233, "high cloud layer": 234,
    "bottom of ocean mixed layer": 237, "bottom of ocean isothermal layer": 238,
    "ocean mixed layer": 240, "convective cloud bottom level": 242, "convective cloud top level": 243,
    "convective cloud layer": 244,
    "lowest level of the wet bulb zero": 245, "maximum equivalent potential temperature level": 246,
    "equilibrium level": 247,
    "shallow convective cloud bottom level": 248, "shallow convective cloud top level": 249,
    "deep convective cloud bottom level": 251,
    "deep convective cloud top level": 252, "lowest bottom level of supercooled liquid water layer": 253,
    "highest top level of supercooled liquid water layer": 254,
}  # fmt: skip
"""Without a number."""

BARE = frozenset(_BARE.values())
"""Codes of surfaces without a number."""

_NUMBERED: dict[str, tuple[int, int]] = {
    "{} mb": (100, 100), "{} m above mean sea level": (102, 1), "{} m above ground": (103, 1),
    "{} sigma level": (104, 1), "{} hybrid level": (105, 1),
    "{} m underground": (106, 1), "{} K isentropic level": (107, 1), "{} mb above ground": (108, 100),
    "PV={} (Km^2/kg/s) surface": (109, 1),
    "{} Eta level": (111, 1), "{} logarithmic hybrid level": (113, 1), "{} sigma height level": (115, 1),
    "{} hybrid height level": (118, 1),
    "{} hybrid pressure level": (119, 1), "{} K level": (20, 1), "soil level {}": (151, 1),
    "{} m below sea level": (160, 1), "{} m below water surface": (161, 1),
    "{}C ocean isotherm": (235, 10),
}  # fmt: skip
"""With one: code, and what the number is multiplied by in the header."""

_BETWEEN: dict[str, tuple[int, int]] = {
    "mb": (100, 100), "m above mean sea level": (102, 1), "m above ground": (103, 1), "sigma layer": (104, 1),
    "hybrid layer": (105, 1), "m below ground": (106, 1),
    "K isentropic layer": (107, 1), "mb above ground": (108, 100), "Eta layer": (111, 1),
    "sigma height layer": (115, 1), "hybrid height layer": (118, 1),
    "hybrid pressure layer": (119, 1), "m below sea level": (160, 1),
}  # fmt: skip
"""With two."""

_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?"
_ONE = re.compile(f"(PV=|soil level )?({_NUMBER})(.*)")
_TWO = re.compile(f"({_NUMBER})-({_NUMBER}) (.+)")
_COLUMNS = {"atmos col": (1, 8), "ocean column": (9, 1)}


def parse_level(text: str) -> list[Layer]:
    """Return the pairs of surfaces that a name may stand for; none if it is not understood.

    Examples
    --------
    >>> [(a.code, int.from_bytes(a.scaled[1:]), b.code) for a, b in parse_level("500 mb")]
    [(100, 50000, 255)]
    >>> parse_level("local level type 241 1")
    []
    """
    if text in _COLUMNS:
        upper, lower = _COLUMNS[text]
        return [(one, other) for one in _plain(upper) for other in _plain(lower)]
    if (two := _TWO.fullmatch(text)) is not None and two[3] in _BETWEEN:
        code, factor = _BETWEEN[two[3]]
        return [(pair[0], pair[1]) for pair in _scaled_surfaces(code, factor, two[1], two[2])]
    first, dash, second = text.partition(" - ")
    return [(one, other) for one in _parse_surface(first) for other in (_parse_surface(second) if dash else [NOWHERE])]


def _parse_surface(text: str) -> list[Surface]:
    if text in _BARE:
        return _plain(_BARE[text])
    match = _ONE.fullmatch(text)
    if match is None:
        return []
    pattern = f"{match[1] or ''}{{}}{match[3]}"
    if pattern not in _NUMBERED:
        return []
    code, factor = _NUMBERED[pattern]
    return [some[0] for some in _scaled_surfaces(code, factor, match[2])]


def _plain(code: int) -> list[Surface]:
    return [Surface(code, bytes(5)), Surface(code, MISSING)]


def _scaled_surfaces(code: int, factor: int, *texts: str) -> list[tuple[Surface, ...]]:
    """Return candidates with the fewest decimals that the numbers need.

    If any needs some, also with one more.
    """
    try:
        values = [Decimal(text) * factor for text in texts]
    except InvalidOperation:
        return []
    if any(len(value.normalize().as_tuple().digits) >= PRINTED for value in values):
        return []  # there may have been more of them
    least = [max(-int(value.normalize().as_tuple().exponent), 0) for value in values]
    scales = [least] if not any(least) else [least, [max(least) + 1] * len(least)]
    found = []
    for some in scales:
        numbers = [int(abs(value).scaleb(scale)) for value, scale in zip(values, some, strict=True)]
        if max(numbers) >= 1 << 31 or max(some) > 126:
            return []
        signs = [1 << 31 if value < 0 else 0 for value in values]
        found.append(
            tuple(
                Surface(code, bytes((scale,)) + (number | sign).to_bytes(4, "big"))
                for scale, number, sign in zip(some, numbers, signs, strict=True)
            )
        )
    return found
