"""Bytes of whole small arrays, fetched together: to read them without a plan, and to decode a file.

A file of many small variables (200 of 100 values; NetCDF-3 records of one value) costs more to plan
than to read. Where the bytes of a whole array lie in equal steps of one file, they are one strided
view of it: `read_small_arrays` reads the ranges of all such arrays together, and copies them.
Everything else, and every error, is left to the plan.

Opening a dataset needs some values at once: labels of dimensions, single values, and times. Every file
has some, so `fetch_small` fetches their bytes in one batch while the file is open anyway. It returns
them as stored: if the next file has the same bytes, they are not decoded again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cf.unpack import unpack
from insitu.codecs.chain import decode
from insitu.codecs.chunk_batch import ChunkBatch
from insitu.errors import InsituError, TruncatedError
from insitu.model import IDENTITY, Columns, Packing, Source, VirtualArray
from insitu.model.axis import Indices
from insitu.reading.fetch import fetch_rows
from insitu.reading.read_statistics import ReadStatistics
from insitu.reading.request_cost import has_remote_sources
from insitu.reading.scatter import put
from insitu.reading.source_pool import SourcePool
from insitu.sources import ByteSource, is_local

__all__ = ["ChunkBytes", "fetch_small", "read_small_arrays", "values_from_chunks"]

SMALL_BYTES = 256 << 10
"""Larger arrays are read by a plan, by several threads."""
MAX_SPAN_BYTES = 4 << 20
"""Span of the file that the steps of an array may cover."""
MAX_STORED_BYTES = 1 << 20
"""Bytes of an array, stored, that are fetched to decode a file: a larger one is read like any other."""

FEW = 64
"""Ranges of a local file that are read one by one."""

ChunkBytes = tuple[bytes, ...]
"""The chunks of an array, as stored."""


@dataclass(frozen=True, slots=True)
class _StridedBytes:
    """The bytes of an array: `count` equal pieces of a file, `step` bytes apart."""

    source: Source
    offset: int
    count: int
    step: int
    length: int
    """Bytes of a piece."""
    dtype: np.dtype[Any]
    packing: Packing | None

    @property
    def end(self) -> int:
        return self.offset + (self.count - 1) * self.step + self.length


def read_small_arrays(
    jobs: Sequence[tuple[VirtualArray, npt.NDArray[Any]]], opened: SourcePool, tally: ReadStatistics | None
) -> set[int]:
    """Fill the outputs of small uncompressed arrays; return the numbers of those that are done.

    Parameters
    ----------
    jobs
        Whole arrays, and where their values go.
    opened
        Pool of open sources.
    tally
        Counts requests and bytes.
    """
    found = [(number, place) for number, (array, _) in enumerate(jobs) if (place := _locate(array)) is not None]
    by_source: dict[Source, list[tuple[int, _StridedBytes]]] = {}
    for number, place in found:
        by_source.setdefault(place.source, []).append((number, place))
    done: set[int] = set()
    for source, places in by_source.items():
        try:
            _read_source(source, places, jobs, opened, tally)
        except InsituError:
            continue  # the plan meets the same error, and says which variable and chunk it concerns
        done.update(number for number, _ in places)
    return done


def _locate(array: VirtualArray) -> _StridedBytes | None:
    """Return where the bytes of a whole array lie, if they lie in equal steps of one local file."""
    if len(array.tiles) != 1 or not 0 < array.size * array.dtype.itemsize <= SMALL_BYTES:
        return None
    tile = array.tiles[0]
    if len(tile.encodings) != 1 or tile.shape != array.shape or array.dtype.hasobject:
        return None
    encoding, axes = tile.encodings[0], tile.axes
    if not encoding.raw or encoding.order is not None or tile.dimensions != tuple(range(array.ndim)):
        return None
    if any(axis.length != 1 for axis in axes[array.ndim :]):  # that of characters which became texts has length 1
        return None
    if encoding.dtype.hasobject or not isinstance(tile.chunks, Columns):
        return None
    for number, axis in enumerate(axes):
        if not axis.is_regular or axis.length % axis.size or (number and axis.length != axis.size):
            return None
    # Only the first axis has several cells, so a column has one row for each of them, or one for all.
    table, count = tile.chunks, axes[0].count if axes else 1
    nbytes = encoding.dtype.itemsize * math.prod([axis.size for axis in axes])
    source, packing = _constant(table.source), _constant(table.packing)
    if source is None or source < 0 or packing is None or _constant(table.length) != nbytes:
        return None
    about = table.sources[source]
    if about.optional or has_remote_sources([about]):
        return None
    offset = table.offset.reshape(-1)
    step = nbytes
    if count > 1:
        steps = offset[1:] - offset[:-1]
        step = int(steps[0]) if len(steps) == count - 1 else 0
        if step < nbytes or step * count > MAX_SPAN_BYTES or (steps != step).any():
            return None
    row = None if tile.packings is IDENTITY else tile.packings[packing]
    return _StridedBytes(
        about, int(offset[0]), count, step, nbytes, encoding.dtype, None if row is None or row.identity else row
    )


def _constant(column: npt.NDArray[Any]) -> int | None:
    """Return the one value of a column; None if there are several."""
    if column.size == 1:
        return int(column.item())
    rows = column.reshape(-1)
    return int(rows[0]) if (rows == rows[0]).all() else None


def _read_source(
    source: Source,
    places: list[tuple[int, _StridedBytes]],
    jobs: Sequence[tuple[VirtualArray, npt.NDArray[Any]]],
    opened: SourcePool,
    tally: ReadStatistics | None,
) -> None:
    with opened.acquire(source) as file:
        offset = np.array([place.offset for _, place in places], np.int64)
        length = np.array([place.end - place.offset for _, place in places], np.int64)
        blocks, requests, fetched = _fetch_ranges(file, offset, length)
    decoded = 0
    for (number, place), block in zip(places, blocks, strict=True):
        array, out = jobs[number]
        pieces: npt.NDArray[Any] = np.ndarray(
            (place.count, place.length // place.dtype.itemsize), place.dtype, block, 0,
            (place.step, place.dtype.itemsize),
        )  # fmt: skip
        stored = pieces.reshape(array.shape)
        if place.packing is not None:
            unpack(stored, place.packing, out)
        else:
            put(out, (), stored)
        decoded += stored.nbytes
    if tally is not None:
        tally.add(requests, fetched, decoded, sum(place.count for _, place in places), 0.0, 0.0)


def _fetch_ranges(source: ByteSource, offset: Indices, length: Indices) -> tuple[list[memoryview], int, int]:
    """Return the bytes of ranges in any order, the number of requests, and the number of bytes fetched."""
    order = np.argsort(offset, kind="stable")
    rows, requests, fetched = fetch_rows(source, offset[order], length[order], keep=True)
    if isinstance(rows, ChunkBatch):  # as lists of numbers: labels may be cut into thousands of chunks of a few bytes
        block, begin, nbytes = rows.columns
        view: memoryview = block.data
        rows = [view[low : low + size] for low, size in zip(begin.tolist(), nbytes.tolist(), strict=True)]
    pieces = list(rows)
    for place, piece in zip(order.tolist(), rows, strict=True):
        pieces[place] = piece
    return pieces, requests, fetched


def fetch_small(arrays: Mapping[str, VirtualArray], source: ByteSource) -> dict[str, ChunkBytes]:
    """Return the chunks, as stored, of those arrays that are small and plain, fetched in one batch."""
    own = source.describe().url if arrays else ""
    found = {name: columns for name, array in arrays.items() if (columns := _chunk_ranges(array, own)) is not None}
    if not found:
        return {}
    ranges = [pair for columns in found.values() for pair in zip(*columns, strict=True)]
    # Of a few ranges of a local file, arrays of offsets and lengths take longer than the system calls.
    blocks: Sequence[bytes | memoryview] = source.read_many(ranges) if len(ranges) <= FEW and is_local(source) else ()
    if list(map(len, blocks)) != [length for _, length in ranges]:
        offset, length = np.array(ranges, np.int64).T
        try:
            blocks, _, _ = _fetch_ranges(source, offset, length)
        except TruncatedError as problem:
            raise problem.with_context(url=source.url) from None
    rest = iter(blocks)
    return {name: tuple(bytes(next(rest)) for _ in columns[0]) for name, columns in found.items()}


def _chunk_ranges(array: VirtualArray, own: str) -> tuple[list[int], list[int]] | None:
    """Return offsets and lengths of small, plain chunks in this file; else None."""
    if len(array.tiles) != 1:
        return None
    tile = array.tiles[0]
    table = tile.chunks
    if not isinstance(table, Columns) or len(table.sources) != 1 or len(tile.encodings) != 1:
        return None
    if table.sources[0].url != own:
        return None  # a document that describes another file, a file with its data elsewhere
    if tile.encodings[0].dtype.hasobject or not _is_contiguous_in_order(array):
        return None  # values of varying length lie in heaps elsewhere
    cells = math.prod(table.shape)
    if not 0 < cells <= MAX_STORED_BYTES // 16 or table.offset.size != cells:
        return None
    if any(table.source.reshape(-1).tolist()):
        return None  # a chunk that was never written has no bytes
    # As lists: nearly always there is one chunk.
    offset, length = table.offset.reshape(-1).tolist(), table.length.reshape(-1).tolist()
    length *= cells // len(length)
    return (offset, length) if min(length) >= 0 and sum(length) <= MAX_STORED_BYTES else None


def _is_contiguous_in_order(array: VirtualArray) -> bool:
    """Return whether chunks in order make up the array: only its first axis is chunked."""
    tile = array.tiles[0]
    return (
        tile.layout == tuple(range(len(tile.axes)))
        and all(axis.is_regular and axis.padded for axis in tile.axes)
        and all(axis.count == 1 for axis in tile.axes[1:])
    )


def values_from_chunks(array: VirtualArray, blocks: ChunkBytes) -> npt.NDArray[Any]:
    """Return the values that fetched chunks hold, as stored."""
    tile = array.tiles[0]
    encoding = tile.encodings[0]
    shape = tuple(axis.size for axis in tile.axes)
    if encoding.raw and shape and set(map(len, blocks)) == {math.prod(shape) * encoding.dtype.itemsize}:
        joined = np.frombuffer(b"".join(blocks), encoding.dtype).reshape(-1, *shape[1:])
    else:
        masks = (
            np.broadcast_to(tile.chunks.filter_mask.reshape(-1), (len(blocks),))
            if isinstance(tile.chunks, Columns)
            else [0]
        )
        parts = [
            decode(block, encoding, shape, filter_mask=int(mask)) for block, mask in zip(blocks, masks, strict=True)
        ]
        joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
    # With the ellipsis one element stays an array: as a scalar, bytes lose their NULs, and so their
    # type.
    shown: Any = (*(slice(0, axis.length) for axis in tile.axes), ...)
    values: npt.NDArray[Any] = joined[shown].reshape(array.shape)
    return values
