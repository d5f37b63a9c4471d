"""Limits on the head of a request: Uvicorn's protocol class with a timeout and a size limit.

Uvicorn itself waits for ever for the end of a head and accepts one of any size. A few hundred
connections that never send a complete head would then keep everybody else out. A head that is complete
when its last bytes arrive is measured by `GuardedApp`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from insitu.server.request_context import HEAD_BYTES, STOPPING, TRANSPORT

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol
else:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Protocol
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol

__all__ = ["HeaderLimitsProtocol"]

HEAD_SECONDS = 20.0
"""Time for the head of a request, from the connection or the first byte on."""
FAREWELL_SECONDS = 1.0
"""Time that a client gets to close its TLS connection when the server stops."""
TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: application/json\r\nconnection: close\r\ncontent-length: 67\r\n\r\n"
    b'{"error": {"message": "the head of the request is too large here"}}'
)


class HeaderLimitsProtocol(Protocol):
    """Uvicorn's protocol, with limits on the head of a request."""

    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    """Bytes received since the last request was complete."""

    def connection_made(self, transport: Any) -> None:
        """Start the timer of a new connection."""
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Pass bytes on to Uvicorn, as long as the head is within its limits."""
        before = self.cycle
        if before is not None and not before.response_complete:
            if before.more_body:
                super().data_received(data)
                return
        else:
            self._start_timer()
        self._head_bytes += len(data)
        super().data_received(data)
        if self.cycle is not before:
            self._stop_timer()
            self.cycle.scope[TRANSPORT] = self.transport  # type: ignore[literal-required]
        elif self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()

    def shutdown(self) -> None:
        """Close the connection when the server stops: at once if it is idle, else after the
        response.

        A TLS connection that is being closed waits for the client's close_notify. A client that
        keeps an idle connection sends none, and would hold up the server for the whole grace
        period.
        """
        if self.cycle is not None:
            self.cycle.scope[STOPPING] = True  # type: ignore[literal-required]
        super().shutdown()
        if self.transport.is_closing():
            self.loop.call_later(FAREWELL_SECONDS, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer of a closed connection."""
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._close_unfinished)

    def _stop_timer(self) -> None:
        """Stop the timer: the head is complete, or the connection is closed."""
        self._head_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_unfinished(self) -> None:
        self._timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
