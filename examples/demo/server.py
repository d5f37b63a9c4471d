"""The server of the demonstration, a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from insitu.errors import TimedOutError, UnsupportedError

__all__ = ["DemoServer", "run_server"]

SECONDS = 30
_CODE = "import insitu.cli; insitu.cli.main()"


@dataclass(frozen=True, slots=True)
class DemoServer:
    """A running server."""

    url: str


@contextmanager
def run_server(folder: Path, log: Path) -> Iterator[DemoServer]:
    """Run `insitu serve` over a folder within a `with` block."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-c", _CODE, "serve", str(folder), "--port", str(port)]
    with open(log, "wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=dict(os.environ))
    try:
        _wait(f"http://127.0.0.1:{port}/health", process, log)
        yield DemoServer(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    direct = build_opener(ProxyHandler({}))  # not through a proxy
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            last = (log.read_text().strip().splitlines() or ["it printed nothing"])[-1]
            raise UnsupportedError(f"the server did not start: {last}", hint="pip install 'insitu[serve]'")
        try:
            with direct.open(url, timeout=2):
                return
        except (URLError, OSError):
            time.sleep(0.05)
    raise TimedOutError("the server did not start in time", url=url)
