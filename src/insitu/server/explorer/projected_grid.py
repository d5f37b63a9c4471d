"""Projections and rotated poles: the coordinate reference system that a variable names, and places on the earth by it.

pyproj reads CF's grid mappings (CF 5.6 and appendix F) and WKT, as GeoTIFF has it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.forking import import_before_fork
from insitu.model import VirtualArray
from insitu.scanning.member import Variable
from insitu.server.explorer.formula_array import ShownArray
from insitu.server.explorer.opened_archives import OpenedArchive
from insitu.server.explorer.spatial_dimensions import variable_attribute

__all__ = ["Projection", "find_projection", "projection_problems"]

Values = npt.NDArray[np.float64]

LENGTHS = {
    **dict.fromkeys(("m", "metre", "metres", "meter", "meters"), 1.0),
    **dict.fromkeys(("km", "kilometre", "kilometres", "kilometer", "kilometers"), 1000.0),
}
ANGLES = {
    **dict.fromkeys(("rad", "radian", "radians"), 1.0),
    **dict.fromkeys(("microradian", "microradians", "urad"), 1e-6),
}
"""Units of the scanning angles of a geostationary projection."""
MEANINGS = ("grid_mapping_name", "crs_wkt", "spatial_ref")
"""Attributes of which a grid mapping has one."""
LARGEST_RETURN = 0.01
"""How far a place may lie from where it came from, as a part of a cell: else it is no place of the projection."""


@dataclass(frozen=True, slots=True)
class Projection:
    """A coordinate reference system with places on the earth."""

    crs: Any
    """As pyproj has it: one of projected coordinates, of a rotated pole, or of longitudes and latitudes."""
    geo_transform: tuple[float, ...] | None = None
    """GDAL's six numbers, from columns and rows to coordinates."""

    @property
    def is_geographic(self) -> bool:
        """Whether the coordinates are longitudes and latitudes themselves."""
        return bool(self.crs.is_geographic and not self.crs.is_derived)

    @property
    def _base(self) -> Any:
        """The system of longitudes and latitudes that it is made of."""
        return self.crs.source_crs if self.crs.is_derived and self.crs.is_geographic else self.crs.geodetic_crs

    def make_transformer(self) -> Any:
        """Return what computes longitudes and latitudes; pyproj raises ProjError for parameters that make no sense."""
        pyproj: Any = import_before_fork("pyproj")
        return pyproj.Transformer.from_crs(self.crs, self._base, always_xy=True)

    def scale_of(self, units: Any) -> float:
        """Return what coordinates in some units are multiplied by; without known units they are those of the system."""
        text = str(units or "").lower()
        if text in ANGLES and self.crs.is_projected:
            parameters = self.crs.coordinate_operation.params
            heights = [one.value for one in parameters if one.name.lower() == "satellite height"]
            return ANGLES[text] * float(heights[0]) if heights else 1.0
        if text in LENGTHS and self.crs.is_projected:
            return LENGTHS[text] / float(self.crs.axis_info[0].unit_conversion_factor)
        return 1.0

    def to_lon_lat(self, x: Values, y: Values) -> tuple[Values, Values]:
        """Return longitudes and latitudes; NaN where the coordinates are no place on the earth."""
        base = self._base
        if self.is_geographic:
            lon, lat = np.array(x, np.float64), np.array(y, np.float64)
        else:
            forward = self.make_transformer()
            lon, lat = (np.asarray(values) for values in forward.transform(x, y, errcheck=False))
            if self.crs.is_projected:  # beyond its outline a projection gives other places, or none
                again = forward.transform(lon, lat, direction="INVERSE", errcheck=False)
                with np.errstate(invalid="ignore"):
                    strayed = np.hypot(again[0] - x, again[1] - y) > LARGEST_RETURN * _typical_step(x, y)
                lon = np.where(strayed | ~np.isfinite(lon), np.nan, lon)
        degrees = np.rad2deg(base.axis_info[0].unit_conversion_factor)
        meridian = base.prime_meridian
        start = np.rad2deg(meridian.longitude * meridian.unit_conversion_factor)
        lon, lat = lon * degrees + start, lat * degrees
        is_place = np.isfinite(lon) & np.isfinite(lat)
        return np.where(is_place, lon, np.nan), np.where(is_place, lat, np.nan)


def _typical_step(x: Values, y: Values) -> float:
    steps = [np.abs(np.diff(values, axis=axis)).ravel() for values in (x, y) for axis in range(values.ndim)]
    found = np.concatenate(steps)
    found = found[found > 0]
    return float(np.median(found)) if len(found) else 1.0


def find_projection(
    archive: OpenedArchive, group: str, array: Variable | ShownArray, labels: tuple[str | None, ...]
) -> Projection | None:
    """Return the coordinate reference system that a variable names for some labels; None if none is known.

    Parameters
    ----------
    archive, group, array
        A variable or formula, and its group.
    labels
        Paths of the labels along its sides.
    """
    path = _find_grid_mapping(archive, group, array, labels)
    if path is None:
        return None
    known: dict[str, Projection | str] = archive.memo.setdefault("projections", {})
    if path not in known:
        known[path] = _read_projection(archive.variable(path))
    found = known[path]
    return found if isinstance(found, Projection) else None


def projection_problems(archive: OpenedArchive) -> Mapping[str, str]:
    """Return by path why grid mappings, which were looked for, cannot be used."""
    known: dict[str, Projection | str] = archive.memo.get("projections", {})
    return {path: found for path, found in known.items() if isinstance(found, str)}


def _find_grid_mapping(
    archive: OpenedArchive, group: str, array: Variable | ShownArray, labels: tuple[str | None, ...]
) -> str | None:
    """Return the path of the grid mapping of a variable; else of the only one there is, if the labels are projected."""
    text = str(variable_attribute(array, "grid_mapping") or "")
    names = list(re.findall(r"[^\s:]+(?=\s*:)", text)) or text.split()[:1]
    if len(names) > 1:  # "crs: x y wgs: lat lon" names one for each kind of coordinates
        last = {label.rpartition("/")[2] for label in labels if label}
        parts = re.split(r"[^\s:]+\s*:", text)[1:]
        names = [name for name, part in zip(names, parts, strict=True) if last & set(part.split())] or names
    parts = group.split("/") if group else []
    for depth in range(len(parts), -1, -1):
        parent = "/".join(parts[:depth])
        member = archive.members.get(parent)
        if member is None:
            continue
        if names and names[0] in member.variables:
            return f"{parent}/{names[0]}" if parent else names[0]
        if not text and any(label and _is_projected(archive.variable(label)) for label in labels):
            mappings = [
                name
                for name, variable in member.variables.items()
                if any(variable_attribute(variable, meaning) is not None for meaning in MEANINGS)
            ]
            if len(mappings) == 1:
                return f"{parent}/{mappings[0]}" if parent else mappings[0]
    return None


def _is_projected(label: Variable | VirtualArray) -> bool:
    name = str(variable_attribute(label, "standard_name") or "")
    return name.startswith("projection_") or name in ("grid_longitude", "grid_latitude")


def _read_projection(variable: Variable) -> Projection | str:
    """Return the coordinate reference system of a grid mapping, or why it has none that is known."""
    attributes = {name: _plain(value) for name, value in {**variable.encoding, **variable.attributes}.items()}
    if not any(attributes.get(meaning) for meaning in MEANINGS):
        return "it says nothing of a coordinate reference system"
    try:
        pyproj: Any = import_before_fork("pyproj")
    except ImportError:
        return "its fields are drawn by position: grid mappings need pyproj. Try `pip install 'insitu[serve]'`"
    try:
        crs = pyproj.CRS.from_cf(attributes)
    except (pyproj.exceptions.ProjError, KeyError, ValueError, TypeError, AttributeError) as error:
        # What pyproj raises for parameters that are missing, or of another type.
        return f"its fields are drawn by position: pyproj does not understand it ({str(error)[:200]})"
    while crs.is_compound or crs.is_bound:
        crs = crs.sub_crs_list[0] if crs.is_compound else crs.source_crs
    if crs.geodetic_crs is None or not (crs.is_geographic or crs.is_projected):
        return "its fields are drawn by position: its coordinates have no place on the earth"
    try:
        numbers = tuple(float(part) for part in str(attributes.get("GeoTransform") or "").split())
    except ValueError:
        numbers = ()
    found = Projection(crs, numbers if len(numbers) == 6 else None)
    try:
        if not found.is_geographic:
            found.make_transformer()
    except pyproj.exceptions.ProjError as error:
        return f"its fields are drawn by position: pyproj cannot compute with it ({str(error)[:200]})"
    return found


def _plain(value: Any) -> Any:
    """Return an attribute as pyproj takes it: numbers and lists of Python."""
    if isinstance(value, (np.ndarray, np.generic)):
        plain = value.tolist()
        return plain[0] if isinstance(plain, list) and len(plain) == 1 else plain
    return value
