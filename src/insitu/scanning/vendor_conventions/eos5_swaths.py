"""Coordinates of HDF-EOS5 swaths and zonal averages, from their geolocation fields.

A swath keeps its latitudes, longitudes and times in a group of their own, "Geolocation Fields",
beside "Data Fields" and "Profile Fields". They are the coordinates of those: here they are put
beside the data. A dimension map tells that each element of the geolocation lies on every n-th
element of the data: where n is 1, both dimensions get one name; else the dimension of the
geolocation gets labels, the indices along the data. A zonal average keeps its coordinates among its
data; they have names that HDF-EOS reserves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from insitu.formats.eos_structure import EosStructure
from insitu.model import ArrayDetails, VirtualArray, VirtualGroup

__all__ = ["GEOLOCATION", "add_geolocation", "add_swath_coordinates", "geolocation_of"]

GEOLOCATION = "Geolocation Fields"
MEASURED = ("Data Fields", "Profile Fields")
RESERVED = frozenset({"Latitude", "Longitude", "Colatitude", "Time", "Pressure", "Altitude"})
MAX_LENGTH = 1 << 20

Maps = Sequence[Mapping[str, Any]]


def geolocation_of(path: str | None) -> str | None:
    """Return the group that holds the coordinates of a group of a swath; None if it is none.

    Examples
    --------
    >>> geolocation_of("/HDFEOS/SWATHS/O3/Data Fields")
    'HDFEOS/SWATHS/O3/Geolocation Fields'
    """
    parts = [part for part in (path or "").split("/") if part]
    if len(parts) == 4 and parts[:2] == ["HDFEOS", "SWATHS"] and parts[3] in MEASURED:
        return "/".join([*parts[:3], GEOLOCATION])
    return None


def add_geolocation(group: VirtualGroup) -> VirtualGroup:
    """Return the tree with coordinates for the data of its swaths and zonal averages."""
    groups = {name: add_geolocation(child) for name, child in group.groups.items()}
    structure = group.details.structure
    if isinstance(structure, EosStructure) and structure.swath is not None and GEOLOCATION in groups:
        beside = groups[GEOLOCATION]
        groups.update({name: add_swath_coordinates(groups[name], beside) for name in MEASURED if name in groups})
    if any(groups[name] is not child for name, child in group.groups.items()):
        group = dataclasses.replace(group, groups=groups)
    if isinstance(structure, EosStructure) and structure.is_zonal:
        named = [name for name in group.arrays if name in RESERVED]
        group = _with_coordinates(group, group.arrays, named) if named else group
    return group


def add_swath_coordinates(group: VirtualGroup, beside: VirtualGroup) -> VirtualGroup:
    """Return the fields of a swath with their coordinates.

    Parameters
    ----------
    group
        Data Fields, or Profile Fields.
    beside
        Geolocation Fields.
    """
    if not group.arrays:
        return group
    structure = group.details.structure
    maps: Maps = structure.swath or () if isinstance(structure, EosStructure) else ()
    lengths = _lengths(group.arrays)
    found: dict[str, VirtualArray] = {}
    for name, array in beside.arrays.items():
        mapped = _map_dimensions(array, maps, lengths)
        known = {**_lengths(found), **lengths}
        # A file with two lengths of one dimension is damaged; which length is wrong is unknown.
        fits = all(known.get(dim, length) == length for dim, length in zip(mapped.dims, mapped.shape, strict=True))
        if name not in group.arrays and name not in lengths and fits:
            found[name] = mapped
    if not found:
        return group
    taken = {*group.arrays, *found, *lengths}
    for dim, length in _lengths(found).items():
        steps = [one for one in maps if one["geo"] == dim and one.get("increment", 0) > 0]
        if dim not in taken and len(steps) == 1 and steps[0]["data"] in lengths and 0 < length <= MAX_LENGTH:
            found[dim] = _index_labels(dim, length, steps[0])
    return _with_coordinates(group, {**group.arrays, **found}, list(found))


def _lengths(arrays: Mapping[str, VirtualArray]) -> dict[str, int]:
    return {dim: length for array in arrays.values() for dim, length in zip(array.dims, array.shape, strict=True)}


def _with_coordinates(group: VirtualGroup, arrays: Mapping[str, VirtualArray], names: list[str]) -> VirtualGroup:
    return dataclasses.replace(group, arrays=arrays, coordinates=tuple(names))


def _map_dimensions(array: VirtualArray, maps: Maps, lengths: Mapping[str, int]) -> VirtualArray:
    """Return a geolocation field on the dimensions of the data where these are the same.

    Else an attribute describes the mapping.
    """
    dims, descriptions = list(array.dims), []
    for axis, (dim, length) in enumerate(zip(array.dims, array.shape, strict=True)):
        own = [one for one in maps if one["geo"] == dim and one["data"] in lengths]
        same = [one["data"] for one in own if _is_one_to_one(one) and lengths[one["data"]] == length]
        if dim in lengths:
            continue
        if same and same[0] not in dims:
            dims[axis] = same[0]
        else:
            descriptions += [_describe_map(one) for one in own]
    attributes = {**array.attributes, **({"dimension_map": "; ".join(descriptions)} if descriptions else {})}
    return dataclasses.replace(array, dims=tuple(dims), attributes=attributes)


def _is_one_to_one(one: Mapping[str, Any]) -> bool:
    return bool(one.get("offset") == 0 and one.get("increment") == 1)


def _describe_map(one: Mapping[str, Any]) -> str:
    """Return one dimension map in words."""
    if "increment" not in one:
        return f"{one['geo']} on {one['data']}: by a list of indices"
    return f"{one['geo']} on {one['data']}: offset {one.get('offset', 0)}, increment {one['increment']}"


def _index_labels(dim: str, length: int, one: Mapping[str, Any]) -> VirtualArray:
    """Return which elements of the data those of the geolocation lie on."""
    values = int(one.get("offset", 0)) + int(one["increment"]) * np.arange(length, dtype=np.int64)
    attributes = {"long_name": f"index along {one['data']}"}
    details = ArrayDetails(notes={"computed": "StructMetadata"})
    return VirtualArray.from_values(values, dims=(dim,), attributes=attributes, details=details)
