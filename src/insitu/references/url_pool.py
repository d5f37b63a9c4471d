"""Numbered pool of the source URLs of a reference set.

Each URL is in the pool once, numbered in the order of appearance. Pages of a reference set are read
while others are in use, so the pool only grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.forking import fork_safe_lock
from insitu.model import Source
from insitu.references.urls import UrlResolver

__all__ = ["UrlPool"]


class UrlPool:
    """The sources that a reference set names, by number."""

    def __init__(self, base: UrlResolver) -> None:
        self._base = base
        self._lock = fork_safe_lock()
        self._numbers: dict[str, int] = {}
        self.sources: list[Source] = []
        """Only ever appended to: numbers stay valid."""

    def number(self, url: str) -> int:
        """Return the number of a source, by its URL as the reference set writes it."""
        found = self._numbers.get(url)
        if found is None:
            with self._lock:
                found = self._numbers.get(url)
                if found is None:
                    source = Source(self._base.resolve(url))
                    found = len(self.sources)
                    self.sources.append(source)
                    self._numbers[url] = found
        return found

    def numbers(self, urls: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the numbers of several URLs."""
        return np.array([self.number(url) for url in urls], np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_pool, (self._base, self._numbers, self.sources)


def _restore_pool(base: UrlResolver, numbers: dict[str, int], sources: list[Source]) -> UrlPool:
    pool = UrlPool(base)
    pool._numbers, pool.sources = dict(numbers), list(sources)
    return pool
