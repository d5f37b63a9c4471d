"""Which dimensions of a variable are drawn as x and y, and which coordinate labels a dimension.

By CF attributes of coordinates (`axis`, `standard_name`, units of longitude and latitude), one- and
two-dimensional, else by usual names, else the last two dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from insitu.scanning.formula_variables import find_label_path
from insitu.scanning.member import Member, Variable
from insitu.server.explorer.formula_array import FormulaArray, ShownArray
from insitu.server.explorer.opened_archives import OpenedArchive

__all__ = ["dimension_coordinates", "find_coordinate", "is_spatial_side", "spatial_dimensions", "variable_attribute"]

AXES = {
    "x": (
        {"X"},
        {"longitude", "projection_x_coordinate", "grid_longitude"},
        {"degrees_east", "degree_east", "degree_e", "degrees_e", "degreee", "degreese"},
        {"lon", "longitude", "x", "xc", "nav_lon", "rlon", "easting", "xt_ocean", "xu_ocean", "xi_rho", "i", "ni"},
    ),
    "y": (
        {"Y"},
        {"latitude", "projection_y_coordinate", "grid_latitude"},
        {"degrees_north", "degree_north", "degree_n", "degrees_n", "degreen", "degreesn"},
        {"lat", "latitude", "y", "yc", "nav_lat", "rlat", "northing", "yt_ocean", "yu_ocean", "eta_rho", "j", "nj"},
    ),
}
"""Of each side: CF `axis`, `standard_name` (CF 4.1, 4.2, appendix F), units (CF 4.1, 4.2), and names."""


def variable_attribute(variable: Variable | ShownArray, name: str) -> Any:
    """Return an attribute of a variable, also one that decoding took out; of a formula, that of the first variable."""
    if isinstance(variable, FormulaArray):
        found = (variable_attribute(leaf, name) for _, leaf in variable.leaves.values())
        return next((one for one in found if one is not None), None)
    return variable.attributes.get(name, variable.encoding.get(name))


def spatial_dimensions(archive: OpenedArchive, group: str, variable: Variable | ShownArray) -> dict[str, str] | None:
    """Return the dimensions to draw along x and y; None if there are not two."""
    dims = variable.dims
    sizes = dict(zip(dims, variable.shape, strict=True))
    if len(dims) < 2 or len(set(dims)) < len(dims):
        return None
    found: dict[str, str] = {}
    for side in ("x", "y"):
        for dim in dims:
            labels = find_coordinate(archive, group, dim, sizes[dim])
            if labels is not None and is_spatial_side(side, labels, archive.variable(labels)):
                found[side] = dim
    if len(found) < 2:
        found |= {side: dim for side, dim in _by_plane_coordinates(archive.member(group), dims) if side not in found}
    if len(found) < 2:
        for side in ("x", "y"):
            candidates = [dim for dim in dims if dim.lower() in AXES[side][3] and dim not in found.values()]
            if candidates and side not in found:
                found[side] = candidates[-1]
    rest = [dim for dim in dims if dim not in found.values()]
    for side in ("x", "y"):
        if side not in found:
            found[side] = rest.pop()
    return found if found["x"] != found["y"] else {"x": dims[-1], "y": dims[-2]}


def is_spatial_side(side: str, path: str, variable: Variable) -> bool:
    """Return whether a coordinate labels the side `x` or `y` of a map, in degrees or in a projection."""
    axes, standard_names, units, names = AXES[side]
    attributes = {**variable.encoding, **variable.attributes}
    if str(attributes.get("axis", "")).upper() in axes or attributes.get("standard_name") in standard_names:
        return True
    if str(attributes.get("units", "")).lower() in units:
        return True
    return "axis" not in attributes and path.rpartition("/")[2].lower() in names


def _by_plane_coordinates(member: Member, dims: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the sides that two-dimensional longitudes and latitudes give: the last dimension is x."""
    for name, variable in member.variables.items():
        is_plane = len(variable.dims) == 2 and set(variable.dims) <= set(dims)
        if is_plane and (is_spatial_side("x", name, variable) or is_spatial_side("y", name, variable)):
            yield "x", variable.dims[1]
            yield "y", variable.dims[0]
            return


def dimension_coordinates(archive: OpenedArchive, group: str, variable: Variable | ShownArray) -> dict[str, str | None]:
    """Return for each dimension of a variable the path of the coordinate that labels it."""
    return {
        dim: find_coordinate(archive, group, dim, size) for dim, size in zip(variable.dims, variable.shape, strict=True)
    }


def find_coordinate(archive: OpenedArchive, group: str, dim: str, size: int) -> str | None:
    """Return the path of the coordinate that labels a dimension: see `find_label_path`."""
    return find_label_path(archive.members, group, dim, size)
