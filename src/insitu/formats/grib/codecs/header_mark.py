"""Mark of a GRIB 2 header: lead time, level, member and run in 30 bits.

An index says which field lies where; whether the message at that place is of that field is found
when it is decoded. What is expected must therefore travel with each cell, from the scan through
saved archives to servers. As an encoding for each lead time, level and member it would be 680,000
encodings for one run of ECMWF's ensemble; as a mark it lies in the bits of the filter mask that
filters do not need, and is the same for all runs. Stores keep differences of neighbours, so the lead
time has the lowest bits: 4,000 runs of 19 lead times take 44 KB for five variables, 137 KB with the
digest there.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from insitu.formats.grib.header_numbers import INSTANTS, INTERVALS
from insitu.formats.grib.vocabulary import UNIT_SECONDS

__all__ = ["LEVEL", "RUN", "START", "common_mark", "find_difference", "make_mark"]

START, LEVEL, RUN = 1, 2, 4
"""What the digest has beside the lead time and the member: the start of an interval, the level, the run."""
_LEAD_BITS, _FLAG_BITS, _DIGEST_BITS = 15, 3, 12
_LEADS, _FLAGS, _DIGESTS = ((1 << bits) - 1 for bits in (_LEAD_BITS, _FLAG_BITS, _DIGEST_BITS))
"""Digests are 1 to this; 0: nothing but the lead time is known."""
_HALF = 1 << _LEAD_BITS - 1
"""Lead times: 0 is none, then whole hours, from here on whole minutes."""
_TIME = struct.Struct(">BI")
_SURFACE = struct.Struct(">BBI")
_RANGE = struct.Struct(">B6xBI")
"""From octet `INTERVALS` + 7 on: number of ranges; unit and length of the first one."""
_DATE = struct.Struct(">H5B")
_MEMBERS = (1, 11)
_MISSING, _SIGN = 0xFFFFFFFF, 1 << 31


class _Header(NamedTuple):
    """What a header says, in units that do not depend on how it is written."""

    start: int | None
    """Seconds; None if the template or the unit is not known."""
    lead: int | None
    """Seconds to the end of the interval."""
    member: int | None
    surfaces: tuple[tuple[int, str], ...]
    """Codes of table 4.5, with their values."""
    run: tuple[int, ...]
    rest: bytes
    """Parameter to surfaces as they are written, where they are not known."""


def make_mark(identification: bytes, product: bytes, flags: int) -> int:
    """Return the mark of a header.

    Parameters
    ----------
    identification, product
        Sections 1 and 4.
    flags
        `START`, `LEVEL` and `RUN`, as far as the index says them of its fields.
    """
    header = _parse_header(identification, product)
    return (_digest(header, flags) << _FLAG_BITS | flags) << _LEAD_BITS | _lead_code(header.lead)


def common_mark(marks: Iterable[int]) -> int:
    """Return what several marks have in common: all, the lead time, or nothing."""
    distinct = set(marks)
    if len(distinct) == 1:
        return distinct.pop()
    leads = {mark & _LEADS for mark in distinct}
    return leads.pop() if len(leads) == 1 else 0


def find_difference(mark: int, identification: bytes, product: bytes) -> str | None:
    """Return how a header differs from one of that mark; None if it does not."""
    header = _parse_header(identification, product)
    lead, flags, digest = mark & _LEADS, mark >> _LEAD_BITS & _FLAGS, mark >> _LEAD_BITS + _FLAG_BITS
    if lead and lead != _lead_code(header.lead):
        found = "an unknown lead time" if header.lead is None else f"the lead time {_format_time(header.lead)}"
        return f"has {found}, not {_format_time(_lead_seconds(lead))}"
    if not digest or digest == _digest(header, flags):
        return None
    levels = " to ".join(f"{value} (surface {code})" for code, value in header.surfaces) or "unknown"
    differences = [f"level {levels}"] if flags & LEVEL else []
    if header.member is not None:
        differences.append(f"member {header.member}")
    if flags & RUN:
        differences.append("run {}-{:02}-{:02}T{:02}:{:02}:{:02}".format(*header.run))
    if flags & START and header.start is not None and header.start != header.lead:
        differences.append(f"interval from {_format_time(header.start)} on")
    return f"is of another level, member, interval or run, namely {', '.join(differences)}"


def _parse_header(identification: bytes, product: bytes) -> _Header:
    template = int.from_bytes(product[7:9], "big")
    run = _DATE.unpack_from(identification, 12) if len(identification) >= 19 else (0,) * 6
    unknown = _Header(None, None, None, (), run, bytes(product[9:34]))
    if len(product) < 34 or (template not in INSTANTS and template not in INTERVALS):
        return unknown
    unit, forecast = _TIME.unpack_from(product, 17)
    if unit not in UNIT_SECONDS or forecast >= _SIGN:
        return unknown
    start = lead = forecast * UNIT_SECONDS[unit]
    if template in INTERVALS:
        at = INTERVALS[template] + 7
        if len(product) < at + _RANGE.size:
            return unknown
        ranges, unit, length = _RANGE.unpack_from(product, at)
        if ranges != 1 or unit not in UNIT_SECONDS or length == _MISSING:
            return unknown
        lead += length * UNIT_SECONDS[unit]
    member = product[35] if template in _MEMBERS and len(product) > 36 else None
    surfaces = (_surface(product, 22), _surface(product, 28))
    return _Header(start, lead, member, tuple(surface for surface in surfaces if surface is not None), run, b"")


def _surface(product: bytes, at: int) -> tuple[int, str] | None:
    """Return a fixed surface, its value with six digits, as those who write indexes print it."""
    code, scale, scaled = _SURFACE.unpack_from(product, at)
    if code == 255:
        return None
    if scale == 255 or scaled == _MISSING:
        return code, "0"
    value = float(-(scaled & _SIGN - 1) if scaled & _SIGN else scaled)
    exponent = -(scale & 127) if scale & 128 else scale
    return code, f"{value / 10.0**exponent + 0.0:.6g}"


def _digest(header: _Header, flags: int) -> int:
    parts: list[Any] = [header.member, header.rest]
    if not _lead_code(header.lead):
        parts.append(header.lead)
    if flags & START:
        parts.append(header.start)
    if flags & LEVEL:
        parts.append(header.surfaces)
    if flags & RUN:
        parts.append(header.run)
    return 1 + zlib.crc32(repr(parts).encode()) % _DIGESTS


def _lead_code(seconds: int | None) -> int:
    if seconds is None:
        return 0
    hours, minutes = seconds // 3600, seconds // 60
    if seconds == hours * 3600 and hours < _HALF - 1:
        return 1 + hours
    return _HALF + minutes if seconds == minutes * 60 and minutes < _HALF else 0


def _lead_seconds(code: int) -> int:
    return (code - _HALF) * 60 if code >= _HALF else (code - 1) * 3600


def _format_time(seconds: int) -> str:
    for size, name in ((3600, "h"), (60, "min")):
        if seconds % size == 0:
            return f"{seconds // size} {name}"
    return f"{seconds} s"
