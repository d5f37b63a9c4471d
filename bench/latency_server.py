"""What does a scan cost over a network, where each request takes a while?

A small HTTP/1.1 server on the loopback, in a process of its own: keep-alive, Range requests, a
delay added to each request, and a count of what was asked. `GET /-/stats` tells requests, bytes,
the most requests at once, and the waves (how often a request came when none was under way: for a
reader that asks for all it needs at once, the round trips); `GET /-/reset` starts anew. Both are
free of delay and not counted.

    python bench/latency_server.py FOLDER --delay 0.05        # prints its URL; ends when its
    standard input does
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from urllib.parse import unquote, urlsplit

__all__ = ["LatencyServer"]

BLOCK = 1 << 20


class Tally:
    """What was asked of the server."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.under_way = 0
        self.reset()

    def reset(self) -> None:
        """Start anew."""
        self.requests = self.bytes = self.most = self.waves = 0

    def enter(self) -> None:
        """A request came."""
        with self.lock:
            self.requests += 1
            self.waves += self.under_way == 0
            self.under_way += 1
            self.most = max(self.most, self.under_way)

    def leave(self, count: int) -> None:
        """A request was answered with this many bytes."""
        with self.lock:
            self.under_way -= 1
            self.bytes += count


def handler_of(folder: Path, delay: float, tally: Tally) -> type[BaseHTTPRequestHandler]:
    """Make the class that answers requests for the files of a folder."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            if path == "/-/stats":
                fields = {name: getattr(tally, name) for name in ("requests", "bytes", "most", "waves")}
                self._answer(200, json.dumps(fields).encode())
            elif path == "/-/reset":
                tally.reset()
                self._answer(200, b"{}")
            else:
                self._file(path, body=True)

        def do_HEAD(self) -> None:
            self._file(unquote(urlsplit(self.path).path), body=False)

        def _file(self, path: str, *, body: bool) -> None:
            tally.enter()
            sent = 0
            try:
                time.sleep(delay)
                file = folder / path.lstrip("/")
                if not file.is_file():
                    self._answer(404, b"not found")
                    return
                size = file.stat().st_size
                first, last, status = _range(self.headers.get("Range"), size)
                if first > last:
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{size}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(status)
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("Content-Length", str(last - first + 1))
                self.send_header("ETag", f'"{size}-{file.stat().st_mtime_ns}"')
                self.send_header("Last-Modified", self.date_time_string(int(file.stat().st_mtime)))
                if status == 206:
                    self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
                self.end_headers()
                sent = self._send(file, first, last) if body else 0
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = (
                    True  # the client has gone: kerchunk's does, in the middle of a whole-file answer
                )
            finally:
                tally.leave(sent)

        def _send(self, file: Path, first: int, last: int) -> int:
            sent = 0
            with file.open("rb") as source:
                source.seek(first)
                while first + sent <= last:
                    block = source.read(min(BLOCK, last - first - sent + 1))
                    self.wfile.write(block)
                    sent += len(block)
            return sent

        def _answer(self, status: int, text: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    return Handler


def _range(header: str | None, size: int) -> tuple[int, int, int]:
    """First byte, last byte, status; first > last if nothing of the range is there."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", header or "")
    if not match or match.groups() == ("", ""):
        return 0, size - 1, 200
    first, last = match.groups()
    if not first:
        return max(0, size - int(last)), size - 1, 206
    return int(first), min(int(last), size - 1) if last else size - 1, 206


class LatencyServer:
    """The server as a process, for the time of a `with` block."""

    def __init__(self, folder: Path, delay: float = 0.05) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(folder), "--delay", str(delay)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def __enter__(self) -> LatencyServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.wait()

    def reset(self) -> None:
        """Count anew."""
        self._ask("/-/reset")

    def stats(self) -> dict[str, float]:
        """What was counted."""
        return self._ask("/-/stats")

    def _ask(self, path: str) -> dict[str, float]:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=30)
        try:
            connection.request("GET", path)
            answer: dict[str, float] = json.loads(connection.getresponse().read())
            return answer
        finally:
            connection.close()


class Server(ThreadingHTTPServer):
    """Many clients connect at once."""

    daemon_threads = True
    request_queue_size = 512


def main() -> None:
    """Serve until standard input ends, so that no server outlives its benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--delay", type=float, default=0.05, help="seconds added to each request")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    server = Server(("127.0.0.1", options.port), handler_of(options.folder, options.delay, Tally()))
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
