"""Write WKT as GDAL does, for coordinate reference systems that GeoTIFF keys describe by their
parts.

Name, datum, ellipsoid and prime meridian lie in keys of their own (OGC 19-008r4, section 7.4 and
annex C), their names in a citation. PROJ knows those that have a number. The text is the old WKT,
in the order and with the digits of GDAL, so that rioxarray shows the same.
"""

from __future__ import annotations

import math
import re
from typing import Any

from insitu.formats.tiff.units import DEGREE, UNKNOWN_LENGTH, UnitOfMeasure, angular_unit

__all__ = [
    "GEOGRAPHIC",
    "PRIME_MERIDIAN",
    "SEMI_MAJOR",
    "USER_DEFINED",
    "ellipsoid_of",
    "epsg_code",
    "geographic_text",
    "local_text",
    "vertical_text",
    "with_geographic",
]

GEOGRAPHIC, CITATION, DATUM, ELLIPSOID = 2048, 2049, 2050, 2056
SEMI_MAJOR, SEMI_MINOR, FLATTENING, PRIME_MERIDIAN = 2057, 2058, 2059, 2061
USER_DEFINED = 32767
MERIDIAN_NUMBER = 2051
WGS84 = 298.257223563
NO_ELLIPSOID = "unretrievable - using WGS84"
"""What GDAL calls an ellipsoid of which nothing is known."""
GRS80, GRS80_MINOR = 298.257222101, 6356752.314140356
BY_AXES = {7008, 7019}
"""Ellipsoids that GDAL knows by their axes: a system on them is never quite that of EPSG."""
ROUND = 0.1
"""Metres by which the axes of a sphere may differ."""


def epsg_code(keys: dict[int, Any], key: int) -> int | None:
    """Return the EPSG number that a key holds; None if it holds another value."""
    value = keys.get(key)
    return value if isinstance(value, int) and 0 < value < USER_DEFINED else None


def ellipsoid_of(proj: Any, keys: dict[int, Any]) -> tuple[float, float]:
    """Return the semi-major axis in metres, and the inverse flattening (0: a sphere)."""
    major = keys.get(SEMI_MAJOR)
    if not isinstance(major, float) or major <= 0:
        code, number, datum = epsg_code(keys, GEOGRAPHIC), epsg_code(keys, ELLIPSOID), epsg_code(keys, DATUM)
        if code is not None:
            body = proj.CRS.from_epsg(code).ellipsoid
            return float(body.semi_major_metre), float(body.inverse_flattening)
        if number is not None:
            body = proj.crs.Ellipsoid.from_epsg(number)
        else:
            body = proj.CRS.from_epsg(4326 if datum is None else _system_of(datum)).ellipsoid
        return float(body.semi_major_metre), _inverse_flattening(body)
    inverse = keys.get(FLATTENING)
    if isinstance(inverse, float) and abs(inverse - GRS80) > 1e-9:
        return major, inverse
    # GDAL knows that of GRS 1980 by both axes, too: the last digits differ from what is written.
    written = keys.get(SEMI_MINOR)
    minor = (
        GRS80_MINOR if isinstance(inverse, float) else float(written) if isinstance(written, (int, float)) else major
    )
    return major, 0.0 if abs(major - minor) < ROUND else major / (major - minor)


def _system_of(datum: int) -> int:
    """The geographic system of a datum has, as a rule, its number less two thousand."""
    return datum - 2000


def _inverse_flattening(body: Any) -> float:
    """GDAL computes it of both axes, which changes the last digits; but not those of WGS 84."""
    major, minor = float(body.semi_major_metre), float(body.semi_minor_metre)
    if abs(major - minor) < ROUND:
        return 0.0
    inverse = major / (major - minor)
    return WGS84 if abs(inverse - WGS84) < 1e-9 else inverse


def geographic_text(proj: Any, keys: dict[int, Any], *, alone: bool = True) -> str:
    """Return `GEOGCS[…]` of a geographic system that the keys describe, alone or as part of a
    projected one.
    """
    code = epsg_code(keys, GEOGRAPHIC)
    citation = _citation(keys)
    datum, datum_mark = citation.get("datum", "unnamed"), ""
    body, body_mark = citation.get("ellipsoid", "unnamed") if SEMI_MAJOR in keys else NO_ELLIPSOID, ""
    name, mark = citation.get("gcs name", citation.get("", "")), ""
    number = epsg_code(keys, DATUM)
    if code is not None or number is not None:
        numbered = proj.CRS.from_epsg(code if code is not None else _system_of(number or 0))
        text = str(numbered.to_wkt("WKT1_GDAL", output_axis_rule=True))
        if code is not None and alone and not any(f'"EPSG","{shape}"' in text for shape in BY_AXES):
            return text
        found = re.search(
            r'DATUM\["([^"]*)",SPHEROID\["([^"]*)",[^\]]*?(,AUTHORITY\["EPSG","\d+"\])?\](?:,TOWGS84\[[^\]]*\])?(,AUTHORITY\["EPSG","\d+"\])?\]',
            text,
        )
        if found:
            datum, body, body_mark, datum_mark = found[1], found[2], found[3] or "", found[4] or ""
        if code is not None and (own := re.match(r'GEOGCS\["([^"]*)"', text)):  # not so of a number of another kind
            name, mark = own[1], f',AUTHORITY["EPSG","{code}"]'
        elif number is not None and not name:
            name = proj.crs.Datum.from_epsg(number).name.removesuffix(" ensemble")
    elif (shape := epsg_code(keys, ELLIPSOID)) is not None:
        body, body_mark = proj.crs.Ellipsoid.from_epsg(shape).name, f',AUTHORITY["EPSG","{shape}"]'
    major, inverse = ellipsoid_of(proj, keys)
    spheroid = f'SPHEROID["{body}",{major:.15g},{inverse:.15g}{body_mark}]'
    prime = _prime_meridian(proj, keys, citation.get("primem"))
    # A system with a number has the unit that EPSG gives it.
    unit = DEGREE if code is not None else angular_unit(keys)
    return (
        f'GEOGCS["{name or "unknown"}",DATUM["{datum}",{spheroid}{datum_mark}],{prime},{unit.wkt},'
        f'AXIS["Latitude",NORTH],AXIS["Longitude",EAST]{mark}]'
    )


def _prime_meridian(proj: Any, keys: dict[int, Any], name: str | None) -> str:
    """Return `PRIMEM[…]`, its longitude in degrees."""
    number, longitude = epsg_code(keys, MERIDIAN_NUMBER), keys.get(PRIME_MERIDIAN)
    if number is not None and not isinstance(longitude, float):
        meridian = proj.crs.PrimeMeridian.from_epsg(number)
        degrees = math.degrees(meridian.longitude * meridian.unit_conversion_factor)
        return f'PRIMEM["{meridian.name}",{degrees:.15g}]'
    if isinstance(longitude, float):
        return f'PRIMEM["{name or ("unnamed" if longitude else "Greenwich")}",{longitude:.15g}]'
    return f'PRIMEM["{name or "Greenwich"}",0]'


def local_text(name: str | None, unit: UnitOfMeasure = UNKNOWN_LENGTH) -> str:
    """Return `LOCAL_CS[…]` of coordinates of which only the unit and perhaps a name are known."""
    return (
        f'LOCAL_CS["{_name_without_quotes(name) or "unnamed"}",{unit.wkt},AXIS["Easting",EAST],AXIS["Northing",NORTH]]'
    )


def vertical_text(proj: Any, name: str | None, datum: int | None, unit: UnitOfMeasure) -> str:
    """Return `VERT_CS[…]` of heights that the keys describe by a citation, a datum and a unit."""
    datum_text = '"unknown",2005'
    if datum is not None:
        datum_text = f'"{proj.crs.Datum.from_epsg(datum).name}",2005,AUTHORITY["EPSG","{datum}"]'
    return f'VERT_CS["{_name_without_quotes(name)}",VERT_DATUM[{datum_text}],{unit.wkt},AXIS["Up",UP]]'


def _name_without_quotes(name: str | None) -> str:
    return name if name and '"' not in name else ""


def _citation(keys: dict[int, Any]) -> dict[str, str]:
    """Split a citation `GCS Name = a|Datum = b|…` into its parts.

    A text without parts is the name.
    """
    text = keys.get(CITATION)
    if not isinstance(text, str) or '"' in text:
        return {}
    parts = [part.partition("=") for part in text.split("|") if part.strip()]
    return {name.strip().lower() if value else "": (value or name).strip() for name, _, value in parts}


def with_geographic(wkt: str, geographic: str, name: str | None) -> str:
    """Return a projected system in WKT with another geographic system in it, and perhaps another
    name.
    """
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
