"""A folder behind HTTP, with ranges, that counts requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest


class Served:
    """The server; `requests` lists (path, first byte, bytes)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[tuple[str, int, int]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                outer.answer(self, False)

            def do_GET(self) -> None:
                outer.answer(self, True)

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def url(self, name: str) -> str:
        """Where a file of the folder is."""
        return f"http://127.0.0.1:{self.server.server_address[1]}/{name}"

    def answer(self, handler: BaseHTTPRequestHandler, body: bool) -> None:
        """One request."""
        name = unquote(urlsplit(handler.path).path).lstrip("/")
        path = self.folder / name
        if not path.is_file():
            self.requests.append((name, 0, 0))
            handler.send_response(404)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        data = path.read_bytes()
        wanted = handler.headers.get("Range")
        begin, end = 0, len(data)
        if wanted is not None:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            if first:
                begin, end = int(first), min(int(last) + 1 if last else len(data), len(data))
            else:
                begin = max(len(data) - int(last), 0)
        self.requests.append((name, begin, end - begin))
        handler.send_response(206 if wanted is not None else 200)
        handler.send_header("Accept-Ranges", "bytes")
        handler.send_header("Content-Length", str(end - begin))
        if wanted is not None:
            handler.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
        handler.end_headers()
        if body:
            handler.wfile.write(data[begin:end])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """The test's own folder, served."""
    server = Served(tmp_path)
    yield server
    server.server.shutdown()
    server.server.server_close()
