"""A web server that gives files of a folder, whole or by range, and remembers what was requested."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

__all__ = ["ServedFolder"]


class ServedFolder:
    """A folder on the web, for as long as the block lasts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[str] = []
        """The name of each file that was requested."""
        self.ranges: list[tuple[str, int, int]] = []
        """Name, first byte and bytes of each answer."""
        self.versions: Callable[[Path], dict[str, str]] = lambda path: {}
        """Returns the headers that tell the version of a file."""
        self._server = _Server(("127.0.0.1", 0), partial(_Handler, self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def enter(self, name: str) -> None:
        """Note a request."""
        self.requests.append(name)

    def leave(self) -> None:
        """Note that a request is answered."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 512

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: readers that were cancelled hang up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, site: ServedFolder, *arguments: Any) -> None:
        self.site = site
        super().__init__(*arguments)

    def do_HEAD(self) -> None:
        self.answer(has_body=False)

    def do_GET(self) -> None:
        self.answer(has_body=True)

    def answer(self, has_body: bool) -> None:
        name = unquote(self.path.partition("?")[0]).lstrip("/")
        self.site.enter(name)
        try:
            self.send(name, self.site.folder / name, has_body)
        finally:
            self.site.leave()

    def send(self, name: str, path: Path, has_body: bool) -> None:
        if not path.is_file():
            self.site.ranges.append((name, 0, 0))
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = path.read_bytes()
        size, requested, first = len(data), re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")), 0
        if requested:
            first = max(size - int(requested[2]), 0) if not requested[1] else int(requested[1])
            last = size - 1 if not requested[1] or not requested[2] else min(int(requested[2]), size - 1)
            data = data[first : last + 1]
        self.site.ranges.append((name, first, len(data)))
        self.send_response(206 if requested and data else 416 if requested else 200)
        if requested:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}" if data else f"bytes */{size}")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Accept-Ranges", "bytes")
        for header, value in self.site.versions(path).items():
            self.send_header(header, value)
        self.end_headers()
        if has_body:
            self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        pass
