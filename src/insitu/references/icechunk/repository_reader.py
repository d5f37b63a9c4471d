"""Open one version of an Icechunk repository as a tree of virtual arrays.

The icechunk library gives metadata and references. The bytes are read by our own sources, like
those of any archive: native chunks, inline chunks, and virtual chunks in archive files. The
references of an array are loaded when they are needed, manifest by manifest.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from insitu.codecs.linked_libraries import can_decompress_texts
from insitu.errors import (
    FormatError,
    InsituError,
    NotFoundError,
    SourceError,
    StaleSourceError,
    VariableError,
    error_context,
)
from insitu.model import INLINE, ChunkLocations, ChunkTable, GroupDetails, Source, Tile, VirtualGroup
from insitu.model.axis import Indices
from insitu.model.derived_tables import ChunkTableBase
from insitu.model.sparse_chunks import table_of_cells
from insitu.references.icechunk.lazy_manifests import LazyManifests, ManifestExtent
from insitu.references.icechunk.manifest import ArrayReferences, ManifestRows, open_manifest
from insitu.references.icechunk.repository import (
    RepositoryVersion,
    credentials_for,
    icechunk_storage,
    import_icechunk,
    is_unfinished,
    parse_version,
    repository_exists,
    source_url,
)
from insitu.references.urls import UrlResolver
from insitu.sources import open_source
from insitu.sources.access_policy import check_path
from insitu.sources.listing import local_path
from insitu.zarr_metadata.array_document import ArrayMetadata
from insitu.zarr_metadata.hierarchy import build_tree, parse_nodes

__all__ = ["ManifestTable", "Snapshot", "has_version", "open_icechunk"]

T = TypeVar("T")
_CONCURRENT_REQUESTS = 64
"""Requests for metadata that run at once."""
_VIRTUAL_CHUNK = 2  # icechunk.ChunkType.virtual


def open_icechunk(
    url: str, *, errors: str = "raise", allow_local: bool = False, storage_options: Mapping[str, Any] | None = None
) -> VirtualGroup:
    """Return the tree of one version of a repository.

    Parameters
    ----------
    url
        The repository; `?branch=…`, `?tag=…` or `?snapshot=…` names a version.
    errors
        "raise", or "warn": arrays that cannot be read are left out, with the reasons in `problems`.
    allow_local
        Whether a remote repository may name local files.
    storage_options
        See `insitu.sources.open_source`.
    """
    version = parse_version(url)
    repository, session = open_session(version, storage_options)
    snapshot = Snapshot(version.url, session.snapshot_id, allow_local, storage_options)
    snapshot.opened.append((repository, session))
    listing = snapshot.listing()
    if "" not in listing.nodes:
        raise NotFoundError(
            f"nothing was committed yet: the {version.kind} {version.name!r} has no root group",
            url=version.url,
            hint="Name another version: ?branch=NAME, ?tag=NAME or ?snapshot=ID",
        )
    documents = snapshot.ask(_read_documents(session.store, listing.nodes))
    problems: dict[str, str] = {}

    def leave_out(path: str, problem: InsituError) -> None:
        problem.with_context(variable=path, url=version.url)
        if errors == "raise":
            raise problem
        problems[path] = str(problem)

    def tile_of(path: str, array: ArrayMetadata) -> Tile:
        grid = tuple(axis.count for axis in array.axes)
        return Tile(array.axes, (array.encoding,), ManifestTable(grid, snapshot, path))

    for path in listing.nodes:
        if _document_key(path) not in documents:
            leave_out(path, FormatError("the snapshot lists this node, but has no metadata of it"))
    nodes = parse_nodes(documents, leave_out, open_shards=False)
    details = GroupDetails("icechunk", notes={"snapshot": snapshot.id, version.kind: version.name})
    tree = build_tree(nodes, tile_of, leave_out, details=details)
    return replace(tree, problems=problems)


def has_version(url: str, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Return whether something lies at the URL of a repository. One without a version, as a writer leaves it
    that was killed, does not count.
    """
    version = RepositoryVersion(parse_version(url).url)
    if not repository_exists(version.url, storage_options):
        path = local_path(version.url)
        return path is not None and os.path.exists(path) and not is_unfinished(path)
    _, session = opened = open_session(version, storage_options)
    snapshot = Snapshot(version.url, session.snapshot_id, storage_options=storage_options, opened=[opened])
    return "" in snapshot.listing().nodes


def open_session(version: RepositoryVersion, storage_options: Mapping[str, Any] | None = None) -> tuple[Any, Any]:
    """Return the repository, and a read-only session of one version."""
    icechunk = import_icechunk()
    place = icechunk_storage(version.url, storage_options)
    try:
        config = icechunk.Repository.fetch_config(place)
        prefixes = [*(config.virtual_chunk_containers or {})] if config is not None else []
        access = {prefix: credentials_for(prefix, storage_options) for prefix in prefixes}
        repository = icechunk.Repository.open(
            place, authorize_virtual_chunk_access=icechunk.containers_credentials(access)
        )
        return repository, repository.readonly_session(**version.arguments)
    except BaseException as problem:
        if not is_library_error(problem):
            raise
        raise to_insitu_error(problem, version) from None


def is_library_error(problem: BaseException) -> bool:
    """Return whether icechunk raised an error: its own, one of a value, or a panic of its Rust code, which is
    no `Exception`.
    """
    kinds = (import_icechunk().IcechunkError, ValueError)
    return isinstance(problem, kinds) or type(problem).__name__ == "PanicException"


def to_insitu_error(problem: BaseException, version: RepositoryVersion) -> InsituError:
    """Return an error of icechunk as one of ours: its first line, without the trace."""
    message = _first_line(problem)
    if "does not exist" in message or "doesn't exist" in message:
        return NotFoundError("there is no Icechunk repository here", url=version.url)
    if "not found" in message:
        return VariableError(f"no {version.kind} {version.name!r} in this repository: {message}", url=version.url)
    return SourceError(f"icechunk failed: {message}", url=version.url)


def _first_line(problem: BaseException) -> str:
    lines = [line.strip(" |│├╰─▶×x") for line in str(problem).splitlines()]
    return next((line for line in lines if line), type(problem).__name__)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread of its own: an event loop may be running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def _document_key(path: str) -> str:
    return f"{path}/zarr.json" if path else "zarr.json"


async def _read_documents(store: Any, paths: Iterable[str]) -> dict[str, bytes]:
    """Return the metadata documents of nodes by key."""
    from zarr.core.buffer import default_buffer_prototype

    prototype, gate = default_buffer_prototype(), asyncio.Semaphore(_CONCURRENT_REQUESTS)

    async def fetch(key: str) -> tuple[str, Any]:
        async with gate:
            return key, await store.get(key, prototype)

    found = await asyncio.gather(*(fetch(_document_key(path)) for path in paths))
    return {key: data.to_bytes() for key, data in found if data is not None}


@dataclass(frozen=True, slots=True)
class SnapshotListing:
    """What a snapshot lists."""

    nodes: Mapping[str, Mapping[str, Any]]
    """Groups and arrays by path."""
    manifests: Mapping[str, Mapping[str, Any]]
    """Manifests by id."""


@dataclass(slots=True, eq=False)
class Snapshot:
    """One version of a repository, and the chunk tables that were loaded so far."""

    url: str
    id: str
    allow_local: bool = False
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    opened: list[tuple[Any, Any]] = field(default_factory=list, repr=False)
    """The repository and the session of the icechunk library, once they were opened."""
    listed: list[SnapshotListing] = field(default_factory=list, repr=False)
    """What the snapshot lists, once it was asked for."""
    tables: dict[str, ChunkTable] = field(default_factory=dict, repr=False)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Snapshot, (
            self.url,
            self.id,
            self.allow_local,
            self.storage_options,
        )  # a copy in another process opens a session of its own

    def table(self, path: str, shape: tuple[int, ...]) -> ChunkTable:
        """Return the chunk table of an array."""
        with self.lock:
            if path not in self.tables:
                with error_context(url=self.url, variable=path):
                    self.tables[path] = self._load_table(path, shape)
            return self.tables[path]

    def open(self) -> tuple[Any, Any]:
        """Return the repository and the session of the icechunk library."""
        if not self.opened:
            self.opened.append(open_session(RepositoryVersion(self.url, "snapshot", self.id), self.storage_options))
        return self.opened[0]

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the icechunk library answers, its errors as ours."""
        try:
            return run_async(work)
        except BaseException as problem:
            if not is_library_error(problem):
                raise
            raise SourceError(
                f"icechunk cannot read the snapshot {self.id}: {_first_line(problem)}",
                url=self.url,
                hint="It may be damaged or lost. Name another version: ?branch=NAME, ?tag=NAME or ?snapshot=ID",
            ) from None

    def listing(self) -> SnapshotListing:
        """Return what the snapshot lists.

        The library's store answers that nothing is there where a snapshot cannot be read (icechunk 1).
        """
        if not self.listed:
            # The other form of this method blocks all threads of the process while it waits for the storage.
            found = self.ask(self.open()[0].inspect_snapshot_async(self.id))
            summary = json.loads(found) if isinstance(found, str) else found
            if summary["id"] != self.id:
                raise FormatError(f"what is kept as the snapshot {self.id} is {summary['id']}", url=self.url)
            self.listed.append(
                SnapshotListing(
                    {node["path"].strip("/"): node for node in summary["nodes"]},
                    {manifest["id"]: manifest for manifest in summary["manifests"]},
                )
            )
        return self.listed[0]

    def _load_table(self, path: str, shape: tuple[int, ...]) -> ChunkTable:
        store = self.open()[1].store
        table = self._manifests(path, shape)
        # Only the C kernels decompress the URLs of version 2; without them the library lists all references.
        if not hasattr(store, "array_chunk_iterator") or can_decompress_texts():
            return table
        table.check_manifests()  # the library takes what a manifest does not list for chunks that were never written
        batches = self.ask(_read_batches(store, path))
        for rows in batches:
            self.probe_files(path, rows)
        return self.table_of(shape, batches)

    def table_of(self, shape: tuple[int, ...], batches: Sequence[ManifestRows]) -> ChunkTable:
        """Return references as a chunk table: sources by number, inline data joined."""
        index = np.concatenate([np.zeros((0, len(shape)), np.int64), *(rows.index for rows in batches)])
        source, offset, length = (np.zeros(len(index), np.int64) for _ in range(3))
        objects: dict[tuple[str, bool], int] = {}
        inline = bytearray()
        at = 0
        for rows in batches:
            here = slice(at, at + len(rows.path))
            offset[here], length[here] = rows.offset, rows.length
            names = zip(rows.path, rows.virtual.tolist(), strict=True)
            source[here] = [objects.setdefault(name, len(objects)) if name[0] else INLINE for name in names]
            for row, data in rows.inline.items():
                offset[at + row], length[at + row] = len(inline), len(data)
                inline += data
            at += len(rows.path)
        # Manifests may still list chunks beyond the end of an array that was shrunk.
        keep = (index < np.array(shape, np.int64)).all(axis=1)
        number = np.ravel_multi_index(tuple(index[keep].T), shape) if shape else np.zeros(np.count_nonzero(keep))
        columns = (source[keep], offset[keep], length[keep])
        sources = tuple(self.source(name, virtual) for name, virtual in objects)
        return table_of_cells(shape, sources, number.astype(np.int64), *columns, inline=bytes(inline))

    def source(self, name: str, virtual: bool) -> Source:
        """Return the object that a reference names."""
        if not virtual:
            return Source(f"{self.url}/chunks/{name}")
        return Source(source_url(UrlResolver(self.url, self.allow_local, directory=True).resolve(name)))

    def _manifests(self, path: str, shape: tuple[int, ...]) -> LazyManifests:
        """Return the references of an array as its manifests hold them."""
        repository, _ = self.open()
        containers = {
            getattr(container, "name", None): prefix
            for prefix, container in (repository.config.virtual_chunk_containers or {}).items()
        }
        listing = self.listing()
        node = listing.nodes[path]
        manifests = []
        for reference in node.get("manifest_refs", []):
            listed = listing.manifests.get(name := reference["id"])
            if listed is None:
                raise FormatError(f"the snapshot refers to the manifest {name}, which it does not list")
            size, count = listed["size_bytes"], listed["num_chunk_refs"]
            manifests.append(ManifestExtent.parse(name, size, count, reference.get("extents"), shape))

        def load(manifest: ManifestExtent) -> ArrayReferences:
            place = f"{self.url}/manifests/{manifest.name}"
            with error_context(url=place, variable=path):
                with open_source(place, self.storage_options) as source:
                    if (size := source.size()) != manifest.size:
                        raise FormatError(f"the manifest has {size} bytes, but the snapshot says {manifest.size}")
                    data = source.read(0, size)
                references = open_manifest(data, manifest.name, node["id"], manifest.count, containers)
                manifest.check_positions(references.index)
                return references

        return LazyManifests(path, shape, manifests, load, self)

    def probe_files(self, path: str, rows: ManifestRows) -> None:
        """Read one byte of each local file that references of an array name, through the library, which
        checks that the file did not change.
        """
        probes: dict[str, Any] = {}
        for row in np.flatnonzero(rows.virtual).tolist():
            if rows.path[row] not in probes and local_path(rows.path[row]) is not None:
                probes[rows.path[row]] = rows.index[row]
        for name in probes:
            check_path(local_path(name) or name)
        keys = {name: "/".join(filter(None, [path, "c", *map(str, cell.tolist())])) for name, cell in probes.items()}
        if not keys:
            return
        for name, problem in run_async(_probe_objects(self.open()[1].store, keys)).items():
            message = str(problem)
            if "checksum" in message or "modified" in message:
                raise StaleSourceError(
                    "the file changed since it was referred to",
                    url=source_url(name),
                    hint="Scan the files and save again",
                )


async def _read_batches(store: Any, path: str) -> list[ManifestRows]:
    batches = []
    async for index, kinds, paths, offsets, lengths, inline in store.array_chunk_iterator(f"/{path}"):
        offset, length = np.asarray(offsets, np.int64), np.asarray(lengths, np.int64)
        batches.append(
            ManifestRows(
                np.asarray(index, np.int64), paths, np.asarray(kinds) == _VIRTUAL_CHUNK, offset, length, inline
            )
        )
    return batches


async def _probe_objects(store: Any, keys: Mapping[str, str]) -> dict[str, Exception]:
    """Return the errors of reading one byte of each object, by name."""
    from zarr.abc.store import RangeByteRequest
    from zarr.core.buffer import default_buffer_prototype

    prototype, gate = default_buffer_prototype(), asyncio.Semaphore(_CONCURRENT_REQUESTS)
    wrong: dict[str, Exception] = {}
    icechunk = import_icechunk()

    async def look(name: str, key: str) -> None:
        async with gate:
            try:
                await store.get(key, prototype, RangeByteRequest(0, 1))
            except (icechunk.IcechunkError, ValueError) as problem:
                wrong[name] = problem

    await asyncio.gather(*(look(name, key) for name, key in keys.items()))
    return wrong


@dataclass(frozen=True, slots=True, eq=False)
class ManifestTable(ChunkTableBase):
    """Chunk table of an array in a repository, loaded when it is first used."""

    shape: tuple[int, ...]
    snapshot: Snapshot
    path: str

    @property
    def sources(self) -> Sequence[Source]:
        """The sources that the references name."""
        return self.snapshot.table(self.path, self.shape).sources

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return where cells lie."""
        return self.snapshot.table(self.path, self.shape).locate(cells)

    def explicit(self, storage_options: Mapping[str, Any] | None = None) -> ChunkTable:
        """Return the same table, loaded."""
        table = self.snapshot.table(self.path, self.shape)
        return table.load_all() if isinstance(table, LazyManifests) else table
