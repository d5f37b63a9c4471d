"""Cooperative cancellation: a deadline that long work checks between its steps.

A server gives each request a `Deadline` and runs its work inside `deadline_scope`. Loops that may
take long (over chunks, tiles, retries, structures of a file) call `check_deadline`, which raises
`LateError` once time is up or nobody waits for the answer any more. So the work ends, not only the
answer. `carry_deadline` takes the deadline along to the threads of a pool, and so the processor time
of the request is known. Without a deadline a check costs some 50 ns.

The deadline of one HTTP request is another thing: see `insitu.sources.http.deadline`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from insitu.errors import TimedOutError
from insitu.forking import fork_safe_lock

__all__ = [
    "Deadline",
    "LateError",
    "cap_threads",
    "cap_to_deadline",
    "carry_deadline",
    "check_deadline",
    "current_deadline",
    "deadline_scope",
    "wait_for_event",
]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_POLL_SECONDS = 0.25
"""Seconds between two checks of the deadline while a thread waits for another one."""


class LateError(TimedOutError):
    """A request takes longer than the server allows."""

    kind = "late"


@dataclass(slots=True, eq=False, weakref_slot=True)
class Deadline:
    """The time by which some work has to end."""

    at: float
    """By the monotonic clock."""
    cancelled: bool = False
    """Whether nobody waits for the result any more."""
    processor_seconds: float = 0.0
    """Processor time that threads have spent within its scope."""
    threads: int | None = None
    """Threads that may fetch and decode for this work at a time; None: as many as there are."""

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline that lies so many seconds ahead."""
        return cls(time.monotonic() + seconds)

    @property
    def is_over(self) -> bool:
        """Whether time is up, or the work was cancelled."""
        return self.cancelled or time.monotonic() > self.at

    def check(self) -> None:
        """Raise `LateError` if the deadline is over."""
        if self.is_over:
            raise LateError("the request took longer than this server allows")


class _Current(threading.local):
    """The deadline of each thread's work. Not a context variable: free-threaded Python hands those of a thread on to
    the threads that it starts, and a pool keeps its threads for longer than one request.
    """

    deadline: Deadline | None = None


_current = _Current()
_adding = fork_safe_lock()


def check_deadline() -> None:
    """Raise `LateError` if the work of this thread has a deadline that is over."""
    deadline = _current.deadline
    if deadline is not None:
        deadline.check()


def current_deadline() -> Deadline | None:
    """Return the deadline of this thread's work, if it has one."""
    return _current.deadline


def cap_to_deadline(until: float) -> float:
    """Return `until` or the end of this thread's deadline, whichever is earlier, by the monotonic
    clock.
    """
    deadline = _current.deadline
    return until if deadline is None else min(until, deadline.at)


def cap_threads(count: int) -> int:
    """Return `count` or the number of threads that this thread's work may use, whichever is smaller."""
    deadline = _current.deadline
    return count if deadline is None or deadline.threads is None else min(count, deadline.threads)


@contextmanager
def deadline_scope(deadline: Deadline | None) -> Iterator[None]:
    """Make `deadline` that of this thread's work for as long as the block lasts.

    Examples
    --------
    >>> with deadline_scope(Deadline.after(-1)):
    ...     check_deadline()
    Traceback (most recent call last):
    insitu.cancellation.LateError: the request took longer than this server allows
    """
    measured = deadline is not None and _current.deadline is not deadline
    began = time.thread_time() if measured else 0.0
    before, _current.deadline = _current.deadline, deadline
    try:
        yield
    finally:
        _current.deadline = before
        if measured and deadline is not None:
            with _adding:
                deadline.processor_seconds += time.thread_time() - began


def carry_deadline(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return `function` as work under the caller's deadline, to be handed to another thread."""
    deadline = _current.deadline
    if deadline is None:
        return function

    def run_within_deadline(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        with deadline_scope(deadline):
            return function(*arguments, **named)

    return run_within_deadline


def wait_for_event(event: threading.Event) -> None:
    """Wait until another thread sets `event`, but not past the deadline of this thread's work."""
    if _current.deadline is None:
        event.wait()
        return
    while not event.wait(_POLL_SECONDS):
        check_deadline()
