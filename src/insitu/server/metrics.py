"""Counters, gauges and histograms in the text format of Prometheus, summed over all workers.

Each worker writes its numbers into a small memory-mapped file; whichever worker answers `/metrics`
adds up the files of all. The files of workers that have ended stay, so that no counter goes down.

Why not `prometheus_client`: its multiprocess mode is chosen once per process, by an environment
variable that must be set before the package is imported, and writes to one folder. Here several
servers may live in one process, each with its own folder, which is removed when the server closes;
counters of the chunk cache are copied from the cache, which its counters do not allow; and the
gauges of a killed worker must not count. The wrapper would be longer than this module.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np

__all__ = ["FOLDER_PREFIX", "ROUTES", "Metrics"]

FOLDER_PREFIX = "insitu-metrics-"
"""Prefix of the names of temporary folders."""
ROUTES = (
    "v2/count", "v2/max", "v2/min", "v2/select", "v2/sum", "reduce", "read", "scan", "zarr", "health", "ready", "metrics", "openapi", "other",
)  # fmt: skip
STATUSES = (200, 206, 304, 400, 401, 403, 404, 405, 408, 409, 413, 422, 429, 500, 502, 503, 504, 0)
"""Statuses that are counted one by one; 0 stands for any other."""
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, float("inf"))
COUNTERS = {
    "insitu_bytes_sent_total": "Bytes of responses.",
    "insitu_bytes_fetched_total": "Bytes read from storage.",
    "insitu_bytes_decoded_total": "Bytes after decoding.",
    "insitu_chunks_total": "Chunks decoded.",
    "insitu_cache_hits_total": "Decoded chunks that were taken from the cache.",
    "insitu_cache_misses_total": "Chunks that were not in the cache and had to be decoded.",
    "insitu_scans_total": "Archives whose metadata was scanned.",
}
GAUGES = {
    "insitu_memory_bytes": "Decoded bytes of requests that run now.",
    "insitu_running": "Requests that run now.",
    "insitu_waiting": "Requests in the queue.",
    "insitu_cache_bytes": "Bytes of decoded chunks in the cache.",
}


def _layout() -> dict[tuple[str, ...], int]:
    names: list[tuple[str, ...]] = [(name,) for name in (*COUNTERS, *GAUGES)]
    names += [("requests", route, str(status)) for route in ROUTES for status in STATUSES]
    names += [("seconds", route, str(edge)) for route in ROUTES for edge in BUCKETS]
    names += [("seconds_sum", route) for route in ROUTES]
    return {name: i for i, name in enumerate(names)}


LAYOUT = _layout()


class Metrics:
    """The counters of one worker.

    Parameters
    ----------
    folder
        Folder for the files of all workers; whoever made it removes it. Without, a new temporary
        folder, which is removed when these metrics are closed.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = Path(folder or tempfile.mkdtemp(prefix=FOLDER_PREFIX))
        self._remove = None if folder else weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.path = self.folder / f"{os.getpid()}-{threading.get_native_id()}-{os.urandom(4).hex()}"
        with open(self.path, "w+b") as file:
            file.truncate(8 * len(LAYOUT))
            self._map = mmap.mmap(file.fileno(), 8 * len(LAYOUT))
        self._numbers = np.frombuffer(self._map, np.float64)
        self._lock = threading.Lock()

    def add(self, name: str, number: float) -> None:
        """Add to a counter."""
        with self._lock:
            self._numbers[LAYOUT[(name,)]] += number

    def set(self, name: str, number: float) -> None:
        """Set a gauge, or a counter that is kept elsewhere."""
        self._numbers[LAYOUT[(name,)]] = number

    def record_response(self, route: str, status: int, seconds: float, sent: int) -> None:
        """Count a response."""
        route = route if route in ROUTES else "other"
        known = status if status in STATUSES else 0
        edge = next(edge for edge in BUCKETS if seconds <= edge)
        with self._lock:
            self._numbers[LAYOUT[("requests", route, str(known))]] += 1
            self._numbers[LAYOUT[("seconds", route, str(edge))]] += 1
            self._numbers[LAYOUT[("seconds_sum", route)]] += seconds
            self._numbers[LAYOUT[("insitu_bytes_sent_total",)]] += sent

    def close(self) -> None:
        """Set the gauges of this worker to 0, and remove the folder if it is its own."""
        for name in GAUGES:
            self.set(name, 0)
        if self._remove is not None:
            self._remove()

    def text(self) -> str:
        """Return the sums over all workers in the text format of Prometheus."""
        total = np.zeros(len(LAYOUT))
        for path in sorted(self.folder.iterdir()) if self.folder.exists() else ():
            data = path.read_bytes()
            if len(data) != total.nbytes:
                continue
            numbers = np.frombuffer(data, np.float64).copy()
            if not _is_alive(path.name):
                for name in GAUGES:
                    numbers[LAYOUT[(name,)]] = 0
            total += numbers
        return "\n".join(_format_lines(total)) + "\n"


def _is_alive(name: str) -> bool:
    try:
        os.kill(int(name.partition("-")[0]), 0)
    except (OSError, ValueError):
        return False
    return True


def _format_lines(total: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Iterator[str]:
    for kind, names in (("counter", COUNTERS), ("gauge", GAUGES)):
        for name, about in names.items():
            yield f"# HELP {name} {about}"
            yield f"# TYPE {name} {kind}"
            yield f"{name} {total[LAYOUT[(name,)]]:.17g}"
    yield "# HELP insitu_requests_total Responses by route and status."
    yield "# TYPE insitu_requests_total counter"
    for route in ROUTES:
        for status in STATUSES:
            number = total[LAYOUT[("requests", route, str(status))]]
            if number:
                yield f'insitu_requests_total{{route="{route}",status="{status or "other"}"}} {number:.17g}'
    yield "# HELP insitu_request_seconds Seconds until a response was sent."
    yield "# TYPE insitu_request_seconds histogram"
    for route in ROUTES:
        counts = [total[LAYOUT[("seconds", route, str(edge))]] for edge in BUCKETS]
        if not sum(counts):
            continue
        below = 0.0
        for edge, count in zip(BUCKETS, counts, strict=True):
            below += count
            label = "+Inf" if edge == float("inf") else f"{edge:g}"
            yield f'insitu_request_seconds_bucket{{route="{route}",le="{label}"}} {below:.17g}'
        yield f'insitu_request_seconds_sum{{route="{route}"}} {total[LAYOUT[("seconds_sum", route)]]:.17g}'
        yield f'insitu_request_seconds_count{{route="{route}"}} {below:.17g}'
