"""A listener at a port of its own, for servers that HTTP libraries would not let misbehave."""

from __future__ import annotations

import socket
import threading

__all__ = ["Listener"]


class Listener:
    """Serves each connection in a thread, until `listener` is closed."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def serve(self, line: socket.socket) -> None:
        """Serve a connection, which is closed afterwards."""
        raise NotImplementedError

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        with line:
            self.serve(line)
