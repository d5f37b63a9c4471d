"""Build the tree of groups and arrays from Zarr documents, V2 or V3.

Documents come by key (`t/.zarray`, `t/.zattrs`, `t/zarr.json`, `.zgroup`), from a store, from
consolidated metadata or from kerchunk references. The caller provides the chunk locations: its
`tile_of` returns the tile of each array.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from insitu.errors import FormatError, InsituError, error_context
from insitu.model import ArrayDetails, GroupDetails, Tile, VirtualArray, VirtualGroup
from insitu.zarr_metadata import array_document as arrays
from insitu.zarr_metadata.array_document import ArrayMetadata
from insitu.zarr_metadata.json_fields import base64_field, object_field, parse_object
from insitu.zarr_metadata.json_fields import required_field as needed

__all__ = ["DOCUMENTS", "ZarrNode", "build_tree", "consolidated_documents", "parse_nodes"]

DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
"""Names of metadata documents: all other keys are chunks."""

Document = bytes | str | Mapping[str, Any]
TileOf = Callable[[str, ArrayMetadata], Tile]
LeaveOut = Callable[[str, InsituError], None]


@dataclass(slots=True)
class ZarrNode:
    """One group (without `array`) or one array of a Zarr hierarchy."""

    array: ArrayMetadata | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    zarr_format: int = 2


def consolidated_documents(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the consolidated documents in a root's metadata, by key; None if there are none.

    Parameters
    ----------
    document
        A parsed `.zmetadata`, or a group's `zarr.json`.
    """
    if "zarr_consolidated_format" in document or ("metadata" in document and "node_type" not in document):
        return object_field(needed(document, "metadata"), "metadata")
    inline = document.get("consolidated_metadata")
    if inline is None:
        return None
    rows = object_field(needed(object_field(inline, "consolidated_metadata"), "metadata"), "metadata")
    root = {name: value for name, value in document.items() if name != "consolidated_metadata"}
    return {"zarr.json": root, **{f"{path.strip('/')}/zarr.json": value for path, value in rows.items()}}


def parse_nodes(
    documents: Mapping[str, Document], leave_out: LeaveOut, *, open_shards: bool = True
) -> dict[str, ZarrNode]:
    """Return the nodes by path. `leave_out` is called with each one that cannot be parsed."""
    by_path: dict[str, dict[str, Document]] = {}
    for key, value in documents.items():
        path, _, name = key.strip("/").rpartition("/")
        if name in DOCUMENTS:
            by_path.setdefault(path, {})[name] = value
    nodes: dict[str, ZarrNode] = {}
    for path, found in by_path.items():
        try:
            node = _parse_node(path, found, open_shards)
        except InsituError as problem:
            leave_out(path, problem)
            continue
        if node is not None:
            nodes[path] = node
    return nodes


def _parse_node(path: str, found: Mapping[str, Document], open_shards: bool) -> ZarrNode | None:
    """Return one node from its documents; None: they describe none."""
    key = f"{path}/" if path else ""
    name = next((name for name in DOCUMENTS[:3] if name in found), None)
    if name is None:
        if "_ARRAY_DIMENSIONS" in parse_object(found.get(".zattrs", {}), key + ".zattrs"):
            raise FormatError("there are attributes of an array here, but no .zarray", structure=key + ".zattrs")
        return None
    with error_context(structure=key + (name or ".zattrs")):
        document = parse_object(found[name], key + name)
        if name == "zarr.json":
            if document.get("node_type") == "array":
                return ZarrNode(arrays.from_v3(document, open_shards=open_shards), {}, 3)
            if document.get("node_type") != "group" or document.get("zarr_format") != 3:
                raise FormatError("this is neither a group nor an array of Zarr V3: check node_type and zarr_format")
            return ZarrNode(None, object_field(document.get("attributes") or {}, "attributes"), 3)
        attributes: dict[str, Any] = {}
        if ".zattrs" in found:
            attributes = parse_object(found[".zattrs"], key + ".zattrs")
        if name == ".zarray":
            return ZarrNode(arrays.from_v2(document, attributes), {}, 2)
        return ZarrNode(
            None, {name: value for name, value in attributes.items() if not name.lower().startswith("_nc")}, 2
        )


def build_tree(
    nodes: Mapping[str, ZarrNode],
    tile_of: TileOf,
    leave_out: LeaveOut,
    *,
    variables: Collection[str] | None = None,
    details: GroupDetails | None = None,
) -> VirtualGroup:
    """Return the tree of nodes as virtual arrays.

    Parameters
    ----------
    nodes
        By path. Groups without a document of their own are added.
    tile_of
        Returns the tile of an array, by path.
    leave_out
        Called with each array that cannot be read.
    variables
        Only these arrays (by name or path) and the coordinates of their dimensions.
    details
        Details of the root group.
    """
    selected = _select_arrays(nodes, variables)
    groups: dict[str, dict[str, VirtualArray]] = {"": {}}
    for path in nodes:
        parent = path if nodes[path].array is None else path.rpartition("/")[0]
        while parent not in groups:
            groups[parent] = {}
            parent = parent.rpartition("/")[0]
    phony: dict[str, dict[tuple[int, int], str]] = {}
    dimension_names = {name for node in nodes.values() if node.array is not None for name in node.array.dims or ()}
    for path in sorted(selected):
        parent, _, name = path.rpartition("/")
        node = nodes[path]
        assert node.array is not None
        try:
            names = _dimension_names(node.array, phony.setdefault(parent, {}), dimension_names)
            groups[parent][name or "data"] = to_virtual_array(node.array, names, tile_of(path, node.array))
        except InsituError as problem:
            leave_out(path, problem)
    return _build_group("", groups, nodes, details or GroupDetails())


def _select_arrays(nodes: Mapping[str, ZarrNode], variables: Collection[str] | None) -> list[str]:
    all_paths = [path for path, node in nodes.items() if node.array is not None]
    if variables is None:
        return all_paths
    names = {name.strip("/") for name in variables}
    selected = {path for path in all_paths if path in names or path.rpartition("/")[2] in names}
    for path in [*selected]:
        parent = path.rpartition("/")[0]
        array = nodes[path].array
        for dim in (array.dims if array is not None else None) or ():
            scale = f"{parent}/{dim}" if parent else str(dim)
            if scale in nodes and nodes[scale].array is not None:
                selected.add(scale)
    return [path for path in all_paths if path in selected]


def _build_group(
    path: str, groups: Mapping[str, dict[str, VirtualArray]], nodes: Mapping[str, ZarrNode], details: GroupDetails
) -> VirtualGroup:
    inside = [other for other in groups if other and other.rpartition("/")[0] == path]
    node = nodes.get(path)
    return VirtualGroup(
        groups[path],
        {other.rpartition("/")[2]: _build_group(other, groups, nodes, GroupDetails()) for other in sorted(inside)},
        node.attributes if node is not None and node.array is None else {},
        details,
    )


def _dimension_names(
    array: ArrayMetadata, phony: dict[tuple[int, int], str], taken_names: Collection[str | None]
) -> tuple[str, ...]:
    """Return dimension names; unnamed ones get `phony_dim_*`, the same for equal lengths, as in
    netCDF, and none that other arrays are given.
    """
    names: list[str] = []
    times: dict[int, int] = {}
    for length, name in zip(array.shape, array.dims or (None,) * len(array.shape), strict=True):
        if name is None:
            times[length] = times.get(length, 0) + 1
            key = length, times[length]
            if key not in phony:
                candidates = (f"phony_dim_{number}" for number in count(len(phony)))
                phony[key] = next(name for name in candidates if name not in taken_names and name not in phony.values())
            name = phony[key]
        names.append(name)
    return tuple(names)


def to_virtual_array(array: ArrayMetadata, dims: tuple[str, ...], tile: Tile) -> VirtualArray:
    """Return a virtual array with the attributes that xarray would show."""
    attributes = dict(array.attributes)
    if array.zarr_format == 2:
        # As in xarray: the fill value of a V2 store is also the value that is masked.
        if array.fill is not None:
            attributes["_FillValue"] = array.fill_value()
    elif "_FillValue" in attributes:
        attributes["_FillValue"] = _decode_fill_value(attributes["_FillValue"], array.encoding.dtype)
    shards = tuple(axis.size if axis.is_regular else 0 for axis in array.objects) if array.levels else None
    varying = ("string" if array.text_values else "sequence") if array.encoding.dtype.hasobject else None
    details = ArrayDetails(
        _chunk_shape(array), True, varying=varying, notes={} if shards is None else {"shards": shards}
    )
    return VirtualArray.of(
        tile, dims=dims, attributes=attributes, fill_value=array.encoding.fill_value(), details=details
    )


def _chunk_shape(array: ArrayMetadata) -> tuple[int, ...] | None:
    return tuple(axis.size for axis in array.axes) if all(axis.is_regular for axis in array.axes) else None


def _decode_fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a `_FillValue` that xarray wrote to a V3 store: floats and bytes are base64 there."""
    if dtype.kind == "f" and isinstance(value, str):
        return _decode_float(value)
    if dtype.kind == "c" and isinstance(value, list) and len(value) == 2:
        return complex(*map(_decode_float, value))
    if dtype.kind == "S" and isinstance(value, str):
        return base64_field(value, "_FillValue")
    return value


def _decode_float(value: Any) -> float:
    data = base64_field(value, "_FillValue")
    if len(data) != 8:
        raise FormatError(f"'_FillValue' must be a float of 8 bytes in base64, not {value!r}")
    number: float = struct.unpack("<d", data)[0]
    return number
