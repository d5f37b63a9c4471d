"""A real web server on the loopback interface, well-behaved or not, as the path says."""

from __future__ import annotations

import gzip
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from insitu.sources.retry_policy import RetryPolicy

DATA = np.random.default_rng(7).integers(0, 256, 200_000, dtype=np.uint8).tobytes()

_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"

HASTY = RetryPolicy(connect=5, read=5, deadline=20, attempts=4, first_pause=0.001, longest_pause=0.01)
"""Retries without the waiting."""


def path_end(path: str) -> str:
    return path.partition("?")[0].rstrip("/").rpartition("/")[2]


class Web:
    """The server: `url(mode)` is an address that behaves in that way; `requests` is what came."""

    def __init__(self) -> None:
        web = self
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.seen: Counter[str] = Counter()
        self.delay = 0.0
        self.under_way = 0
        self.most_under_way = 0
        self.lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                web.answer(self, body=True)

            def do_HEAD(self) -> None:
                web.answer(self, body=False)

            def log_message(self, *arguments: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            request_queue_size = 128

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # clients that hang up early are part of the tests

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def url(self, mode: str) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/{mode}"

    def ranges(self) -> list[str]:
        return [headers.get("range", "") for _, _, headers in self.requests]

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def answer(self, handler: BaseHTTPRequestHandler, body: bool) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        path, _, query = handler.path.partition("?")
        mode = path.strip("/").split("/")[0]
        with self.lock:
            self.requests.append((handler.command, handler.path, headers))
            self.seen[mode] += 1
            nth = self.seen[mode]
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            time.sleep(self.delay)
            self.behave(handler, mode, nth, headers, query, body)
        finally:
            with self.lock:
                self.under_way -= 1

    def behave(
        self, handler: BaseHTTPRequestHandler, mode: str, nth: int, headers: dict[str, str], query: str, body: bool
    ) -> None:
        def plain(status: int, **extra: str) -> None:
            handler.send_response(status)
            for name, value in extra.items():
                handler.send_header(name.replace("_", "-"), value)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        if mode in ("404", "401", "403", "410", "400", "500"):
            return plain(int(mode))
        if mode == "busy" and nth <= 2:
            return plain(503)
        if mode == "limited" and nth == 1:
            return plain(429, Retry_After="0")
        if mode == "patience":
            return plain(503, Retry_After="3600")
        if mode == "moved":
            return plain(302, Location="/file")
        if mode == "elsewhere":
            return plain(307, Location=f"http://localhost:{self.server.server_port}/file")
        if mode == "circle":
            return plain(302, Location="/circle")
        if mode == "out":
            return plain(302, Location="ftp://example.org/x")
        if mode == "expiring":
            return plain(302, Location=f"/ticket/{nth}")
        if mode == "ticket" and nth == 2:
            return plain(403)
        if mode == "signed" and query != "X-Amz-Signature=abc":
            return plain(403)
        if mode == "login" and headers.get("authorization") != "Basic bWU6c2VjcmV0":
            return plain(401)
        if mode == "reset" and nth == 1:
            handler.close_connection = True
            return handler.connection.close()
        if mode == "empty":
            return self.send(handler, mode, nth, b"", headers, body)
        if mode == "conditional" and headers.get("if-match", '"v1"') != '"v1"':
            return plain(412)
        if mode == "broken-conditions" and "if-match" in headers:
            return plain(412)
        if mode == "dated" and headers.get("if-unmodified-since", _DATE) != _DATE:
            return plain(412)
        if mode == "headless" and nth <= 2:
            handler.close_connection = True
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Len"[: 40 + nth])
            return None
        if mode == "cookie" and "known=1" not in headers.get("cookie", ""):
            return plain(302, Location="/sign-on")
        if mode == "sign-on":
            if headers.get("authorization") != "Basic bWU6c2VjcmV0":
                return plain(401)
            return plain(302, Location="/cookie", Set_Cookie="known=1; Path=/")
        if mode == "bearer" and headers.get("authorization") != "Bearer t0ken":
            return plain(401)
        if mode == "frankfurt" and "/eu-central-1/s3/" not in headers.get("authorization", ""):
            return plain(301, X_Amz_Bucket_Region="eu-central-1")
        if mode == "malformed" and "/eu-central-1/s3/" not in headers.get("authorization", ""):
            page = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-central-1</Region></Error>"
            handler.send_response(400)
            handler.send_header("Content-Length", str(len(page)))
            handler.end_headers()
            handler.wfile.write(page)
            return None
        if mode == "slow-head":
            return self.trickle_head(handler)
        if mode == "index":
            page = b'<a href="../">up</a><a href="?C=M">by date</a><a href="sub/">s</a><a href="a%20b.nc">a</a>'
            if path_end(handler.path) == "sub":
                page = b'<a href="/index/">up</a><a href="c.nc">c</a><a href="d.txt">d</a>'
            return self.send(handler, "whole", nth, page, headers, body)
        return self.send(handler, mode, nth, DATA, headers, body)

    def trickle_head(self, handler: BaseHTTPRequestHandler) -> None:
        """An answer whose head never ends, a byte at a time."""
        handler.close_connection = True
        handler.wfile.write(b"HTTP/1.1 206 Partial\r\nX-Long: ")
        for _ in range(500):
            handler.wfile.write(b"x")
            time.sleep(0.02)

    def send(
        self, handler: BaseHTTPRequestHandler, mode: str, nth: int, data: bytes, headers: dict[str, str], body: bool
    ) -> None:
        requested = headers.get("range", "")
        if (suffix := re.fullmatch(r"bytes=-(\d+)", requested)) and mode != "prefixes-only" and data:
            requested = f"bytes={max(len(data) - int(suffix[1]), 0)}-{len(data) - 1}"
        if mode == "gzipped":
            data = gzip.compress(data[:100_000], mtime=0) + gzip.compress(data[100_000:], mtime=0)
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", requested)
        status, total = 200, str(len(data))
        part = data
        if found and not mode.startswith("whole"):
            first, last = int(found[1]), min(int(found[2]), len(data) - 1)
            if mode == "capped":
                last = min(last, first + 999)
            if mode == "shifted":
                first, last = first + 1, last + 1
            if mode == "sizeless":
                total = "*"
            if mode == "growing":
                total = str(len(data) + nth)
            if first > last:
                handler.send_response(416)
                handler.send_header("Content-Range", f"bytes */{total}")
                handler.send_header("Content-Length", "0")
                return handler.end_headers()
            status, part = 206, data[first : last + 1]
        handler.send_response(status)
        if status == 206 and mode != "placeless":
            handler.send_header("Content-Range", f"bytes {first}-{last}/{total}")
        if mode != "dated":
            handler.send_header("ETag", f'"{nth}"' if mode == "changing" else '"v1"')
        handler.send_header("Last-Modified", _DATE)
        if mode == "gzipped":
            handler.send_header("Content-Encoding", "gzip")
        if mode == "brotli":
            handler.send_header("Content-Encoding", "br")
        if mode == "double":
            handler.send_header("Transfer-Encoding", "gzip, chunked")
        chunked = mode in ("chunked", "whole-chunked")
        if chunked:
            handler.send_header("Transfer-Encoding", "chunked")
        elif mode != "double":
            handler.send_header("Content-Length", str(len(part) + (5 if mode == "longer" and nth == 1 else 0)))
        handler.end_headers()
        if not body:
            return None
        if (mode == "cut" and nth <= 2) or mode == "always-cut":
            handler.wfile.write(part[: len(part) // 2])
            handler.close_connection = True
            return None
        if mode == "trickle":
            for at in range(len(part)):
                handler.wfile.write(part[at : at + 1])
                time.sleep(0.02)
            return None
        if chunked:
            half = len(part) // 2
            for piece in [*filter(None, (part[:half], part[half:])), b""]:
                handler.wfile.write(b"%x\r\n" % len(piece) + piece + b"\r\n")
            return None
        handler.wfile.write(part)
        return None


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = Web()
    yield server
    server.stop()


@pytest.fixture
def data() -> bytes:
    return DATA


@pytest.fixture
def hasty() -> RetryPolicy:
    return HASTY
