"""Chunk table of a Zarr array whose chunks are objects of their own.

The key of an object is computed from the cell's position, so a store of a hundred million chunks
takes no memory here. Whether the object exists is found out when it is read; a missing object is a
chunk that was never written.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np

from insitu.errors import FormatError, NotFoundError
from insitu.model import UNWRITTEN, WHOLE, ChunkLocations, Columns, Source
from insitu.model.axis import Indices
from insitu.model.cell_counts import CellCounts
from insitu.model.chunks import flat_cell_numbers
from insitu.model.derived_tables import ChunkTableBase
from insitu.model.source import SourceSequence
from insitu.model.sparse_chunks import SparseTable
from insitu.sources import open_source
from insitu.sources.listing import list_all_objects, list_some_objects
from insitu.sources.threads import gather
from insitu.zarr_metadata.keys import ChunkKeys

__all__ = ["KeyedChunks", "KeyedSources", "join_url"]


def join_url(url: str, key: str) -> str:
    """The URL of what lies under another URL.

    Examples
    --------
    >>> join_url("s3://bucket/x.zarr/", "t/0.0"), join_url("https://host/x?v=2", "a b")
    ('s3://bucket/x.zarr/t/0.0', 'https://host/x/a%20b?v=2')
    """
    if not key:
        return url.rstrip("/")
    if url[:8].lower().startswith(("http://", "https://")):
        parts = urlsplit(url)
        return parts._replace(path=f"{parts.path.rstrip('/')}/{quote(key)}").geturl()
    return f"{url.rstrip('/')}/{key}"


@dataclass(frozen=True, slots=True)
class KeyedSources(SourceSequence):
    """The objects of a grid as a sequence of sources, each made when it is asked for."""

    base: str
    keys: ChunkKeys
    shape: tuple[int, ...]
    optional: bool = True
    """Whether a missing object is a chunk that was never written."""

    def __len__(self) -> int:
        return _cells(self.shape)

    def find(self, number: int) -> Source:
        """Return the object of the cell of that number."""
        if number >= len(self):
            raise IndexError(f"no object {number}: there are {len(self)}")
        cell: list[int] = []
        for length in reversed(self.shape):
            number, at = divmod(number, length)
            cell.append(at)
        return Source(join_url(self.base, self.keys.key(cell[::-1])), optional=self.optional)

    def __iter__(self) -> Iterator[Source]:
        return (self.find(number) for number in range(len(self)))


@dataclass(frozen=True, slots=True, eq=False)
class KeyedChunks(ChunkTableBase):
    """The table of a grid whose chunks are objects."""

    base: str
    """URL of the array."""
    keys: ChunkKeys
    shape: tuple[int, ...]
    optional: bool = True

    def __post_init__(self) -> None:
        if _cells(self.shape) >= 2**63:
            raise FormatError(f"a grid of {self.shape} has more chunks than 64 bits can count")

    @property
    def sources(self) -> KeyedSources:
        """The objects, by the number of their cell."""
        return KeyedSources(self.base, self.keys, self.shape, self.optional)

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return where cells lie."""
        number = flat_cell_numbers(cells, self.shape)
        zero = np.broadcast_to(np.int64(0), number.shape)
        whole = np.broadcast_to(np.int64(WHOLE), number.shape)
        return ChunkLocations(number, zero, whole, zero, zero, zero, b"")

    def count(self) -> CellCounts:
        """Return the number of cells: each has an object, of unknown size, or may have none."""
        cells = _cells(self.shape)
        return CellCounts(cells, cells)

    def list_written(self, most: int, storage_options: Mapping[str, Any] | None = None) -> SparseTable | None:
        """Return the table of the cells that have an object, by listing them; None if there are more than `most`, or
        the store cannot be listed.
        """
        keys = list_some_objects(self.base, most, storage_options)
        if keys is None:
            return None
        found = [cell for key in keys if (cell := self.keys.cell(key, len(self.shape))) is not None]
        cells = [cell for cell in found if all(at < count for at, count in zip(cell, self.shape, strict=True))]
        grid = np.array(cells, np.int64).reshape(len(cells), len(self.shape))
        numbers = np.sort(np.ravel_multi_index(tuple(grid.T), self.shape)).astype(np.int64)
        one = np.zeros(1, np.int64)
        return SparseTable(self.shape, self.sources, numbers, numbers, one, one + WHOLE, one)

    def explicit(self, storage_options: Mapping[str, Any] | None = None) -> Columns:
        """Return the table with offset and length of every cell.

        The store is listed, or each object is asked for.
        """
        total = _cells(self.shape)
        source: Indices = np.full(total, UNWRITTEN, np.int64)
        length: Indices = np.zeros(total, np.int64)
        listed = list_all_objects(self.base, storage_options)
        if listed is None:
            sizes = gather(partial(_size, self.sources, storage_options), range(total))
        else:
            sizes = [None] * total
            for key, size in listed.items():
                cell = self.keys.cell(key, len(self.shape))
                if cell is not None and all(at < count for at, count in zip(cell, self.shape, strict=True)):
                    sizes[int(np.ravel_multi_index(cell, self.shape)) if cell else 0] = size
        for number, known in enumerate(sizes):
            if known is not None:
                source[number], length[number] = number, known
        sources = KeyedSources(self.base, self.keys, self.shape, optional=False)
        grid = source.reshape(self.shape), np.asarray(0), length.reshape(self.shape)
        return Columns(self.shape, sources, *grid)


def _size(
    sources: KeyedSources, storage_options: Mapping[str, Any] | None, number: int, stop: threading.Event
) -> int | None:
    """Return the bytes of an object; None if it is missing."""
    try:
        with open_source(sources[number].url, storage_options) as source:
            return source.size()
    except NotFoundError as problem:
        if problem.is_dead_redirect:
            raise
        return None


def _cells(shape: tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count
