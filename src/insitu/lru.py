"""LRU cache: a thread-safe mapping that evicts the least recently used values.

By default every value weighs 1, so that the limit is a number of values; a weight function makes it
a number of bytes. Locks and counts are renewed in forked children. A copy that travels to another
process is empty.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from insitu.forking import renew_after_fork

__all__ = ["LruCache"]

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """Values by key; the least recently used ones are evicted first.

    Parameters
    ----------
    max_weight
        Total weight of the values that are kept.
    weigh
        Returns the weight of a value, which must not change; None: every value weighs 1.
    min_items
        Number of values that are kept however heavy they are.

    Examples
    --------
    >>> cache = LruCache(2)
    >>> for key in "abc":
    ...     evicted = cache.put(key, key.upper())
    >>> evicted, "a" in cache, cache.get("c"), len(cache)
    (['A'], False, 'C', 2)
    """

    def __init__(self, max_weight: int, weigh: Callable[[Value], int] | None = None, *, min_items: int = 0) -> None:
        self.max_weight = max_weight
        self._weigh = weigh
        self._min_items = min_items
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Make a new lock and count again: in a forked child, another thread may have been
        interrupted.
        """
        self._lock = threading.Lock()
        self._weight = sum(map(self._weight_of, self._values.values()))

    @property
    def weight(self) -> int:
        """Total weight of the values in the cache."""
        return self._weight

    def get(self, key: Key) -> Value | None:
        """Return the value of a key and mark it as used; None if it is not in the cache."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def get_or_load(self, key: Key, load: Callable[[], Value]) -> Value:
        """Return the value of a key; load and keep it if it is not in the cache.

        Several threads may load the same value at once: the first one that is ready is kept.
        """
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = load()
        with self._lock:
            if key in self._values:
                return self._values[key]
            self._put(key, value)
        return value

    def put(self, key: Key, value: Value) -> list[Value]:
        """Keep a value as the most recently used one.

        Return the values that are not in the cache any more: evicted ones, the one that had the
        same key, and `value` itself if it alone is too heavy. A caller that owns resources closes
        them, outside of the cache's lock.
        """
        with self._lock:
            return self._put(key, value)

    def pop(self, key: Key) -> Value | None:
        """Take a value out of the cache; None if it is not there."""
        with self._lock:
            value = self._values.pop(key, None)
            if value is not None:
                self._weight -= self._weight_of(value)
            return value

    def pop_if(self, condition: Callable[[Value], bool]) -> list[Value]:
        """Take all values out of the cache that meet a condition."""
        with self._lock:
            found = [key for key, value in self._values.items() if condition(value)]
            evicted = [self._values.pop(key) for key in found]
            self._weight -= sum(map(self._weight_of, evicted))
            return evicted

    def values(self) -> list[Value]:
        """Return all values, the least recently used one first."""
        with self._lock:
            return list(self._values.values())

    def clear(self) -> list[Value]:
        """Empty the cache; return the values that were in it."""
        with self._lock:
            values = list(self._values.values())
            self._values.clear()
            self._weight = 0
            return values

    def __contains__(self, key: object) -> bool:
        with self._lock:
            return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_empty, (type(self), self.max_weight, self._weigh, self._min_items)

    def _weight_of(self, value: Value) -> int:
        return 1 if self._weigh is None else self._weigh(value)

    def _put(self, key: Key, value: Value) -> list[Value]:
        evicted = []
        if key in self._values:
            evicted.append(self._values.pop(key))
            self._weight -= self._weight_of(evicted[0])
        added = self._weight_of(value)
        if added > self.max_weight and not self._min_items:  # it would only push out all others
            return [*evicted, value]
        self._values[key] = value
        self._weight += added
        while self._weight > self.max_weight and len(self._values) > self._min_items:
            old = self._values.popitem(last=False)[1]
            self._weight -= self._weight_of(old)
            evicted.append(old)
        return evicted


def _make_empty(
    kind: type[LruCache[Any, Any]], max_weight: int, weigh: Callable[[Any], int] | None, min_items: int
) -> LruCache[Any, Any]:
    return kind(max_weight, weigh, min_items=min_items)
