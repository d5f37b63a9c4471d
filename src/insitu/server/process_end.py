"""How a server process ends when that does not happen by itself.

A worker whose parent was killed would go on listening: the port would not be free for the next server.
And Python waits at its end for threads that do not stop.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.connection import wait

__all__ = ["end_soon", "end_with_parent", "is_running"]

serve_log = logging.getLogger("insitu.serve")


def end_with_parent(seconds: float) -> None:
    """Stop this process gracefully once the process that started it ends; without such a parent, do nothing.

    Parameters
    ----------
    seconds
        After so many seconds it ends in any case.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        # A pipe whose other end only the parent holds (on Windows, its handle): no polling.
        threading.Thread(target=_wait_and_end, args=(parent.sentinel, seconds), daemon=True).start()


def is_running(pid: int) -> bool:
    """Return whether a process of this user is running."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):  # no such process, or one of another user
        return False
    return True


def end_soon(seconds: float) -> None:
    """End this process after so many seconds, whatever its other threads do."""
    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    timer.start()


def _wait_and_end(sentinel: int, seconds: float) -> None:
    wait([sentinel])
    serve_log.error("the process that started this worker has gone: the worker ends, too")
    os.kill(os.getpid(), signal.SIGTERM)  # the listening socket is closed at once, requests are finished
    time.sleep(seconds)
    os._exit(1)
