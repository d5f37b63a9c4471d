"""Which pages of a reference set are kept in memory? Those used last, up to a bound."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from insitu.forking import fork_safe_lock

__all__ = ["Recent"]

Page = TypeVar("Page")


class Recent(Generic[Page]):
    """Pages by key, the least recently used forgotten first.

    Parameters
    ----------
    weigh
        Bytes of a page.
    limit
        Bytes kept; at least one page is.
    """

    def __init__(self, weigh: Callable[[Page], int], limit: int = 64 << 20) -> None:
        self._weigh, self._limit = weigh, limit
        self._lock = fork_safe_lock()
        self._pages: OrderedDict[Any, Page] = OrderedDict()
        self._size = 0

    def find(self, key: Any, load: Callable[[], Page]) -> Page:
        """A page; loaded if it is not there. Two threads may load the same page at once: the loads agree."""
        with self._lock:
            if key in self._pages:
                self._pages.move_to_end(key)
                return self._pages[key]
        page = load()
        with self._lock:
            if key not in self._pages:
                self._pages[key] = page
                self._size += self._weigh(page)
                while self._size > self._limit and len(self._pages) > 1:
                    self._size -= self._weigh(self._pages.popitem(last=False)[1])
            return page

    def has(self, key: Any) -> bool:
        """Whether a page is in memory."""
        with self._lock:
            return key in self._pages

    def __reduce__(self) -> tuple[Any, ...]:
        return Recent, (self._weigh, self._limit)  # a copy elsewhere reads for itself
