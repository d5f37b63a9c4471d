"""Scan Zarr stores, V2 and V3.

The root's metadata is read first, in this order: `zarr.json` (with consolidated metadata in it),
`.zmetadata`, `.zarray` or `.zgroup`. Without consolidated metadata the store is listed, level by
level; where it cannot be listed, `variables=` names what to look for. Chunks are never listed:
their keys are computed.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from insitu.errors import AccessError, FormatError, GroupError, NotFoundError, SourceError, error_context
from insitu.formats.scan_request import ScanRequest
from insitu.formats.unreadable import Problems
from insitu.formats.zarr.keyed import KeyedChunks, join_url
from insitu.formats.zarr.sharded import ShardedChunks
from insitu.formats.zarr.zip_store import ZipStore
from insitu.model import ChunkTable, Encoding, GroupDetails, Tile, VirtualGroup
from insitu.sources import open_source, read_all
from insitu.sources.access_policy import check_path
from insitu.sources.address import folder_of
from insitu.sources.listing import is_directory, list_subfolders, local_path
from insitu.sources.threads import gather
from insitu.zarr_metadata.array_document import ArrayMetadata
from insitu.zarr_metadata.hierarchy import ZarrNode, build_tree, consolidated_documents, parse_nodes
from insitu.zarr_metadata.json_fields import parse_object

__all__ = ["ZarrContainer", "matches", "open_zarr", "scan_store"]

_NAMED = re.compile(r"(\.zarr\d?(\.zip)?|\.zip|/)$", re.IGNORECASE)
_DEEPEST = 64
_MOST_NODES = 1_000_000


class ZarrContainer(Protocol):
    """Where a store lies: a prefix, a zip file, a folder of an archive."""

    @property
    def url(self) -> str:
        """Where the store is."""

    @property
    def storage_options(self) -> Mapping[str, Any] | None:
        """Options with which it was opened."""

    def get(self, keys: list[str]) -> list[bytes | None]:
        """Return documents by key; None for those that are missing."""

    def children(self, path: str) -> list[str] | None:
        """Return the names right under a path; None if they cannot be listed."""

    def table(self, path: str, array: ArrayMetadata) -> tuple[ChunkTable, tuple[Encoding, ...]]:
        """Return the chunk table of an array, and the encodings of its chunks."""


@dataclass(frozen=True, slots=True, eq=False)
class PrefixStore:
    """A prefix under which the objects of a store lie: a directory, a bucket's prefix, a web
    address.

    Documents are fetched by key, all keys of a step at once. A missing document is None; every
    other failure is an error.
    """

    url: str
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return documents by key; None for those that are missing."""
        path = local_path(self.url)
        if path is not None:
            return [_read_file(os.path.join(path, key)) for key in keys]
        return gather(self._fetch, keys)

    def _fetch(self, key: str, stop: threading.Event) -> bytes | None:
        try:
            with open_source(join_url(self.url, key), self.storage_options) as source:
                return read_all(source)
        except NotFoundError:
            return None

    def children(self, path: str) -> list[str] | None:
        """Return the names right under a path; None if they cannot be listed."""
        return list_subfolders(join_url(self.url, path), self.storage_options)

    def table(self, path: str, array: ArrayMetadata) -> tuple[KeyedChunks, tuple[Encoding, ...]]:
        """Return the chunk table of an array, and the encoding of its chunks."""
        base = local_path(self.url) or self.url
        grid = tuple(axis.count for axis in array.objects)
        return KeyedChunks(join_url(base, path), array.keys, grid, optional=not array.levels), (array.encoding,)


def _read_file(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            check_path(path, file.fileno())
            return file.read()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except PermissionError:
        raise AccessError("no permission to read the file", url=path) from None
    except OSError as error:
        raise SourceError(f"reading failed: {error.strerror}", url=path) from error


def matches(url: str) -> bool:
    """Return whether a URL looks like a Zarr store, by its name or by being a directory.

    Costs no request.
    """
    return is_directory(url) or bool(_NAMED.search(url.partition("?")[0]))


def open_zarr(url: str, request: ScanRequest) -> VirtualGroup | None:
    """Scan the Zarr store that is a directory, a zip file, a bucket's prefix or a web address.

    Returns None if there is none.
    """
    options = request.storage_options
    if url.partition("?")[0].lower().endswith(".zip") and not is_directory(url):
        with open_source(url, options) as source:
            return scan_store(ZipStore.open(source, options), request)
    path = local_path(url)
    if path is not None and not is_directory(url):
        return None
    return scan_store(PrefixStore(path or url, options), request)


def scan_store(holder: ZarrContainer, request: ScanRequest) -> VirtualGroup | None:
    """Scan the Zarr store in a container; return None if there is none."""
    with error_context(url=holder.url):
        return _scan_store(holder, request)


def _scan_store(holder: ZarrContainer, request: ScanRequest) -> VirtualGroup | None:
    group, variables = request.group, request.variables
    problems = Problems(request.errors, holder.url)
    documents = _root(holder)
    if documents is None:
        return None
    group_path = (group or "").strip("/")
    if set(documents) <= {"zarr.json", ".zgroup", ".zattrs", ".zarray"}:
        documents = _walk(holder, documents, group_path, variables)

    nodes = parse_nodes(
        {key: value for key, value in documents.items() if _is_key_within(key, group_path)}, problems.leave_out
    )
    if group_path and group_path not in nodes and not any(path.startswith(f"{group_path}/") for path in nodes):
        raise GroupError(f"the store has no group {group!r}")

    def tile_of(path: str, array: ArrayMetadata) -> Tile:
        stored_path = "" if path == alias else path
        inner = f"{group_path}/{stored_path}".strip("/") if group_path else stored_path
        outer, encodings = holder.table(inner, array)
        if not array.levels:
            return Tile(array.axes, encodings, outer)
        grid = tuple(axis.count for axis in array.axes)
        return Tile(
            array.axes,
            (array.encoding,),
            ShardedChunks(outer, array.objects, array.levels, grid, holder.storage_options),
        )

    nodes = {
        path[len(group_path) :].strip("/"): node for path, node in nodes.items() if _is_path_within(path, group_path)
    }
    alias = None
    if "" in nodes and nodes[""].array is not None:
        # An array at the root has no name but the store's own.
        alias = _stem(f"{holder.url}/{group_path}" if group_path else holder.url)
        nodes = {alias: nodes[""]}
    found = build_tree(nodes, tile_of, problems.leave_out, variables=variables, details=_details(nodes))
    return replace(found, problems=problems.found)


def _details(nodes: Mapping[str, ZarrNode]) -> GroupDetails:
    formats = {node.zarr_format for node in nodes.values()}
    return GroupDetails("zarr", notes={"zarr_format": max(formats) if formats else None})


def _is_key_within(key: str, group_path: str) -> bool:
    return not group_path or key.strip("/").startswith(f"{group_path}/")


def _is_path_within(path: str, group_path: str) -> bool:
    return not group_path or path == group_path or path.startswith(f"{group_path}/")


def _stem(url: str) -> str:
    path = url.partition("?")[0].rstrip("/")
    name = path.removeprefix(folder_of(path))
    return re.sub(r"(\.zarr\d?)?(\.zip)?$", "", name, flags=re.IGNORECASE) or "data"


def _root(holder: ZarrContainer) -> dict[str, Any] | None:
    """Return the documents in the root's metadata: all of them if it is consolidated.

    None if there is no root.
    """
    refused: AccessError | None = None

    def get(*keys: str) -> list[bytes | None]:
        nonlocal refused
        try:
            return holder.get([*keys])
        except AccessError as error:
            # A bucket that may not be listed says 403, not 404, of a key that is not there.
            refused = error
            return [None] * len(keys)

    (data,) = get("zarr.json")
    if data is not None:
        document = parse_object(data, "zarr.json")
        return _read_consolidated(document, "zarr.json") or {"zarr.json": document}
    (data,) = get(".zmetadata")
    if data is not None:
        document = parse_object(data, ".zmetadata")
        if "record_size" in document:
            return None  # kerchunk's Parquet references, not a store
        return _read_consolidated(document, ".zmetadata")
    names = (".zarray", ".zgroup", ".zattrs")
    found = {name: data for name, data in zip(names, get(*names), strict=True) if data is not None}
    if ".zarray" not in found and ".zgroup" not in found:
        if refused is not None:
            raise refused
        return None
    return dict(found)


def _read_consolidated(document: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    with error_context(structure=key):
        return consolidated_documents(document)


def _walk(
    holder: ZarrContainer, root: dict[str, Any], group_path: str, variables: Collection[str] | None
) -> dict[str, Any]:
    """Return the documents of a store without consolidated metadata."""
    if ".zarray" in root or ("zarr.json" in root and root["zarr.json"].get("node_type") == "array"):
        return root
    documents = dict(root)
    if group_path:
        documents |= _fetch_documents(holder, [group_path])
    level = [group_path]
    for _ in range(_DEEPEST):
        names: list[str] = []
        for path in level:
            listed = _list_children(holder, path)
            if listed is None:
                return documents | _fetch_named_documents(holder, group_path, variables)
            names += [f"{path}/{name}" if path else name for name in listed if not name.startswith(".")]
        if len(documents) + len(names) > _MOST_NODES:
            raise FormatError(f"the store has more than {_MOST_NODES} groups and arrays")
        found = _fetch_documents(holder, names)
        documents |= found
        level = [path for path in names if f"{path}/.zgroup" in found or _is_group(found.get(f"{path}/zarr.json"))]
        if not level:
            return documents
    raise FormatError(f"groups are nested more than {_DEEPEST} deep")


def _is_group(data: bytes | None) -> bool:
    if data is None:
        return False
    try:
        return parse_object(data, "zarr.json").get("node_type") == "group"
    except FormatError:
        return False  # reported when the nodes are made


def _list_children(holder: ZarrContainer, path: str) -> list[str] | None:
    try:
        return holder.children(path)
    except NotFoundError:
        return []
    except SourceError:
        if path:
            raise
        return None


def _fetch_documents(holder: ZarrContainer, paths: list[str]) -> dict[str, bytes]:
    keys = [f"{path}/{name}" for path in paths for name in ("zarr.json", ".zarray", ".zgroup", ".zattrs")]
    return {key: data for key, data in zip(keys, holder.get(keys), strict=True) if data is not None}


def _fetch_named_documents(
    holder: ZarrContainer, group_path: str, variables: Collection[str] | None
) -> dict[str, bytes]:
    """Return the documents of arrays that were asked for by name, and of their coordinates, where
    listing is not possible.
    """
    if not variables:
        raise FormatError(
            "the store has no consolidated metadata and cannot be listed",
            hint="Name the arrays (variables=[...]), or consolidate its metadata (zarr.consolidate_metadata)",
        )
    prefix = f"{group_path}/" if group_path else ""
    paths = [prefix + name.strip("/") for name in variables]
    found = _fetch_documents(holder, paths)
    nodes = parse_nodes(found, lambda path, problem: None)
    scales = {
        f"{path.rpartition('/')[0]}/{dim}".strip("/")
        for path, node in nodes.items()
        if node.array is not None
        for dim in node.array.dims or ()
        if dim is not None
    }
    return found | _fetch_documents(holder, sorted(scales - set(paths)))
