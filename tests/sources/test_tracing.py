from __future__ import annotations

import threading

import pytest

from insitu.errors import SourceError
from insitu.sources import CachedSource, DiskCache, HttpSource, open_source, trace
from insitu.sources.range_batch import RequestLimits
from insitu.sources.tracing import Histogram


def test_requests_of_all_sources_and_threads(web, data, tmp_path):
    (tmp_path / "x").write_bytes(data)
    web.delay = 0.01
    with trace() as cost:
        source = HttpSource(web.url("file"), limits=RequestLimits(gap=0))
        thread = threading.Thread(target=source.read, args=(0, 100))
        thread.start()
        thread.join()
        source.read_many([(at * 10_000, 50) for at in range(8)])
        local = open_source(tmp_path / "x")
        local.read_many([(0, 5), (10, 5)])
        local.read(0, 7)
        target = bytearray(9)
        local.read_into(0, memoryview(target))
    source.read(0, 5)
    place = web.url("").rstrip("/")
    assert {name: (one.requests, one.bytes) for name, one in cost.places.items()} == {place: (9, 500), "files": (4, 26)}
    assert (cost.requests, cost.bytes, cost.retries, cost.failures) == (13, 526, 0, 0)
    assert cost.latency.count == 13
    assert cost.latency.longest >= 0.01
    assert 2 <= cost.most_at_once <= 8
    assert cost.waves >= 3
    assert "13 requests" in str(cost)
    assert "latency: median" in str(cost)


def test_retries_and_failures(web, data, hasty):
    with trace() as cost:
        HttpSource(web.url("busy"), policy=hasty).read(0, 5)
        with pytest.raises(SourceError):
            HttpSource(web.url("404"), policy=hasty).read(0, 5)
    assert (cost.requests, cost.retries, cost.failures) == (4, 2, 3)
    assert "2 retries, 3 requests failed" in str(cost)


def test_caches_tell_what_they_had(web, data, tmp_path):
    with trace() as cost:
        source = CachedSource(HttpSource(web.url("file")), DiskCache(tmp_path / "cache", 1 << 20))
        source.read_many([(1500, 10), (1990, 5)])
        source.read_many([(1500, 10), (1990, 5), (50_000, 7)])
    assert (cost.cache_hits, cost.cache_misses, cost.cache_bytes) == (2, 3, 15)


def test_traces_within_traces():
    with trace() as outer:
        open_source(b"abc").read(0, 1)
        with trace() as inner:
            open_source(b"abc").read(0, 2)
    assert (outer.requests, inner.requests) == (2, 1)
    open_source(b"abc").read(0, 1)
    assert outer.requests == 2
    assert repr(inner) == "Trace(1 requests, 2 bytes, 0 retries, 0 cache hits)"


def test_no_secret_is_shown(web):
    with trace() as cost:
        HttpSource(web.url("signed").replace("//", "//me:pw@") + "?X-Amz-Signature=abc").read(0, 5)
    assert "pw" not in str(cost)
    assert "abc" not in str(cost)


def test_an_empty_trace():
    with trace() as cost:
        pass
    assert cost.requests == 0
    assert "0 requests" in str(cost)
    assert Histogram().rows() == []
    assert Histogram().quantile(0.5) == 0
