"""Chunk table of an array in an Icechunk repository whose manifests are loaded when they are needed.

The snapshot records which box of the grid each manifest covers. Locating a cell loads the manifest
of its box and decodes the reference of that cell only. Sources are numbered as they are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError, NotFoundError, StaleSourceError
from insitu.forking import fork_safe_lock
from insitu.lru import LruCache
from insitu.model import INLINE, UNWRITTEN, ChunkLocations, ChunkTable, Source
from insitu.model.axis import Indices
from insitu.model.chunks import flat_cell_numbers
from insitu.model.derived_tables import ChunkTableBase
from insitu.model.source import SourceSequence
from insitu.references.icechunk.manifest import ArrayReferences, ManifestRows
from insitu.sources import open_source
from insitu.sources.listing import local_path

__all__ = ["LazyManifests", "ManifestExtent"]

_MANIFEST_BYTES = 128 << 20
"""Bytes of decompressed manifests that are kept: some 120 for each reference."""


class Repository(Protocol):
    """What makes sources and tables of references."""

    def source(self, name: str, virtual: bool) -> Source:
        """Return the object that a reference names."""

    def probe_files(self, path: str, rows: ManifestRows) -> None:
        """Raise `StaleSourceError` if a local file is not the one that references of an array name."""

    def table_of(self, shape: tuple[int, ...], batches: Sequence[ManifestRows]) -> ChunkTable:
        """Return references as a chunk table."""


@dataclass(frozen=True, slots=True)
class ManifestExtent:
    """A manifest, its size, and the box of the grid that it covers."""

    name: str
    size: int
    """Bytes of the file."""
    count: int
    """References of all arrays in it."""
    begin: tuple[int, ...]
    end: tuple[int, ...]

    @classmethod
    def parse(cls, name: str, size: int, count: int, extents: Any, shape: tuple[int, ...]) -> ManifestExtent:
        """Return a manifest as a snapshot describes it; without extents it covers the whole grid."""
        if extents is None:
            extents = [(0, length) for length in shape]
        if len(extents) != len(shape):
            raise FormatError(f"a manifest covers a grid of {len(extents)} axes, but the array has {len(shape)}")
        return cls(name, size, count, tuple(int(low) for low, _ in extents), tuple(int(high) for _, high in extents))

    def contains(self, cells: Sequence[Indices], count: int) -> npt.NDArray[np.bool_]:
        """Return which of some cells lie in the box."""
        inside = np.ones(count, bool)
        for cell, low, high in zip(cells, self.begin, self.end, strict=True):
            inside &= (cell >= low) & (cell < high)
        return inside

    def check_positions(self, index: npt.NDArray[np.int64]) -> None:
        """Raise `FormatError` if references, by their positions in the grid, do not lie in the box."""
        count, axes = index.shape
        if axes != len(self.begin):
            raise FormatError(f"references have {axes} axes, but the array has {len(self.begin)}", structure="manifest")
        if not self.contains(list(index.T), count).all():
            raise FormatError("a reference lies outside the box that its manifest covers", structure="manifest")


@dataclass(frozen=True, slots=True, eq=False)
class _LoadedManifest:
    """References whose cells can be looked up."""

    references: ArrayReferences
    numbers: Indices
    """Cells, in C order of the grid, ascending."""
    rows: Indices | None
    """The reference of each; None: they are in this order."""

    @classmethod
    def of(cls, references: ArrayReferences, shape: tuple[int, ...]) -> _LoadedManifest:
        # Manifests may still list chunks beyond the end of an array that was shrunk.
        inside = (references.index < np.array(shape, np.int64)).all(axis=1)
        rows = None if inside.all() else np.flatnonzero(inside)
        index = references.index if rows is None else references.index[rows]
        numbers = np.ravel_multi_index(tuple(index.T), shape) if shape else np.zeros(len(index), np.int64)
        if (np.diff(numbers) < 0).any():
            order = np.argsort(numbers, kind="stable")
            numbers, rows = numbers[order], order if rows is None else rows[order]
        return cls(references, numbers, rows)

    def find(self, cells: Indices) -> tuple[npt.NDArray[np.bool_], ManifestRows]:
        """Return which cells have references, and these."""
        at = np.searchsorted(self.numbers, cells, side="right") - 1
        found = (at >= 0) & (self.numbers[np.maximum(at, 0)] == cells) if len(self.numbers) else at >= 0
        rows = at[found] if self.rows is None else self.rows[at[found]]
        return found, self.references.rows(rows)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.references.nbytes + self.numbers.nbytes


class LazyManifests(ChunkTableBase):
    """Chunk table of an array, by its manifests.

    Parameters
    ----------
    path
        The array in the repository.
    shape
        Cells along each axis.
    manifests
        The manifests; where two list a cell, the later one counts.
    load
        Returns the references of the array in a manifest.
    repository
        Makes sources of the names in references.
    """

    def __init__(
        self,
        path: str,
        shape: tuple[int, ...],
        manifests: Sequence[ManifestExtent],
        load: Callable[[ManifestExtent], ArrayReferences],
        repository: Repository,
    ) -> None:
        self.path, self.shape = path, shape
        self.manifests = tuple(manifests)
        self.sources: Sequence[Source] = _SourcesSoFar(self)
        self._load, self._repository = load, repository
        self._loaded: LruCache[str, _LoadedManifest] = LruCache(
            _MANIFEST_BYTES, lambda manifest: manifest.nbytes, min_items=1
        )
        self._numbers: dict[tuple[str, bool], int] = {}
        self.found_sources: list[Source] = []
        """Sources of the references that were decoded so far."""
        self._unchanged_since: dict[str, int] = {}
        self._lock = fork_safe_lock()

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return where cells lie."""
        numbers = flat_cell_numbers(cells, self.shape)
        places = np.unravel_index(numbers, self.shape) if self.shape else ()
        source, offset, length = (np.full(len(numbers), state, np.int64) for state in (UNWRITTEN, 0, 0))
        inline = bytearray()
        for manifest in self.manifests:
            here = np.flatnonzero(manifest.contains(places, len(numbers)))
            if not len(here):
                continue
            found, rows = self._manifest(manifest).find(numbers[here])
            here = here[found]
            offset[here], length[here] = rows.offset, rows.length
            source[here] = self._source_numbers(rows)
            for row, data in rows.inline.items():
                offset[here[row]], length[here[row]] = len(inline), len(data)
                inline += data
        zero = np.broadcast_to(np.int64(0), numbers.shape)
        return ChunkLocations(source, offset, length, zero, zero, zero, bytes(inline))

    def load_all(self) -> ChunkTable:
        """Return the same table in memory."""
        batches = [self._manifest(manifest).references.rows() for manifest in self.manifests]
        for rows in batches:
            self._source_numbers(rows)
        return self._repository.table_of(self.shape, batches)

    def check_manifests(self) -> None:
        """Raise `FormatError` if a manifest is damaged, or not the one that the snapshot lists."""
        for manifest in self.manifests:
            self._manifest(manifest)

    def load_first(self) -> None:
        """Meet the source of the first reference."""
        for manifest in self.manifests:
            references = self._manifest(manifest).references
            if len(references.tables):
                self._source_numbers(references.rows(np.zeros(1, np.int64)))
            if self.found_sources:
                return

    def _manifest(self, manifest: ManifestExtent) -> _LoadedManifest:
        known = self._loaded.get(manifest.name)
        if known is not None:
            return known
        loaded = _LoadedManifest.of(self._load(manifest), self.shape)
        self._loaded.put(manifest.name, loaded)
        return loaded

    def _source_numbers(self, rows: ManifestRows) -> list[int]:
        """Return the numbers of the sources that references name, after checking that local files
        did not change.
        """
        with self._lock:
            self._check_unchanged(rows)
            numbers = []
            for name in zip(rows.path, rows.virtual.tolist(), strict=True):
                if name[0] and name not in self._numbers:
                    self.found_sources.append(self._repository.source(*name))
                    self._numbers[name] = len(self.found_sources) - 1
                numbers.append(self._numbers[name] if name[0] else INLINE)
            return numbers

    def _check_unchanged(self, rows: ManifestRows) -> None:
        """Raise `StaleSourceError` if a local file changed after the time that references record, or has
        another ETag: how the library makes one of a local file, only the library knows.
        """
        if rows.modified is None or rows.has_etag is None:
            return
        with_etag = np.flatnonzero(rows.virtual & rows.has_etag)
        if len(unknown := [row for row in with_etag.tolist() if rows.path[row] not in self._unchanged_since]):
            self._repository.probe_files(self.path, rows.select_virtual(np.array(unknown)))
            self._unchanged_since.update(dict.fromkeys((rows.path[row] for row in unknown), 0))
        latest: dict[str, int] = {}
        for row in np.flatnonzero(rows.virtual & (rows.modified > 0)).tolist():
            latest[rows.path[row]] = max(latest.get(rows.path[row], 0), int(rows.modified[row]))
        for name, moment in latest.items():
            path = local_path(name)
            if path is None or moment <= self._unchanged_since.get(name, -1):
                continue
            try:
                with open_source(path) as source:
                    now = source.describe().modified
            except NotFoundError:
                continue  # a read raises this
            if now is not None and int(now) > moment:
                raise StaleSourceError(
                    "the file changed since it was referred to", url=path, hint="Scan the files and save again"
                )
            self._unchanged_since[name] = moment


class _SourcesSoFar(SourceSequence):
    """The sources of a table in the order in which they are found; counting them loads all manifests."""

    def __init__(self, table: LazyManifests) -> None:
        self._table = table

    def __len__(self) -> int:
        self._table.load_all()
        return len(self._table.found_sources)

    def find(self, number: int) -> Source:
        """Return one source; of those that were not found yet, the first."""
        if number >= len(self._table.found_sources):
            self._table.load_first()
        return self._table.found_sources[number]

    def __iter__(self) -> Iterator[Source]:
        self._table.load_all()
        return iter(list(self._table.found_sources))
