"""Concurrent fetch of many ranges of one remote object, in about one round trip.

Ranges are clipped to the object, merged where they lie close, cut where they are long, requested
all at once, and put together again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from insitu.sources.coalesce import frugal_gap, merge_ranges, split_answers
from insitu.sources.protocol import Range
from insitu.sources.ranges import clip_all
from insitu.sources.threads import gather
from insitu.sources.throttle import HostThrottle

__all__ = ["LONGEST_REQUEST", "PART", "RequestLimits", "fetch_many"]

LONGEST_REQUEST = 16 << 20
"""Merged requests stay below this, so that long stretches come over several connections."""

PART = 8 << 20
"""A single range of more than twice this is fetched in parts of about this size, for the same
reason.
"""

Fetch = Callable[[int, int, threading.Event], bytes]


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How ranges of a remote object become requests."""

    gap: int | None = None
    """Bytes that are read along to save a request; None: learned from the responses."""
    longest: int = LONGEST_REQUEST
    """Bytes of a merged request, at most."""
    width: int | None = None
    """Requests under way at once; None: learned from the responses."""
    whole: int = 64 << 20
    """The largest object, in bytes, that is read whole (and kept) from a server without ranges."""


def fetch_many(
    fetch: Fetch,
    url: str,
    ranges: Sequence[Range],
    throttle: HostThrottle,
    *,
    size: int | None = None,
    limits: RequestLimits | None = None,
) -> list[bytes]:
    """Return all ranges of an object, fetched concurrently through `fetch(offset, length, stop)`.

    Parameters
    ----------
    fetch
        Returns one range, short only at the end of the object; `stop` is set when another range
        of the batch has failed.
    url
        For messages.
    ranges
        What is wanted.
    throttle
        Cost of a request and number of requests at once; it learns from this batch.
    size
        The object's size, if it is known already.
    limits
        How ranges are merged, and how many are requested at once.
    """
    limits = limits or RequestLimits()
    clipped = clip_all(url, ranges, size)
    if not clipped:
        return []
    offsets, lengths = zip(*clipped, strict=True)
    gap = frugal_gap(lengths, throttle.request_bytes) if limits.gap is None else limits.gap
    plan = merge_ranges(offsets, lengths, gap, limits.longest)
    # A range whose end is not known may be damaged, 2^60 bytes long: that one is asked for as it
    # is.
    parts = [_cut_range(item, limits.longest) if size is not None else [item] for item in plan.ranges()]
    requests = [part for some in parts for part in some]
    start = time.perf_counter()
    answers = iter(
        gather(lambda item, stop: fetch(item[0], item[1], stop), requests, width=limits.width or throttle.width)
    )
    fetched = [_join([next(answers) for _ in some]) for some in parts]
    throttle.record_transfer(sum(map(len, fetched)), time.perf_counter() - start)
    return split_answers(plan, lengths, fetched)


def _cut_range(item: Range, limit: int) -> list[Range]:
    """Return a long range in parts of equal length.

    Examples
    --------
    >>> _cut_range((10, 40 << 20), 16 << 20)[:2], _cut_range((10, 5), 16 << 20)
    ([(10, 8388608), (8388618, 8388608)], [(10, 5)])
    """
    offset, length = item
    part = min(PART, limit)
    if length <= 2 * part:
        return [item]
    step = -(-length // -(-length // part))
    return [(offset + at, min(step, length - at)) for at in range(0, length, step)]


def _join(parts: list[bytes]) -> bytes:
    return parts[0] if len(parts) == 1 else b"".join(parts)
