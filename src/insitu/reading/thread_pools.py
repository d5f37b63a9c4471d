"""Thread pools for fetching and decoding: one for local files, a larger one for remote sources.

`run_tasks` runs many tasks on the calling thread and on those of a pool.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from insitu.cancellation import cap_threads, carry_deadline
from insitu.sources.threads import MAX_REQUESTS

__all__ = ["count_cores", "get_worker_pool", "run_tasks"]

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


def run_tasks(tasks: Sequence[Callable[[], None]], far: bool, stop: Callable[[], Any]) -> None:
    """Run tasks on this thread and on those of a pool.

    The first error or interrupt cancels the rest and waits for those that have begun.

    Parameters
    ----------
    tasks
        What to do. Tasks begin in this order.
    far
        Whether tasks mostly wait for remote sources.
    stop
        Called at an interrupt: makes tasks that have begun end early.
    """
    if len(tasks) == 1:
        tasks[0]()
        return
    queue = _TaskQueue(tasks)
    width = cap_threads(REMOTE_WORKERS if far else count_cores() + 1)
    pending: list[Future[None]] = []
    try:
        if tasks:
            pool, work = get_worker_pool(far), carry_deadline(queue.work)
            pending = [pool.submit(work) for _ in range(min(width, len(tasks)) - 1)]
        queue.work()
    except BaseException:  # an interrupt
        queue.clear()
        stop()
        raise
    finally:
        # No task may write into an output after this function has returned. A thread that has not
        # begun would find nothing left to do.
        begun = [future for future in pending if not future.cancel()]
        wait(begun)
    for future in begun:
        future.result()  # raises what is no Exception, such as SystemExit
    queue.raise_first_error()


class _TaskQueue:
    """Tasks that threads take one after another.

    A future for each task would wake the waiting thread at the end of each task, only to wait for the
    GIL: for chunks of 4 MiB that was a third of the time in which the GIL was held.
    """

    def __init__(self, tasks: Sequence[Callable[[], None]]) -> None:
        self._tasks = deque(enumerate(tasks))
        self._errors: list[tuple[int, Exception]] = []

    def work(self) -> None:
        """Do tasks until none is left; note an error, and leave the rest."""
        while self._tasks:
            try:
                number, task = self._tasks.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                task()
            except Exception as error:
                self._errors.append((number, error))
                self.clear()

    def clear(self) -> None:
        """Begin no more tasks."""
        self._tasks.clear()

    def raise_first_error(self) -> None:
        """Raise the error of the first task that failed.

        Tasks begin in order, and those that have begun end: so it is the same one each time.
        """
        if self._errors:
            raise min(self._errors, key=lambda found: found[0])[1]


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
