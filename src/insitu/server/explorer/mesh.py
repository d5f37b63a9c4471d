"""Meshes of UGRID conventions: the faces of a mesh, whose vertices are its nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.reading import ReadContext, read_array
from insitu.server.explorer.cell_corners import mask_invalid, to_degrees
from insitu.server.explorer.opened_archives import OpenedArchive
from insitu.server.explorer.spatial_dimensions import variable_attribute

__all__ = ["Mesh", "find_meshes", "read_faces"]

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Mesh:
    """The faces of a mesh."""

    faces: str
    """The dimension that counts them."""
    connectivity: str
    """Path of the nodes of each face."""
    lon: str
    """Path of the longitudes of nodes."""
    lat: str


def find_meshes(archive: OpenedArchive, group: str) -> list[Mesh]:
    """Return the meshes of a group whose nodes have longitudes and latitudes."""
    known: dict[str, list[Mesh]] = archive.memo.setdefault("meshes", {})
    if group not in known:
        known[group] = []
        for variable in archive.member(group).variables.values():
            if variable_attribute(variable, "cf_role") == "mesh_topology":
                found = _describe_mesh(archive, group, variable)
                known[group] += [] if found is None else [found]
    return known[group]


def _describe_mesh(archive: OpenedArchive, group: str, topology: Any) -> Mesh | None:
    variables = archive.member(group).variables
    nodes = str(variable_attribute(topology, "node_coordinates") or "").split()
    name = str(variable_attribute(topology, "face_node_connectivity") or "")
    connectivity = variables.get(name)
    if connectivity is None or len(connectivity.dims) != 2 or connectivity.dtype.kind not in "iuf":
        return None
    if len(nodes) != 2 or any(node not in variables or len(variables[node].dims) != 1 for node in nodes):
        return None
    if variables[nodes[0]].dims != variables[nodes[1]].dims or 0 in variables[nodes[0]].shape:
        return None
    names = [str(variable_attribute(variables[node], "standard_name") or "") for node in nodes]
    units = [str(variable_attribute(variables[node], "units") or "") for node in nodes]
    if any(
        name.startswith("projection_") or unit.lower() in ("m", "km") for name, unit in zip(names, units, strict=True)
    ):
        return None
    if names[0] == "latitude" or units[0].startswith("degrees_n"):
        nodes = nodes[::-1]
    faces = str(variable_attribute(topology, "face_dimension") or connectivity.dims[0])
    if faces not in connectivity.dims:
        return None
    name, lon, lat = (f"{group}/{one}" if group else one for one in (name, *nodes))
    return Mesh(faces, name, lon, lat)


def read_faces(
    archive: OpenedArchive, mesh: Mesh, positions: Any, context: ReadContext
) -> tuple[Values, Values, npt.NDArray[np.bool_]]:
    """Return longitudes and latitudes of the nodes of some faces, and which of them there are: (faces, most nodes)."""
    array = archive.array(mesh.connectivity)
    key = tuple(positions if dim == mesh.faces else slice(None) for dim in array.dims)
    found = read_array(array, key, replace(context, name=mesh.connectivity))
    found = found if array.dims[0] == mesh.faces else found.T
    count = archive.array(mesh.lon).shape[0]
    with np.errstate(invalid="ignore"):
        is_node = np.isfinite(found) & (found >= 0) & (found <= count)
    numbers = np.where(is_node, found, 0).astype(np.int64)
    start = variable_attribute(array, "start_index")
    first = 1 if str(start).strip("[]") in ("1", "1.0") else 0
    if numbers.size and numbers.max() == count:  # counted from 1, whether that is said or not
        first = 1
    numbers -= first
    is_node &= (numbers >= 0) & (numbers < count)
    used, where = np.unique(np.where(is_node, numbers, 0), return_inverse=True)
    is_dense = 2 * len(used) > used[-1] - used[0] if len(used) else False
    places = []
    for path in (mesh.lon, mesh.lat):
        nodes = archive.array(path)
        chosen = slice(int(used[0]), int(used[-1]) + 1) if is_dense else used
        read = read_array(nodes, chosen, replace(context, name=path))
        values = to_degrees(read, variable_attribute(nodes, "units"))
        places.append((values[used - used[0]] if is_dense else values)[where.reshape(numbers.shape)])
    lon, lat = mask_invalid(places[0], places[1], keep_origin=True)
    return lon, lat, is_node
