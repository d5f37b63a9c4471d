"""Which number does a URL have in a reference set?

Each object once, numbered in the order in which it is met. Pages of a reference set are read while others are already in use, so the pool only grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.forking import fork_safe_lock
from insitu.model import Source
from insitu.references.urls import Base

__all__ = ["Pool"]


class Pool:
    """The objects that a reference set names."""

    def __init__(self, base: Base) -> None:
        self._base = base
        self._lock = fork_safe_lock()
        self._numbers: dict[str, int] = {}
        self.sources: list[Source] = []
        """Grows; what is in it stays where it is."""

    def number(self, url: str) -> int:
        """The number of an object, by its URL as the reference set writes it."""
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
        """The numbers of many."""
        return np.array([self.number(url) for url in urls], np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._base, self._numbers, self.sources)


def _restored(base: Base, numbers: dict[str, int], sources: list[Source]) -> Pool:
    pool = Pool(base)
    pool._numbers, pool.sources = dict(numbers), list(sources)
    return pool
