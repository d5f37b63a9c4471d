"""How a variable lies on the earth: which dimensions are drawn on a map, and which coordinates say where.

Longitudes and latitudes are found by CF attributes (standard name, units), else by usual names: those that
the variable names in its attribute `coordinates` come first. Nothing is read but labels that are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.model import VirtualArray
from insitu.scanning.member import Variable
from insitu.server.explorer.cell_corners import has_gaps, is_ordered, to_degrees, unwrap_longitudes
from insitu.server.explorer.formula_array import ShownArray
from insitu.server.explorer.mesh import Mesh, find_meshes
from insitu.server.explorer.opened_archives import OpenedArchive
from insitu.server.explorer.projected_grid import Projection, find_projection
from insitu.server.explorer.spatial_dimensions import (
    AXES,
    find_coordinate,
    is_spatial_side,
    spatial_dimensions,
    variable_attribute,
)

__all__ = ["FieldMap", "find_map", "is_earth_coordinate", "map_summary"]

STANDARD_NAMES = {"x": "longitude", "y": "latitude"}
NAMES = {
    "x": {"lon", "long", "longitude", "longitudes", "nav_lon", "glon", "clon", "xlong", "geolon", "lons"},
    "y": {"lat", "latitude", "latitudes", "nav_lat", "glat", "clat", "xlat", "geolat", "lats"},
}
"""Names that count where neither a standard name nor the units say anything else."""
PLAIN_ANGLES = {"", "degree", "degrees", "deg", "radian", "radians", "rad"}


@dataclass(frozen=True, slots=True)
class FieldMap:
    """How a field lies on the earth."""

    kind: str
    """`axes`: each row has a latitude and each column a longitude; `grid`: every cell has corners of its own; `cells`:
    one dimension counts cells or points.
    """
    y: str | None
    """The dimension of the rows; None if one dimension counts cells."""
    x: str
    """The dimension of the columns, or of the cells."""
    lon: str | None = None
    """Path of the longitudes of the centres."""
    lat: str | None = None
    is_global: bool = False
    """Whether the labels of the columns go around the earth."""
    projection: Projection | None = None
    """Of a grid: the coordinate reference system of its sides, which have no longitudes and latitudes."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Paths of the coordinates `x` and `y` of a projection; none if they follow from the columns and rows alone."""
    mesh: Mesh | None = None
    """Of cells: the mesh whose faces they are."""


def map_summary(found: FieldMap | None) -> dict[str, Any] | None:
    """Return a map for JSON."""
    if found is None:
        return None
    return {name: getattr(found, name) for name in ("kind", "y", "x", "lon", "lat", "is_global")}


def find_map(
    archive: OpenedArchive, group: str, array: Variable | ShownArray, y: str | None = None, x: str | None = None
) -> FieldMap | None:
    """Return how a field lies on the earth; None if that is not known.

    Parameters
    ----------
    archive, group, array
        A variable or formula, and its group.
    y, x
        The dimensions that are drawn; without both, those of the map are found. Only `x`: that of the cells.
    """
    if len(set(array.dims)) < len(array.dims) or 0 in array.shape:
        return None
    whole = x is None and y is None
    if whole and (spatial := spatial_dimensions(archive, group, array)) is not None:
        y, x = spatial["y"], spatial["x"]
    if y is not None and x is not None:
        found = (
            _map_of_axes(archive, group, array, y, x)
            or _map_of_planes(archive, group, array, y, x)
            or _map_of_projection(archive, group, array, y, x)
        )
        if found is not None or not whole:
            return found
    return _map_of_cells(archive, group, array, None if whole else x)


def _map_of_axes(archive: OpenedArchive, group: str, array: Variable | ShownArray, y: str, x: str) -> FieldMap | None:
    """Return the map of rows that have a latitude each and columns that have a longitude each, or the other way."""
    sizes = dict(zip(array.dims, array.shape, strict=True))
    labels: dict[str, tuple[str, str]] = {}
    for dim in (y, x):
        found = find_coordinate(archive, group, dim, sizes[dim])
        for side in ("x", "y"):
            if found is not None and is_earth_coordinate(side, found, archive.variable(found)):
                labels[dim] = side, found
    if len(labels) < 2:
        for pair in _find_pairs(archive, group, array):
            along = {archive.variable(path).dims: (side, path) for side, path in pair.items()}
            if set(along) == {(y,), (x,)}:
                labels = {dim: side for (dim,), side in along.items()}
                break
    if len(labels) < 2 or {side for side, _ in labels.values()} != {"x", "y"}:
        return None
    paths = dict(labels.values())
    known = [_values_in_memory(archive, paths[side]) for side in ("x", "y")]
    if any(values is not None and (has_gaps(values) or not is_ordered(values)) for values in known):
        return None  # labels that say nothing
    is_turned = labels[x][0] == "y"
    spans = known[0] is not None and _spans_globe(known[0])
    return FieldMap("grid" if is_turned else "axes", y, x, paths["x"], paths["y"], spans)


def _map_of_planes(archive: OpenedArchive, group: str, array: Variable | ShownArray, y: str, x: str) -> FieldMap | None:
    """Return the map of longitudes and latitudes of both dimensions."""
    for pair in _find_pairs(archive, group, array):
        dims = archive.variable(pair["x"]).dims
        if dims == archive.variable(pair["y"]).dims and {y, x} <= set(dims):
            return FieldMap("grid", y, x, pair["x"], pair["y"])
    return None


def _map_of_projection(
    archive: OpenedArchive, group: str, array: Variable | ShownArray, y: str, x: str
) -> FieldMap | None:
    """Return the map of sides that are coordinates of a projection, or of a rotated pole."""
    sizes = dict(zip(array.dims, array.shape, strict=True))
    labels = {side: find_coordinate(archive, group, dim, sizes[dim]) for side, dim in (("y", y), ("x", x))}
    found = find_projection(archive, group, array, tuple(labels.values()))
    if found is None:
        return None
    if labels["y"] is None and labels["x"] is None:  # an image that is turned has only numbers
        turned = found.geo_transform is not None and (found.geo_transform[2] != 0 or found.geo_transform[4] != 0)
        return FieldMap("grid", y, x, projection=found) if turned else None
    paths: dict[str, str] = {}
    for side, label in labels.items():
        if label is None or archive.variable(label).dtype.kind not in "fiu":
            return None
        values = _values_in_memory(archive, label)
        if values is not None and (has_gaps(values) or not is_ordered(values)):
            return None
        paths[side] = label
    is_turned = _is_labelled(archive, paths["x"], "y") and _is_labelled(archive, paths["y"], "x")
    if not is_turned and not (_is_labelled(archive, paths["x"], "x") and _is_labelled(archive, paths["y"], "y")):
        return None  # a section, whose other side is a height
    if is_turned:
        paths = {"x": paths["y"], "y": paths["x"]}
    if not found.is_geographic:
        return FieldMap("grid", y, x, projection=found, labels=paths)
    values = _values_in_memory(archive, paths["x"])
    spans = values is not None and _spans_globe(values)
    return FieldMap("grid" if is_turned else "axes", y, x, paths["x"], paths["y"], spans)


def _is_labelled(archive: OpenedArchive, path: str, side: str) -> bool:
    return is_spatial_side(side, path, archive.variable(path))


def _map_of_cells(archive: OpenedArchive, group: str, array: Variable | ShownArray, x: str | None) -> FieldMap | None:
    """Return the map of the faces of a mesh, or of longitudes and latitudes of one dimension."""
    sizes = dict(zip(array.dims, array.shape, strict=True))
    for mesh in find_meshes(archive, group):
        if mesh.faces in array.dims and x in (None, mesh.faces):
            connectivity = archive.variable(mesh.connectivity)
            if connectivity.sizes[mesh.faces] == sizes[mesh.faces]:
                return FieldMap("cells", None, mesh.faces, mesh=mesh)
    for pair in _find_pairs(archive, group, array):
        dims = archive.variable(pair["x"]).dims
        if len(dims) == 1 and dims == archive.variable(pair["y"]).dims and x in (None, *dims):
            return FieldMap("cells", None, dims[0], pair["x"], pair["y"])
    return None


def _find_pairs(archive: OpenedArchive, group: str, array: Variable | ShownArray) -> Iterator[dict[str, str]]:
    """Yield paths of longitudes and latitudes whose dimensions the variable has; those first that it names."""
    sizes = dict(zip(array.dims, array.shape, strict=True))
    named = str(variable_attribute(array, "coordinates") or "").split()
    found: dict[str, list[str]] = {}
    for side in ("x", "y"):
        fitting = [
            path
            for path in _earth_coordinates(archive, group)[side]
            if (variable := archive.variable(path)).dims and variable.sizes.items() <= sizes.items()
        ]
        found[side] = sorted(fitting, key=lambda path: path.rpartition("/")[2] not in named)
    for lon in found["x"]:
        # The latitude of the same dimensions that comes first; else any, of axes.
        dims = archive.variable(lon).dims
        yield from (
            {"x": lon, "y": lat} for lat in sorted(found["y"], key=lambda path: archive.variable(path).dims != dims)[:1]
        )


def _earth_coordinates(archive: OpenedArchive, group: str) -> dict[str, list[str]]:
    """Return the paths of longitudes (`x`) and latitudes (`y`) that a group has, and those above it."""
    known: dict[str, dict[str, list[str]]] = archive.memo.setdefault("earth coordinates", {})
    if group not in known:
        found: dict[str, list[str]] = {"x": [], "y": []}
        parts = group.split("/") if group else []
        for depth in range(len(parts), -1, -1):
            parent = "/".join(parts[:depth])
            member = archive.members.get(parent)
            for name, variable in () if member is None else member.variables.items():
                for side in ("x", "y"):
                    if is_earth_coordinate(side, name, variable):
                        found[side].append(f"{parent}/{name}" if parent else name)
        known[group] = found
    return known[group]


def is_earth_coordinate(side: str, path: str, variable: Variable | VirtualArray) -> bool:
    """Return whether a variable holds longitudes (`x`) or latitudes (`y`): not those of a rotated pole, nor texts."""
    if variable.dtype.kind not in "fiu":
        return False
    standard_name = variable_attribute(variable, "standard_name")
    if isinstance(standard_name, str) and standard_name:
        return standard_name == STANDARD_NAMES[side]
    units = str(variable_attribute(variable, "units") or "").lower()
    if units in AXES[side][2]:
        return True
    return units in PLAIN_ANGLES and path.rpartition("/")[2].lower() in NAMES[side]


def _values_in_memory(archive: OpenedArchive, path: str) -> npt.NDArray[np.float64] | None:
    """Return the labels of a dimension in degrees; None if they would have to be read."""
    variable = archive.variable(path)
    if not isinstance(variable.data, np.ndarray):
        return None
    values = to_degrees(variable.data, variable_attribute(variable, "units"))
    return unwrap_longitudes(values) if is_earth_coordinate("x", path, variable) else values


def _spans_globe(longitudes: Sequence[float] | npt.NDArray[np.float64]) -> bool:
    """Return whether longitudes go around the earth, with the cell behind the last one."""
    count = len(longitudes)
    if count < 2:
        return False
    span = abs(float(longitudes[-1]) - float(longitudes[0]))
    return span * count / (count - 1) > 360 - 0.1 * span / (count - 1)
