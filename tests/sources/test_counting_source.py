from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from insitu.sources import CountingSource, MemorySource


def test_counts_requests_batches_and_bytes():
    source = CountingSource(MemorySource(bytes(100)))
    source.read(90, 20)
    source.read_many([(0, 5), (10, 5)])
    source.read_many([])
    source.read_into(0, memoryview(bytearray(7)))
    source.size()
    assert (source.requests, source.batches, source.bytes) == (4, 3, 27)
    assert source.ranges == [(90, 20), (0, 5), (10, 5), (0, 7)]
    assert "4 requests, 3 batches, 27 bytes" in repr(source)
    source.reset()
    assert (source.requests, source.batches, source.bytes, source.ranges) == (0, 0, 0, [])


def test_threads_lose_no_count():
    source = CountingSource(MemorySource(bytes(100)))
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda at: source.read_many([(at % 90, 3), (0, 1)]), range(2000)))
    assert (source.requests, source.batches, source.bytes) == (4000, 2000, 8000)
