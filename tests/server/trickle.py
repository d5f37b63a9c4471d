"""A web server that never comes to an end: work that takes as long as it is let."""

from __future__ import annotations

import socket
import threading
import time


class Trickle:
    """A web server that says it has a megabyte and sends it a byte at a time."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        with line:
            line.recv(1 << 16)
            try:
                line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                while True:
                    line.sendall(b"x")
                    time.sleep(0.05)
            except OSError:
                return
