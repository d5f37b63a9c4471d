"""`await_read`: reading for event loops, on a thread that ends its work when nobody waits for it any more."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import copy_context
from typing import ParamSpec, TypeVar

from insitu.cancellation import Deadline, cap_to_deadline, deadline_scope
from insitu.reading.thread_pools import get_worker_pool

__all__ = ["await_read"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


async def await_read(
    function: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
) -> Result:
    """Return the result of a function that reads, without blocking the event loop.

    It runs on a thread of the pool for remote sources: an event loop's own threads are a few more than
    the cores, so that fifty reads of 50 ms took half a second. If the task that waits is cancelled, the
    function makes no more requests and decodes no more chunks; what it has begun is not waited for.
    """
    import asyncio  # not at the top: only who awaits needs it

    deadline = Deadline(cap_to_deadline(math.inf))

    def run() -> Result:
        with deadline_scope(deadline):
            return function(*arguments, **named)

    reading = get_worker_pool(far=True).submit(copy_context().run, run)
    try:
        return await asyncio.wrap_future(reading)
    except asyncio.CancelledError:
        deadline.cancelled = True
        raise
