"""Locks by key, so that only one request at a time does the work for a key, such as scanning an
archive.

A lock exists only while a request holds it or waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from insitu.cancellation import check_deadline

__all__ = ["KeyedLocks"]

_CHECK_SECONDS = 0.25
"""Seconds between two checks of the deadline while a request waits."""


class _CountedLock:
    """A lock, and how many requests hold it or wait for it."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0


class KeyedLocks:
    """Locks by key.

    Examples
    --------
    >>> locks = KeyedLocks()
    >>> with locks.hold("a.nc"):
    ...     len(locks)
    1
    >>> len(locks)
    0
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Hashable, _CountedLock] = {}

    def __len__(self) -> int:
        return len(self._known)

    @contextmanager
    def hold(self, key: Hashable) -> Iterator[None]:
        """Hold the lock of a key within a `with` block;
        wait for it until the deadline of this thread at most.
        """
        with self._lock:
            found = self._known.setdefault(key, _CountedLock())
            found.users += 1
        try:
            while not found.lock.acquire(timeout=_CHECK_SECONDS):
                check_deadline()
            try:
                yield
            finally:
                found.lock.release()
        finally:
            with self._lock:
                found.users -= 1
                if not found.users:
                    del self._known[key]
