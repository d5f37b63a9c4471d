"""Cutting of the ranges of a read plan into batches of rows, one for each task of a thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from insitu.model import Source
from insitu.reading.request_cost import has_remote_sources, request_bytes
from insitu.reading.thread_pools import count_cores
from insitu.sources.coalesce import frugal_gap

__all__ = ["BATCH_ROWS", "MIN_BATCH_BYTES", "REMOTE_REQUESTS", "FetchRanges", "cut_batches"]

BATCH_BYTES = 4 << 20
"""Encoded bytes of a task: large enough that its overhead is small beside decoding, small enough to
bound memory.
"""
MIN_BATCH_BYTES = 256 << 10
"""Minimal bytes of a task: a smaller one is done before another thread has started."""
BATCH_ROWS = 4096
"""Maximal number of rows of a task."""
REMOTE_REQUESTS = 64
"""Maximal number of requests of a task for remote sources."""
ASSUMED_CHUNK_BYTES = 256 << 10
"""Assumed size of an object of unknown size: a Zarr chunk."""


class FetchRanges(Protocol):
    """Byte ranges in the order of fetching, as a `ReadPlan` has them."""

    @property
    def sources(self) -> Sequence[Source]:
        """What the column `source` refers to."""

    @property
    def source(self) -> npt.NDArray[Any]:
        """Number of the source of each."""

    @property
    def offset(self) -> npt.NDArray[np.int64]:
        """First byte."""

    @property
    def length(self) -> npt.NDArray[np.int64]:
        """Bytes; -1: up to the end of the object."""


def cut_batches(plan: FetchRanges) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows, one for each task; rows that share a chunk stay together."""
    count = len(plan.offset)
    if count <= 1:
        yield from [(0, 1)] * count
        return
    size = np.where(plan.length < 0, ASSUMED_CHUNK_BYTES, plan.length)
    if has_remote_sources(plan.sources):
        yield from _cut_remote_batches(plan, size)
        return
    new = np.ones(count, bool)  # whether a row has other bytes than the row before
    new[1:] = (np.diff(plan.source) != 0) | (np.diff(plan.offset) != 0) | (np.diff(plan.length) != 0)
    total = np.cumsum(np.where(new, size, 0))
    firsts = np.append(np.flatnonzero(new), count)
    # A short read is divided among the cores, too.
    enough = min(max(int(total[-1]) // (2 * count_cores()), MIN_BATCH_BYTES), BATCH_BYTES)
    begin = 0
    while begin < count:
        end = int(np.searchsorted(total, total[begin] - size[begin] + enough, side="right"))
        end = min(max(end, begin + 1), begin + BATCH_ROWS, count)
        end = int(firsts[np.searchsorted(firsts, end)])  # not between two rows of one chunk
        yield begin, end
        begin = end


def _cut_remote_batches(plan: FetchRanges, size: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows of remote objects, cut where another object begins or a task has enough
    requests or bytes.

    Tasks are smaller than for local files, so that many objects are requested at once, and chunks
    are decoded while others are fetched.
    """
    gap = frugal_gap(size, request_bytes(plan.sources))
    reach = plan.offset + size
    other = np.diff(plan.source) != 0
    request = np.cumsum(np.append(True, other | (plan.offset[1:] > reach[:-1] + gap)))
    total = np.cumsum(size)
    same = np.append(~other & (np.diff(plan.offset) == 0), False)  # rows of one chunk stay together
    borders = np.append(np.flatnonzero(other) + 1, len(size))
    begin = 0
    for stop in borders.tolist():
        while begin < stop:
            enough = np.searchsorted(total, total[begin] - size[begin] + BATCH_BYTES, side="right")
            many = np.searchsorted(request, request[begin] + REMOTE_REQUESTS)
            end = min(max(int(min(enough, many)), begin + 1), stop)
            while same[end - 1]:
                end += 1
            yield begin, end
            begin = end
