"""Compose the header of a GRIB 2 field from a line of an index.

Sections 1 to 3 are those of another field of the file, with the date of the line. Section 4 is
written anew, by templates 0, 1, 2 for instants and 8, 11, 12 for intervals. ecCodes then describes
it like the real header.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Iterator

from insitu.formats.grib.header_numbers import EPOCH
from insitu.formats.grib.inventory import ForecastSpan, ParsedLine
from insitu.formats.grib.sections import GribField

__all__ = ["INSTANT_OF", "compose_headers", "with_date"]

INSTANT_OF = {0: 0, 1: 1, 2: 2, 8: 0, 11: 1, 12: 2}
"""The template of an instant for each template."""
_INTERVAL_OF = {0: 8, 1: 11, 2: 12}
_ENDS = {0: 34, 1: 37, 2: 36}
"""Where the fields of intervals begin."""
_INTERVAL_END = {8: 58, 11: 61, 12: 60}


def compose_headers(line: ParsedLine, time: int, model: GribField) -> Iterator[GribField]:
    """Yield all headers that the line may stand for.

    Parameters
    ----------
    line
        What it says.
    time
        Of the run, in seconds since 1970.
    model
        A field that is like it in what is not said.
    """
    identification = with_date(model.identification, time)
    if line.tables:
        identification = identification[:9] + line.tables + identification[11:]
    for discipline, category, number in line.parameters:
        for upper, lower in line.layers:
            for span in line.spans:
                surfaces = upper.octets + lower.octets
                product = _product(line, span, bytes((category, number)), surfaces, time, model.product)
                yield model._replace(discipline=discipline, identification=identification, product=product)


def _product(line: ParsedLine, span: ForecastSpan, parameter: bytes, surfaces: bytes, time: int, model: bytes) -> bytes:
    """Return section 4."""
    template = int.from_bytes(model[7:9], "big")
    base = INSTANT_OF[template]
    ensemble = model[34 : _ENDS[base]]
    if line.member is not None:
        ensemble = bytes((line.sign, line.member)) + ensemble[2:]
    body = parameter + model[11:17] + struct.pack(">BI", span.unit, span.begin) + surfaces + ensemble
    own = base
    if span.statistic is not None:
        own = _INTERVAL_OF[base]
        end = EPOCH + datetime.timedelta(seconds=time + span.seconds)
        body += struct.pack(">HBBBBB", end.year, end.month, end.day, end.hour, end.minute, end.second)
        length = span.end - span.begin
        body += struct.pack(">BIBBBIBI", 1, 0, span.statistic, 2, span.unit, length, 255, 0)
    # Behind the template: coefficients of the levels.
    count = int.from_bytes(model[5:7], "big")
    tail = model[_INTERVAL_END.get(template, _ENDS[base]) :][: 4 * count]
    return struct.pack(">IBHH", 9 + len(body) + len(tail), 4, count, own) + body + tail


def with_date(identification: bytes, time: int) -> bytes:
    """Return section 1 of GRIB 2 with another date."""
    moment = EPOCH + datetime.timedelta(seconds=time)
    date = struct.pack(">HBBBBB", moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second)
    return identification[:12] + date + identification[19:]
