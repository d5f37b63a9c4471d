"""Wire format of the metadata of an archive: a tree of arrays with their attributes.

With it, a client need not scan an archive that the server has scanned already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from insitu.active.wire import MAX_DEPTH, dtype_from_wire, get_field, values_from_wire, values_to_wire
from insitu.active.wire_array import array_from_wire, array_to_wire
from insitu.errors import ModelError, UnsupportedError
from insitu.model import ArrayDetails, GroupDetails, VirtualGroup
from insitu.sources.access_policy import without_outside_paths
from insitu.sources.redaction import redact_text

__all__ = ["group_from_wire", "group_to_wire"]

NAME_LISTS = ("coordinates", "unindexed", "unlimited")
PLAIN = (str, bytes, bool, int, float, type(None))


def group_to_wire(group: VirtualGroup, rename: Callable[[str], str] | None = None) -> dict[str, Any]:
    """Return a group in wire format.

    Parameters
    ----------
    group
        The scanned group.
    rename
        Returns the public URL of a source. A source whose URL changes is identified by its size
        alone.
    """
    arrays = {}
    for name, array in group.arrays.items():
        table = array_to_wire(array)
        if rename is not None:
            table["sources"] = [_rename_source(row, rename) for row in table["sources"]]
        about = {"attributes": array.attributes, "details": array.details.to_document(), "encoding": array.encoding}
        arrays[name] = {
            **table,
            "dims": list(array.dims),
            **{key: _attribute_to_wire(value) for key, value in about.items()},
        }
    return {
        "arrays": arrays,
        "groups": {name: group_to_wire(inner, rename) for name, inner in group.groups.items()},
        "attributes": _attribute_to_wire(group.attributes),
        "details": _attribute_to_wire(group.details.to_document()),
        "problems": {path: without_outside_paths(redact_text(reason)) for path, reason in group.problems.items()},
        **{name: list(getattr(group, name)) for name in NAME_LISTS},
    }


def group_from_wire(data: Any) -> VirtualGroup:
    """Return the group that `group_to_wire` wrote."""
    return _group_from_wire(data, 0)


def _group_from_wire(data: Any, depth: int) -> VirtualGroup:
    if depth > MAX_DEPTH:
        raise ModelError(f"groups lie within each other more than {MAX_DEPTH} times")
    arrays = {}
    for name, table in get_field(data, "arrays", dict).items():
        about: dict[str, Any] = {
            "dims": _names_from_wire(table, "dims"),
            "attributes": _map_from_wire(table, "attributes"),
            "details": ArrayDetails.from_document(_map_from_wire(table, "details")),
            "encoding": _map_from_wire(table, "encoding"),
        }
        arrays[_check_text(name)] = replace(array_from_wire(table), **about)
    inner = get_field(data, "groups", dict)
    groups = {_check_text(name): _group_from_wire(group, depth + 1) for name, group in inner.items()}
    details = GroupDetails.from_document(_map_from_wire(data, "details"))
    problems = {_check_text(path): _check_text(why) for path, why in get_field(data, "problems", dict).items()}
    lists = {name: _names_from_wire(data, name) for name in NAME_LISTS}
    return VirtualGroup(arrays, groups, _map_from_wire(data, "attributes"), details, problems, **lists)


def _names_from_wire(data: Any, name: str) -> tuple[str, ...]:
    return tuple(_check_text(item) for item in get_field(data, name, list))


def _check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ModelError(f"a name must be text, not {type(value).__name__}")
    return value


def _map_from_wire(data: Any, name: str) -> dict[str, Any]:
    found = _attribute_from_wire(get_field(data, name, dict))
    if not isinstance(found, dict):
        raise ModelError(f"the entry {name!r} must be a map, not {type(found).__name__}")
    return found


def _rename_source(row: list[Any], rename: Callable[[str], str]) -> list[Any]:
    url = rename(row[0])
    return row if url == row[0] else [url, row[1], None, None, row[4]]


def _attribute_to_wire(value: Any) -> Any:
    """Return an attribute in wire format: what CBOR knows as it is, NumPy values with their
    type.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        return {"$array" if isinstance(value, np.ndarray) else "$scalar": values_to_wire(np.asarray(value))}
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Mapping) and all(isinstance(name, str) and not name.startswith("$") for name in value):
        return {name: _attribute_to_wire(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_attribute_to_wire(item) for item in value]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, np.dtype):
        return {"$dtype": value.str}
    raise UnsupportedError(f"cannot send an attribute of type {type(value).__name__}")


def _attribute_from_wire(value: Any, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise ModelError(f"attributes lie within each other more than {MAX_DEPTH} times")
    if isinstance(value, list):
        return [_attribute_from_wire(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if "$array" in value:
        return values_from_wire(value["$array"]).copy()
    if "$scalar" in value:
        found = values_from_wire(value["$scalar"])
        if found.size != 1:
            raise ModelError(f"a scalar must be one value, not {found.size}")
        return found.reshape(())[()]
    if "$tuple" in value:
        return tuple(_attribute_from_wire(item, depth + 1) for item in get_field(value, "$tuple", list))
    if "$dtype" in value:
        return dtype_from_wire(get_field(value, "$dtype", str))
    return {_check_text(name): _attribute_from_wire(item, depth + 1) for name, item in value.items()}
