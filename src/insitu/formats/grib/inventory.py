"""Parse lines of wgrib2's inventory (`.idx`): parameter, level, forecast, ensemble member.

A line with any unknown word counts as not understood: then the header of its message is read.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from insitu.formats.grib.abbreviations import Parameter, parameters
from insitu.formats.grib.surfaces import HYBRIDS, LOCAL, Layer, parse_level

__all__ = ["ForecastSpan", "ParsedLine", "parse_inventory_line"]

HOUR, DAY = 1, 2
_SECONDS = {"sec": 1, "min": 60, "hour": 3600, "day": 86400}
_UNITS = {"sec": 13, "min": 0, "hour": HOUR, "day": DAY}
_STATISTICS = {"ave": 0, "acc": 1, "max": 2, "min": 3}
_INSTANT = re.compile(r"(\d{1,6}) (sec|min|hour|day) fcst")
_INTERVAL = re.compile(r"(\d{1,6})-(\d{1,6}) (sec|min|hour|day) (ave|acc|max|min) fcst")
_MEMBER = re.compile(r"ENS=([+-])(\d{1,3})")
_UNNAMED = re.compile(r"var discipline=(\d{1,3}) [a-z_= 0-9]*parmcat=(\d{1,3}) parm=(\d{1,3})")
"""A parameter that wgrib2 has no name for."""
_SAME_MEMBER = {"", "ENS=hi-res ctl", "ENS=low-res ctl", "ens mean", "wt ens mean", "ens spread", "ens std dev"}
"""Words that do not distinguish members: all fields that have them share a header."""


class ForecastSpan(NamedTuple):
    """Forecast time or interval of a field, in one unit."""

    unit: int
    """Code table 4.4."""
    begin: int
    end: int
    seconds: int
    """From the run to the end."""
    statistic: int | None
    """Code table 4.10; None: an instant."""


class ParsedLine(NamedTuple):
    """The meaning of a line."""

    parameters: tuple[Parameter, ...]
    """One of these."""
    layers: list[Layer]
    """One of these."""
    spans: list[ForecastSpan]
    """One of these: a whole number of days may have been stored in hours."""
    member: int | None
    """Number of the perturbation; None if it is not given."""
    sign: int
    """Code table 4.6."""
    model: tuple[str, int]
    """Key of fields that share the rest of the header: ensembles of the same words, levels of the
    same coefficients.
    """
    tables: bytes = b""
    """Versions of the tables, octets 10 and 11 of section 1, if the parameter needs its own."""


def parse_inventory_line(name: str, level: str, forecast: str, rest: str, centre: int) -> ParsedLine | None:
    """Return the meaning of a line; None if any word of it is unknown.

    Parameters
    ----------
    name, level, forecast
        Its columns.
    rest
        What follows.
    centre
        Whose codes beyond 192 are meant.
    """
    known = [code for code in parameters().get(name, ()) if centre == 7 or max(code) < LOCAL]
    if (unnamed := _UNNAMED.fullmatch(name)) is not None:
        known = [(int(unnamed[1]), int(unnamed[2]), int(unnamed[3]))]
        known = known if max(known[0]) < 255 else []
    places = [pair for pair in parse_level(level) if centre == 7 or max(pair[0].code, pair[1].code % 255) < LOCAL]
    spans = _spans(forecast)
    rest = rest.strip(":")
    member = _MEMBER.fullmatch(rest)
    if not known or not places or not spans or (member is None and rest not in _SAME_MEMBER):
        return None
    code = places[0][0].code
    return ParsedLine(
        tuple(known),
        places,
        spans,
        int(member[2]) if member is not None else None,
        3 if member is None or member[1] == "+" else 2,
        ("ENS" if member is not None else rest, code if code in HYBRIDS else 0),
    )


def _spans(text: str) -> list[ForecastSpan]:
    if text == "anl":
        return [ForecastSpan(HOUR, 0, 0, 0, None)]
    if (match := _INSTANT.fullmatch(text)) is not None:
        value, unit = int(match[1]), match[2]
        return _with_hours(ForecastSpan(_UNITS[unit], value, value, value * _SECONDS[unit], None))
    if (match := _INTERVAL.fullmatch(text)) is not None:
        begin, end, unit = int(match[1]), int(match[2]), match[3]
        if begin <= end:
            return _with_hours(ForecastSpan(_UNITS[unit], begin, end, end * _SECONDS[unit], _STATISTICS[match[4]]))
    return []


def _with_hours(span: ForecastSpan) -> list[ForecastSpan]:
    """Return a span, and for days also the same in hours, which most files use."""
    return [span._replace(unit=HOUR, begin=24 * span.begin, end=24 * span.end), span] if span.unit == DAY else [span]
