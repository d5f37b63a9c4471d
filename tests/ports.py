"""Ports for servers that tests start."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from urllib.parse import urlsplit

from waiting import LONG

__all__ = ["free_port", "is_refused"]

_numbers = itertools.count(97 * os.getpid())


def free_port() -> int:
    """Return a port that is free, and stays so until a server listens there.

    The system gives its own choice to others, too, as long as nobody listens: to a test in another process, or to a
    connection. So this is none of those that it gives away, and each process of tests begins with another one.
    """
    while True:
        port = 10_000 + next(_numbers) % 20_000
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port


def is_refused(url: str) -> bool:
    """Whether nobody listens at a URL."""
    place = urlsplit(url)
    try:
        socket.create_connection((str(place.hostname), int(place.port or 0)), timeout=LONG).close()
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    return False
