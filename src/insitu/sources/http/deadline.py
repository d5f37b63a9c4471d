"""Deadlines of HTTP requests: one thread watches all requests under way and cuts those that are
late.

The timeouts of urllib3 are those of the socket, which count from byte to byte: a server that sends
one byte every few seconds never exceeds them. Here the connection of a late request is shut down,
and the thread that reads from it wakes up at once. Requests whose work was cancelled end the same
way, which no timeout could do.

A read of 10,000 bytes from a server that sends one every 20 ms would take 200 s, whatever the timeout
of the socket; `test_a_server_that_trickles_meets_the_deadline` has it end after 0.2 s.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from insitu.cancellation import current_deadline
from insitu.forking import renew_after_fork

__all__ = ["RequestDeadline", "cut_cancelled_requests", "watch_connection"]


class RequestDeadline:
    """The deadline of one request: a context manager; `watch_connection` tells it the connection.

    Parameters
    ----------
    until
        By the monotonic clock.
    head
        Seconds from the request until the headers of the response have to be there.
    """

    __slots__ = ("__weakref__", "_connection", "_head", "cut", "ends", "until", "work")

    def __init__(self, until: float, head: float = 30.0) -> None:
        self._head = head
        self.until = self.ends = until
        """By the monotonic clock; the latest end of the present phase of the request."""
        self.cut = False
        """Whether the connection was cut."""
        self._connection: socket.socket | None = None
        self.work = current_deadline()
        """The deadline of the work that the request is made for."""

    @property
    def seconds_left(self) -> float:
        """Seconds until the end; a little at least, because 0 means for ever to a socket."""
        return max(self.until - time.monotonic(), 0.001)

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.cut or time.monotonic() >= self.until

    def on_head_received(self) -> None:
        """Allow the rest of the response the time until the end: its headers have arrived."""
        _watcher.change(self, self.until)

    def __enter__(self) -> Self:
        _current.deadline = self
        _watcher.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.deadline = None
        _watcher.remove(self)

    def on_request_sent(self, connection: Any) -> None:
        """Start the time limit of the headers: the request has gone out over that connection."""
        self._connection = connection
        _watcher.change(self, min(self.until, time.monotonic() + self._head))

    def hang_up(self) -> None:
        """Cut the connection; the thread that reads from it sees its end."""
        self.cut = True
        if self._connection is not None:
            with suppress(OSError):  # closed by its reader meanwhile
                # Of the plain class: that of TLS would also take away what the reading thread is
                # using.
                socket.socket.shutdown(self._connection, socket.SHUT_RDWR)


def watch_connection(connection: Any) -> None:
    """Record the connection that the request of this thread uses."""
    deadline: RequestDeadline | None = getattr(_current, "deadline", None)
    if deadline is not None and connection is not None:
        deadline.on_request_sent(connection)


def cut_cancelled_requests() -> None:
    """Cut the connections of requests whose work was cancelled, instead of waiting for their responses."""
    _watcher.cut_cancelled()


_current = threading.local()


class _DeadlineWatcher:
    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self._change = threading.Condition()
        self._under_way: set[RequestDeadline] = set()
        self._wakes = float("inf")
        self._thread: threading.Thread | None = None

    def add(self, deadline: RequestDeadline) -> None:
        with self._change:
            self._under_way.add(deadline)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="insitu-deadlines", daemon=True)
                self._thread.start()
            if deadline.ends < self._wakes:
                self._change.notify()

    def change(self, deadline: RequestDeadline, ends: float) -> None:
        with self._change:
            deadline.ends = ends
            if ends < self._wakes:
                self._change.notify()

    def remove(self, deadline: RequestDeadline) -> None:
        # Under the same lock as the cutting: a connection that is back in its pool belongs to
        # somebody else.
        with self._change:
            self._under_way.discard(deadline)

    def cut_cancelled(self) -> None:
        with self._change:
            for deadline in [one for one in self._under_way if one.work is not None and one.work.cancelled]:
                deadline.hang_up()
                self._under_way.discard(deadline)

    def _run(self) -> None:
        with self._change:
            while True:
                now = time.monotonic()
                for deadline in [one for one in self._under_way if one.ends <= now]:
                    deadline.hang_up()
                    self._under_way.discard(deadline)
                self._wakes = min((one.ends for one in self._under_way), default=float("inf"))
                self._change.wait(None if self._wakes == float("inf") else max(self._wakes - now, 0.0))


_watcher = _DeadlineWatcher()
renew_after_fork(_watcher)
