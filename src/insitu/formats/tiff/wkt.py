"""How does GDAL write a geographic system that a file describes by its parts?

Name, datum, ellipsoid and prime meridian lie in keys of their own (OGC 19-008r4, section 7.4 and annex C), their names in a citation; PROJ knows those that have a number. Written as the old WKT,
in the order and the digits of GDAL, so that rioxarray shows the same text.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = [
    "GEOGRAPHIC",
    "PRIME_MERIDIAN",
    "SEMI_MAJOR",
    "USER_DEFINED",
    "ellipsoid_of",
    "geographic_text",
    "known",
    "with_geographic",
]

GEOGRAPHIC, CITATION, DATUM, ELLIPSOID = 2048, 2049, 2050, 2056
SEMI_MAJOR, SEMI_MINOR, FLATTENING, PRIME_MERIDIAN = 2057, 2058, 2059, 2061
USER_DEFINED = 32767
DEGREE = 'UNIT["degree",0.0174532925199433,AUTHORITY["EPSG","9122"]]'
GRS80, GRS80_MINOR = 298.257222101, 6356752.314140356
BY_AXES = {7008, 7019}
"""Ellipsoids that GDAL knows by their axes: a system on them is never quite that of EPSG."""
ROUND = 0.1
"""Metres by which the axes of a sphere may differ."""


def known(keys: dict[int, Any], key: int) -> int | None:
    """The number that a key names, if it is one of EPSG's."""
    value = keys.get(key)
    return value if isinstance(value, int) and 0 < value < USER_DEFINED else None


def ellipsoid_of(proj: Any, keys: dict[int, Any]) -> tuple[float, float]:
    """The larger half axis in metres, and the inverse flattening (0: a sphere)."""
    major = keys.get(SEMI_MAJOR)
    if not isinstance(major, float) or major <= 0:
        code, number = known(keys, GEOGRAPHIC), known(keys, ELLIPSOID)
        if code is None and number is not None:
            body = proj.crs.Ellipsoid.from_epsg(number)
        else:
            body = proj.CRS.from_epsg(code or 4326).ellipsoid
        return float(body.semi_major_metre), float(body.inverse_flattening)
    inverse = keys.get(FLATTENING)
    if isinstance(inverse, float) and abs(inverse - GRS80) > 1e-9:
        return major, inverse
    # GDAL knows that of GRS 1980 by both axes, too: the last digits differ from what is written.
    minor = GRS80_MINOR if isinstance(inverse, float) else float(keys.get(SEMI_MINOR, major))
    return major, 0.0 if abs(major - minor) < ROUND else major / (major - minor)


def geographic_text(proj: Any, keys: dict[int, Any], *, alone: bool = True) -> str:
    """`GEOGCS[…]` of a geographic system that the keys describe, alone or as part of a projected one."""
    code = known(keys, GEOGRAPHIC)
    said = _citation(keys)
    datum, datum_mark = said.get("datum", "unknown"), ""
    body, body_mark = said.get("ellipsoid", "unknown"), ""
    name, mark = said.get("gcs name", said.get("", "unknown")), ""
    number = known(keys, DATUM)
    if code is not None or number is not None:
        # The geographic system of a datum has, as a rule, its number less two thousand.
        numbered = proj.CRS.from_epsg(code if code is not None else (number or 0) - 2000)
        text = str(numbered.to_wkt("WKT1_GDAL", output_axis_rule=True))
        if code is not None and alone and not any(f'"EPSG","{shape}"' in text for shape in BY_AXES):
            return text
        found = re.search(
            r'DATUM\["([^"]*)",SPHEROID\["([^"]*)",[^\]]*?(,AUTHORITY\["EPSG","\d+"\])?\](?:,TOWGS84\[[^\]]*\])?(,AUTHORITY\["EPSG","\d+"\])?\]',
            text,
        )
        if found:
            datum, body, body_mark, datum_mark = found[1], found[2], found[3] or "", found[4] or ""
        if code is not None:
            name, mark = re.findall(r'^GEOGCS\["([^"]*)"', text)[0], f',AUTHORITY["EPSG","{code}"]'
    elif (shape := known(keys, ELLIPSOID)) is not None:
        body, body_mark = proj.crs.Ellipsoid.from_epsg(shape).name, f',AUTHORITY["EPSG","{shape}"]'
    major, inverse = ellipsoid_of(proj, keys)
    meridian = keys.get(PRIME_MERIDIAN, 0.0)
    meridian = meridian if isinstance(meridian, float) else 0.0
    spheroid = f'SPHEROID["{body}",{major:.15g},{inverse:.15g}{body_mark}]'
    prime = f'PRIMEM["{said.get("primem", "Greenwich")}",{meridian:.15g}]'
    return f'GEOGCS["{name}",DATUM["{datum}",{spheroid}{datum_mark}],{prime},{DEGREE},AXIS["Latitude",NORTH],AXIS["Longitude",EAST]{mark}]'


def _citation(keys: dict[int, Any]) -> dict[str, str]:
    """`GCS Name = a|Datum = b|…` by its parts; a text without parts is the name."""
    text = keys.get(CITATION)
    if not isinstance(text, str) or '"' in text:
        return {}
    parts = [part.partition("=") for part in text.split("|") if part.strip()]
    return {name.strip().lower() if value else "": (value or name).strip() for name, _, value in parts}


def with_geographic(wkt: str, geographic: str, name: str | None) -> str:
    """A projected system in WKT with another geographic system in it, and perhaps another name."""
    start = wkt.index("GEOGCS[")
    depth, end = 0, start
    for end in range(start + 6, len(wkt)):
        depth += (wkt[end] == "[") - (wkt[end] == "]")
        if not depth:
            break
    inner = geographic.replace(',AXIS["Latitude",NORTH],AXIS["Longitude",EAST]', "")
    whole = re.sub(r',EXTENSION\["PROJ4","[^"]*"\]', "", wkt[:start] + inner + wkt[end + 1 :])
    if name and '"' not in name:
        whole = re.sub(r'^PROJCS\["[^"]*"', lambda _: f'PROJCS["{name}"', whole)
    return whole
