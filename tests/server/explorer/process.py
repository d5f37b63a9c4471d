"""`insitu explore` in a process of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forked_commands import start_command
from server.serving import Server
from waiting import LONG


@contextmanager
def exploring(*arguments: str, folder: Path, environment: dict[str, str] | None = None) -> Iterator[Server]:
    """`insitu explore` with these arguments, for as long as the block lasts."""
    readable, writable = os.pipe()
    with open(readable) as printed:
        with open(folder / "explore.log", "wb") as log, open(writable, "wb") as output:
            process = start_command(
                ["explore", *arguments, "--no-browser"],
                folder=folder, environment={**os.environ, **(environment or {})}, stdout=output, stderr=log,
            )  # fmt: skip
        address = printed.readline().strip()
        assert address.startswith("http://127.0.0.1:"), (folder / "explore.log").read_text()
        server = Server(address.rstrip("/"), process, folder / "explore.log")
        try:
            yield server
        finally:
            server.close()
            process.send_signal(signal.SIGINT)
            process.wait(LONG)
