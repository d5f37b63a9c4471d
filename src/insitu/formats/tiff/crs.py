"""Coordinate reference system of a GeoTIFF, as attributes of `spatial_ref`.

WKT and CF grid mapping.

Usually the keys hold an EPSG number, else a projection with its parameters (OGC 19-008r4, annex C
and the tables of GeoTIFF 1.0, section 6.3.3.3). With pyproj, the attributes are those that
rioxarray shows. Without pyproj they hold the EPSG number, which rioxarray and GDAL understand too;
a system without a number is then left out.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from typing import Any

from insitu.errors import InsituWarning
from insitu.forking import import_before_fork
from insitu.formats.tiff.citations import CITATION, PROJECTED, PROJECTED_CITATION, cited_name, cited_unit, local_name
from insitu.formats.tiff.georeferencing import REVISION
from insitu.formats.tiff.units import METRE, UNKNOWN_LENGTH, UnitOfMeasure, linear_unit
from insitu.formats.tiff.wkt import (
    GEOGRAPHIC,
    PRIME_MERIDIAN,
    SEMI_MAJOR,
    USER_DEFINED,
    ellipsoid_of,
    epsg_code,
    geographic_text,
    local_text,
    vertical_text,
    with_geographic,
)

__all__ = ["crs_attributes"]

MODEL_TYPE, PROJECTION, METHOD, LINEAR_UNIT = 1024, 3074, 3075, 3076
VERTICAL, VERTICAL_CITATION, VERTICAL_DATUM, VERTICAL_UNIT = 4096, 4097, 4098, 4099
WITH_ELLIPSOIDAL_HEIGHT, WGS84_HEIGHT = 4979, 5030
"""EPSG's WGS 84 with heights, and GeoTIFF 1.0's number of such heights."""
ELLIPSOIDAL_HEIGHTS = range(5001, 5034)
"""Heights above ellipsoids in GeoTIFF 1.0: EPSG has only their datums, a thousand further."""
UNKNOWN = "unknown"
_HEIGHT_KEYS = (VERTICAL, VERTICAL_DATUM, VERTICAL_UNIT)
_NO_HEIGHTS = (WITH_ELLIPSOIDAL_HEIGHT, WGS84_HEIGHT)
PE_STRING = "ESRI PE String = "

METHODS: dict[int, tuple[str, dict[str, tuple[int, ...]]]] = {
    # ProjCoordTransGeoKey: PROJ's name, and its parameters with the keys that may hold them
    1: ("tmerc", {"lat_0": (3081,), "lon_0": (3080,), "k": (3092,)}),
    7: ("merc", {"lat_0": (3081,), "lon_0": (3080,), "k": (3092,), "lat_ts": (3078,)}),
    8: ("lcc", {"lat_1": (3078,), "lat_2": (3079,), "lat_0": (3085, 3081), "lon_0": (3084, 3080)}),
    9: ("lcc", {"lat_1": (3081,), "lat_0": (3081,), "lon_0": (3080,), "k_0": (3092,)}),
    10: ("laea", {"lat_0": (3089, 3081), "lon_0": (3088, 3080)}),
    11: ("aea", {"lat_1": (3078,), "lat_2": (3079,), "lat_0": (3081,), "lon_0": (3080,)}),
    12: ("aeqd", {"lat_0": (3089, 3081), "lon_0": (3088, 3080)}),
    14: ("stere", {"lat_0": (3089, 3081), "lon_0": (3088, 3080), "k": (3092, 3093)}),
    16: ("sterea", {"lat_0": (3081,), "lon_0": (3080,), "k": (3092,)}),
    17: ("eqc", {"lat_0": (3089, 3081), "lon_0": (3088, 3080), "lat_ts": (3078,)}),
    18: ("cass", {"lat_0": (3081,), "lon_0": (3080,)}),
    19: ("gnom", {"lat_0": (3089, 3081), "lon_0": (3088, 3080)}),
    20: ("mill", {"lon_0": (3088, 3080)}),
    21: ("ortho", {"lat_0": (3089, 3081), "lon_0": (3088, 3080)}),
    22: ("poly", {"lat_0": (3081,), "lon_0": (3080,)}),
    23: ("robin", {"lon_0": (3088, 3080)}),
    24: ("sinu", {"lon_0": (3088, 3080)}),
    25: ("vandg", {"lon_0": (3088, 3080)}),
    13: ("eqdc", {"lat_1": (3078,), "lat_2": (3079,), "lat_0": (3089, 3081), "lon_0": (3088, 3080)}),
    9815: ("omerc", {"lat_0": (3089, 3081), "lonc": (3088, 3080), "alpha": (3094,), "gamma": (3096,),
    "k": (3093, 3092)}),
    28: ("cea", {"lat_ts": (3078,), "lon_0": (3080,)}),
}  # fmt: skip
POLAR = 15
FALSE_EASTING, FALSE_NORTHING = (3082, 3086, 3090), (3083, 3087, 3091)


def crs_attributes(keys: dict[int, Any]) -> dict[str, Any]:
    """Return the attributes of `spatial_ref`.

    Empty if the image has no coordinate reference system, or an unknown one.
    """
    return dict(_attributes(tuple(sorted(keys.items())))) if keys else {}


@lru_cache(maxsize=256)
def _attributes(items: tuple[tuple[int, Any], ...]) -> tuple[tuple[str, Any], ...]:
    """Compute `crs_attributes`. Cached: the files of an archive share one."""
    keys = dict(items)
    if keys.get(MODEL_TYPE, USER_DEFINED) == USER_DEFINED and epsg_code(keys, PROJECTED) is not None:
        keys[MODEL_TYPE] = 1  # some writers leave it out; the number says that the system is projected
    code = _epsg_text(keys)
    try:
        proj: Any = import_before_fork("pyproj")
    except ImportError:
        if code:
            return ("spatial_ref", code), ("crs_wkt", code)
        if keys.get(MODEL_TYPE) in (1, 2, 3):
            warnings.warn(
                "left out: the coordinate reference system of an image, which has no EPSG number. "
                "Try `pip install 'insitu[tiff]'`",
                InsituWarning,
                stacklevel=2,
            )
        return ()
    try:
        wkt = _text(proj, keys, code)
        if not wkt:
            return ()
        system = proj.CRS.from_wkt(wkt)
    except proj.exceptions.ProjError:
        return ()
    try:
        found = dict(system.to_cf())
    except (proj.exceptions.ProjError, KeyError, ValueError):  # what pyproj raises for a system that CF does not have
        return ()
    found["spatial_ref"] = found["crs_wkt"] = wkt
    return tuple(found.items())


def _text(proj: Any, keys: dict[int, Any], code: str) -> str:
    """Return the WKT of the system as GDAL writes it.

    By its number, else by its parts, with heights.
    """
    number = epsg_code(keys, VERTICAL)
    if number is not None and not _is_vertical(proj, number):
        code = code.split("+")[0]
        height = WITH_ELLIPSOIDAL_HEIGHT if number == WGS84_HEIGHT else number
        if code and (whole := _with_ellipsoidal_heights(proj, code, height)):
            return whole
        if number not in ELLIPSOIDAL_HEIGHTS:
            keys = {key: value for key, value in keys.items() if key not in _HEIGHT_KEYS}
    if code:
        try:
            whole = _numbered_text(proj, keys, code)
        except proj.exceptions.CRSError:  # no number of EPSG's
            whole = _described_text(proj, keys)
    else:
        whole = _described_text(proj, keys)
    whole, cited = _with_heights(proj, keys, whole), keys.get(CITATION)
    named = re.match(r'COMPD_CS\["([^"]*)"', whole)
    if named and isinstance(cited, str) and cited != named[1] and " = " not in cited and '"' not in cited:
        whole = re.sub(r',AUTHORITY\["EPSG","\d+"\]\]$', "]", f'COMPD_CS["{cited}"{whole[named.end() :]}')
    return whole


def _numbered_text(proj: Any, keys: dict[int, Any], code: str) -> str:
    if keys.get(MODEL_TYPE) == 2 and SEMI_MAJOR in keys and "+" not in code:
        return geographic_text(proj, keys)
    crs = _by_number(proj, code)
    unit = cited_unit(keys) or (linear_unit(proj, keys) if LINEAR_UNIT in keys else None)
    changed = _with_unit(proj, crs, unit)
    if changed is crs:
        return _wkt(proj, crs)
    # The numbers of datum and ellipsoid are only in the text of the geographic system itself.
    number = crs.geodetic_crs.to_epsg()
    base = crs.geodetic_crs if number is None else proj.CRS.from_epsg(number)
    return with_geographic(_wkt(proj, changed), _wkt(proj, base), None)


def _is_vertical(proj: Any, number: int) -> bool:
    """Return whether a number is one of heights, and not of places with heights."""
    try:
        return bool(proj.CRS.from_epsg(number).is_vertical)
    except proj.exceptions.CRSError:
        return False


def _with_ellipsoidal_heights(proj: Any, code: str, number: int) -> str:
    """Return the WKT of a system with the heights of a geographic system on the same datum.

    Empty if the number is none of such a system, or of one on another datum: its heights are then
    left out, as in GDAL.
    """
    try:
        flat, heights = proj.CRS.from_user_input(code), proj.CRS.from_epsg(number)
    except proj.exceptions.CRSError:
        return ""
    if not heights.is_geographic or len(heights.axis_info) != 3 or _datum_id(flat) != _datum_id(heights):
        return ""
    if flat.is_geographic:
        return _wkt(proj, heights)
    whole = flat.to_3d().to_json_dict()
    for extra in ("scope", "area", "bbox", "usages", "remarks"):
        whole.pop(extra, None)
    text = str(proj.CRS.from_json_dict(whole).to_wkt())
    return re.sub(r'(LENGTHUNIT\["[^"]*",[^,\]]+),ID\["EPSG",\d+\]', r"\1", text)


def _datum_id(crs: Any) -> Any:
    return None if crs.datum is None else crs.datum.to_json_dict().get("id")


def _described_text(proj: Any, keys: dict[int, Any]) -> str:
    """Return the WKT of a system without a number.

    Geographic, projected, or local coordinates of which only the unit is known.
    """
    model, named = keys.get(MODEL_TYPE), keys.get(PROJECTED_CITATION)
    if model == 2:
        return geographic_text(proj, {**keys, GEOGRAPHIC: USER_DEFINED})
    if isinstance(named, str) and named.startswith(PE_STRING):
        return _wkt(proj, proj.CRS.from_wkt(named.removeprefix(PE_STRING)))
    name = cited_name(keys) if model == 1 else local_name(keys)
    crs = _projected_system(proj, keys) if model == 1 else None
    if crs is None:
        # GDAL takes projected coordinates of which nothing is known for metres, whatever their
        # unit.
        unit = METRE if model == 1 else linear_unit(proj, keys, UNKNOWN_LENGTH)
        return local_text(name, unit or UNKNOWN_LENGTH)
    return with_geographic(_wkt(proj, crs), geographic_text(proj, keys, alone=False), name or "unnamed")


def _with_heights(proj: Any, keys: dict[int, Any], wkt: str) -> str:
    """Add heights, by their number or described by a unit, a citation and a datum.

    GDAL shows none of GeoTIFF 1.0.
    """
    found = re.match(r'(GEOGCS|PROJCS|LOCAL_CS)\["([^"]*)"', wkt)
    if not keys.get(REVISION) or found is None:
        return wkt
    number, system, datum = keys.get(VERTICAL_UNIT), epsg_code(keys, VERTICAL), epsg_code(keys, VERTICAL_DATUM)
    if system is not None and system in ELLIPSOIDAL_HEIGHTS and datum is None:
        datum, system = system + 1000, None
    if system is not None and found[1] == "PROJCS":
        numbered = proj.CRS.from_epsg(system)
        return f'COMPD_CS["{found[2]} + {numbered.name}",{wkt},{_wkt(proj, numbered)}]'
    if system is not None or (number is None and datum is None and VERTICAL not in keys):
        return wkt
    unit = METRE if number is None else linear_unit(proj, {LINEAR_UNIT: number})
    if unit is None:
        return wkt
    cited = keys.get(VERTICAL_CITATION)
    text = cited if isinstance(cited, str) else None
    name = text and re.sub(r"^VCS Name = ([^|]*).*", r"\1", text)
    heights = vertical_text(proj, name, datum, unit)
    shown = name if name != text or found[1] == "LOCAL_CS" else None
    return f'COMPD_CS["{found[2]} + {shown or UNKNOWN}",{wkt},{heights}]'


def _wkt(proj: Any, crs: Any) -> str:
    """Return the old WKT as GDAL does, with the axes of a geographic system.

    The new WKT where the old cannot express it.
    """
    try:
        return str(crs.to_wkt("WKT1_GDAL", output_axis_rule=True))
    except proj.exceptions.ProjError:
        return str(crs.to_wkt())


def _epsg_text(keys: dict[int, Any]) -> str:
    """Return `EPSG:number`, of a compound system with two numbers; empty if there is none."""
    model = keys.get(MODEL_TYPE)
    number = keys.get(GEOGRAPHIC) if model in (2, 3) else keys.get(PROJECTED) if model == 1 else None
    if keys.get(PROJECTION) == 3856 and model == 1:  # the number of the Pseudo-Mercator projection, not of the system
        number = 3857
    if not isinstance(number, int) or not 0 < number < USER_DEFINED:
        return ""
    vertical = keys.get(VERTICAL)
    if vertical in _NO_HEIGHTS and number == 4326:
        return f"EPSG:{WITH_ELLIPSOIDAL_HEIGHT}"
    # Like GDAL: the numbers of vertical systems in files of GeoTIFF 1.0 are not to be trusted.
    trusted = bool(keys.get(REVISION))
    if trusted and isinstance(vertical, int) and 0 < vertical < USER_DEFINED and vertical not in _NO_HEIGHTS:
        return f"EPSG:{number}+{vertical}"
    return f"EPSG:{number}"


def _by_number(proj: Any, code: str) -> Any:
    try:
        crs = proj.CRS.from_user_input(code)
        if crs.is_compound and (number := crs.to_epsg(min_confidence=100)) is not None:
            crs = proj.CRS.from_epsg(number)
        return crs
    except proj.exceptions.CRSError:
        if "+" not in code:
            raise
        return proj.CRS.from_user_input(code.split("+")[0])


def _projected_system(proj: Any, keys: dict[int, Any]) -> Any:
    """Return a projected system by its parts, on any geographic system (exchanged later).

    None if it is not known.
    """
    major, inverse = ellipsoid_of(proj, keys)
    body: dict[str, Any] = {"a": major, "rf": inverse} if inverse else {"R": major}
    if _first_number(keys, (PRIME_MERIDIAN,)):
        body["pm"] = keys[PRIME_MERIDIAN]
    number = epsg_code(keys, PROJECTION)
    cited = cited_unit(keys)
    if number is None:
        definition = _projection(proj, keys)
        system = None if definition is None else proj.CRS.from_dict({**definition, **body})
        return system if system is None or cited is None else _with_unit(proj, system, cited, always=True)
    unit = cited or linear_unit(proj, keys)
    crs = proj.CRS.from_dict({"proj": "tmerc", **body}).to_json_dict()
    crs["conversion"] = proj.crs.CoordinateOperation.from_epsg(number).to_json_dict()
    crs["conversion"].pop("$schema", None)
    return None if unit is None else _with_unit(proj, proj.CRS.from_json_dict(crs), unit)


def _with_unit(proj: Any, crs: Any, unit: UnitOfMeasure | None, *, always: bool = False) -> Any:
    """Return the EPSG system with the linear unit of the file, if its size differs, or `always`."""
    axes = crs.axis_info
    if not crs.is_projected or unit is None or crs.is_compound:
        return crs
    if not always and all(abs(axis.unit_conversion_factor - unit.factor) < 1e-9 for axis in axes):
        return crs
    document = crs.to_json_dict()
    for axis in document["coordinate_system"]["axis"]:
        axis["unit"] = {"type": "LinearUnit", "name": unit.name, "conversion_factor": unit.factor}
        if unit.code:
            axis["unit"]["id"] = {"authority": "EPSG", "code": unit.code}
    document.pop("id", None)
    return proj.CRS.from_json_dict(document)


def _projection(proj: Any, keys: dict[int, Any]) -> dict[str, Any] | None:
    """Return the PROJ parameters of a projection; None if its method is not known."""
    number = keys.get(METHOD)
    definition: dict[str, Any]
    if number == POLAR:
        latitude, longitude = _first_number(keys, (3081, 3078)), _first_number(keys, (3095, 3080))
        pole = 90.0 if latitude >= 0 else -90.0
        definition = {"proj": "stere", "lat_0": pole, "lat_ts": latitude, "lon_0": longitude}
        if _first_number(keys, (3092,), 1.0) != 1.0:
            definition = {"proj": "stere", "lat_0": pole, "k_0": _first_number(keys, (3092,)), "lon_0": longitude}
    elif isinstance(number, int) and number in METHODS:
        name, parameters = METHODS[number]
        found = {
            parameter: _first_number(keys, places) for parameter, places in parameters.items() if _has(keys, places)
        }
        definition = {"proj": name, **found}
    else:
        return None
    unit = linear_unit(proj, keys)
    if unit is None:
        return None
    # False origins are in the unit of the coordinates, PROJ's are in metres.
    definition["x_0"] = _first_number(keys, FALSE_EASTING) * unit.factor
    definition["y_0"] = _first_number(keys, FALSE_NORTHING) * unit.factor
    definition["to_meter"] = unit.factor
    return definition


def _has(keys: dict[int, Any], places: tuple[int, ...]) -> bool:
    return any(isinstance(keys.get(place), (int, float)) for place in places)


def _first_number(keys: dict[int, Any], places: tuple[int, ...], default: float = 0.0) -> float:
    return next((float(keys[place]) for place in places if isinstance(keys.get(place), (int, float))), default)
