from __future__ import annotations

import threading
import time

from insitu.sources.throttle import HostThrottle, throttle_for
from waiting import LONG


def test_the_cost_of_a_request_is_learned():
    pace = HostThrottle(latency=0.05, bandwidth=100e6, width=50)
    assert pace.request_bytes == 100_000
    for _ in range(3):
        pace.record_latency(0.01)
    pace.record_latency(3.0)
    assert pace.request_bytes == 20_400
    pace.record_transfer(100, 1.0)
    assert pace.request_bytes == 20_400
    for _ in range(40):
        pace.record_transfer(10 << 20, 10.0)
    assert pace.request_bytes == 4096
    slow = HostThrottle(latency=60.0, bandwidth=1e9, width=1)
    assert slow.request_bytes == 1 << 20


def test_refusals_halve_the_width_once():
    pace = HostThrottle(width=40)
    for _ in range(10):
        pace.back_off()
    assert pace.width == 20
    for _ in range(10):
        pace._last_refusal -= 1
        pace.back_off()
    assert pace.width == 4
    pace._last_refusal -= 10
    pace.enter(time.monotonic() + 1)
    assert pace.width == 5


def test_no_more_than_the_width_at_once():
    pace, most, now, lock = HostThrottle(width=3), [0], [0], threading.Lock()

    def work():
        pace.enter(time.monotonic() + LONG)
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.01)
        with lock:
            now[0] -= 1
        pace.leave()

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] <= 3


def test_nobody_waits_past_the_deadline():
    pace = HostThrottle(width=1)
    pace.enter(time.monotonic() + 1)
    start = time.monotonic()
    pace.enter(start + 0.05)
    assert time.monotonic() - start > 0.04  # without the deadline it waits for ever


def test_places_have_their_own():
    assert throttle_for("https://a") is throttle_for("https://a")
    assert throttle_for("https://a") is not throttle_for("https://b")
