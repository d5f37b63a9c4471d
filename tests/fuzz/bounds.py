"""Does a file take more time or memory than it is worth?

No changed file may take as much time of the processor as all unchanged files together, measured in
the same process when everything is imported: how fast the machine is does not count, nor who else
keeps it busy. What takes too much is tried once more: the first time it may have been an import.
"""

from __future__ import annotations

import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType

from mutation import believed, tried

__all__ = ["GROWTH", "HANGING_SECONDS", "bounded", "measure_seconds"]

HANGING_SECONDS = 300.0
"""Of the processor: what takes longer is interrupted, so that `make fuzz` can keep the file."""
GROWTH = 96 << 20
"""Bytes: arrays of 2 MiB are read (see `mutation`), with their scratch."""


def measure_seconds(files: Iterable[bytes]) -> float:
    """Return the seconds of the processor in which all these files are read, the second time."""
    files = list(files)
    for data in files:
        tried(data)
    begun = time.process_time()
    for data in files:
        tried(data)
    return time.process_time() - begun


class TookTooLong(BaseException):
    """Not an `Exception`: nothing on the way may take it for damage."""


def _late(number: int, frame: FrameType | None) -> None:
    raise TookTooLong


@contextmanager
def bounded(seconds: float, growth: int = GROWTH, *, believe: bool = True) -> Iterator[Callable[[bytes], str]]:
    """Give a function that scans and reads a file: read, in part or refused; anything else is what
    went wrong.

    Parameters
    ----------
    seconds
        Seconds of the processor that it may take; see `measure_seconds`.
    growth
        Bytes of memory that it may take.
    believe
        Whether checksums are believed.
    """
    before = signal.signal(signal.SIGPROF, _late)
    try:
        with believed() if believe else nullcontext():
            yield lambda data: _judge(data, seconds, growth)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _judge(data: bytes, seconds: float, most: int) -> str:
    for _ in range(2):
        had, begun = _peak(reset=True), time.process_time()
        signal.setitimer(signal.ITIMER_PROF, HANGING_SECONDS)
        try:
            outcome = tried(data)
        except (Exception, TookTooLong) as problem:
            return "".join(traceback.format_exception(problem)[-6:])
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        took, growth = time.process_time() - begun, _peak() - had
        if took <= seconds and growth <= most:
            return outcome
    return f"took {took:.2f} s of the processor, {growth >> 20} MiB; all unchanged files take {seconds:.2f} s"


def _peak(*, reset: bool = False) -> int:
    """The most memory that this process had, in bytes; 0 where the system does not tell."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM")), 0)
