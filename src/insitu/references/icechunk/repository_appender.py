"""Append a tree to an Icechunk repository along a dimension.

If an array ends on a chunk border, the references of the new chunks follow the old ones. If it ends
within a chunk, references cannot follow: they would be shown at wrong positions. Then the new
values are read and written as native chunks if they are few, as coordinates nearly always are.
Otherwise the append is refused and nothing changes.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.codecs.chain import decode
from insitu.errors import InsituError, ModelError, NotFoundError, StaleSourceError, UnsupportedError, error_context
from insitu.model import ABSENT, INLINE, UNWRITTEN, Source, VirtualArray, VirtualGroup
from insitu.model.cf_attributes import PACKING, TIMES
from insitu.references.icechunk.repository import RepositoryVersion, parse_version, repository_exists
from insitu.references.icechunk.repository_reader import open_icechunk, run_async
from insitu.references.icechunk.repository_writer import (
    IcechunkConflictError,
    commit,
    icechunk_export,
    lock_repository,
    open_repository,
    put_objects,
    write_references,
)
from insitu.references.plan_append import AppendReport, Reader, plan_append
from insitu.references.urls import absolute_url
from insitu.references.zarr_blocks import ZarrExport
from insitu.sources import open_source
from insitu.zarr_metadata.to_zarr import ZarrArraySpec

__all__ = ["append_icechunk"]

MOST_COPIED_BYTES = 64 << 20
"""Most bytes of an array that an append writes as native chunks."""
_MATCHING_FIELDS = ("data_type", "codecs", "fill_value", "dimension_names", "chunk_key_encoding")
_COPIED_SOURCES_KEY = "insitu:copied_sources"
"""Key of a commit's metadata: sources whose values were copied, which no reference names."""
_ATTEMPTS = 20
"""How often an append starts again from the new tip after another writer was faster."""


def append_icechunk(
    group: VirtualGroup,
    url: str,
    dim: str,
    *,
    message: str | None = None,
    rewrite: int = MOST_COPIED_BYTES,
    read: Reader | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> AppendReport:
    """Append a tree along a dimension, as a new version. Known steps are skipped: see
    `plan_append`.

    Parameters
    ----------
    group
        The tree to append, with the arrays that the repository has.
    url
        The repository; `?branch=…` names a branch.
    dim
        The dimension that grows.
    message
        The commit message.
    rewrite
        Most bytes to copy for an array that ends within a chunk; 0: refuse such an append.
    read
        Reads labels, to find overlaps; None: labels are not compared.
    storage_options
        See `insitu.sources.open_source`.
    """
    version = parse_version(url)
    if version.kind != "branch":
        raise UnsupportedError(
            f"a {version.kind} cannot be written to", url=url, hint="Write to a branch: ?branch=NAME"
        )
    if not repository_exists(version.url, storage_options):
        raise NotFoundError("there is no Icechunk repository here", url=version.url)
    if not any(dim in array.dims for _, array in group.all_arrays()):
        raise ModelError(f"no array has a dimension {dim!r}", hint="Give the name of a dimension of the files")
    for last in [False] * _ATTEMPTS + [True]:
        try:
            with lock_repository(version):
                return _append_once(group, url, version, dim, message, rewrite, read, storage_options)
        except IcechunkConflictError:
            # Without labels the order of these steps and those of the other writer is unknown.
            if last or read is None or not any(name == dim for name in group.arrays):
                raise
    raise AssertionError("unreachable")


def _append_once(
    group: VirtualGroup,
    url: str,
    version: RepositoryVersion,
    dim: str,
    message: str | None,
    rewrite: int,
    read: Reader | None,
    storage_options: Mapping[str, Any] | None,
) -> AppendReport:
    opened = open_repository(version, icechunk_export(group, 0, storage_options), storage_options)
    session = opened.writable_session(version.name)
    old = _open_snapshot(f"{version.url}?snapshot={session.snapshot_id}", url, storage_options)
    # Looked for in the snapshot that the session will replace: a job that runs twice must not append
    # twice, and what was copied has no reference by which `plan_append` would know it.
    if (report := _report_if_copied(opened, session.snapshot_id, group, dim, url)) is not None:
        return report
    plan = plan_append(old, group, dim, target=url, read=read)
    if plan.group is not None:
        rest = plan.group if read is None else _with_labels_in_one_chunk(plan.group, dim, read)
        copied = _write_steps(session, icechunk_export(rest, 0, storage_options), dim, rewrite)
        metadata = {_COPIED_SOURCES_KEY: [_source_record(source) for source in copied]} if copied else None
        commit(session, message or f"Appended along {dim} by insitu", version, metadata)
    return plan.report(url, dim)


def _with_labels_in_one_chunk(group: VirtualGroup, dim: str, read: Reader) -> VirtualGroup:
    """Return the tree with inline labels in one chunk each: skipped steps may have cut through
    theirs.
    """
    arrays = dict(group.arrays)
    for name, array in group.arrays.items():
        if array.dims == (dim,) and not array.sources and not array.dtype.hasobject and array.shape[0]:
            values = np.ascontiguousarray(read(array))
            arrays[name] = replace(
                array, tiles=VirtualArray.from_values(values).tiles, origins=np.zeros((1, 1), np.int64)
            )
    return replace(group, arrays=arrays)


def _open_snapshot(snapshot_url: str, url: str, storage_options: Mapping[str, Any] | None) -> VirtualGroup:
    """Return the tree of a snapshot with its references loaded; raise if one of its files changed."""
    old = open_icechunk(snapshot_url, storage_options=storage_options)
    try:
        for _, array in old.all_arrays():
            for tile in array.tiles:
                len(tile.chunks.sources)
    except StaleSourceError as problem:
        raise StaleSourceError(
            f"{url} holds an earlier version of this file: {problem.message}",
            url=problem.url,
            hint="Scan the files and save the repository anew, which adds a version",
        ) from None
    return old


def _source_record(source: Source) -> dict[str, Any]:
    return {"url": absolute_url(source.url), "size": source.size, "etag": source.etag, "modified": source.modified}


def _report_if_copied(opened: Any, snapshot: str, group: VirtualGroup, dim: str, url: str) -> AppendReport | None:
    """Return the report of an append whose files were all copied before; None: some were not."""
    sources = {absolute_url(s.url): s for _, array in group.all_arrays() if dim in array.dims for s in array.sources}
    if not sources:
        return None
    copied: dict[str, Source] = {}
    for version in opened.ancestry(snapshot_id=snapshot):
        for row in (version.metadata or {}).get(_COPIED_SOURCES_KEY, ()):
            copied.setdefault(row["url"], Source(row["url"], row["size"], row["etag"], row["modified"]))
    for name in sources.keys() & copied.keys():
        if (found := copied[name].compare(sources[name])).same is False:
            raise StaleSourceError(
                f"{url} holds values of an earlier version of this file: {found.reason}",
                url=name,
                hint="Scan the files and save the repository anew, which adds a version",
            )
    if sources.keys() <= copied.keys():
        return AppendReport(url, dim, 0, (), tuple(sources))
    return None


def _write_steps(session: Any, writing: ZarrExport, dim: str, rewrite: int) -> list[Source]:
    """Write the new steps into a session; return the sources that were copied and not referenced."""
    store = session.store
    new = {path: writing.array_documents[f"{path}/zarr.json"] for path in writing.arrays}
    old = run_async(_fetch_documents(store, list(new)))
    # Everything is checked before anything is written.
    plans = {
        path: _plan_array(path, old.get(path), new[path], dim, rewrite, writing)
        for path, array in writing.arrays.items()
        if dim in array.array.dims
    }
    referenced: set[str] = set()
    copied: dict[str, Source] = {}
    for path, plan in plans.items():
        _grow_array(store, writing, path, old[path], plan)
        for source in writing.arrays[path].array.sources:
            if plan[2]:
                referenced.add(source.url)
            else:
                copied[source.url] = source
    return [source for name, source in copied.items() if name not in referenced]


async def _fetch_documents(store: Any, paths: list[str]) -> dict[str, dict[str, Any]]:
    from zarr.core.buffer import default_buffer_prototype

    found = {path: await store.get(f"{path}/zarr.json", default_buffer_prototype()) for path in paths}
    return {path: json.loads(data.to_bytes()) for path, data in found.items() if data is not None}


def _plan_array(
    path: str, old: Mapping[str, Any] | None, new: Mapping[str, Any], dim: str, rewrite: int, writing: ZarrExport
) -> tuple[int, int, bool]:
    """Return the axis that grows, its old length, and whether references can follow."""
    if old is None:
        raise UnsupportedError(
            "the repository does not have this array",
            variable=path,
            hint="Append only arrays that it has, or save it anew",
        )
    for name in _MATCHING_FIELDS:
        if not _is_equal(old.get(name), new.get(name)):
            raise _difference_error(path, name, old.get(name), new.get(name))
    # What decides what stored values mean: a Zarr array has one value of each.
    for name in (*PACKING, *TIMES, "dtype"):
        one, other = (document.get("attributes", {}).get(name) for document in (old, new))
        if one != other:
            raise _difference_error(path, f"attribute {name}", one, other)
    axis = new["dimension_names"].index(dim)
    if [n for i, n in enumerate(old["shape"]) if i != axis] != [n for i, n in enumerate(new["shape"]) if i != axis]:
        raise _difference_error(path, "shape", old["shape"], new["shape"])
    length = int(old["shape"][axis])
    same_grid = old["chunk_grid"] == new["chunk_grid"] and old["chunk_grid"]["name"] == "regular"
    if same_grid and length % int(old["chunk_grid"]["configuration"]["chunk_shape"][axis]) == 0:
        return axis, length, True
    array = writing.arrays[path]
    nbytes = array.array.size * max(array.encoding.dtype.itemsize, 1)
    if nbytes > rewrite:
        reason = (
            f"ends within a chunk along {dim!r} ({length} elements in chunks of "
            f"{old['chunk_grid']['configuration']['chunk_shape'][axis]})"
            if same_grid
            else "is cut into chunks of another shape"
        )
        raise UnsupportedError(
            f"the array {reason}: references cannot follow, and its {nbytes:,} new bytes are more than "
            f"rewrite={rewrite:,} allows to copy",
            variable=path,
            hint="Append to an *.insitu store, which holds such arrays, or allow the copy with rewrite=",
        )
    return axis, length, False


def _is_equal(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))


def _difference_error(path: str, property_name: str, old: Any, new: Any) -> InsituError:
    return UnsupportedError(
        f"{property_name} is {old!r} in the repository and {new!r} in the new files: one Zarr array has one",
        variable=path,
        hint="Append to an *.insitu store, which holds arrays whose files differ",
    )


def _grow_array(
    store: Any, writing: ZarrExport, path: str, old: Mapping[str, Any], plan: tuple[int, int, bool]
) -> None:
    axis, length, follows = plan
    array = writing.arrays[path]
    shape = list(old["shape"])
    shape[axis] += array.array.shape[axis]
    if follows:
        run_async(put_objects(store, {f"{path}/zarr.json": json.dumps({**old, "shape": shape}).encode()}))
        size = int(old["chunk_grid"]["configuration"]["chunk_shape"][axis])
        shift = tuple(length // size if number == axis else 0 for number in range(len(shape)))
        write_references(store, writing, path, shift)
        return
    import zarr

    place = tuple(slice(length if number == axis else 0, None) for number in range(len(shape)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr warns that numcodecs' codecs are not in the V3 specification
        target = zarr.open_array(store, path=path, mode="r+")
        target.resize(tuple(shape))
        target[place] = _read_values(writing, path, array)


def _read_values(writing: ZarrExport, path: str, array: ZarrArraySpec) -> npt.NDArray[Any]:
    """Return the stored values of an array, read chunk by chunk."""
    encoding = array.encoding
    values = np.full(array.array.shape, encoding.fill_value(), encoding.dtype)
    for begin, rows in array.blocks():
        for row, number in enumerate(np.asarray(rows.source).tolist()):
            if number in (ABSENT, UNWRITTEN):
                continue
            offset, length = int(rows.offset[row]), int(rows.length[row])
            if number == INLINE:
                data = rows.inline[offset : offset + length]
            else:
                chunk_source = array.tile.chunks.sources[number]
                with open_source(chunk_source.url, writing.storage_options, expected=chunk_source) as source:
                    data = source.read(offset, length if length >= 0 else source.size() - offset)
            cell = np.unravel_index(begin + row, array.grid) if array.grid else ()
            chunk = _decode_chunk(data, array, path)
            corner = [int(i) * size for i, size in zip(cell, array.chunks, strict=True)]
            place = tuple(slice(at, at + size) for at, size in zip(corner, array.chunks, strict=True))
            room = values[place].shape
            values[place] = chunk[tuple(slice(n) for n in room)]
    return values


def _decode_chunk(data: bytes, array: ZarrArraySpec, path: str) -> npt.NDArray[Any]:
    if array.cuts:
        raise UnsupportedError("chunks of different lengths cannot be rewritten", variable=path)
    with error_context(variable=path):
        return decode(data, array.encoding, array.chunks)
