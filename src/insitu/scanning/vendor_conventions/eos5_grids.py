"""Coordinates of HDF-EOS grids, computed from the corners that the file gives.

HDF-EOS defines how, for grids whose fields have the dimensions `YDim` and `XDim`. On a grid of
latitudes and longitudes corners are packed degrees (DDDMMMSSS.SS), on all others metres.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.formats.eos_structure import EosStructure
from insitu.model import ArrayDetails, VirtualArray, VirtualGroup

__all__ = ["add_grid_coordinates"]

MAX_LENGTH = 1 << 20


def add_grid_coordinates(group: VirtualGroup) -> VirtualGroup:
    """Return the tree with coordinates for its grids."""
    groups = {name: add_grid_coordinates(child) for name, child in group.groups.items()}
    if any(groups[name] is not child for name, child in group.groups.items()):
        group = dataclasses.replace(group, groups=groups)
    # In HDF4 all grids of a file are in one group, and the names of dimensions end with theirs.
    structure = group.details.structure
    if not isinstance(structure, EosStructure):
        return group
    grids = {dim: (grid, dim[0] == "Y") for grid in (structure.grid,) if grid for dim in ("YDim", "XDim")}
    for name, grid in structure.grids.items():
        grids |= {f"{dim}:{name}": (grid, dim[0] == "Y") for dim in ("YDim", "XDim")}
    if not grids:
        return group
    lengths = {dim: n for array in group.arrays.values() for dim, n in zip(array.dims, array.shape, strict=True)}
    made: dict[str, VirtualArray] = {
        dim: _coordinate(grid, dim, vertical)
        for dim, (grid, vertical) in grids.items()
        if dim in lengths and dim not in group.arrays and _has_corners(grid, vertical, lengths[dim])
    }
    return dataclasses.replace(group, arrays={**group.arrays, **made}) if made else group


def _has_corners(grid: dict[str, Any], vertical: bool, length: int) -> bool:
    corners = [grid.get(name) for name in ("upper_left", "lower_right")]
    numbers = all(isinstance(corner, list) and len(corner) == 2 and np.isfinite(corner).all() for corner in corners)
    return numbers and grid.get("rows" if vertical else "columns") == length and 0 < length <= MAX_LENGTH


def _coordinate(grid: dict[str, Any], dim: str, vertical: bool) -> VirtualArray:
    """Return the coordinates along one axis."""
    axis, count = int(vertical), int(grid["rows" if vertical else "columns"])
    begin, end = float(grid["upper_left"][axis]), float(grid["lower_right"][axis])
    degrees = str(grid.get("projection", "")).endswith("_GEO")
    if degrees:
        begin, end = _degrees(begin), _degrees(end)
    # The first row is at the upper side and the first column at the left one, unless the origin is
    # in another corner (UL, UR, LL, LR).
    origin = str(grid.get("origin", "")).rpartition("_")[2]
    if origin in (("LL", "LR") if vertical else ("UR", "LR")):
        begin, end = end, begin
    corner = str(grid.get("registration", "")).endswith("CORNER")
    values = begin + (np.arange(count) + (0.0 if corner else 0.5)) * ((end - begin) / count)
    return _coordinate_array(dim, values, _attributes(vertical, degrees))


def _degrees(packed: float) -> float:
    """Return packed degrees (DDDMMMSSS.SS) as degrees.

    Examples
    --------
    >>> _degrees(-122030036.0)
    -122.51
    """
    size = abs(packed)
    whole, minutes, seconds = size // 1e6, size % 1e6 // 1e3, size % 1e3
    return float(np.copysign(round(whole + minutes / 60 + seconds / 3600, 10), packed))


def _attributes(vertical: bool, degrees: bool) -> dict[str, Any]:
    if degrees:
        name, units = ("latitude", "degrees_north") if vertical else ("longitude", "degrees_east")
    else:
        name, units = f"projection_{'y' if vertical else 'x'}_coordinate", "m"
    return {"standard_name": name, "units": units}


def _coordinate_array(dim: str, values: npt.NDArray[Any], attributes: dict[str, Any]) -> VirtualArray:
    details = ArrayDetails(notes={"computed": "StructMetadata"})
    return VirtualArray.from_values(values, dims=(dim,), attributes=attributes, details=details)
