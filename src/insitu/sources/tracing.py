"""Tracing of I/O costs: requests, bytes, latency, retries and cache hits of all sources in this
process.

`trace()` is for users who want to know why something is slow. Sources report here what they do.
Without an open trace reporting does nothing; with one it costs about a microsecond.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from insitu.forking import fork_safe_lock

__all__ = [
    "Histogram",
    "HostCounts",
    "Request",
    "Trace",
    "is_tracing",
    "report_hits",
    "report_misses",
    "report_retry",
    "trace",
]

_open_traces: tuple[Trace, ...] = ()
"""The open traces; replaced, never changed, so that reporting needs no lock to look at it."""


@dataclass(slots=True)
class Histogram:
    """Latencies, counted in classes that double: 1 µs, 2 µs, 4 µs … 1 hour.

    Examples
    --------
    >>> latency = Histogram()
    >>> for milliseconds in (50, 52, 54, 400):
    ...     latency.add(milliseconds / 1000)
    >>> latency.count, round(latency.mean, 3), round(latency.quantile(0.5), 2), latency.longest
    (4, 0.139, 0.05, 0.4)
    """

    counts: dict[int, int] = field(default_factory=dict)
    """Class → answers. Class n holds what took from 2ⁿ⁻¹ up to 2ⁿ microseconds."""
    count: int = 0
    seconds: float = 0.0
    shortest: float = float("inf")
    longest: float = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        """Count a response, or several that took equally long."""
        number = int(seconds * 1e6).bit_length()
        self.counts[number] = self.counts.get(number, 0) + times
        self.count += times
        self.seconds += seconds * times
        self.shortest = min(self.shortest, seconds)
        self.longest = max(self.longest, seconds)

    @property
    def mean(self) -> float:
        """Mean latency in seconds."""
        return self.seconds / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """Return the seconds within which this share of the responses came, as exact as the classes
        are.
        """
        rank, below = share * self.count, 0
        for number, many in sorted(self.counts.items()):
            below += many
            if below >= rank:
                middle = 0.75 * 2.0**number / 1e6
                return min(max(middle, self.shortest), self.longest)
        return self.longest

    def rows(self) -> list[tuple[float, float, int]]:
        """Return one row for each class (from, up to, count), empty ones between two others
        included; seconds.
        """
        if not self.counts:
            return []
        numbers = range(min(self.counts), max(self.counts) + 1)
        return [(2.0 ** (n - 1) / 1e6 if n else 0.0, 2.0**n / 1e6, self.counts.get(n, 0)) for n in numbers]


@dataclass(slots=True)
class HostCounts:
    """Requests to one host, one bucket, or this machine's disks."""

    requests: int = 0
    bytes: int = 0
    retries: int = 0
    failures: int = 0
    """Requests that returned nothing: refused, cut off, timed out."""
    seconds: float = 0.0
    """Sum of all latencies: more than the elapsed time where requests ran concurrently."""


class Trace:
    """What all sources did while the trace was open.

    Examples
    --------
    >>> from insitu.sources import open_source
    >>> with trace() as cost:
    ...     _ = open_source(b"abcdef").read(0, 3)
    >>> cost.requests, cost.bytes, list(cost.places)
    (1, 3, ['memory'])
    """

    def __init__(self) -> None:
        self.latency = Histogram()
        """Latencies of the requests, up to the last byte."""
        self.places: dict[str, HostCounts] = {}
        """Counts of each host and bucket (a URL without a path), of `files` and of `memory`."""
        self.cache_hits = self.cache_misses = self.cache_bytes = 0
        """Ranges found in a cache; ranges not found; bytes that came from caches."""
        self.waves = 0
        """How often a request began when none was under way: about the number of sequential round
        trips.
        """
        self.most_at_once = 0
        self.seconds = 0.0
        """Elapsed time, from the begin of the trace to its end."""
        self._under_way = 0
        self._began = time.perf_counter()
        self._lock = fork_safe_lock()

    @property
    def requests(self) -> int:
        """Number of requests, retries included."""
        return sum(place.requests for place in list(self.places.values()))

    @property
    def bytes(self) -> int:
        """Bytes read from storage."""
        return sum(place.bytes for place in list(self.places.values()))

    @property
    def retries(self) -> int:
        """Number of repeated requests."""
        return sum(place.retries for place in list(self.places.values()))

    @property
    def failures(self) -> int:
        """Number of requests that returned nothing."""
        return sum(place.failures for place in list(self.places.values()))

    def _begin(self) -> None:
        with self._lock:
            self.waves += self._under_way == 0
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)

    def _end(self, name: str, seconds: float, count: int, times: int, failed: bool) -> None:
        with self._lock:
            # A request that began before the trace did is not taken from its count.
            self._under_way = max(self._under_way - 1, 0)
            place = self.places.setdefault(name, HostCounts())
            place.requests += times
            place.bytes += count
            place.seconds += seconds
            place.failures += failed
            self.latency.add(seconds / times, times)

    def _note(self, name: str | None, retries: int, hits: int, misses: int, count: int) -> None:
        with self._lock:
            if name is not None:
                self.places.setdefault(name, HostCounts()).retries += retries
            self.cache_hits += hits
            self.cache_misses += misses
            self.cache_bytes += count

    def __str__(self) -> str:
        lines = [
            f"{self.requests:,} requests in {self.waves:,} waves (at most {self.most_at_once} at once), "
            f"{_format_bytes(self.bytes)}, {self.seconds or time.perf_counter() - self._began:.2f} s"
        ]
        if self.retries or self.failures:
            lines.append(f"{self.retries:,} retries, {self.failures:,} requests failed")
        if self.cache_hits or self.cache_misses:
            lines.append(
                f"cache: {self.cache_hits:,} hits ({_format_bytes(self.cache_bytes)}), {self.cache_misses:,} misses"
            )
        if len(self.places) > 1:
            for name, place in sorted(self.places.items(), key=lambda item: -item[1].requests)[:10]:
                lines.append(f"  {place.requests:>8,} requests  {_format_bytes(place.bytes):>9}  {name}")
        if self.latency.count:
            lines.append(
                f"latency: median {_format_seconds(self.latency.quantile(0.5))}, "
                f"95 % within {_format_seconds(self.latency.quantile(0.95))}, "
                f"longest {_format_seconds(self.latency.longest)}"
            )
            most = max(self.latency.counts.values())
            for low, high, many in self.latency.rows():
                bar = "█" * -(-30 * many // most) if many else ""
                lines.append(f"  {_format_seconds(low):>7} - {_format_seconds(high):<7} {many:>8,} {bar}".rstrip())
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"Trace({self.requests} requests, {self.bytes} bytes, {self.retries} retries, {self.cache_hits} cache hits)"
        )


@contextmanager
def trace() -> Iterator[Trace]:
    """Collect what all sources of this process do while the block runs, in whatever thread.

    Traces may be nested or overlap: each counts all. Other processes (workers) have their own.

    Examples
    --------
    >>> with trace() as cost:  # doctest: +SKIP
    ...     insitu.scan("https://host/era5.nc")
    >>> print(cost)  # doctest: +SKIP
    5 requests in 3 waves (at most 2 at once), 214.5 kB, 0.19 s
    """
    recorded = Trace()
    with _lock:
        _set_traces((*_open_traces, recorded))
    try:
        yield recorded
    finally:
        with _lock:
            _set_traces(tuple(other for other in _open_traces if other is not recorded))
        recorded.seconds = time.perf_counter() - recorded._began


_lock = fork_safe_lock()


def _set_traces(traces: tuple[Trace, ...]) -> None:
    global _open_traces
    _open_traces = traces


def is_tracing() -> bool:
    """Return whether any trace is open."""
    return bool(_open_traces)


class Request:
    """One request (or a batch that counts as `times`) for the open traces: a context manager.

    It lasts from the request to the last byte. Its user sets `bytes`; leaving it by an error counts
    as a failure.
    """

    __slots__ = ("_place", "_start", "_times", "_traces", "bytes")

    def __init__(self, place: str, times: int = 1) -> None:
        self._place, self._times = place, times
        self.bytes = 0

    def __enter__(self) -> Self:
        self._traces = _open_traces
        for listener in self._traces:
            listener._begin()
        self._start = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._traces:
            seconds = time.perf_counter() - self._start
            for listener in self._traces:
                listener._end(self._place, seconds, self.bytes, self._times, kind is not None)


def report_retry(place: str) -> None:
    """Report that something is requested again."""
    for listener in _open_traces:
        listener._note(place, 1, 0, 0, 0)


def report_hits(times: int, count: int) -> None:
    """Report that a cache had these ranges, of so many bytes."""
    for listener in _open_traces:
        listener._note(None, 0, times, 0, count)


def report_misses(times: int) -> None:
    """Report that a cache did not have these ranges."""
    for listener in _open_traces:
        listener._note(None, 0, 0, times, 0)


def _format_bytes(count: int) -> str:
    number, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if number < 1000:
            break
        number, unit = number / 1000, larger
    return f"{number:.4g} {unit}"


def _format_seconds(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"
