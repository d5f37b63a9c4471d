"""Admission control: start a request when the decoded bytes of all running requests leave room for
it.

Requests start in the order in which they arrive, so that small requests never overtake a large one
for ever. The queue is bounded: a request that finds it full, or waits too long in it, is refused
with `BusyError`, which says when to try again.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable

from insitu.server.error_responses import BusyError

__all__ = ["Admission"]


class Admission:
    """Admission control of one worker; used from its event loop only.

    Parameters
    ----------
    memory
        Bytes that all running requests together may hold.
    queue
        How many requests may wait.
    wait
        How many seconds a request may wait.
    width
        How many requests may run at once, however small they are.
    """

    def __init__(self, memory: int, queue: int, wait: float, width: int) -> None:
        self.memory, self.queue, self.wait, self.width = memory, queue, wait, width
        self.used = 0
        self.running = 0
        self.peak_bytes = 0
        """The most bytes that running requests ever held together."""
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._usual_seconds = 0.1
        self._moved = time.monotonic()
        """When a request began or ended for the last time."""

    @property
    def waiting(self) -> int:
        """Number of requests in the queue."""
        return len(self._waiting)

    @property
    def stuck_seconds(self) -> float:
        """For how many seconds no request has begun or ended, for want of room; 0 if there is room."""
        return time.monotonic() - self._moved if self._waiting or self.running >= self.width else 0.0

    @property
    def retry_after(self) -> int:
        """Seconds after which a refused client should try again:
        about when the present queue is done.
        """
        turns = (len(self._waiting) + 1) / max(self.running, 1)
        return max(1, min(60, math.ceil(turns * self._usual_seconds)))

    def resize(self, memory: int, queue: int, wait: float) -> None:
        """Set new limits; requests that run or wait stay."""
        self.memory, self.queue, self.wait = memory, queue, wait
        self._start_waiting()

    async def enter(self, cost: int) -> Callable[[], None]:
        """Wait until a request may start; return a function to call once, when it has ended.

        Parameters
        ----------
        cost
            Bytes that the request holds. A request that costs more than all memory runs alone.
        """
        cost = min(max(cost, 1), self.memory)
        await self._wait_for_turn(cost)
        begun = time.monotonic()

        def leave() -> None:
            self.used -= cost
            self.running -= 1
            self._moved = time.monotonic()
            self._usual_seconds += 0.1 * (time.monotonic() - begun - self._usual_seconds)
            self._start_waiting()

        return leave

    async def _wait_for_turn(self, cost: int) -> None:
        if not self._waiting and self._has_room(cost):
            self._take(cost)
            return
        if len(self._waiting) >= self.queue:
            raise BusyError("the server is busy: too many requests are waiting", self.retry_after)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((cost, turn))
        try:
            await asyncio.wait_for(asyncio.shield(turn), self.wait)
        except BaseException as problem:
            if turn.done() and not turn.cancelled():
                self.used -= cost  # the turn came while the request was being cancelled
                self.running -= 1
            else:
                self._waiting.remove((cost, turn))
            self._start_waiting()
            if isinstance(problem, TimeoutError):
                raise BusyError(
                    "the server is busy: the request waited too long for its turn", self.retry_after
                ) from None
            raise

    def _has_room(self, cost: int) -> bool:
        return (self.used + cost <= self.memory or not self.used) and self.running < self.width

    def _take(self, cost: int) -> None:
        self._moved = time.monotonic()
        self.used += cost
        self.running += 1
        self.peak_bytes = max(self.peak_bytes, self.used)

    def _start_waiting(self) -> None:
        """Start the waiting requests for which there is room now."""
        while self._waiting and self._has_room(self._waiting[0][0]):
            cost, turn = self._waiting.popleft()
            self._take(cost)
            turn.set_result(None)
