"""On which threads are chunks decoded? One pool for the process (two, if some bytes come from far away), made when first needed, and anew after a fork."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from insitu.sources.threads import WIDTH

__all__ = ["cores", "workers"]

FAR = WIDTH
"""Tasks under way at once when the bytes come from far away: each is about one request, and they mostly wait."""

_lock = threading.Lock()
_pools: dict[bool, ThreadPoolExecutor] = {}


def workers(far: bool = False) -> ThreadPoolExecutor:
    """The pool: a thread for each core that this process may use, and one more to keep the disk busy; more for bytes from far away."""
    with _lock:
        pool = _pools.get(far)
        if pool is None:
            count = max(cores() + 1, FAR if far else 0)
            pool = _pools[far] = ThreadPoolExecutor(count, thread_name_prefix="insitu-read")
        return pool


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # containers and batch systems often grant fewer than the machine has
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _forget() -> None:
    """In a forked child the pool's threads do not exist; the lock may be held by one of them."""
    global _lock
    _lock = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
