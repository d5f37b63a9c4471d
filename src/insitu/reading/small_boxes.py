"""Boxes of a few compressed chunks of one local file, read without a plan.

A plan works in columns, which pays from some dozen chunks on. For one chunk its columns cost 0.8 ms,
nearly as much as decoding 4 MiB. Here the cells are cut by plain numbers. What is not that simple,
and every error, is left to the plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import wait
from itertools import product
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from insitu.cancellation import cap_threads, carry_deadline, check_deadline
from insitu.cf.unpack import unpack
from insitu.codecs import Decoder, prepare
from insitu.codecs.thread_buffers import get_buffer
from insitu.errors import InsituError
from insitu.model import IDENTITY, Axis, Packing, Selection, Source, Stride, Tile, VirtualArray
from insitu.model.axis import CellCut, cut_numbers
from insitu.reading.cache import PartialChunkCache
from insitu.reading.fetch import read_exactly_into
from insitu.reading.read_statistics import ReadStatistics
from insitu.reading.request_cost import is_far
from insitu.reading.source_pool import SourcePool
from insitu.reading.thread_pools import count_cores, get_worker_pool
from insitu.sources import ByteSource
from insitu.sources.protocol import ReadsInto

__all__ = ["read_small_box"]

MAX_CHUNKS = 16
"""Boxes of more chunks are read by a plan."""
SHARED_BYTES = 256 << 10
"""Decoded bytes of a chunk from which on it is worth a thread: a smaller one is done before the other
thread has started.
"""
FETCH_SLOT = 4
"""Slot of the thread's buffer for a chunk as stored. The decoders use slots 0 to 2, the plan slot 3."""


class _Piece(NamedTuple):
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
    def is_part(self) -> bool:
        """Whether only a part of the chunk is wanted."""
        return self.target.size < math.prod(self.decoder.stored)


def read_small_box(
    array: VirtualArray,
    selection: Selection,
    out: npt.NDArray[Any],
    opened: SourcePool,
    tally: ReadStatistics,
    cache: PartialChunkCache | None = None,
) -> bool:
    """Fill `out` with a box of a few compressed chunks; return False if a plan must do it.

    Parameters
    ----------
    array, selection
        The array, and what to read of it.
    out
        Output array, of the selection's shape. After False its content is undefined.
    opened
        Pool of open sources.
    tally
        Counts requests and bytes.
    cache
        Of chunks of which parts are read.
    """
    if not _is_simple(array, selection):
        return False
    try:
        found = _find_pieces(array.tiles[0], selection, out)
        if found is None:
            return False
        about, pieces = found
        with opened.acquire(about) as source:
            if cache is not None and _needs_cache(about, pieces, cache):
                _take_pieces(source, pieces, cache, tally)
                return True
            seconds = _read_pieces(source, pieces)
    except InsituError:
        return False  # the plan meets the same error, and says which chunk it concerns
    fetched, decoded = sum([piece.length for piece in pieces]), sum([piece.decoder.nbytes for piece in pieces])
    tally.add(len(pieces), fetched, decoded, len(pieces), sum([s for s, _ in seconds]), sum([s for _, s in seconds]))
    return True


def _is_simple(array: VirtualArray, selection: Selection) -> bool:
    """Return whether a selection is a box of an array of one tile, cut regularly."""
    if len(array.tiles) != 1:
        return False
    tile = array.tiles[0]
    if tile.dimensions != tuple(range(len(tile.axes))) or tile.shape != array.shape or not tile.axes:
        return False
    if any(encoding.raw or encoding.dtype.hasobject for encoding in tile.encodings):
        return False  # of uncompressed chunks, the plan fetches only what is wanted
    chunks = 1
    for axis, selector in zip(tile.axes, selection.selectors, strict=True):
        if axis.cells is not None:
            return False
        if isinstance(selector, Stride):
            if selector.step != 1 or not selector.length:
                return False
            chunks *= (selector.start + selector.length - 1) // axis.size - selector.start // axis.size + 1
        elif not isinstance(selector, int):
            return False
    return chunks <= MAX_CHUNKS


def _cut_axis(axis: Axis, selector: Any) -> list[CellCut]:
    """Return what an integer or a slice of step 1 takes of each cell of a regular axis."""
    if isinstance(selector, int):
        return cut_numbers(axis, selector, selector + 1)
    return cut_numbers(axis, selector.start, selector.start + selector.length)


def _find_pieces(tile: Tile, selection: Selection, out: npt.NDArray[Any]) -> tuple[Source, list[_Piece]] | None:
    """Return the chunks that a box needs, if all of them lie in one local file."""
    cuts = [_cut_axis(axis, selector) for axis, selector in zip(tile.axes, selection.selectors, strict=True)]
    cells = [np.array([cut.cell for cut in along]) for along in cuts]
    rows = tile.chunks.locate(np.ix_(*cells) if math.prod(map(len, cuts)) > 1 else cells)
    sources = rows.source.tolist()
    if sources[0] < 0 or sources.count(sources[0]) != len(sources):
        return None
    about = tile.chunks.sources[sources[0]]
    if about.optional or is_far([about]):
        return None
    packings: dict[int, Packing | None] = {}
    for number in set(rows.packing.tolist()):
        row = None if tile.packings is IDENTITY else tile.packings[number]
        packings[number] = None if row is None or row.identity else row
    window = out[tuple([None if isinstance(selector, int) else slice(None) for selector in selection.selectors])]
    columns = (rows.offset, rows.length, rows.encoding, rows.filter_mask, rows.packing)
    pieces = []
    for cut, offset, length, encoding, mask, packing in zip(
        product(*cuts), *[column.tolist() for column in columns], strict=True
    ):
        decoder = prepare(tile.encodings[encoding], tuple([along.stored for along in cut]), mask)
        how = packings[packing]
        if length < 0 or (how is None and decoder.dtype != out.dtype):
            return None
        inside, outside = tuple([along.inside for along in cut]), tuple([along.outside for along in cut])
        key = (offset, length, tile.encodings[encoding], mask, decoder.stored)
        pieces.append(_Piece(decoder, offset, length, inside, window[outside], how, key))
    return about, pieces


def _needs_cache(about: Source, pieces: Sequence[_Piece], cache: PartialChunkCache) -> bool:
    """Return whether the chunks go through the cache."""
    if not all(piece.is_part for piece in pieces):
        return False
    largest = max(piece.decoder.nbytes for piece in pieces)
    return cache.is_wanted(about.url, [piece.offset for piece in pieces], largest, len(pieces))


def _take_pieces(source: ByteSource, pieces: Sequence[_Piece], cache: PartialChunkCache, tally: ReadStatistics) -> None:
    """Take the boxes from chunks in the cache; those that it does not have are decoded and kept."""
    about = source.describe()
    for piece in pieces:
        check_deadline()

        def make(piece: _Piece = piece) -> npt.NDArray[Any]:
            started = perf_counter()
            data = source.read(piece.offset, piece.length)
            fetched = perf_counter()
            chunk = piece.decoder(data, None, source.read_many)
            seconds = fetched - started, perf_counter() - fetched
            tally.add(1, piece.length, piece.decoder.nbytes, 0, *seconds)
            return chunk

        box = cache.get((about, *piece.key), make)[piece.inside]
        if piece.packing is None:
            piece.target[...] = box
        else:
            unpack(box, piece.packing, piece.target)
    tally.add(0, 0, 0, len(pieces), 0.0, 0.0)


def _read_pieces(source: ByteSource, pieces: Sequence[_Piece]) -> list[tuple[float, float]]:
    """Read large chunks on several threads, this one among them, and small ones on this thread.

    Return the seconds that fetching and decoding of each took.
    """
    if len(pieces) == 1 or pieces[0].decoder.nbytes < SHARED_BYTES or _has_one_thread():
        return [_read_piece(source, piece) for piece in pieces]
    pool, work = get_worker_pool(), carry_deadline(_read_piece)
    pending = [pool.submit(work, source, piece) for piece in pieces[1:]]
    try:
        seconds = [_read_piece(source, pieces[0])]
        for future, piece in zip(pending, pieces[1:], strict=True):  # cancelled: no thread has begun with it
            seconds.append(_read_piece(source, piece) if future.cancel() else future.result())
        return seconds
    finally:
        # No thread may write into the output after this function has returned.
        wait([future for future in pending if not future.cancel()])


def _has_one_thread() -> bool:
    """Return whether chunks are decoded one after another: there is one core, or memory for few of them."""
    cores = count_cores()
    return cores == 1 or cap_threads(cores + 1) <= cores


def _read_piece(source: ByteSource, piece: _Piece) -> tuple[float, float]:
    check_deadline()
    started = perf_counter()
    data: Any
    if isinstance(source, ReadsInto):
        data = get_buffer(FETCH_SLOT, piece.length)
        read_exactly_into(source, piece.offset, data)
    else:
        data = source.read(piece.offset, piece.length)
    fetched = perf_counter()
    if piece.packing is None:
        piece.decoder.place(data, piece.inside, piece.target, source.read_many)
    else:
        stored = np.empty(piece.target.shape, piece.decoder.dtype)
        piece.decoder.place(data, piece.inside, stored, source.read_many)
        unpack(stored, piece.packing, piece.target)
    return fetched - started, perf_counter() - fetched
