"""Watch over replies that wait for their clients: those that are not read are ended.

A client that asks for much and reads nothing costs memory: bytes that wait to be sent, and what a paused reply needs to
go on. A reply of which too few bytes a second are read is ended, and so are the slowest ones when all of them together
hold more than the limit.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Protocol

__all__ = ["Reply", "ReplyWatch"]

serve_log = logging.getLogger("insitu.serve")
LOOK_SECONDS = 1.0
"""Seconds between two looks at the replies."""
RATE_SECONDS = 20.0
"""Seconds over which the rate is measured."""
LARGE_BYTES = 1 << 20
"""A piece of this size makes the watch look at once."""


class Transport(Protocol):
    """What is needed of a connection: `asyncio.Transport` has it."""

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""

    def abort(self) -> None:
        """Close the connection at once."""


class Reply:
    """The reply to one request.

    Parameters
    ----------
    transport
        The connection; None if there is none that could be watched.
    """

    __slots__ = ("is_complete", "mark", "paused_bytes", "read", "transport", "written")

    def __init__(self, transport: Transport | None) -> None:
        self.transport = transport
        self.paused_bytes = 0
        """Bytes that its computation holds while it is paused."""
        self.written = 0
        """Bytes that were given to the connection."""
        self.is_complete = False
        self.mark = time.monotonic()
        """When the rate was last measured, or there was nothing to read."""
        self.read = 0
        """Bytes that it had read by then."""

    @property
    def unsent(self) -> int:
        """Bytes that wait to be sent."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def rate(self, now: float) -> float:
        """Return how many bytes a second were read since the last measurement; those that have just begun are fast."""
        elapsed = now - self.mark
        return math.inf if elapsed < LOOK_SECONDS else (self.written - self.unsent - self.read) / elapsed


class ReplyWatch:
    """The replies of one worker; used from its event loop only.

    Parameters
    ----------
    rate
        Bytes a second that a client has to read; 0: any rate.
    limit
        Bytes that replies may hold together while they wait for their clients.
    """

    def __init__(self, rate: float, limit: int) -> None:
        self.rate, self.limit = rate, limit
        self._replies: set[Reply] = set()

    @property
    def waiting_bytes(self) -> int:
        """Bytes that replies hold while they wait for their clients."""
        return sum(reply.unsent + reply.paused_bytes for reply in self._replies)

    def add(self, transport: Transport | None) -> Reply:
        """Return the reply to a request that has come in by a connection; it is watched until all is sent."""
        reply = Reply(transport)
        if transport is not None:
            self._replies.add(reply)
        return reply

    def record(self, reply: Reply, nbytes: int) -> None:
        """Take note of bytes that are given to the connection of a reply."""
        reply.written += nbytes
        if nbytes >= LARGE_BYTES:
            self.look()

    def pause(self, reply: Reply, nbytes: int) -> None:
        """Take note that a reply waits for its client and holds so many bytes."""
        reply.paused_bytes = nbytes
        self.look()

    async def run(self) -> None:
        """Look at the replies again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """End the replies that are read too slowly, and the slowest ones if all hold too much."""
        now = time.monotonic()
        for reply in list(self._replies):
            unsent = reply.unsent
            read, elapsed = reply.written - unsent - reply.read, now - reply.mark
            if not unsent and not reply.paused_bytes:
                if reply.is_complete:
                    self._replies.discard(reply)
                reply.mark, reply.read = now, reply.written
            elif elapsed >= RATE_SECONDS:
                if read < self.rate * elapsed:
                    self._end(reply, "the client reads too slowly")
                reply.mark, reply.read = now, reply.written - unsent
        waiting = sorted((r for r in self._replies if r.unsent or r.paused_bytes), key=lambda reply: reply.rate(now))
        total = sum(reply.unsent + reply.paused_bytes for reply in waiting)
        for reply in waiting[:-1]:
            if total <= self.limit:
                return
            total -= reply.unsent + reply.paused_bytes
            self._end(reply, "too many clients read slowly")

    def _end(self, reply: Reply, why: str) -> None:
        self._replies.discard(reply)
        serve_log.warning("%s: a reply is ended after %d bytes", why, reply.written - reply.unsent)
        if reply.transport is not None:
            reply.transport.abort()
