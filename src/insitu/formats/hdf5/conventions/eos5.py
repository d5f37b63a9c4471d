"""HDF-EOS5 conventions: names of dimensions, grids and swaths from `StructMetadata`.

HDF-EOS5 (Aura, MLS, OMI, VIIRS grids) does not use dimension scales. A text in the file, `HDFEOS
INFORMATION/StructMetadata.0` and its continuations, names the dimensions of every field of every
swath, grid and zonal average. Dimensions that have no other name are named after it. The corners of
grids, and how the geolocation dimensions of swaths map to those of the data, are kept in the
`details` of the group; coordinates are made from them.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from insitu.formats.eos_structure import EOS_INFORMATION, EosStructure
from insitu.formats.hdf5.datasets.object_at_path import open_object
from insitu.formats.hdf5.datasets.objects import Dataset
from insitu.formats.hdf5.structures.layout import CompactLayout, ContiguousLayout
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.parsing.sibling_files import SiblingFiles
from insitu.model import GroupDetails, VirtualArray, VirtualGroup

__all__ = [
    "StructMetadata",
    "apply_dimension_names",
    "parse_field_dims",
    "parse_grids",
    "parse_maps",
    "read_structure",
]

FOLDER = "HDFEOS"
PARTS_LIMIT = 64
TEXT_LIMIT = 1 << 24
_SECTIONS = {"SwathStructure": "SWATHS", "GridStructure": "GRIDS", "ZaStructure": "ZAS"}
_LINE = re.compile(r'\s*(\w+)\s*=\s*("[^"]*"|\((?:[^()"]|"[^"]*")*\)|[^\n]*)')
_NAME = re.compile(r'"([^"]*)"')

Fields = dict[tuple[str, str, str], tuple[str, ...]]
"""Dimensions by section (SWATHS, GRIDS, ZAS), name of the structure, and field."""


Grids = dict[str, dict[str, Any]]
DimensionMaps = dict[str, list[dict[str, Any]]]
"""By swath: `geo` and `data` dimension, `offset` and `increment` (none where a list of indices
tells it)."""


@dataclasses.dataclass(frozen=True, slots=True)
class StructMetadata:
    """What the text of a file tells."""

    fields: Fields
    grids: Grids
    maps: DimensionMaps

    @classmethod
    def of(cls, text: str) -> StructMetadata:
        """Parse a text."""
        return cls(parse_field_dims(text), parse_grids(text), parse_maps(text))


def read_structure(siblings: SiblingFiles, window: ReadCache) -> str:
    """Return the text of `StructMetadata` of a file; empty if there is none."""
    parts: list[bytes] = []
    for number in range(PARTS_LIMIT):
        found = open_object(siblings, window, f"{EOS_INFORMATION}/StructMetadata.{number}")
        if found is None or not isinstance(found[1], Dataset) or found[1].problem is not None:
            break
        opened, dataset = found[0], found[1]
        length = dataset.space.count * dataset.datatype.size
        layout = dataset.layout
        if dataset.datatype.kind != "string" or length > TEXT_LIMIT:
            break
        if isinstance(layout, CompactLayout):
            data = layout.data
        elif isinstance(layout, ContiguousLayout) and layout.address is not None:
            data = opened.window.source.read(*opened.file.range(layout.address, length, "StructMetadata"))
        else:
            break
        parts.append(data.split(b"\0", 1)[0])
    return b"".join(parts).decode("utf-8", "replace")


def parse_field_dims(text: str) -> Fields:
    """Return the dimensions of all fields.

    Examples
    --------
    >>> text = '''GROUP=GridStructure
    ...   GROUP=GRID_1
    ...     GridName="g"
    ...     GROUP=DataField
    ...       OBJECT=DataField_1
    ...         DataFieldName="t"
    ...         DimList=("YDim","XDim")'''
    >>> parse_field_dims(text)
    {('GRIDS', 'g', 't'): ('YDim', 'XDim')}
    """
    fields: Fields = {}
    section, structure, field = "", "", ""
    for found in _LINE.finditer(text):
        key, value = found[1], found[2].strip()
        if key == "GROUP":
            section = _SECTIONS.get(value, section) if value.endswith("Structure") else section
        elif key == "END_GROUP" and value in _SECTIONS:
            section = ""
        elif key in ("SwathName", "GridName", "ZaName"):
            structure = value.strip('"')
        elif key in ("GeoFieldName", "DataFieldName", "ProfileFieldName", "ZaFieldName"):
            field = value.strip('"')
        elif key == "DimList" and section and field:
            fields[section, structure, field] = tuple(_NAME.findall(value))
        elif key == "END_OBJECT":
            field = ""
    return fields


_WHOLE = re.compile(r"[-+]?\d{1,9}")
_NUMBER = re.compile(r"[-+]?\d[\d.eE+-]*")
_GRID_KEYS = {
    "XDim": "columns",
    "YDim": "rows",
    "Projection": "projection",
    "PixelRegistration": "registration",
    "GridOrigin": "origin",
    "UpperLeftPointMtrs": "upper_left",
    "LowerRightMtrs": "lower_right",
}


def parse_grids(text: str) -> Grids:
    r"""Return the description of each grid by its name.

    Keys: columns, rows, projection, registration, origin, upper_left and lower_right corner.

    Examples
    --------
    >>> parse_grids('GROUP=GridStructure\nGridName="g"\nXDim=2\nProjection=HE5_GCTP_GEO\nUpperLeftPointMtrs=(-1.5,2)')
    {'g': {'columns': 2, 'projection': 'HE5_GCTP_GEO', 'upper_left': [-1.5, 2.0]}}
    """
    grids: Grids = {}
    section, name = "", ""
    for found in _LINE.finditer(text):
        key, value = found[1], found[2].strip()
        if key in ("GROUP", "END_GROUP") and value.endswith("Structure"):
            section = value if key == "GROUP" else ""
        elif key == "GridName" and section == "GridStructure":
            name = value.strip('"')
            grids[name] = {}
        elif key in _GRID_KEYS and name and section == "GridStructure":
            parsed: Any = value
            if value.startswith("(") or key in ("XDim", "YDim"):
                try:
                    parsed = [float(number) for number in _NUMBER.findall(value)]
                except ValueError:
                    continue
                parsed = parsed if value.startswith("(") else int(parsed[0]) if parsed else 0
            grids[name][_GRID_KEYS[key]] = parsed
    return grids


def parse_maps(text: str) -> DimensionMaps:
    r"""Return how geolocation dimensions map to data dimensions, by swath.

    Examples
    --------
    >>> parse_maps('GROUP=SwathStructure\nSwathName="s"\nGeoDimension="g"\nDataDimension="d"\nOffset=1\nIncrement=2')
    {'s': [{'geo': 'g', 'data': 'd', 'offset': 1, 'increment': 2}]}
    """
    maps: DimensionMaps = {}
    section, name = "", ""
    for found in _LINE.finditer(text):
        key, value = found[1], found[2].strip()
        if key in ("GROUP", "END_GROUP") and value.endswith("Structure"):
            section = value if key == "GROUP" else ""
        elif section != "SwathStructure":
            continue
        elif key == "SwathName":
            name = value.strip('"')
            maps[name] = []
        elif key == "GeoDimension" and name:
            maps[name].append({"geo": value.strip('"')})
        elif key == "DataDimension" and maps.get(name):
            maps[name][-1]["data"] = value.strip('"')
        elif key in ("Offset", "Increment") and maps.get(name) and _WHOLE.fullmatch(value):
            maps[name][-1][key.lower()] = int(value)
    return {name: [one for one in entries if "data" in one] for name, entries in maps.items()}


def apply_dimension_names(group: VirtualGroup, structures: StructMetadata, path: tuple[str, ...]) -> VirtualGroup:
    """Return the tree with named dimensions, and with the descriptions of its grids and swaths.

    Parameters
    ----------
    group
        A group of the file.
    structures
        What the file tells of its structures.
    path
        Where the group is in the file.
    """
    groups = {name: apply_dimension_names(child, structures, (*path, name)) for name, child in group.groups.items()}
    group = dataclasses.replace(group, groups=groups)
    if len(path) < 3 or path[0] != FOLDER:
        return group
    section, structure = path[1], path[2]
    described = None
    if section == "GRIDS" and structure in structures.grids:
        described = EosStructure(grid=structures.grids[structure])
    elif section == "SWATHS" and structure in structures.maps:
        described = EosStructure(swath=structures.maps[structure])
    elif section == "ZAS":
        described = EosStructure(is_zonal=True)
    if described is not None:
        group = dataclasses.replace(group, details=dataclasses.replace(group.details, structure=described))
    if section == "POINTS":
        arrays = {name: _rename_dims(array, (f"{name}_record",)) for name, array in group.arrays.items()}
    else:
        dims = {name: structures.fields.get((section, structure, name), ()) for name in group.arrays}
        arrays = {name: _rename_dims(array, dims[name]) for name, array in group.arrays.items()}
    if _has_conflicting_dims(arrays) or all(arrays[name] is array for name, array in group.arrays.items()):
        return group
    details = _merge_details(group, arrays)
    unlimited = tuple(dim for dim in group.unlimited if dim in details.dims)
    return dataclasses.replace(group, arrays=arrays, details=details, unlimited=unlimited)


def _has_conflicting_dims(arrays: dict[str, VirtualArray]) -> bool:
    """Whether a dimension would have two lengths."""
    lengths: dict[str, int] = {}
    pairs = [pair for array in arrays.values() for pair in zip(array.dims, array.shape, strict=True)]
    return any(lengths.setdefault(dim, length) != length for dim, length in pairs)


def _rename_dims(array: VirtualArray, dims: tuple[str, ...]) -> VirtualArray:
    """The array with these names, if they are its own and nothing better is known."""
    own = array.dims[: len(dims)]
    if not dims or not all(dims) or not all(name.startswith("phony_dim_") for name in own):
        return array
    if len(array.dims) - len(array.details.element_shape) != len(dims):
        return array
    # A matrix of levels by levels: xarray wants two names.
    distinct = [f"{dim}_{dims[: axis + 1].count(dim)}" if dim in dims[:axis] else dim for axis, dim in enumerate(dims)]
    if len({*distinct, *array.dims[len(dims) :]}) != array.ndim:
        return array
    return dataclasses.replace(array, dims=(*distinct, *array.dims[len(dims) :]))


def _merge_details(group: VirtualGroup, arrays: dict[str, VirtualArray]) -> GroupDetails:
    """What is said of the group, with the dimensions that it has now."""
    used = {dim: length for array in arrays.values() for dim, length in zip(array.dims, array.shape, strict=True)}
    declared = {
        dim: length for dim, length in group.details.dims.items() if dim in used or not dim.startswith("phony_dim_")
    }
    return dataclasses.replace(group.details, dims={**declared, **used})
