"""Tables of chunks whose sizes are estimated: of objects whose size no table has, and of a copy before it is made."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from insitu.copying.target_arrays import TargetArray
from insitu.errors import NotFoundError
from insitu.expressions.nodes import stored_arrays
from insitu.model import WHOLE, Axis, ChunkLocations, ChunkTable, Source, Tile, count_cells
from insitu.model.axis import Indices
from insitu.model.chunks import flat_cell_numbers
from insitu.model.derived_tables import ChunkTableBase
from insitu.model.source import SourceSequence
from insitu.reading import ReadContext
from insitu.sources import open_source
from insitu.sources.threads import gather

__all__ = ["CopiedChunks", "CopiedObjects", "is_raw", "measure_density", "stored_bytes", "with_sizes"]

MOST_CELLS = 1 << 20
"""Cells of a table that are looked up to count their bytes; of a larger one a sample is."""
SAMPLED_OBJECTS = 16
"""Objects whose size is asked for, where no table has it."""


@dataclass(frozen=True, slots=True)
class CopiedObjects(SourceSequence):
    """The objects of a copy that does not exist. Their URLs only say how far away they are."""

    url: str
    """Of the archive."""
    length: int

    def __len__(self) -> int:
        return self.length

    def find(self, number: int) -> Source:
        """Return the object of that number."""
        if number >= self.length:
            raise IndexError(f"no object {number}: there are {self.length}")
        return Source(f"{self.url}/{number}")

    def __iter__(self) -> Iterator[Source]:
        return (self.find(number) for number in range(self.length))


@dataclass(frozen=True, slots=True, eq=False)
class CopiedChunks(ChunkTableBase):
    """The table of a copy that does not exist: each chunk is an object."""

    shape: tuple[int, ...]
    sources: CopiedObjects

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return where cells lie."""
        number = flat_cell_numbers(cells, self.shape)
        zero = np.broadcast_to(np.int64(0), number.shape)
        return ChunkLocations(number, zero, np.broadcast_to(np.int64(WHOLE), number.shape), zero, zero, zero, b"")


@dataclass(frozen=True, slots=True, eq=False)
class SizedChunks(ChunkTableBase):
    """A table with sizes of the objects that are chunks of which it does not know the size."""

    table: ChunkTable
    axes: tuple[Axis, ...]
    density: float
    """Bytes of an element."""
    is_padded: bool
    """Whether what lies beyond the array takes as much as other elements: compressed, it takes next to nothing."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
        return self.table.shape

    @property
    def sources(self) -> Sequence[Source]:
        """The objects."""
        return self.table.sources

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return where cells lie."""
        rows = self.table.locate(cells)
        sizes = np.rint(_count_elements(self.axes, cells, self.is_padded) * self.density).astype(np.int64)
        is_whole = (np.asarray(rows.source) >= 0) & (rows.length == WHOLE)
        return rows._replace(length=np.where(is_whole, np.maximum(sizes, 1), rows.length))


def stored_bytes(array: TargetArray, context: ReadContext) -> int:
    """Return the bytes that the chunks behind an array have in the source: of many objects whose size no table has, as
    if they were like some of them.
    """
    found = 0
    for stored in stored_arrays(array.form.node):
        counts = count_cells(stored.array)
        if counts.stored and not counts.nbytes:
            tiles = tuple(with_sizes(tile, measure_density(tile, context)) for tile in stored.array.tiles)
            counts = count_cells(replace(stored.array, tiles=tiles), MOST_CELLS)
        found += counts.nbytes
    return found


def with_sizes(tile: Tile, density: float) -> Tile:
    """Return a tile whose table has the sizes of chunks, if an element takes so many bytes."""
    is_padded = is_raw([tile])
    bytes_each = tile.encodings[0].dtype.itemsize if is_padded else density
    return replace(tile, chunks=SizedChunks(tile.chunks, tile.axes, bytes_each, is_padded))


def measure_density(tile: Tile, context: ReadContext) -> float:
    """Return the bytes of an element in those of some chunks that are objects: a missing one has none."""
    shape = tile.chunks.shape
    count = math.prod(shape)
    if not count or is_raw([tile]):
        return 0.0
    numbers = np.unique(np.linspace(0, count - 1, min(count, SAMPLED_OBJECTS)).astype(np.int64))
    cells = list(np.unravel_index(numbers, shape)) if shape else []
    rows = tile.chunks.locate(cells)
    here = np.flatnonzero((np.asarray(rows.source) >= 0) & (rows.length == WHOLE))
    sources = [tile.chunks.sources[number] for number in np.asarray(rows.source)[here].tolist()]
    sizes = gather(lambda source, _: _ask_size(source, context), sources)
    return sum(sizes) / max(int(_count_elements(tile.axes, cells, False)[here].sum()), 1)


def _ask_size(source: Source, context: ReadContext) -> int:
    if source.size is not None:
        return source.size
    try:
        with open_source(source.url, context.storage_options) as opened:
            return opened.size()
    except NotFoundError:
        if source.optional:
            return 0
        raise


def _count_elements(axes: Sequence[Axis], cells: Sequence[Indices], is_padded: bool) -> Indices:
    """Return the elements of chunks that lie within the array; with `is_padded` all."""
    if not cells:
        return np.ones(1, np.int64)
    elements = np.ones(np.broadcast_shapes(*(np.shape(cell) for cell in cells)), np.int64)
    for axis, cell in zip(axes, cells, strict=True):
        along = np.asarray(cell, np.int64)
        shown = axis.show(along)
        inside = np.where(shown.step == 0, 1, shown.extent)
        elements *= np.maximum(shown.stored if is_padded else np.minimum(inside, shown.stored), 1)
    return elements.reshape(-1)


def is_raw(tiles: Sequence[Tile]) -> bool:
    """Return whether the bytes of all chunks are their values."""
    return all(encoding.raw for tile in tiles for encoding in tile.encodings)
