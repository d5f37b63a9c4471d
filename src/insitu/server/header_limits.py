"""How long, and how much, may a client take to say what it wants? The head of a request has its limits too.

Uvicorn waits for ever for the end of a head, and takes one of any size. So connections that do not come to the point are closed: a few hundred of them would
else keep everybody out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol
else:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Protocol
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol

__all__ = ["Door"]

HEAD_SECONDS = 20.0
"""Until the head of a request is complete, from the connection or the first byte on."""
HEAD_BYTES = 64 << 10
FAREWELL_SECONDS = 1.0
"""For which a client may take its leave when the server ends."""
TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 67\r\n\r\n"
    b'{"error": {"message": "the head of the request is too large here"}}'
)


class Door(Protocol):
    """Uvicorn's protocol, with limits on the head of a request."""

    _late: asyncio.TimerHandle | None = None
    _came = 0
    """Bytes since the last request was complete."""

    def connection_made(self, transport: Any) -> None:
        """Somebody is at the door."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Some bytes."""
        before = self.cycle
        if before is not None and not before.response_complete:
            if before.more_body:
                super().data_received(data)
                return
        else:
            self._wait()
        self._came += len(data)
        super().data_received(data)
        if self.cycle is not before:
            self._begun()
        elif self._came > HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()

    def shutdown(self) -> None:
        """Close the connection when the server ends: at once if it is idle, else behind the answer.

        A closed TLS connection waits for the client's farewell, and a client that keeps an idle connection sends none: it would hold the server for the
        whole time that unfinished answers get.
        """
        super().shutdown()
        if self.transport.is_closing():
            self.loop.call_later(FAREWELL_SECONDS, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Somebody has left."""
        self._begun()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _begun(self) -> None:
        """A request is there, or will never be."""
        self._came = 0
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        self._late = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
