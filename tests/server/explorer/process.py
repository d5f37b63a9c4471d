"""`insitu explore` in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forked_commands import CODE
from server.serving import Server
from waiting import LONG


@contextmanager
def exploring(*arguments: str, folder: Path, environment: dict[str, str] | None = None) -> Iterator[Server]:
    """`insitu explore` with these arguments, for as long as the block lasts."""
    command = [sys.executable, "-c", CODE, "explore", *arguments, "--no-browser"]
    with open(folder / "explore.log", "wb") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, env={**os.environ, **(environment or {})}, cwd=folder
        )
    assert process.stdout is not None
    address = process.stdout.readline().decode().strip()
    assert address.startswith("http://127.0.0.1:"), (folder / "explore.log").read_text()
    server = Server(address.rstrip("/"), process, folder / "explore.log")
    try:
        yield server
    finally:
        server.close()
        process.send_signal(signal.SIGINT)
        process.wait(LONG)
        process.stdout.close()
