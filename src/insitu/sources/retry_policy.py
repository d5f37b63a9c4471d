"""How long is a storage that does not answer waited for, and when is it asked again?

Pure: numbers in, seconds out; the clock and the dice are the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from insitu.errors import SourceError

__all__ = ["OPTIONS", "Patience", "patience_for", "retry_after"]


@dataclass(frozen=True, slots=True)
class Patience:
    """The waiting rules of a remote source."""

    connect: float = 10.0
    """Seconds until a connection stands."""
    read: float = 30.0
    """Seconds without a single byte."""
    deadline: float = 300.0
    """Seconds for one range, all attempts and pauses together."""
    attempts: int = 6
    """How often a range is asked for, the first time included."""
    first_pause: float = 0.2
    """Seconds before the second attempt; doubled before each further one."""
    longest_pause: float = 20.0
    """Where the doubling stops."""

    def pause(self, attempt: int, chance: float, asked: float | None = None) -> float:
        """Seconds to wait after failed attempt number `attempt` (from 0).

        Half of it is left to `chance` (in 0..1), or clients that failed together would come back together. A server
        that `asked` for more (Retry-After) gets it.

        Examples
        --------
        >>> Patience().pause(2, chance=1.0), Patience().pause(0, chance=0.0, asked=3.0)
        (0.8, 3.0)
        """
        step: float = min(self.longest_pause, self.first_pause * 2.0 ** min(attempt, 60))
        return max(step * (0.5 + 0.5 * chance), asked or 0.0)


OPTIONS = {"connect_timeout": "connect", "read_timeout": "read", "timeout": "deadline", "retries": "attempts"}
"""What `storage_options` call the rules."""


def patience_for(options: Mapping[str, Any]) -> Patience:
    """The rules that `storage_options` ask for.

    Examples
    --------
    >>> rules = patience_for({"timeout": 20, "retries": 2})
    >>> rules.deadline, rules.attempts, rules.connect
    (20.0, 3, 10.0)
    """
    given: dict[str, Any] = {}
    for name, field in OPTIONS.items():
        value = options.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise SourceError(f"the storage option {name!r} must be a number, not {value!r}", url=None)
        given[field] = int(value) + 1 if name == "retries" else float(value)
    return Patience(**given)


def retry_after(value: str | None, now: float) -> float | None:
    """The seconds that a Retry-After header asks for: a number or a date; None if it says neither.

    Examples
    --------
    >>> retry_after("7", 0.0), retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 50.0), retry_after("soon", 0.0)
    (7.0, 10.0, None)
    """
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError):
        return None
