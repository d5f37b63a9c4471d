"""Per-host throttle: how many requests a server gets at once, and what one more request costs.

Both are learned from the responses. The cost decides how far apart two ranges may lie to be fetched
together: a store in the same building answers in a millisecond and is best asked for exactly what
is wanted, one overseas is not. A server that answers 429 or 503 (`SlowDown` of S3) gets half as
many requests at once from then on, and one more after each calm interval.
"""

from __future__ import annotations

import threading
import time

from insitu.forking import renew_after_fork
from insitu.sources.coalesce import worthwhile_gap
from insitu.sources.threads import MAX_REQUESTS

__all__ = ["HostThrottle", "throttle_for"]

_MIN_WIDTH = 4
"""Requests at once that even a busy server gets."""
_RECOVERY_SECONDS = 2.0
"""Seconds without a refusal after which one more request at once is tried."""


class HostThrottle:
    """Adaptive request limit and cost estimate of one host or bucket.

    Examples
    --------
    >>> pace = HostThrottle(latency=0.05, bandwidth=100e6, width=32)
    >>> pace.request_bytes
    156250
    >>> pace.record_latency(0.01)
    >>> pace.request_bytes
    31250
    """

    def __init__(self, latency: float = 0.05, bandwidth: float = 100e6, width: int = MAX_REQUESTS) -> None:
        self._latency, self._bandwidth = latency, bandwidth
        self._most = self._width = width
        self._last_refusal = 0.0
        self._under_way = 0
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Reset the requests under way in a forked child: it has none."""
        self._turn = threading.Condition()
        self._under_way = 0

    @property
    def width(self) -> int:
        """The most requests at once."""
        return self._width

    @property
    def request_bytes(self) -> int:
        """Bytes that could be read in the time that one more request costs."""
        return min(
            max(worthwhile_gap(self._latency, self._bandwidth, self._width), _MIN_REQUEST_BYTES), _MAX_REQUEST_BYTES
        )

    def estimate_seconds(self, requests: float, nbytes: float) -> float:
        """Return about how long some requests take, as many at once as the server gets.

        Examples
        --------
        >>> HostThrottle(latency=0.05, bandwidth=100e6, width=32).estimate_seconds(64, 10e6)
        0.2
        """
        return max(requests / self._width, min(requests, 1)) * self._latency + nbytes / self._bandwidth

    def enter(self, until: float) -> None:
        """Wait for a turn, but not past `until` (of the monotonic clock): then proceed anyway, and
        fail by the timeout.
        """
        with self._turn:
            if self._width < self._most and time.monotonic() - self._last_refusal > _RECOVERY_SECONDS:
                self._width += 1
                self._last_refusal = time.monotonic()
            while self._under_way >= self._width:
                left = until - time.monotonic()
                if left <= 0 or not self._turn.wait(left):
                    break
            self._under_way += 1

    def leave(self) -> None:
        """End a request."""
        with self._turn:
            self._under_way -= 1
            self._turn.notify()

    def record_latency(self, first: float) -> None:
        """Learn from the seconds until a response began.

        The shortest recent ones count, because longer ones have waited for each other and not for
        the network.
        """
        self._latency = min(self._latency * 1.02, max(first, 1e-4))

    def record_transfer(self, count: int, seconds: float) -> None:
        """Learn from a batch: its bytes and the seconds they took, latency not counted."""
        if count >= _BANDWIDTH_SAMPLE and seconds > 0:
            self._bandwidth = 0.7 * self._bandwidth + 0.3 * min(max(count / seconds, 1e6), 5e9)

    def back_off(self) -> None:
        """Halve the number of requests at once: the server says that it is busy."""
        with self._turn:
            now = time.monotonic()
            # Those that were under way together are refused together: that is one lesson, not
            # thirty.
            if now - self._last_refusal > 0.1:
                self._width = max(self._width // 2, min(_MIN_WIDTH, self._most))
            self._last_refusal = now


_MIN_REQUEST_BYTES, _MAX_REQUEST_BYTES = 4 << 10, 1 << 20
_BANDWIDTH_SAMPLE = 1 << 20
"""A smaller transfer says nothing about bandwidth."""

_throttles: dict[str, HostThrottle] = {}
_MOST_HOSTS = 1024
"""A server may be led to any number of buckets; the oldest entries are dropped, and learn anew."""


def throttle_for(place: str) -> HostThrottle:
    """Return the throttle of a host or bucket, shared by all sources there."""
    found = _throttles.get(place)
    if found is not None:
        return found
    for old in list(_throttles)[: max(len(_throttles) - _MOST_HOSTS + 1, 0)]:
        _throttles.pop(old, None)
    return _throttles.setdefault(place, HostThrottle())
