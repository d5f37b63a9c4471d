"""Retry policy of remote sources: timeouts, exponential backoff with jitter, and the retry loop.

Web servers, object stores and servers next to the data use the same rules and the same loop. A
source raises `TransientError` for a failure that may pass; anything else ends the loop at once.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from insitu.cancellation import cap_to_deadline, check_deadline
from insitu.errors import InsituError, SourceError, TimedOutError
from insitu.sources import tracing

__all__ = ["RETRY_OPTIONS", "RetryPolicy", "TransientError", "retry", "retry_after", "retry_policy_for"]

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Timeouts and retries of a remote source."""

    connect: float = 10.0
    """Seconds until a connection is established."""
    read: float = 30.0
    """Seconds without a single byte."""
    deadline: float = 300.0
    """Seconds for one range, all attempts and pauses together."""
    attempts: int = 6
    """How often a range is requested, the first time included."""
    first_pause: float = 0.2
    """Seconds before the second attempt; doubled before each further one."""
    longest_pause: float = 20.0
    """Upper bound of the pauses, in seconds."""

    def pause(self, attempt: int, chance: float, after: float | None = None) -> float:
        """Return the seconds to wait after failed attempt number `attempt` (from 0).

        Half of it is left to `chance` (in 0..1), or clients that failed together would come back
        together. A server that asks for more (Retry-After) gets it.

        Examples
        --------
        >>> RetryPolicy().pause(2, chance=1.0), RetryPolicy().pause(0, chance=0.0, after=3.0)
        (0.8, 3.0)
        """
        step: float = min(self.longest_pause, self.first_pause * 2.0 ** min(attempt, 60))
        return max(step * (0.5 + 0.5 * chance), after or 0.0)


class TransientError(Exception):
    """A failure that may pass: the request is worth another attempt.

    Parameters
    ----------
    error
        What to raise if no attempt succeeds.
    after
        Seconds that the server asks to wait.
    """

    def __init__(self, error: InsituError, after: float | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.after = after


def retry(
    attempt: Callable[[float], Result],
    policy: RetryPolicy,
    *,
    url: str,
    host: str | None = None,
    offset: int | None = None,
    length: int | None = None,
    stop: threading.Event | None = None,
    last_start: float = 1.0,
) -> Result:
    """Return what `attempt(until)` returns; call it again while it raises `TransientError`.

    Parameters
    ----------
    attempt
        Makes one request. It is given the time by which it has to end, by the monotonic clock.
    policy
        How often and how long.
    url, offset, length
        What is requested, for error messages.
    host
        Name under which retries are counted by `trace`.
    stop
        When set, pauses end and no further attempt is made: the rest of the batch has failed.
    last_start
        The share of the time within which the last attempt may begin. Below 1 for libraries that
        do not know `until` and have a timeout of their own.

    Examples
    --------
    >>> answers = iter([TransientError(SourceError("busy")), b"abc"])
    >>> def attempt(until):
    ...     answer = next(answers)
    ...     if isinstance(answer, Exception):
    ...         raise answer
    ...     return answer
    >>> retry(attempt, RetryPolicy(first_pause=0.0), url="https://host/x")
    b'abc'
    """
    start = time.monotonic()
    until = cap_to_deadline(start + policy.deadline)
    latest = start + (until - start) * last_start
    tries = 0
    while True:
        check_deadline()
        try:
            return attempt(until)
        except SourceError as final:
            raise final.with_context(offset=offset, length=length) from None
        except TransientError as passing:
            error, after = passing.error, passing.after
        tries += 1
        error.with_context(offset=offset, length=length)
        pause = policy.pause(tries - 1, random.random(), after)
        # An attempt that could only begin after the time is up is not waited for.
        if time.monotonic() + pause >= latest:
            check_deadline()
            raise TimedOutError(
                f"no attempt succeeded within {policy.deadline:g} s; the last error: {error.message}",
                url=url, offset=offset, length=length, attempts=tries,
            ) from None  # fmt: skip
        if tries >= policy.attempts:
            raise error.with_context(attempts=tries) from None
        if stop is None:
            time.sleep(pause)
        elif stop.wait(pause):
            raise error
        if host is not None:
            tracing.report_retry(host)


RETRY_OPTIONS = {"connect_timeout": "connect", "read_timeout": "read", "timeout": "deadline", "retries": "attempts"}
"""Names of the `storage_options` that set the fields of a `RetryPolicy`."""


def retry_policy_for(options: Mapping[str, Any]) -> RetryPolicy:
    """Return the retry policy that `storage_options` ask for.

    Examples
    --------
    >>> rules = retry_policy_for({"timeout": 20, "retries": 2})
    >>> rules.deadline, rules.attempts, rules.connect
    (20.0, 3, 10.0)
    """
    settings: dict[str, Any] = {}
    for name, field in RETRY_OPTIONS.items():
        value = options.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise SourceError(
                f"the storage option {name!r} is {value!r}: it must be a number, and not negative", url=None
            )
        settings[field] = int(value) + 1 if name == "retries" else float(value)
    return RetryPolicy(**settings)


def retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds that a Retry-After header asks for, given as a number or a date; None if
    it is neither.

    Examples
    --------
    >>> retry_after("7", 0.0), retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 50.0), retry_after("soon", 0.0)
    (7.0, 10.0, None)
    """
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    from email.utils import parsedate_to_datetime  # not at the top: imports sockets

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError):
        return None
