"""Record which URLs the process opens, also those that do not exist."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from insitu.forking import fork_safe_lock

__all__ = ["note_opened", "record_opened_urls"]

_recorders: list[set[str]] = []
_lock = fork_safe_lock()


@contextmanager
def record_opened_urls() -> Iterator[set[str]]:
    """Record the URLs that any thread opens within the block: those of others too, rather too many
    than too few.
    """
    found: set[str] = set()
    with _lock:
        _recorders.append(found)
    try:
        yield found
    finally:
        with _lock:
            _recorders[:] = [other for other in _recorders if other is not found]


def note_opened(url: str) -> None:
    """Note that a URL is about to be opened."""
    for found in list(_recorders):
        found.add(url)
