"""A server for the explorer's page in a notebook, in a process of its own: `python -m insitu.server.notebook_server`.

It reads what it serves as JSON from a line of its standard input, writes its address to its standard
output, and ends when the standard input ends: then the process that started it has gone, or has
closed it.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from insitu.server.run import run
from insitu.server.settings import Limits, Settings

__all__ = ["main"]

GRACE_SECONDS = 1
"""Seconds that running requests get when the notebook's process has gone."""


def main() -> None:
    """Serve what the standard input names until it ends."""
    settings = json.loads(sys.stdin.readline())
    gib = 1 << 30
    settings = Settings(
        roots=tuple(settings["roots"]),
        archives=(settings["archive"],),
        tokens=(settings["token"],),
        limits=Limits(memory=2 * gib, cache=gib // 4),
        storage_options=settings["storage_options"] or {},
        grace=GRACE_SECONDS,
        in_notebook=True,
    )

    def wait_for_end() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=wait_for_end, daemon=True).start()
    run(settings, host="127.0.0.1", port=0, log_level="error", on_ready=lambda address: print(address, flush=True))


if __name__ == "__main__":
    main()
