"""How long tests wait for what must happen.

So long that a machine that is slow, or busy with other work, gets there: the time only ends what
hangs. Nothing else in the tests depends on a clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["LONG", "wait_until"]

T = TypeVar("T")

LONG = 900.0
"""Seconds."""


def wait_until(condition: Callable[[], T], what: str = "it did not happen", every: float = 0.05) -> T:
    """Wait until a condition holds, and return what it gave. It is looked at every so many seconds."""
    until = time.monotonic() + LONG
    while not (found := condition()):
        assert time.monotonic() < until, what
        time.sleep(every)
    return found
