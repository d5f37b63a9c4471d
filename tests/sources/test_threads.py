from __future__ import annotations

import threading
import time

import pytest

from insitu.sources.threads import MAX_REQUESTS, gather
from waiting import LONG


def test_results_in_order_on_many_threads():
    seen = set()

    def work(item, stop):
        seen.add(threading.current_thread().name)
        time.sleep(0.001)
        return item * 2

    assert gather(work, list(range(200))) == list(range(0, 400, 2))
    assert 1 < len(seen) <= MAX_REQUESTS


def test_width_bounds_what_is_under_way():
    under_way, most, lock = 0, 0, threading.Lock()

    def work(item, stop):
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.002)
        with lock:
            under_way -= 1

    gather(work, list(range(40)), width=3)
    assert most <= 3
    gather(work, list(range(5)), width=1)


def test_the_first_error_stops_the_rest():
    begun, stopped = [], []

    def work(item, stop):
        begun.append(item)
        if item == 3:
            raise ValueError("three")
        stopped.append(stop.wait(LONG))
        raise RuntimeError("because of three")

    with pytest.raises(ValueError, match="three"):
        gather(work, list(range(1000)))
    assert len(begun) <= MAX_REQUESTS
    assert all(stopped)


def test_an_interrupt_of_the_caller_does_not_wait():
    main = threading.current_thread()
    release, released, ended = threading.Event(), [], threading.Event()

    def work(item, stop):
        if threading.current_thread() is main:
            raise KeyboardInterrupt
        released.append(release.wait(LONG))
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        gather(work, list(range(10)))
    release.set()
    if released:
        assert ended.wait(LONG)
    assert all(released)


def test_few_items_need_no_threads():
    names = gather(lambda item, stop: threading.current_thread().name, [1])
    assert names == [threading.current_thread().name]
    assert gather(lambda item, stop: item, []) == []
