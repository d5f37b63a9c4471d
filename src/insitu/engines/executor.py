"""Engines of this process, and of any executor of `concurrent.futures`."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from insitu.cancellation import Deadline, cap_to_deadline, check_deadline, deadline_scope
from insitu.engines.engine_protocol import PortionJob, merge_in_tree, report_lost_workers

__all__ = ["ExecutorEngine", "ThisThread", "fold_here"]

SUBMITTED = 64
"""Portions that an executor has at a time."""
OVERLAPPED = 2
"""Portions that are computed at a time in this process, where storage is far."""


def fold_here(job: PortionJob, groups: Sequence[Sequence[Any]], *, overlapped: bool) -> Iterator[Any]:
    """Yield the merged states of groups of portions, computed in this process.

    Parameters
    ----------
    job, groups
        What to compute, and of which portions.
    overlapped
        Whether requests of the next portion do not wait for the end of one, because storage is far.
    """
    if not overlapped:
        for group in groups:
            yield merge_in_tree(job, map(job.fold_portion, group))
        return
    deadline = Deadline(cap_to_deadline(math.inf))

    def fold_within_deadline(portion: Any) -> Any:
        with deadline_scope(deadline):
            return job.fold_portion(portion)

    with ThreadPoolExecutor(OVERLAPPED, "insitu-portion") as pool:
        try:
            yield from _fold_and_merge(
                job, groups, lambda portion: pool.submit(fold_within_deadline, portion), OVERLAPPED
            )
        finally:  # after an error or an interrupt nothing goes on
            deadline.cancelled = True


def _fold_and_merge(
    job: PortionJob, groups: Sequence[Sequence[Any]], submit: Callable[[Any], Future[Any]], at_once: int
) -> Iterator[Any]:
    """Yield the states of groups: portions are folded elsewhere, and merged here, in order."""
    portions = iter([portion for group in groups for portion in group])
    pending: deque[Future[Any]] = deque()

    def states(count: int) -> Iterator[Any]:
        for _ in range(count):
            check_deadline()
            while len(pending) < at_once and (portion := next(portions, None)) is not None:
                pending.append(submit(portion))
            yield pending.popleft().result()

    try:
        for group in groups:
            yield merge_in_tree(job, states(len(group)))
    finally:
        for future in pending:
            future.cancel()


class ThisThread(Executor):
    """Runs each call when it is submitted, in the calling thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call and return its future, which is done."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class ExecutorEngine:
    """Any `concurrent.futures.Executor`: results travel to this process and from it."""

    keeps_results = False

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def fold_portions(self, job: PortionJob, groups: Sequence[Sequence[Any]]) -> Iterator[Any]:
        """Yield the merged states of groups of portions; they are merged in this process."""
        there = job.for_workers()
        with report_lost_workers(job):
            yield from _fold_and_merge(
                job, groups, lambda portion: self.executor.submit(there.fold_portion, portion), SUBMITTED
            )

    def submit(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return a future of a call."""
        return self.executor.submit(function, *arguments)

    def flush(self) -> None:
        """Do nothing: calls begin when they are submitted."""

    def put(self, data: bytes) -> Any:
        """Return the bytes."""
        return data

    def is_alive(self) -> bool:
        """Return whether results can still be expected: a broken executor fails its futures."""
        return True
