"""On which threads are chunks decoded? One pool for the process, made when first needed, and made anew after a fork."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

__all__ = ["workers"]

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def workers() -> ThreadPoolExecutor:
    """The pool: a thread for each core that this process may use, and one more to keep the disk busy."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(_cores() + 1, thread_name_prefix="insitu-read")
        return _pool


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # containers and batch systems often grant fewer than the machine has
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _forget() -> None:
    """In a forked child the pool's threads do not exist; the lock may be held by one of them."""
    global _lock, _pool
    _lock = threading.Lock()
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
