"""Thread pools for fetching and decoding: one for local files, a larger one for remote sources."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from insitu.sources.threads import MAX_REQUESTS

__all__ = ["count_cores", "get_worker_pool"]

REMOTE_WORKERS = MAX_REQUESTS
"""Number of threads for remote sources: each task is about one request, and mostly waits."""

_lock = threading.Lock()
_pools: dict[bool, ThreadPoolExecutor] = {}


def get_worker_pool(far: bool = False) -> ThreadPoolExecutor:
    """Return the process-wide pool, made on first use.

    It has a thread for each available core and one more to keep the disk busy; more for remote
    sources.
    """
    with _lock:
        pool = _pools.get(far)
        if pool is None:
            count = max(count_cores() + 1, REMOTE_WORKERS if far else 0)
            pool = _pools[far] = ThreadPoolExecutor(count, thread_name_prefix="insitu-read")
        return pool


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # containers and batch systems often grant fewer than the machine has
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _reset_after_fork() -> None:
    """Reset pools and lock in a forked child, where the pools' threads do not exist."""
    global _lock
    _lock = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
