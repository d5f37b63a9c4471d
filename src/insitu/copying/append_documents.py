"""The metadata documents of a Zarr hierarchy, and the same with arrays that have become longer.

Nothing but the shapes changes: what other writers have put into the documents stays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from insitu.errors import UnsupportedError
from insitu.zarr_metadata.array_document import ArrayMetadata, from_v2, from_v3
from insitu.zarr_metadata.json_fields import parse_object

__all__ = ["ROOT_DOCUMENTS", "lengthen_arrays", "parse_array", "read_documents", "sort_documents"]

ROOT_DOCUMENTS = {2: (".zgroup", ".zmetadata"), 3: ("zarr.json",)}
"""What makes a folder a Zarr group: written last."""

Documents = Mapping[str, bytes]
"""Key: bytes of the document."""


def read_documents(get: Callable[[list[str]], Sequence[bytes | None]], paths: Iterable[str]) -> dict[str, bytes]:
    """Return the documents of arrays and of all groups that they lie in, by key.

    Parameters
    ----------
    get
        Returns documents by key; None for those that do not exist.
    paths
        The arrays.
    """
    keys = {f"{path}/{name}" for path in paths for name in ("zarr.json", ".zarray", ".zattrs")}
    groups = {"", *(parent for path in paths for parent in _parents(path))}
    keys |= {f"{group}/{name}".lstrip("/") for group in groups for name in ("zarr.json", ".zmetadata")}
    order = sorted(keys)
    return {key: data for key, data in zip(order, get(order), strict=True) if data is not None}


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def parse_array(documents: Documents, path: str) -> ArrayMetadata:
    """Return the metadata of an array."""
    if (data := documents.get(f"{path}/zarr.json")) is not None:
        return from_v3(parse_object(data, f"{path}/zarr.json"))
    if (data := documents.get(f"{path}/.zarray")) is None:
        raise UnsupportedError(
            "the array has no metadata document of its own",
            variable=path,
            hint="Write the store's documents again, or copy everything to a new target",
        )
    attributes = documents.get(f"{path}/.zattrs")
    return from_v2(
        parse_object(data, f"{path}/.zarray"),
        None if attributes is None else parse_object(attributes, f"{path}/.zattrs"),
    )


def lengthen_arrays(documents: Documents, shapes: Mapping[str, Sequence[int]]) -> dict[str, bytes]:
    """Return the documents that change when arrays get other shapes, in the order in which they are written.

    Parameters
    ----------
    documents
        All of them.
    shapes
        By path of the array.
    """
    found: dict[str, bytes] = {}
    for key, data in documents.items():
        document = json.loads(data)
        changed = False
        for one, path in _arrays_in(key, document):
            if path in shapes and one.get("shape") != list(shapes[path]):
                one["shape"] = list(shapes[path])
                changed = True
        if changed:
            found[key] = json.dumps(document, indent=1).encode()
    return {key: found[key] for key in sort_documents(found)}


def _arrays_in(key: str, document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield what describes an array in a document, and the path of the array."""
    group, _, name = key.rpartition("/")
    prefix = f"{group}/" if group else ""
    if name == ".zarray" or (name == "zarr.json" and document.get("node_type") == "array"):
        yield document, group
    elif name == ".zmetadata":
        for inner, one in document.get("metadata", {}).items():
            if inner.endswith("/.zarray"):
                yield one, prefix + inner.removesuffix("/.zarray")
    elif name == "zarr.json":
        for inner, one in ((document.get("consolidated_metadata") or {}).get("metadata") or {}).items():
            if isinstance(one, dict) and one.get("node_type") == "array":
                yield one, prefix + inner


def sort_documents(keys: Iterable[str]) -> list[str]:
    """Return the keys of documents in the order of writing: what a reader opens first is written last."""
    last = [name for names in ROOT_DOCUMENTS.values() for name in names]
    return sorted(keys, key=lambda key: (last.index(key) if key in last else -1, -key.count("/"), key))
