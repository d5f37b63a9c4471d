"""The LRU cache: order of eviction, weights, threads, copies."""

from __future__ import annotations

import pickle
import threading

from insitu.lru import LruCache


def test_the_least_recently_used_value_is_evicted() -> None:
    cache: LruCache[str, int] = LruCache(2)
    assert cache.put("a", 1) == cache.put("b", 2) == []
    assert cache.get("a") == 1
    assert cache.put("c", 3) == [2]
    assert ("a" in cache, "b" in cache, "c" in cache, len(cache)) == (True, False, True, 2)


def test_weights_bound_the_cache() -> None:
    cache: LruCache[str, bytes] = LruCache(10, len)
    cache.put("a", b"1234")
    cache.put("b", b"1234")
    assert cache.weight == 8
    assert cache.put("c", b"123456789") == [b"1234", b"1234"]
    assert cache.weight == 9


def test_a_value_that_is_too_heavy_leaves_the_others_alone() -> None:
    cache: LruCache[str, bytes] = LruCache(4, len)
    cache.put("a", b"12")
    assert cache.put("b", b"12345") == [b"12345"]
    assert ("a" in cache, "b" in cache, cache.weight) == (True, False, 2)


def test_min_items_are_kept_however_heavy() -> None:
    cache: LruCache[str, bytes] = LruCache(4, len, min_items=1)
    cache.put("a", b"12345")
    assert "a" in cache
    assert cache.put("b", b"123456") == [b"12345"]
    assert ("b" in cache, cache.weight) == (True, 6)


def test_a_value_that_is_replaced_is_returned() -> None:
    cache: LruCache[str, bytes] = LruCache(10, len)
    cache.put("a", b"1234")
    assert cache.put("a", b"12") == [b"1234"]
    assert (cache.weight, cache.pop("a"), cache.weight, cache.pop("a")) == (2, b"12", 0, None)


def test_a_value_is_loaded_once() -> None:
    cache: LruCache[str, int] = LruCache(2)
    loads = []

    def load() -> int:
        loads.append(1)
        return 0

    assert [cache.get_or_load("a", load), cache.get_or_load("a", load)] == [0, 0]
    assert len(loads) == 1


def test_clear_returns_the_values() -> None:
    cache: LruCache[str, int] = LruCache(3)
    cache.put("a", 1)
    cache.put("b", 2)
    assert (cache.clear(), len(cache), cache.weight) == ([1, 2], 0, 0)


def test_a_copy_is_empty() -> None:
    cache: LruCache[str, bytes] = LruCache(10, len)
    cache.put("a", b"1")
    again = pickle.loads(pickle.dumps(cache))
    assert (len(again), again.max_weight, again.weight) == (0, 10, 0)


def test_threads_share_it() -> None:
    cache: LruCache[int, bytes] = LruCache(100, len)

    def work(first: int) -> None:
        for number in range(first, first + 500):
            cache.put(number % 37, bytes(number % 11))
            cache.get(number % 13)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.weight == sum(map(len, cache.clear())) <= 100
