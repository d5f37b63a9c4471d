"""Write a tree as a new version of an Icechunk repository.

Metadata are written as Zarr V3 documents, references in bulk, a slab of the grid at a time, and
small data inline. The containers (bucket, host or directory) of the references are put into the
repository's configuration, so that other readers need only authorize them. Manifests of large
arrays are split. Nothing is visible before the commit.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import numpy as np

from insitu.errors import InsituError, SourceError, UnsupportedError
from insitu.model import VirtualGroup
from insitu.references.atomic_write import lock_directory
from insitu.references.directory_swap import remove_directory
from insitu.references.icechunk.repository import (
    RepositoryVersion,
    container_prefix,
    credentials_for,
    icechunk_storage,
    import_icechunk,
    is_unfinished,
    parse_version,
    repository_exists,
    source_url,
    virtual_container,
    virtual_location,
)
from insitu.references.icechunk.repository_reader import has_version, run_async, to_insitu_error
from insitu.references.zarr_blocks import ReferenceBlock, ZarrExport
from insitu.sources import open_source
from insitu.sources.listing import local_path
from insitu.zarr_metadata.to_documents import to_json_attributes
from insitu.zarr_metadata.to_zarr import ZarrArraySpec

__all__ = [
    "IcechunkConflictError",
    "clear_store",
    "commit",
    "encode_document",
    "encode_documents",
    "icechunk_export",
    "lock_repository",
    "open_repository",
    "put_objects",
    "to_finite_attributes",
    "write_icechunk",
    "write_references",
]

REFERENCES_PER_MANIFEST = 250_000
"""References of a manifest. Reading one chunk loads its manifest: about 10 MB of memory."""
_REFERENCES_PER_CALL = 1 << 19
"""References that are handed to the library at once."""
_COPIED_BYTES = 64 << 20
"""Bytes of chunks that are copied together."""
_MOST_FOLDERS = 8


def write_icechunk(
    group: VirtualGroup,
    url: str,
    *,
    mode: str = "w",
    inline_threshold: int = 0,
    message: str | None = None,
    copied_from: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> str:
    """Write a tree as a new version on a branch. The history of the branch is kept.

    Parameters
    ----------
    group
        The tree.
    url
        The repository; `?branch=…` names a branch, which is created if necessary.
    mode
        "w": add a version. "x": raise if there is a repository.
    inline_threshold
        Chunks of at most so many bytes are copied into the repository.
    message
        The commit message.
    copied_from
        Chunks whose URLs begin like this are copied into the repository, too.
    storage_options
        See `insitu.sources.open_source`.

    Returns
    -------
    str
        The id of the new snapshot.

    Raises
    ------
    UnsupportedError
        If Zarr cannot hold an array. The message names the array, the reason and a way out.
    """
    version = parse_version(url)
    if version.kind != "branch":
        raise UnsupportedError(
            f"a {version.kind} cannot be written to", url=url, hint="Write to a branch: ?branch=NAME"
        )
    if mode == "x" and has_version(version.url, storage_options):
        raise UnsupportedError("there is a repository already", url=version.url, hint='Use mode="w" to add a version')
    writing = icechunk_export(group, inline_threshold, storage_options)
    writing.copied_from = copied_from
    with lock_repository(version):
        session = open_repository(version, writing, storage_options).writable_session(version.name)
        store = session.store
        run_async(clear_store(store))
        run_async(put_objects(store, encode_documents(writing)))
        for path in writing.arrays:
            write_references(store, writing, path)
        return commit(session, message or "Saved by insitu", version)


@contextmanager
def lock_repository(version: RepositoryVersion) -> Iterator[None]:
    """Lock a local repository against other insitu writers: local commits do not exclude each
    other.
    """
    path = local_path(version.url)
    if path is None or not os.path.isdir(path):
        yield
        return
    with lock_directory(path):
        yield


def icechunk_export(
    group: VirtualGroup, inline_threshold: int = 0, storage_options: Mapping[str, Any] | None = None
) -> ZarrExport:
    """Return a tree prepared for Icechunk."""
    return ZarrExport.of(
        group,
        what="Icechunk",
        formats=(3,),
        inline_threshold=inline_threshold,
        name_source=virtual_location,
        rectilinear=can_write_rectilinear(),
        storage_options=storage_options,
    )


def can_write_rectilinear() -> bool:
    """Return whether the installed zarr and icechunk support chunks of different lengths."""
    icechunk = import_icechunk()  # first: without it there is no zarr either, and this error names the extra
    import zarr

    newer = tuple(int(part) for part in re.findall(r"\d+", zarr.__version__)[:2]) >= (3, 2)
    return newer and int(icechunk.__version__.split(".")[0]) >= 2


def open_repository(version: RepositoryVersion, writing: ZarrExport, storage_options: Mapping[str, Any] | None) -> Any:
    """Return the repository, created if necessary, configured for the containers of a tree."""
    icechunk = import_icechunk()
    path = local_path(version.url)
    is_there = repository_exists(version.url, storage_options)
    if path is not None and not is_there and os.path.exists(path) and not is_unfinished(path):
        raise UnsupportedError("something else lies here already", url=path, hint="Choose another target, or remove it")
    # First: what cannot be referred to leaves no empty repository behind.
    containers = {prefix: virtual_container(prefix, storage_options) for prefix in _container_prefixes(writing)}
    place = icechunk_storage(version.url, storage_options)
    try:
        if path is not None and is_unfinished(path):
            for name in os.listdir(path):  # icechunk creates no repository where something lies
                remove_directory(os.path.join(path, name))
        found = icechunk.Repository.open(place) if is_there else icechunk.Repository.create(place)
        config = found.config
        access: dict[str, Any] = {}
        for prefix in [*(config.virtual_chunk_containers or {})]:
            access[prefix] = credentials_for(prefix, storage_options)
        for prefix, (container, credentials) in containers.items():
            if not any(prefix.startswith(known) for known in access):
                access[prefix] = credentials
                config.set_virtual_chunk_container(container)
        split = _manifest_splitting(icechunk, writing.arrays)
        if split:
            config.manifest = icechunk.ManifestConfig(splitting=icechunk.ManifestSplittingConfig.from_dict(split))
        found = found.reopen(config, authorize_virtual_chunk_access=icechunk.containers_credentials(access))
        found.save_config()
        if version.name not in found.list_branches():
            found.create_branch(version.name, found.lookup_branch("main"))
        return found
    except (icechunk.IcechunkError, ValueError) as problem:
        if isinstance(problem, InsituError):
            raise
        raise to_insitu_error(problem, version) from None


def _container_prefixes(writing: ZarrExport) -> list[str]:
    """Return the prefixes of the containers that the references need."""
    urls = {source.url for array in writing.arrays.values() for source in array.tile.chunks.sources}
    urls = {url for url in urls if not writing.is_copied(url)}
    found = {container_prefix(virtual_location(url)) for url in urls}
    folders = sorted(prefix for prefix in found if prefix.startswith("file://"))
    if len(folders) > _MOST_FOLDERS:
        shared = posixpath.commonpath([folder.removeprefix("file://") for folder in folders])
        folders = [f"file://{shared.rstrip('/')}/"]
    outermost = [
        folder for folder in folders if not any(folder != other and folder.startswith(other) for other in folders)
    ]
    return outermost + sorted(prefix for prefix in found if not prefix.startswith("file://"))


def _manifest_splitting(icechunk: Any, arrays: Mapping[str, ZarrArraySpec]) -> dict[Any, Any]:
    """Return the rules for splitting the manifests of large arrays."""
    rules = {}
    for path, array in arrays.items():
        if array.count > REFERENCES_PER_MANIFEST:
            sizes = split_sizes(array.grid, REFERENCES_PER_MANIFEST)
            condition = icechunk.ManifestSplitCondition.path_matches(f"^/?{re.escape(path)}$")
            rules[condition] = {icechunk.ManifestSplitDimCondition.Axis(axis): size for axis, size in enumerate(sizes)}
    return rules


def split_sizes(grid: tuple[int, ...], limit: int) -> list[int]:
    """Return the number of cells of a manifest along each axis: whole rows as far as they fit.

    Examples
    --------
    >>> split_sizes((3650, 200, 400), 250_000)
    [3, 200, 400]
    """
    sizes, left = [], limit
    for count in reversed(grid):
        size = max(min(count, left), 1)
        sizes.append(size)
        left = left // count if size == count else 1
    return sizes[::-1]


def encode_documents(writing: ZarrExport) -> dict[str, bytes]:
    """Return the metadata documents by key, as JSON."""
    return {key: encode_document(document, key) for key, document in writing.documents().items()}


def encode_document(document: Mapping[str, Any], key: str) -> bytes:
    """Return a metadata document as JSON that Icechunk takes: without NaN and infinity.

    Raises
    ------
    UnsupportedError
        If an attribute is such a number: the error names it.
    """
    attributes = to_finite_attributes(document.get("attributes", {}), key.rpartition("/")[0])
    return json.dumps({**document, "attributes": attributes}, allow_nan=False).encode()


def to_finite_attributes(attributes: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return attributes that Icechunk can hold: a `missing_value` that is NaN, which is missing in any case, is left
    out.

    Raises
    ------
    UnsupportedError
        If another attribute is NaN or infinite: the error names it.
    """
    found = {}
    for name, value in to_json_attributes(attributes).items():
        if name == "missing_value":
            marks = [mark for mark in (value if isinstance(value, list) else [value]) if mark == mark]
            if not marks:
                continue
            value = marks if isinstance(value, list) else value
        try:
            json.dumps(value, allow_nan=False)
        except ValueError:
            raise UnsupportedError(
                f"Icechunk cannot hold the attribute {name!r}, {value!r:.60}: it has neither NaN nor infinity",
                variable=path or None,
                hint="Remove it",
            ) from None
        found[name] = value
    return found


async def clear_store(store: Any) -> None:
    """Remove everything from a session."""
    await store.clear()


async def put_objects(store: Any, objects: Mapping[str, bytes]) -> None:
    """Write documents or chunks to the session."""
    from zarr.core.buffer import default_buffer_prototype

    make = default_buffer_prototype().buffer.from_bytes
    # Parents before children.
    for depth in sorted({key.count("/") for key in objects}):
        some = [(key, data) for key, data in objects.items() if key.count("/") == depth]
        for begin in range(0, len(some), 256):
            await asyncio.gather(*(store.set(key, make(data)) for key, data in some[begin : begin + 256]))


def write_references(store: Any, writing: ZarrExport, path: str, shift: tuple[int, ...] | None = None) -> None:
    """Write the references of an array.

    Parameters
    ----------
    store
        The store of a session.
    writing
        The tree.
    path
        The array.
    shift
        The grid position of the array's first cell.
    """
    array = writing.arrays[path]
    rest = math.prod(array.grid[1:])
    slab = max(_REFERENCES_PER_CALL // max(rest, 1), 1) * rest
    if writing.copied_from is not None and all(writing.is_copied(source.url) for source in array.tile.chunks.sources):
        slab = max(_COPIED_BYTES // max(array.array.nbytes // max(array.count, 1), 1), 1)
    checksum = _latest_change(array)
    at = shift or (0,) * len(array.grid)
    sizes: dict[str, int] = {}
    for block in writing.blocks(path, max(slab, 1)):
        length = _chunk_lengths(block, sizes, writing.storage_options)
        if block.data:
            cells = (
                np.unravel_index(block.begin + np.array(list(block.data), np.int64), array.grid) if array.grid else ()
            )
            keys = [
                "/".join([path, "c", *(str(i + first) for i, first in zip(cell, at, strict=True))])
                for cell in (zip(*(axis.tolist() for axis in cells), strict=True) if array.grid else [()])
            ]
            run_async(put_objects(store, dict(zip(keys, block.data.values(), strict=True))))
        if block.stored.any():
            _write_slab(store, path, array, block, length, at, checksum)


def _write_slab(
    store: Any,
    path: str,
    array: ZarrArraySpec,
    block: ReferenceBlock,
    length: Any,
    at: tuple[int, ...],
    checksum: datetime | None,
) -> None:
    """Write one slab of references."""
    if hasattr(store, "set_virtual_refs_arr") and array.grid:
        rest = math.prod(array.grid[1:])
        rows = len(block.url) // rest
        names = [*block.urls, ""]  # the last is for cells without a reference
        failed = store.set_virtual_refs_arr(
            f"/{path}",
            (rows, *array.grid[1:]),
            [names[number] for number in np.where(block.stored, block.url, -1).tolist()],
            block.offset.astype(np.uint64),
            np.maximum(length, 0).astype(np.uint64),
            arr_offset=(at[0] + block.begin // rest, *at[1:]),
            checksum=checksum,
        )
    else:
        make = import_icechunk().VirtualChunkSpec
        written = np.flatnonzero(block.stored)
        index: Any = np.stack(np.unravel_index(block.begin + written, array.grid), axis=1) + at if array.grid else [[]]
        failed = store.set_virtual_refs(
            f"/{path}",
            [
                make([*map(int, cell)], block.urls[url], offset, size, last_updated_at_checksum=checksum)
                for cell, url, offset, size in zip(
                    index,
                    block.url[written].tolist(),
                    block.offset[written].tolist(),
                    length[written].tolist(),
                    strict=True,
                )
            ],
        )
    if failed:
        raise SourceError(
            f"icechunk rejected {len(failed)} references, the first of chunk {tuple(failed[0])}", variable=path
        )


def _latest_change(array: ZarrArraySpec) -> datetime | None:
    """Return the latest time of change of the array's files; None if it is unknown for some."""
    times = [source.modified for source in array.tile.chunks.sources]
    known = [time for time in times if time is not None]
    if not known or len(known) < len(times):
        return None
    return datetime.fromtimestamp(math.ceil(max(known)), UTC)


def _chunk_lengths(block: ReferenceBlock, sizes: dict[str, int], storage_options: Mapping[str, Any] | None) -> Any:
    """Return the chunk lengths; a chunk that reaches to the end of its file gets a length."""
    open_ended = np.flatnonzero(block.stored & (block.length < 0))
    if not len(open_ended):
        return block.length
    length = block.length.copy()
    for row in open_ended.tolist():
        url = block.urls[int(block.url[row])]
        if url not in sizes:
            with open_source(source_url(url), storage_options) as source:
                sizes[url] = source.size()
        length[row] = sizes[url] - block.offset[row]
    return length


class IcechunkConflictError(SourceError):
    """Another writer committed to the branch at the same time."""


def commit(session: Any, message: str, version: RepositoryVersion, metadata: Mapping[str, Any] | None = None) -> str:
    """Commit a session to its branch; return the snapshot id."""
    icechunk = import_icechunk()
    try:
        return str(session.commit(message, metadata=None if metadata is None else dict(metadata)))
    except icechunk.ConflictError:
        raise IcechunkConflictError(
            "another writer committed to this branch at the same time; nothing was written",
            url=version.url,
            hint="Try again",
        ) from None
    except (icechunk.IcechunkError, ValueError) as problem:
        raise to_insitu_error(problem, version) from None
