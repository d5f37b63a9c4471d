"""A web server that gives ranges of the files in a folder, counts requests, and can hold them back.

How many requests a reader has under way at once is seen without a clock: answers are held back until so
many have come (`hold`).
"""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from urllib.parse import unquote

from waiting import LONG

__all__ = ["GatedSite"]


class GatedSite:
    """A served folder, for as long as the block lasts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[str] = []
        """The file of each request so far."""
        self.under_way = 0
        self.most = 0
        """Requests that were under way at once."""
        self._wanted = 0
        self._changed = threading.Condition()
        self._server = _Server(("127.0.0.1", 0), _make_handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def hold(self, count: int) -> None:
        """Answer no request from now on until so many are under way; counts begin anew."""
        with self._changed:
            self.requests.clear()
            self.most = self.under_way
            self._wanted = count

    def release(self) -> None:
        """Answer all requests."""
        with self._changed:
            self._wanted = 0
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Wait until so many requests are under way."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.under_way >= count, LONG)

    def enter(self, name: str) -> None:
        """Note a request, and wait until it may be answered."""
        with self._changed:
            self.requests.append(name)
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            if self.under_way >= self._wanted:
                self._wanted = 0
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._wanted, LONG)

    def leave(self) -> None:
        """Note that a request is answered."""
        with self._changed:
            self.under_way -= 1
            self._changed.notify_all()

    def __enter__(self) -> GatedSite:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 512

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: readers that were cancelled hang up."""


def _make_handler(site: GatedSite) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            name = unquote(self.path).lstrip("/")
            site.enter(name)
            try:
                self.send(site.folder / name, body)
            finally:
                site.leave()

        def send(self, path: Path, body: bool) -> None:
            if not path.is_file():
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            data = path.read_bytes()
            size, asked = len(data), re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
            if asked:
                first = max(size - int(asked[2]), 0) if not asked[1] else int(asked[1])
                last = size - 1 if not asked[1] or not asked[2] else min(int(asked[2]), size - 1)
                data = data[first : last + 1]
            self.send_response(206 if asked and data else 416 if asked else 200)
            if asked:
                self.send_header("Content-Range", f"bytes {first}-{last}/{size}" if data else f"bytes */{size}")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("ETag", f'"{size}-{path.stat().st_mtime_ns}"')
            self.send_header("Accept-Ranges", "bytes")
            self.end_headers()
            if body:
                self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            pass

    return Handler
