"""Whole small arrays of uncompressed local files, read without a plan.

A file of many small variables (200 of 100 values; NetCDF-3 records of one value) costs more to plan
than to read. Where the bytes of a whole array lie in equal steps of one file, they are one strided
view of it: the ranges of all such arrays are read together, and copied. Everything else, and every
error, is left to the plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cf.unpack import unpack
from insitu.errors import InsituError
from insitu.model import IDENTITY, Columns, Packing, Source, VirtualArray
from insitu.reading.fetch import fetch_rows
from insitu.reading.read_statistics import ReadStatistics
from insitu.reading.request_cost import is_far
from insitu.reading.scatter import put
from insitu.reading.source_pool import SourcePool

__all__ = ["read_small_arrays"]

SMALL_BYTES = 256 << 10
"""Larger arrays are read by a plan, by several threads."""
MAX_SPAN_BYTES = 4 << 20
"""Span of the file that the steps of an array may cover."""
MERGED_GAP_BYTES = 16 << 10
"""Ranges of the file that are closer than this are read as one."""


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
    if about.optional or is_far([about]):
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
    places.sort(key=lambda item: item[1].offset)
    low: list[int] = []
    high: list[int] = []
    which = []
    for _, place in places:
        if not low or place.offset > high[-1] + MERGED_GAP_BYTES:
            low.append(place.offset)
            high.append(place.end)
        high[-1] = max(high[-1], place.end)
        which.append(len(low) - 1)
    offset = np.array(low, np.int64)
    with opened.acquire(source) as file:
        data, requests, fetched = fetch_rows(file, offset, np.array(high, np.int64) - offset)
    decoded = 0
    for (number, place), block in zip(places, which, strict=True):
        array, out = jobs[number]
        pieces: npt.NDArray[Any] = np.ndarray(
            (place.count, place.length // place.dtype.itemsize), place.dtype, data[block], place.offset - low[block],
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
