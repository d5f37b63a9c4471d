"""A collector of OpenTelemetry's spans for the page that names one. Used in the process of a page."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SpanCollector:
    """Listens on a port until the process ends."""

    def __init__(self, port: int) -> None:
        bodies: list[bytes] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *words: Any) -> None:
                pass

        self._bodies = bodies
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def received(self) -> bytes:
        """All that exporters have sent, one request after another."""
        return b"".join(self._bodies)
