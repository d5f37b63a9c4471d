"""Does a file take more time or memory than it is worth?

A second of the processor, and some memory beyond what the process has. Wall-clock time is not
looked at: others may keep the machine busy.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType

from mutation import believed, tried

__all__ = ["bounded"]

SECONDS = 1.0
GROWTH = 96 << 20
"""Bytes: arrays of 2 MiB are read (see `mutation`), with their scratch."""


class TookTooLong(BaseException):
    """Not an `Exception`: nothing on the way may take it for damage."""


def _late(number: int, frame: FrameType | None) -> None:
    raise TookTooLong


@contextmanager
def bounded(*, believe: bool = True) -> Iterator[Callable[[bytes], str]]:
    """Give a function that scans and reads a file: read, in part or refused; anything else is what
    went wrong.

    Parameters
    ----------
    believe
        Whether checksums are believed.
    """
    before = signal.signal(signal.SIGPROF, _late)
    try:
        with believed() if believe else nullcontext():
            yield _judged
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _judged(data: bytes) -> str:
    had = _peak(reset=True)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        outcome = tried(data)
    except (Exception, TookTooLong) as problem:
        return "".join(traceback.format_exception(problem)[-6:])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    growth = _peak() - had
    return f"took {growth >> 20} MiB" if growth > GROWTH else outcome


def _peak(*, reset: bool = False) -> int:
    """The most memory that this process had, in bytes; 0 where the system does not tell."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        told = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in told.splitlines() if line.startswith("VmHWM")), 0)
