"""A web server that gives ranges of the files in a folder, and remembers what was asked."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest


class Site:
    """A served folder."""

    def __init__(self, folder: Path) -> None:
        site = self
        self.requests: list[str] = []
        self.versions: Callable[[Path], dict[str, str]] = lambda path: {}
        """Returns the headers that tell the version of a file."""

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.answer(body=False)

            def do_GET(self) -> None:
                self.answer(body=True)

            def answer(self, body: bool) -> None:
                name = unquote(self.path.partition("?")[0]).lstrip("/")
                site.requests.append(name)
                path = folder / name
                if not path.is_file():
                    self.send_response(404)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                data = path.read_bytes()
                size = len(data)
                requested = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
                if requested:
                    first = max(size - int(requested[2]), 0) if not requested[1] else int(requested[1])
                    last = size - 1 if not requested[1] or not requested[2] else min(int(requested[2]), size - 1)
                    if first >= size:
                        self.send_response(416)
                        self.send_header("Content-Range", f"bytes */{size}")
                        self.send_header("Content-Length", "0")
                        self.end_headers()
                        return
                    data = data[first : last + 1]
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
                else:
                    self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Accept-Ranges", "bytes")
                for header, value in site.versions(path).items():
                    self.send_header(header, value)
                self.end_headers()
                if body:
                    self.wfile.write(data)

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The test's folder on the web."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    served = Site(tmp_path)
    yield served
    served.close()
