"""LRU cache of the pages of a reference set, bounded by bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from insitu.forking import fork_safe_lock

__all__ = ["PageCache"]

PageT = TypeVar("PageT")


class PageCache(Generic[PageT]):
    """LRU cache of pages by key.

    Parameters
    ----------
    weigh
        Returns the bytes of a page.
    limit
        Bytes that the cache may hold. The latest page is always kept.
    """

    def __init__(self, weigh: Callable[[PageT], int], limit: int = 64 << 20) -> None:
        self._weigh, self._limit = weigh, limit
        self._lock = fork_safe_lock()
        self._pages: OrderedDict[Any, PageT] = OrderedDict()
        self._size = 0

    def find(self, key: Any, load: Callable[[], PageT]) -> PageT:
        """Return a page, loading it if necessary. Two threads may load the same page at once."""
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
        """Return whether a page is in memory."""
        with self._lock:
            return key in self._pages

    def __reduce__(self) -> tuple[Any, ...]:
        return PageCache, (self._weigh, self._limit)  # a copy in another process starts empty
