"""A web server that never comes to an end: work that takes as long as it is let."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

from listener import Listener


class Trickle(Listener):
    """A web server that says it has a megabyte and sends it a byte at a time."""

    def serve(self, line: socket.socket) -> None:
        """Send, as long as the client listens."""
        line.recv(1 << 16)
        with suppress(OSError):
            line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while True:
                line.sendall(b"x")
                time.sleep(0.05)
