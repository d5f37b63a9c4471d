"""When may a request begin? When the decoded bytes of all that are under way leave room for its own.

First come, first served, so that a large request is not overtaken for ever by small ones. The queue is bounded: who finds it full, or
waits too long, is told when to come again.
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
    """The door of a worker; used from its event loop only.

    Parameters
    ----------
    memory
        Bytes under way at once.
    queue
        Requests that may wait.
    wait
        Seconds that they may.
    width
        Requests under way at once, however small.
    """

    def __init__(self, memory: int, queue: int, wait: float, width: int) -> None:
        self.memory, self.queue, self.wait, self.width = memory, queue, wait, width
        self.used = 0
        self.running = 0
        self.peak_bytes = 0
        """Most bytes that were under way."""
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._usual = 0.1

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def retry_after(self) -> int:
        """Seconds after which to come again: about when today's queue is done."""
        turns = (len(self._waiting) + 1) / max(self.running, 1)
        return max(1, min(60, math.ceil(turns * self._usual)))

    async def enter(self, cost: int) -> Callable[[], None]:
        """Wait for one's turn; what is returned says that one has left, and must be called once.

        Parameters
        ----------
        cost
            Bytes; more than there are in all counts as all of them, so that it runs alone.
        """
        cost = min(max(cost, 1), self.memory)
        await self._turn(cost)
        begun = time.monotonic()

        def leave() -> None:
            self.used -= cost
            self.running -= 1
            self._usual += 0.1 * (time.monotonic() - begun - self._usual)
            self._next()

        return leave

    async def _turn(self, cost: int) -> None:
        if not self._waiting and self._room(cost):
            self._take(cost)
            return
        if len(self._waiting) >= self.queue:
            raise BusyError("this server has too many requests waiting", self.retry_after)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((cost, turn))
        try:
            await asyncio.wait_for(asyncio.shield(turn), self.wait)
        except BaseException as problem:
            if turn.done() and not turn.cancelled():
                self.used -= cost  # the turn came while we were leaving
                self.running -= 1
            else:
                self._waiting.remove((cost, turn))
            self._next()
            if isinstance(problem, TimeoutError):
                raise BusyError("this server was busy for too long", self.retry_after) from None
            raise

    def _room(self, cost: int) -> bool:
        return self.used + cost <= self.memory and self.running < self.width

    def _take(self, cost: int) -> None:
        self.used += cost
        self.running += 1
        self.peak_bytes = max(self.peak_bytes, self.used)

    def _next(self) -> None:
        """Let in who has room now."""
        while self._waiting and self._room(self._waiting[0][0]):
            cost, turn = self._waiting.popleft()
            self._take(cost)
            turn.set_result(None)
