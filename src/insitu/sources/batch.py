"""How are many ranges of one remote object fetched in about one round trip?

Cut to the object, merge those that lie close, ask for what is left all at once, and cut the answers apart again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from insitu.sources.coalesce import frugal_gap, merge, split, worthwhile_gap
from insitu.sources.protocol import Range
from insitu.sources.ranges import clip_all
from insitu.sources.threads import WIDTH, gather

__all__ = ["GAP", "LIMIT", "fetch_many"]

GAP = worthwhile_gap(latency=0.05, bandwidth=100e6, in_flight=WIDTH)
"""The most bytes that are read along to save a request: what a store in the same country or cloud makes worthwhile."""

LIMIT = 16 << 20
"""Merged requests stay below this, so that long stretches come over several connections."""


def fetch_many(
    fetch: Callable[[int, int, threading.Event], bytes],
    url: str,
    ranges: Sequence[Range],
    *,
    size: int | None = None,
    gap: int = GAP,
    limit: int = LIMIT,
    width: int = WIDTH,
) -> list[bytes]:
    """All ranges of an object through `fetch(offset, length, stop)`, concurrently.

    Parameters
    ----------
    fetch
        Gives one range, short only at the end of the object; `stop` is set when the batch has failed elsewhere.
    size
        The object's size, if it is known already.
    gap, limit, width
        How far apart ranges may lie to be merged, how long they may become, how many are asked for at once.
    """
    there = clip_all(url, ranges, size)
    if not there:
        return []
    offsets, lengths = zip(*there, strict=True)
    plan = merge(offsets, lengths, frugal_gap(lengths, gap), limit)
    fetched = gather(lambda item, stop: fetch(item[0], item[1], stop), plan.ranges(), width=width)
    return split(plan, lengths, fetched)
