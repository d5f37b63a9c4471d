"""Thread pool for concurrent requests, one for the whole process.

One pool, so that ten sources read at once do not make a thousand connections. The calling thread
takes part in the work: a batch never waits for a pool that other batches keep busy, and a batch
started from within the pool cannot deadlock. A forked child has none of its parent's threads, so
there the pool is made anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from insitu.cancellation import carry_deadline, check_deadline
from insitu.forking import renew_after_fork

__all__ = ["MAX_REQUESTS", "gather"]

MAX_REQUESTS = 96
"""Requests under way at once. At 50 ms each, 1,000 small ranges then take 0.6 s; a busy server gets
fewer (see `throttle`).
"""

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Pool:
    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

    def threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(MAX_REQUESTS, thread_name_prefix="insitu-fetch")
            return self._threads


_pool = _Pool()
renew_after_fork(_pool)


def gather(
    function: Callable[[Item, threading.Event], Result],
    items: Sequence[Item],
    *,
    width: int = MAX_REQUESTS,
    ends_together: bool = False,
) -> list[Result]:
    """Call `function` for every item on up to `width` threads; return the results in order.

    The first error ends the batch: nothing more is started, and the event that is passed to
    `function` is set, so that a pause before a retry ends at once. An interrupt of the caller does
    the same, and does not wait for the others: with `ends_together` it does, as an error does, so that
    nothing is written any more by then.
    """
    stop = threading.Event()
    if len(items) < 2 or width < 2:
        return [function(item, stop) for item in items]

    results: dict[int, Result] = {}
    errors: list[BaseException] = []
    pending = iter(range(len(items)))
    turn = threading.Lock()

    def work() -> None:
        try:
            while not stop.is_set():
                with turn:
                    at = next(pending, None)
                if at is None:
                    return
                check_deadline()
                results[at] = function(items[at], stop)
        except BaseException as error:
            # Noted before the others are told: what they raise because of it comes after it.
            errors.append(error)
            stop.set()
            raise

    threads = _pool.threads()
    work_with_deadline = carry_deadline(work)
    workers = [threads.submit(work_with_deadline) for _ in range(min(width, len(items)) - 1)]
    failure: Exception | None = None
    try:
        work()
        for worker in workers:
            # One that never began has nothing left to do: all items are taken.
            if not worker.cancel():
                worker.result()
    except Exception as error:
        # The first one is the reason of the others. There is none if the interpreter is ending, and
        # the pool drops its work.
        failure = next((first for first in errors if isinstance(first, Exception)), error)
    finally:
        stop.set()
        running = [worker for worker in workers if not worker.cancel()]
        if ends_together:
            wait(running)
    if failure is not None:
        raise failure
    return [results[at] for at in range(len(items))]
