"""Quotas: what each token may use in an hour, counted over all workers of a server.

The counts lie in an SQLite file in a temporary folder that the parent process makes before the workers
start (`quota_folder`), so a worker that ends or is replaced takes nothing with it. An hour begins with the
first request of a token. A request is counted when it begins, so that many at once cannot pass the limit
together; what it used is added when it is done. Of a request that is refused nothing is counted.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from insitu.server.error_responses import BusyError
from insitu.server.worker_folder import worker_folder

__all__ = [
    "DEFAULT",
    "Quota",
    "QuotaError",
    "Quotas",
    "RequestUsage",
    "parse_quotas",
    "quota_folder",
]

serve_log = logging.getLogger("insitu.serve")
ENVIRONMENT_VARIABLE = "INSITU_QUOTA_FOLDER"
"""Names the folder of the counts."""
FOLDER_PREFIX = "insitu-quotas-"
WINDOW_SECONDS = 3600
"""Time for which a quota holds."""
DEFAULT = "default"
"""Name of the quota of all tokens that have none of their own."""
DIGEST_PREFIX = "sha256:"


@dataclass(frozen=True, slots=True)
class Quota:
    """What a token may use in an hour; None: as much as it likes."""

    requests: int | None = None
    bytes: int | None = None
    """Bytes of answers."""
    processor_seconds: float | None = None
    """Processor time of the server's threads."""


UNITS = {"requests": "requests", "bytes": "content-bytes", "processor_seconds": "processor-seconds"}
"""Units of the header `RateLimit-Policy`."""


class QuotaError(BusyError):
    """The token has used up its quota; `retry_after` says when it gets the next one."""

    kind = "quota"


def parse_quotas(given: Mapping[str, Any]) -> dict[str, Quota]:
    """Return quotas by the digests of their tokens, and `default`; `ValueError` if they are wrong.

    Parameters
    ----------
    given
        By `default`, a token, or `sha256:` and the digest of one: limits by the names of the fields of `Quota`.
    """
    found = {}
    names = [field.name for field in fields(Quota)]
    for token, limits in given.items():
        shown = token if token == DEFAULT or token.startswith(DIGEST_PREFIX) else "a token"
        if not isinstance(limits, Mapping):
            raise ValueError(f"the quota of {shown} must be a table of {', '.join(names)}")
        for name, value in limits.items():
            if name not in names:
                raise ValueError(f"the quota of {shown} has {name!r}; there are {', '.join(names)}")
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise ValueError(f"{name} in the quota of {shown} must be a number, and not negative")
        found[_key(token)] = Quota(**limits)
    return found


def _key(token: str | None) -> str:
    """Return the name of a token in the counts, which tells nobody the token; None: clients need none."""
    if token is None or token == DEFAULT:
        return DEFAULT
    if token.startswith(DIGEST_PREFIX):
        return token.removeprefix(DIGEST_PREFIX).lower()
    return hashlib.sha256(token.encode()).hexdigest()


def quota_folder(workers: int) -> AbstractContextManager[str | None]:
    """Let the worker processes that start within the `with` block count together; one alone needs no folder.

    A server without quotas may get some later, when it reads its options again.
    """
    return worker_folder(FOLDER_PREFIX, ENVIRONMENT_VARIABLE, workers)


class Quotas:
    """The quotas of a server and what was used of them.

    Parameters
    ----------
    quotas
        By the digests of tokens, and `default`.
    folder
        Where all workers count; None: this process counts alone.
    clock
        Returns the present time, the same in all processes.
    """

    def __init__(
        self, quotas: Mapping[str, Quota], folder: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.limits, self._clock = dict(quotas), clock
        self._lock, self._closed = threading.Lock(), False
        path = ":memory:" if folder is None else str(Path(folder) / "usage.db")
        self._counts = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
        # A killed process leaves a sound file; a crash of the machine ends the server as well.
        self._counts.execute("PRAGMA journal_mode=WAL")
        self._counts.execute("PRAGMA synchronous=OFF")
        self._counts.execute(
            "CREATE TABLE IF NOT EXISTS usage (token TEXT PRIMARY KEY, since REAL NOT NULL, requests INTEGER NOT NULL,"
            " bytes INTEGER NOT NULL, processor_seconds REAL NOT NULL)"
        )

    @classmethod
    def from_environment(cls, quotas: Mapping[str, Quota]) -> Quotas:
        """Return the quotas of a process that `quota_folder` surrounds, or of one that counts alone."""
        return cls(quotas, os.environ.get(ENVIRONMENT_VARIABLE))

    def find_key(self, token: str | None) -> str | None:
        """Return the name in the counts of the token that let a request in; None if it has no quota."""
        key = _key(token)
        return key if self.quota_of(key) is not None else None

    def quota_of(self, key: str) -> Quota | None:
        """Return the quota of a token; None if it has none."""
        return self.limits.get(key, self.limits.get(DEFAULT))

    def begin(self, key: str) -> dict[str, str]:
        """Count a request; return headers that say what is left. `QuotaError` if nothing is."""
        quota = self.quota_of(key)
        assert quota is not None
        with self._transaction() as counts:
            now = self._clock()
            row = counts.execute(
                "SELECT since, requests, bytes, processor_seconds FROM usage WHERE token = ?", (key,)
            ).fetchone()
            since, *used = row if row is not None and 0 <= now - row[0] < WINDOW_SECONDS else (now, 0, 0, 0.0)
            ends = max(math.ceil(since + WINDOW_SECONDS - now), 1)
            for name, spent in zip(UNITS, used, strict=True):
                limit = getattr(quota, name)
                if limit is not None and spent >= limit:
                    raise QuotaError(
                        f"the quota of this token is used up: {limit:,} {name.replace('_', ' ')} in an hour", ends
                    )
            used[0] += 1
            counts.execute("INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?, ?)", (key, since, *used))
        return _headers(quota, used, ends)

    def add(self, key: str, nbytes: int, seconds: float, requests: int = 0) -> None:
        """Add what a request used; -1 requests take one back."""
        try:
            with self._transaction() as counts:
                counts.execute(
                    "UPDATE usage SET bytes = bytes + ?, processor_seconds = processor_seconds + ?,"
                    " requests = MAX(requests + ?, 0) WHERE token = ?",
                    (nbytes, seconds, requests, key),
                )
        except sqlite3.Error as problem:
            if not self._closed:  # work may end after the server
                serve_log.error("quotas cannot be counted: %s", problem)

    def close(self) -> None:
        """Close the file."""
        self._closed = True
        self._counts.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._counts.execute("BEGIN IMMEDIATE")
            try:
                yield self._counts
            except BaseException:
                self._counts.execute("ROLLBACK")
                raise
            self._counts.execute("COMMIT")


def _headers(quota: Quota, used: list[float], ends: int) -> dict[str, str]:
    """Return the headers `RateLimit-Policy` and `RateLimit` of the IETF's draft."""
    limits = {name: (getattr(quota, name), spent) for name, spent in zip(UNITS, used, strict=True)}
    limits = {name: pair for name, pair in limits.items() if pair[0] is not None}
    policy = [f'"{name}";q={int(q)};qu="{UNITS[name]}";w={WINDOW_SECONDS}' for name, (q, _) in limits.items()]
    left = [f'"{name}";r={max(int(q - spent), 0)};t={ends}' for name, (q, spent) in limits.items()]
    return {"RateLimit-Policy": ", ".join(policy), "RateLimit": ", ".join(left)}


class RequestUsage:
    """What one request uses: kept until it is known whether it was refused.

    Parameters
    ----------
    quotas, key
        Where it is counted, and for which token.
    """

    def __init__(self, quotas: Quotas, key: str) -> None:
        self._quotas, self._key = quotas, key
        self._seconds = 0.0
        self._counted: bool | None = None
        """Whether it counts; None: that is said by `finish`."""

    def add_seconds(self, seconds: float) -> None:
        """Add processor time; work may end after its request."""
        if self._counted is None:
            self._seconds += seconds
        elif self._counted:
            self._quotas.add(self._key, 0, seconds)

    def finish(self, nbytes: int, refused: bool) -> None:
        """Count what was used, or nothing."""
        self._counted = not refused
        self._quotas.add(self._key, *((0, 0.0, -1) if refused else (nbytes, self._seconds)))
