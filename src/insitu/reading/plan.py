"""Read plans: the byte ranges that a selection needs, sorted in the order of fetching.

`plan_read` plans any selection, in columns; `plan_few` a box of a few compressed chunks of a local
file, in plain numbers, where columns would cost more than the reading.

In columns, cells are located first (the chunk table may page itself in); the rest is pure computation on
columns: the touched cells of all tiles as rows, those with bytes sorted by source and offset, so
that files are read forwards, neighbours come in one request, and cells that share a chunk are
adjacent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline
from insitu.codecs.chain import Decoder, prepare
from insitu.errors import CodecError
from insitu.forking import cached_property
from insitu.model import (
    IDENTITY,
    INLINE,
    WHOLE,
    Axis,
    ChunkLocations,
    Packing,
    Selection,
    Source,
    Stride,
    VirtualArray,
)
from insitu.model.axis import CellCut, Indices, cut_numbers
from insitu.reading.request_cost import has_remote_sources
from insitu.reading.request_cost import request_bytes as cost_of_request
from insitu.reading.select_cells import ListedSelection, TileSelection, select_cells
from insitu.reading.tile_plan import TilePlan
from insitu.reading.trim_ranges import trim_to_wanted_bytes

__all__ = ["ChunkPart", "FewChunks", "ReadPlan", "plan_few", "plan_read", "plan_tiles"]

MAX_FEW_CHUNKS = 16
"""Boxes of more chunks are planned in columns."""


@dataclass(frozen=True, eq=False)
class ReadPlan:
    """The I/O of one read."""

    array: VirtualArray
    selection: Selection
    tiles: tuple[TileSelection, ...]
    locations: tuple[ChunkLocations, ...]
    """Places of the rows of each tile; offset and length are those of the bytes to fetch."""
    sources: tuple[Source, ...]
    """The sources that the column `source` refers to."""
    tile: npt.NDArray[np.int32]
    """Number of the tile, for each row with bytes to fetch, in the order of fetching."""
    row: Indices
    """Number of the row within its tile."""
    source: npt.NDArray[np.int32]
    offset: Indices
    length: Indices
    """Bytes to fetch; -1: up to the end of the object."""
    without_bytes: tuple[Indices, ...]
    """For each tile, its rows without bytes to fetch: Inline, Unwritten, Absent."""
    covers_output: bool
    """Whether the rows fill the whole output."""

    @cached_property
    def tile_plans(self) -> list[TilePlan]:
        """For each tile its part of the plan. Not while the plan is made: many plans are only counted."""
        return [TilePlan(touched, located) for touched, located in zip(self.tiles, self.locations, strict=True)]

    @property
    def nbytes(self) -> int:
        """Bytes to fetch; each chunk counts once."""
        if not len(self.offset):
            return 0
        new = np.ones(len(self.offset), bool)
        new[1:] = (np.diff(self.offset) != 0) | (np.diff(self.source) != 0)
        return int(np.maximum(self.length[new], 0).sum())


def plan_read(array: VirtualArray, selection: Selection, *, request_bytes: int | None = None) -> ReadPlan:
    """Plan a read.

    Parameters
    ----------
    array, selection
        The array, and what to read of it.
    request_bytes
        Bytes that could be fetched in the time that one more request costs. It decides how
        uncompressed chunks are cut. By default it is estimated from the sources' URLs.
    """
    if request_bytes is None:
        request_bytes = cost_of_request(array.tiles[0].chunks.sources if array.tiles else ())
    selections = (trim_to_wanted_bytes(touched, request_bytes) for touched in select_cells(array, selection))
    return plan_tiles(array, selection, selections)


def plan_tiles(array: VirtualArray, selection: Selection, selections: Iterable[TileSelection]) -> ReadPlan:
    """Locate the selected cells of tiles, and sort them in the order of fetching."""
    numbers: dict[Source, int] = {}
    tiles, located, without_bytes, columns = [], [], [], []
    elements = 0
    for number, touched in enumerate(selections):
        check_deadline()
        rows = touched.locate()
        if not isinstance(touched, ListedSelection):  # listed chunks are encoded
            rows = _narrow_to_parts(touched, rows)
        source = np.asarray(rows.source)
        stored = np.flatnonzero(source >= 0)
        # A table may compute its sources, one for each chunk: only those in use are computed.
        used, at = np.unique(source[stored], return_inverse=True)
        pool = touched.sources
        known = np.array([numbers.setdefault(pool[n], len(numbers)) for n in used.tolist()] or [0], np.int32)
        columns.append(
            (
                np.full(len(stored), number, np.int32),
                stored,
                known[at.reshape(-1)],
                np.asarray(rows.offset[stored], np.int64),
                np.asarray(rows.length[stored], np.int64),
            )
        )
        without_bytes.append(np.flatnonzero(source < 0))
        tiles.append(touched)
        located.append(rows)
        elements += touched.count_shown()
    tile, row, source, offset, length = _join_columns(columns)
    # Stable: cells that share a chunk, equal in both keys, stay neighbours, and it is decoded once.
    order = np.lexsort((offset, source))
    return ReadPlan(
        array=array,
        selection=selection,
        tiles=tuple(tiles),
        locations=tuple(located),
        sources=tuple(numbers),
        tile=tile[order],
        row=row[order],
        source=source[order],
        offset=offset[order],
        length=length[order],
        without_bytes=tuple(without_bytes),
        # As Python numbers: repeated indices may name more elements than 64 bits count.
        covers_output=elements == int(np.prod(selection.result_shape, dtype=object)),
    )


def _join_columns(columns: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    if not columns:
        none = np.zeros(0, np.int64)
        return none.astype(np.int32), none, none.astype(np.int32), none, none
    if len(columns) == 1:
        return columns[0]
    return tuple(np.concatenate(column) for column in zip(*columns, strict=True))


def _narrow_to_parts(touched: TileSelection, rows: ChunkLocations) -> ChunkLocations:
    """Return the rows of a tile of uncompressed chunks with the byte ranges of just the trimmed
    parts.
    """
    if not any(part.first.any() for part in touched.parts) and not _is_cut_short(touched):
        return rows
    cells = [part.cell for part in touched.parts]
    full = [np.maximum(axis.stored_lengths(c), 1) for axis, c in zip(touched.tile.axes, cells, strict=True)]
    itemsizes = np.array([encoding.dtype.itemsize for encoding in touched.tile.encodings])
    stride = itemsizes[np.asarray(rows.encoding)].reshape(touched.grid)
    shift = np.zeros(touched.grid, np.int64)
    length = stride.copy()
    for axis in reversed(range(len(cells))):
        along = tuple(-1 if i == axis else 1 for i in range(len(cells)))
        part = touched.parts[axis]
        shift = shift + stride * part.first.reshape(along)
        stride = stride * full[axis].reshape(along)
        length = length * part.stored.reshape(along)
    source = np.asarray(rows.source)
    has_bytes = (source >= 0) | (source == INLINE)
    short = has_bytes & (rows.length != WHOLE) & (rows.length < stride.reshape(-1))
    if short.any():  # the parts would reach into the chunk behind it, whose bytes would be shown as values
        row = int(np.flatnonzero(short)[0])
        raise CodecError(
            f"an uncompressed chunk has {int(rows.length[row])} bytes instead of {int(stride.reshape(-1)[row])}",
            url=touched.tile.chunks.sources[int(source[row])].url if source[row] >= 0 else None,
            offset=int(rows.offset[row]),
            length=int(rows.length[row]),
        )
    # An object that is wanted as a whole stays so: whether it is longer than the chunk shows only then.
    partly = has_bytes & ((rows.length != WHOLE) | (length != stride).reshape(-1))
    return rows._replace(
        offset=np.where(partly, rows.offset + shift.reshape(-1), rows.offset),
        length=np.where(partly, length.reshape(-1), rows.length),
    )


def _is_cut_short(touched: TileSelection) -> bool:
    """Return whether some part takes fewer elements than its chunk has stored."""
    for part, axis in zip(touched.parts, touched.tile.axes, strict=True):
        if not (part.stored == np.maximum(axis.stored_lengths(part.cell), 1)).all():
            return True
    return False


class ChunkPart(NamedTuple):
    """A chunk, the box that is wanted of it, and where that goes."""

    decoder: Decoder
    offset: int
    length: int
    inside: tuple[slice, ...]
    target: npt.NDArray[Any]
    packing: Packing | None
    key: tuple[Any, ...]
    """Of the decoded chunk in a cache, but for the source."""

    @property
    def is_whole(self) -> bool:
        """Whether all of the chunk is wanted."""
        return self.target.size == math.prod(self.decoder.stored)


@dataclass(frozen=True, slots=True, eq=False)
class FewChunks:
    """The I/O of a small read: a few encoded chunks of one local file."""

    source: Source
    parts: Sequence[ChunkPart]


def plan_few(array: VirtualArray, selection: Selection, out: npt.NDArray[Any]) -> FewChunks | None:
    """Plan the read of a box of a few compressed chunks of one local file; None: `plan_read` must do it.

    One chunk of 7 KB is read in 150 µs of processor time, of which this plan takes 37; by `plan_read` in
    530 µs, of which the plan takes 324, since it makes some forty columns of one row. With 16 chunks it
    is 1.05 against 1.29 ms, so more are left to columns.

    Parameters
    ----------
    array, selection
        The array, and what to read of it.
    out
        Output array, of the selection's shape.
    """
    if not _is_box_of_few(array, selection):
        return None
    tile = array.tiles[0]
    cuts = [_cut_axis(axis, selector) for axis, selector in zip(tile.axes, selection.selectors, strict=True)]
    cells = [np.array([cut.cell for cut in along]) for along in cuts]
    rows = tile.chunks.locate(np.ix_(*cells) if math.prod(map(len, cuts)) > 1 else cells)
    sources = rows.source.tolist()
    if sources[0] < 0 or sources.count(sources[0]) != len(sources):
        return None
    source = tile.chunks.sources[sources[0]]
    # An object that may not exist needs a way back; beside a round trip the cost of a plan does not count.
    if source.optional or has_remote_sources([source]):
        return None
    packings: dict[int, Packing | None] = {}
    for number in set(rows.packing.tolist()):
        row = None if tile.packings is IDENTITY else tile.packings[number]
        packings[number] = None if row is None or row.identity else row
    window = out[tuple([None if isinstance(selector, int) else slice(None) for selector in selection.selectors])]
    columns = (rows.offset, rows.length, rows.encoding, rows.filter_mask, rows.packing)
    parts = []
    for cut, offset, length, encoding, mask, packing in zip(
        product(*cuts), *[column.tolist() for column in columns], strict=True
    ):
        decoder = prepare(tile.encodings[encoding], tuple([along.stored for along in cut]), mask)
        how = packings[packing]
        if length < 0 or (how is None and decoder.dtype != out.dtype):
            return None
        inside, outside = tuple([along.inside for along in cut]), tuple([along.outside for along in cut])
        key = (offset, length, tile.encodings[encoding], mask, decoder.stored)
        parts.append(ChunkPart(decoder, offset, length, inside, window[outside], how, key))
    return FewChunks(source, parts)


def _is_box_of_few(array: VirtualArray, selection: Selection) -> bool:
    """Return whether a selection is a box of few chunks of an array of one tile, cut regularly."""
    if len(array.tiles) != 1:
        return False
    tile = array.tiles[0]
    if tile.dimensions != tuple(range(len(tile.axes))) or tile.shape != array.shape or not tile.axes:
        return False
    if any(encoding.raw or encoding.dtype.hasobject for encoding in tile.encodings):
        return False  # of uncompressed chunks, only what is wanted is fetched
    chunks = 1
    for axis, selector in zip(tile.axes, selection.selectors, strict=True):
        if axis.cells is not None:
            return False  # where a cell begins is looked up then, not computed
        if isinstance(selector, Stride):
            if selector.step != 1 or not selector.length:
                return False
            chunks *= (selector.start + selector.length - 1) // axis.size - selector.start // axis.size + 1
        elif not isinstance(selector, int):
            return False
    return chunks <= MAX_FEW_CHUNKS


def _cut_axis(axis: Axis, selector: Any) -> list[CellCut]:
    """Return what an integer or a slice of step 1 takes of each cell of a regular axis."""
    if isinstance(selector, int):
        return cut_numbers(axis, selector, selector + 1)
    return cut_numbers(axis, selector.start, selector.start + selector.length)
