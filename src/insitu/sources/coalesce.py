"""Coalescing of byte ranges: which requests fetch them, and where in the responses each range lies.

Pure: arrays in, a plan out. Ranges nearer to each other than a gap are fetched together, because a
request costs a round trip; but the bytes between them cost time too, so the gap is a cost rule and
not a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["MergedRanges", "frugal_gap", "merge_ranges", "split_answers", "worthwhile_gap"]

Column = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class MergedRanges:
    """The requests to make, and where each range lies in them."""

    offset: Column
    """First byte of each request, ascending."""
    length: Column
    """Bytes of each request."""
    index: Column
    """For each asked range, the request that holds it; -1 for an empty range, which needs none."""
    inner: Column
    """For each asked range, its first byte within that request."""

    def ranges(self) -> list[tuple[int, int]]:
        """Return the requests as `(offset, length)` pairs."""
        return list(zip(self.offset.tolist(), self.length.tolist(), strict=True))


def merge_ranges(offset: ArrayLike, length: ArrayLike, gap: int = 0, limit: int | None = None) -> MergedRanges:
    """Merge ranges that lie at most `gap` bytes apart.

    Parameters
    ----------
    offset, length
        The ranges: in any order, overlapping or repeated as they come.
    gap
        The most bytes between two ranges that are read along to save a request.
    limit
        Stop joining when a request would become longer than this (one long range is never cut): a
        very long request runs on one connection while the others idle.

    Examples
    --------
    >>> plan = merge_ranges([0, 100, 14], [10, 5, 6], gap=4)
    >>> plan.ranges(), plan.index.tolist(), plan.inner.tolist()
    ([(0, 20), (100, 5)], [0, 1, 0], [0, 0, 14])
    """
    starts, lengths = np.asarray(offset, np.int64).ravel(), np.asarray(length, np.int64).ravel()
    index, inner = np.full(starts.size, -1, np.int64), np.zeros(starts.size, np.int64)
    nonempty = np.flatnonzero(lengths)
    if not nonempty.size:
        no_bytes = np.empty(0, np.int64)
        return MergedRanges(no_bytes, no_bytes.copy(), index, inner)

    order = nonempty[np.argsort(starts[nonempty], kind="stable")]
    begin = starts[order]
    # A long range may reach over several that start later, so what counts is the furthest end so
    # far.
    furthest_end = np.maximum.accumulate(begin + lengths[order])
    first = np.flatnonzero(np.concatenate(([True], begin[1:] > furthest_end[:-1] + gap)))
    if limit is not None:
        first = _cut_at_limit(begin, furthest_end, first, limit)

    last = np.append(first[1:], begin.size) - 1
    merged_offset = begin[first]
    piece = np.repeat(np.arange(first.size), last - first + 1)
    index[order] = piece
    inner[order] = begin - merged_offset[piece]
    return MergedRanges(merged_offset, furthest_end[last] - merged_offset, index, inner)


def _cut_at_limit(begin: Column, furthest_end: Column, first: Column, limit: int) -> Column:
    """Return where requests start when none may grow past `limit`: one step per request, not per
    range.
    """
    last = np.append(first[1:], begin.size) - 1
    long = furthest_end[last] - begin[first] > limit
    if not long.any():
        return first
    cuts: list[int] = []
    for start, stop in zip(first[long].tolist(), (last[long] + 1).tolist(), strict=True):
        at = start
        while True:
            # The first range that reaches past both the limit and the piece's first range: whatever
            # the first range covers already comes for free.
            bound = max(int(begin[at]) + limit, int(furthest_end[at]))
            at += int(np.searchsorted(furthest_end[at:stop], bound, side="right"))
            if at >= stop:
                break
            cuts.append(at)
    return np.sort(np.concatenate((first, np.asarray(cuts, np.int64))))


def split_answers(plan: MergedRanges, lengths: Sequence[int], fetched: Sequence[bytes]) -> list[bytes]:
    """Cut the responses to the requests of `plan` into the ranges that were asked for."""
    result = []
    for piece, inner, length in zip(plan.index.tolist(), plan.inner.tolist(), lengths, strict=True):
        if piece < 0:
            result.append(b"")
            continue
        data = fetched[piece]
        # A range that is the whole request is handed on as it is: the common case, and no copy.
        result.append(data if inner == 0 and length >= len(data) else data[inner : inner + length])
    return result


def worthwhile_gap(latency: float, bandwidth: float, in_flight: int) -> int:
    """Return how many bytes cost as much as a request: latency x bandwidth / requests in flight.

    With `in_flight` requests under way a further one costs a share `latency / in_flight` of the
    time, a byte `1 / bandwidth`. A local disk has no latency worth speaking of, and so no gap.

    Parameters
    ----------
    latency
        Seconds until a request answers.
    bandwidth
        Bytes per second of all connections together.
    in_flight
        Requests under way at once.

    Examples
    --------
    >>> worthwhile_gap(0.05, 100e6, 32), worthwhile_gap(0.0, 3e9, 1)
    (156250, 0)
    """
    return int(latency * bandwidth / max(in_flight, 1))


def frugal_gap(lengths: ArrayLike, gap: int, floor: int = 8192) -> int:
    """Return `gap`, narrowed so that scattered small ranges do not read far more bytes than were
    asked for.

    At most the mean length of the ranges (or `floor`, below which a request's own headers weigh as
    much): merging then never more than doubles the bytes, while the cost rule alone reads 20 MB for
    800 nodes of 3 kB in a 290 MB object.
    """
    sizes = np.asarray(lengths, np.int64)
    mean = int(sizes.mean()) if sizes.size else 0
    return min(gap, max(floor, mean))
