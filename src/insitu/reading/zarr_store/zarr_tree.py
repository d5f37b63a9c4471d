"""ZarrTree: a tree of virtual arrays as the keys and bytes of a Zarr store.

It has the documents of groups and arrays (consolidated in each group, so that nothing needs to be
listed), and the chunks. It does not use zarr-python: the server serves the same keys over HTTP.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from insitu.errors import UnsupportedError, error_context
from insitu.model import Source, VirtualArray, VirtualGroup
from insitu.reading.cache import ChunkCache
from insitu.reading.source_pool import SourcePool
from insitu.reading.zarr_store.byte_span import ALL_BYTES, ByteSpan
from insitu.reading.zarr_store.encoded_chunks import EncodedChunks, encode_chunks
from insitu.reading.zarr_store.stored_chunks import StoredChunks, find_stored_chunks
from insitu.sources import ByteSource
from insitu.zarr_metadata import to_documents
from insitu.zarr_metadata.keys import ChunkKeys

__all__ = ["ByteSpan", "ZarrTree"]

_CHUNK_KEYS = {2: ChunkKeys("."), 3: ChunkKeys("/", "c")}


@dataclass(slots=True, eq=False)
class ZarrTree:
    """A tree of virtual arrays as Zarr keys and their content."""

    group: VirtualGroup
    zarr_format: int = 3
    compression: str | None = None
    """Compression of chunks that are encoded again: "gzip", "zlib", "zstd".

    None: no compression.
    """
    portable: bool = False
    """Whether stored chunks are passed on only if readers other than zarr-python support their
    codecs.
    """
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    cache: ChunkCache | None = field(default=None, repr=False)
    """Cache of decoded chunks that several chunks of the view need."""
    opener: Callable[[Source], ByteSource] | None = field(default=None, repr=False)
    """Opens the archive's sources in another way than by their URLs."""
    problems: dict[str, str] = field(default_factory=dict, repr=False)
    """Arrays that are left out, with the reasons."""
    _views: dict[str, StoredChunks | EncodedChunks] | None = field(default=None, repr=False)
    _documents: dict[str, bytes] | None = field(default=None, repr=False)
    _opened: SourcePool | None = field(default=None, repr=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def __post_init__(self) -> None:
        if self.zarr_format not in _CHUNK_KEYS:
            raise UnsupportedError(f"zarr_format must be 2 or 3, not {self.zarr_format!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        # Open files are not pickled; a copy opens them again.
        return ZarrTree, (
            self.group,
            self.zarr_format,
            self.compression,
            self.portable,
            self.storage_options,
            self.cache,
            self.opener,
        )

    @property
    def views(self) -> dict[str, StoredChunks | EncodedChunks]:
        """The arrays by path."""
        with self._lock:
            if self._views is None:
                views = {}
                for path, array in self.group.all_arrays():
                    try:
                        views[path] = self._view(path, array)
                    except UnsupportedError as problem:
                        self.problems[path] = problem.message
                self._views = views
            return self._views

    def _view(self, path: str, array: VirtualArray) -> StoredChunks | EncodedChunks:
        view = find_stored_chunks(array, self.zarr_format, portable=self.portable)
        return view if view is not None else encode_chunks(array, path, self.zarr_format, self.compression)

    @property
    def documents(self) -> dict[str, bytes]:
        """The metadata documents by key."""
        with self._lock:
            if self._documents is None:
                self._documents = {key: _to_json(value) for key, value in self._build_documents().items()}
            return self._documents

    def _build_documents(self) -> dict[str, Any]:
        documents: dict[str, Any] = to_documents.group_documents(self.group, self.zarr_format)
        for path, view in self.views.items():
            documents |= {f"{path}/{name}": value for name, value in view.documents.items()}
        return to_documents.consolidate(documents, self.zarr_format, all_groups=True)

    def get(self, key: str, span: ByteSpan = ALL_BYTES) -> bytes | None:
        """Return the content of a key, or some bytes of it; None if there is no such key."""
        found = self.documents.get(key)
        if found is not None:
            return span.of(found)
        place = self.place(key)
        if place is None:
            return None
        path, cell = place
        with error_context(variable=path, chunk=cell):
            return self.views[path].chunk(cell, self.source_pool(), span)

    def place(self, key: str) -> tuple[str, tuple[int, ...]] | None:
        """Return the array's path and the chunk that a key names; None if it names none."""
        views, end = self.views, len(key)
        while (end := key.rfind("/", 0, end)) > 0:
            view = views.get(key[:end])
            if view is not None:
                cell = _CHUNK_KEYS[self.zarr_format].cell(key[end + 1 :], len(view.grid))
                inside = cell is not None and all(at < count for at, count in zip(cell, view.grid, strict=True))
                return (key[:end], cell) if cell is not None and inside else None
        return None

    def keys(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys under a prefix."""
        yield from (key for key in self.documents if key.startswith(prefix))
        for path, view in self.views.items():
            if path.startswith(prefix) or prefix.startswith(f"{path}/"):
                name = _CHUNK_KEYS[self.zarr_format].key
                yield from (key for cell in view.cells() if (key := f"{path}/{name(cell)}").startswith(prefix))

    def children(self, path: str) -> Iterator[str]:
        """Return the names directly under a path."""
        prefix = f"{path.strip('/')}/" if path.strip("/") else ""
        names = dict.fromkeys(key[len(prefix) :].partition("/")[0] for key in self.documents if key.startswith(prefix))
        inside = next((name for name in self.views if prefix.startswith(f"{name}/")), None)
        if inside is not None and self.zarr_format == 3 and prefix == f"{inside}/":
            names["c"] = None  # without listing the chunks
        elif inside is not None:
            for key in self.keys(prefix):
                names[key[len(prefix) :].partition("/")[0]] = None
        return iter(names)

    def source_pool(self) -> SourcePool:
        """Return the archive's open sources."""
        with self._lock:
            if self._opened is None:
                self._opened = SourcePool(self.storage_options, opener=self.opener)
                self._opened.cache = self.cache
            return self._opened

    def close(self) -> None:
        """Close the archive's files; they are opened again when they are needed."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None


def _to_json(document: Any) -> bytes:
    # Python writes NaN, which is not valid JSON; attributes may contain it.
    return json.dumps(_to_strict_json(document)).encode()


def _to_strict_json(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _to_strict_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_strict_json(item) for item in value]
    return value
