"""Counters, gauges and histograms of a server, for Prometheus (`prometheus_client`).

With several worker processes, the parent process sets `PROMETHEUS_MULTIPROC_DIR` before they start
(`multiprocess_folder`). Each worker then writes its numbers into files of that folder, and
whichever worker answers `/metrics` adds up the files of all. The counters of workers that have
ended stay, so that no counter goes down; their gauges do not count. A single process keeps its
numbers in memory.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from insitu.server.error_responses import UnavailableError
from insitu.server.process_end import is_running
from insitu.server.worker_folder import worker_folder

__all__ = ["FOLDER_PREFIX", "ROUTES", "Metrics", "multiprocess_folder"]

ENVIRONMENT_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Name of the variable by which `prometheus_client` finds the folder of all workers. It is read
when the package is imported: a process that has imported it before keeps its numbers in memory.
"""
ATTEMPTS = 3
"""How often the files of all workers are read before the answer is that they cannot be."""
FOLDER_PREFIX = "insitu-metrics-"
"""Prefix of the names of temporary folders."""
ROUTES = (
    *("v2/count", "v2/max", "v2/min", "v2/select", "v2/sum"),
    *("reduce", "read", "scan", "zarr", "zarr2", "explorer", "health", "ready", "metrics", "openapi", "other"),
)
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histogram of seconds."""
COUNTERS = {
    "insitu_bytes_sent_total": "Bytes of responses.",
    "insitu_bytes_fetched_total": "Bytes read from storage.",
    "insitu_bytes_decoded_total": "Bytes after decoding.",
    "insitu_chunks_total": "Chunks decoded.",
    "insitu_cache_hits_total": "Decoded chunks that were taken from the cache.",
    "insitu_cache_misses_total": "Chunks that were not in the cache and had to be decoded.",
    "insitu_scans_total": "Archives whose metadata was scanned.",
    "insitu_processor_seconds_total": "Processor time of the threads that worked for requests.",
}
GAUGES = {
    "insitu_memory_bytes": "Decoded bytes of requests that run now.",
    "insitu_running": "Requests that run now.",
    "insitu_waiting": "Requests in the queue.",
    "insitu_cache_bytes": "Bytes of decoded chunks in the cache.",
    "insitu_pool_size": "Requests that can run at once.",
    "insitu_process_resident_bytes": "Memory of the worker processes.",
    "insitu_process_open_descriptors": "Open files and connections of the worker processes.",
    "insitu_process_threads": "Threads of the worker processes.",
    "insitu_workers": "Worker processes.",
}


class Metrics:
    """The metrics of one worker.

    Their registry is their own, because one process may hold several servers.
    """

    def __init__(self) -> None:
        self._folder = os.environ.get(ENVIRONMENT_VARIABLE)
        self._registry = CollectorRegistry()
        self._counters = {name: Counter(name, about, registry=self._registry) for name, about in COUNTERS.items()}
        self._gauges = {
            name: Gauge(name, about, registry=self._registry, multiprocess_mode="livesum")
            for name, about in GAUGES.items()
        }
        self._requests = Counter(
            "insitu_requests_total", "Responses by route and status.", ("route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "insitu_request_seconds",
            "Seconds until a response was sent.",
            ("route",),
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._totals = dict.fromkeys(COUNTERS, 0)
        """Last total of the counters that are kept elsewhere."""
        self._lock = threading.Lock()

    def add(self, name: str, number: float) -> None:
        """Add to a counter."""
        self._counters[name].inc(number)

    def add_up_to(self, name: str, total: int) -> None:
        """Add what was counted since the last call, to a counter whose total is kept elsewhere."""
        with self._lock:
            added, self._totals[name] = total - self._totals[name], total
        self._counters[name].inc(added)

    def set(self, name: str, number: float) -> None:
        """Set a gauge."""
        self._gauges[name].set(number)

    def record_response(self, route: str, status: int, seconds: float, sent: int) -> None:
        """Count a response; a status of 0 means that none was sent."""
        route = route if route in ROUTES else "other"  # clients choose the paths: labels must stay few
        self._requests.labels(route, str(status) if status else "other").inc()
        self._seconds.labels(route).observe(seconds)
        self.add("insitu_bytes_sent_total", sent)

    def set_process_gauges(self) -> None:
        """Set the gauges of this process: memory and descriptors where the system says them by files, as Linux does."""
        self.set("insitu_workers", 1)
        self.set("insitu_process_threads", threading.active_count())
        try:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.set("insitu_process_resident_bytes", pages * os.sysconf("SC_PAGE_SIZE"))
            self.set("insitu_process_open_descriptors", len(os.listdir("/proc/self/fd")))
            self.set("insitu_process_threads", len(os.listdir("/proc/self/task")))
        except OSError:
            pass

    def close(self) -> None:
        """Set the gauges of this worker to 0."""
        for name in GAUGES:
            self.set(name, 0)

    def text(self) -> bytes:
        """Return the metrics, summed over all workers, in the text format of Prometheus."""
        if self._folder is None:
            return generate_latest(self._registry)
        _forget_dead_workers(self._folder)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, self._folder)  # type: ignore[no-untyped-call]
        for _ in range(ATTEMPTS):
            try:
                return generate_latest(registry)
            except (OSError, ValueError, struct.error):
                continue  # another worker removes a file, or has just made one and not written to it yet
        raise UnavailableError("the metrics of a worker that starts cannot be read yet: send the request again")


@contextmanager
def multiprocess_folder(workers: int) -> Iterator[None]:
    """Let the worker processes that start within the `with` block share their metrics.

    Their folder is a new temporary one, removed at the end; or, if `PROMETHEUS_MULTIPROC_DIR` is
    set already, that one, emptied of the metrics of an earlier run. A single worker runs in this
    process and needs none.
    """
    given = os.environ.get(ENVIRONMENT_VARIABLE)
    if given is None:
        with worker_folder(FOLDER_PREFIX, ENVIRONMENT_VARIABLE, workers):
            yield
        return
    os.makedirs(given, exist_ok=True)
    for path in Path(given).glob("*.db"):
        path.unlink(missing_ok=True)
    yield


def _forget_dead_workers(folder: str) -> None:
    """Remove the gauges of workers that were killed, which nobody else sets to 0, and files without content."""
    if os.name == "nt":
        return  # there, signal 0 would end the process that it is sent to
    for path in Path(folder).glob("*.db"):
        with suppress(OSError):  # other workers do the same
            is_gauge = path.name.startswith("gauge_live")
            if (is_gauge or not path.stat().st_size) and not is_running(int(path.stem.rpartition("_")[2])):
                path.unlink()
