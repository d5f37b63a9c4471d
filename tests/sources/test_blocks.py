from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from insitu.errors import SourceError
from insitu.sources import Blocks, Counted, MemorySource

DATA = bytes(range(251)) * 20
RANGE = st.tuples(st.integers(0, len(DATA) + 200), st.integers(0, 900))


@settings(max_examples=100)
@given(
    st.lists(st.lists(RANGE, max_size=8), max_size=6),
    st.integers(1, 700),
    st.integers(0, 1500),
    st.integers(0, 900),
    st.sampled_from([0, 100, 1000, 10**6]),
    st.sampled_from(["block", "exact"]),
)
def test_reads_what_the_object_has(batches, block, head, readahead, capacity, rounding):
    inner = Counted(MemorySource(DATA))
    source = Blocks(inner, block=block, head=head, readahead=readahead, capacity=capacity, rounding=rounding)
    for ranges in batches:
        before = inner.batches
        assert source.read_many(ranges) == [DATA[offset : offset + length] for offset, length in ranges]
        assert inner.batches <= before + 1
    assert source.size() == len(DATA)
    assert source.describe() == inner.describe()


@settings(max_examples=60)
@given(st.lists(RANGE, min_size=1, max_size=30), st.integers(1, 700))
def test_within_capacity_no_block_is_read_twice(ranges, block):
    inner = Counted(MemorySource(DATA))
    source = Blocks(inner, block=block, head=0, capacity=10**6)
    for item in ranges:
        source.read(*item)
    source.read_many(ranges)
    starts = [start for offset, length in inner.ranges for start in range(offset, offset + length, block)]
    assert len(starts) == len(set(starts))


@settings(max_examples=60)
@given(st.lists(RANGE, min_size=1, max_size=30))
def test_exact_reads_no_more_than_asked(ranges):
    inner = Counted(MemorySource(DATA))
    source = Blocks(inner, head=0, rounding="exact")
    source.read_many(ranges)
    asked = {at for offset, length in ranges for at in range(offset, min(offset + length, len(DATA)))}
    assert inner.bytes == len(asked)
    source.read_many(ranges)
    assert inner.bytes == len(asked)
    assert inner.batches <= 1


@pytest.mark.parametrize("rounding", ["block", "exact"])
def test_the_first_read_takes_the_head_along(rounding):
    inner = Counted(MemorySource(DATA))
    source = Blocks(inner, block=100, head=1000, rounding=rounding)
    assert source.read_many([(4000, 10), (8, 8)]) == [DATA[4000:4010], DATA[8:16]]
    assert inner.ranges == [(0, 1000), (4000, 100 if rounding == "block" else 10)]
    assert inner.batches == 1
    assert source.read(990, 10) == DATA[990:1000]
    assert inner.batches == 1


def test_size_before_any_read_takes_the_head():
    inner = Counted(MemorySource(DATA))
    source = Blocks(inner, block=100, head=1000)
    assert source.size() == len(DATA)
    assert inner.ranges == [(0, 1000)]
    assert source.describe().size == len(DATA)
    assert inner.batches == 1


@pytest.mark.parametrize("rounding", ["block", "exact"])
def test_reading_on_reads_ahead(rounding):
    inner = Counted(MemorySource(DATA))
    source = Blocks(inner, block=100, head=0, readahead=500, rounding=rounding)
    for offset in range(0, 1200, 100):
        assert source.read(offset, 100) == DATA[offset : offset + 100]
    assert inner.ranges == [(0, 100), (100, 600), (700, 600)]
    source.read(3000, 100)
    assert inner.ranges[-1] == (3000, 100)


@pytest.mark.parametrize("rounding", ["block", "exact"])
def test_memory_is_bounded(rounding):
    inner = Counted(MemorySource(DATA))
    source = Blocks(inner, block=100, head=0, capacity=1000, rounding=rounding)
    for offset in range(0, 5000, 100):
        source.read(offset, 100)
    assert source.read(4900, 100) == DATA[4900:5000]
    assert inner.requests == 50
    assert source.read(0, 100) == DATA[:100]
    assert inner.requests == 51


def test_long_ranges_pass_by_the_cache():
    inner = Counted(MemorySource(DATA))
    source = Blocks(inner, block=100, head=0, capacity=1000)
    assert source.read_many([(5, 10), (7, 900), (305, 10)]) == [DATA[5:15], DATA[7:907], DATA[305:315]]
    assert inner.ranges == [(0, 100), (300, 100), (7, 900)]
    assert inner.batches == 1


def test_eight_hundred_scattered_nodes_are_one_batch():
    data = bytes(3_000_000)
    inner = Counted(MemorySource(data))
    source = Blocks(inner, head=0, rounding="exact")
    source.read_many([(offset, 300) for offset in range(0, 2_400_000, 3000)])
    assert (inner.batches, inner.requests, inner.bytes) == (1, 800, 240_000)


def test_an_error_is_passed_on_and_the_head_is_tried_again():
    class Failing(MemorySource):
        failures = 1

        def read_many(self, ranges):
            if self.failures:
                self.failures -= 1
                raise SourceError("broken", url=self.url)
            return super().read_many(ranges)

    inner = Counted(Failing(DATA))
    source = Blocks(inner, block=100, head=200)
    with pytest.raises(SourceError, match="broken"):
        source.read(500, 10)
    assert source.read(500, 10) == DATA[500:510]
    assert inner.ranges == [(0, 200), (500, 100)]


@pytest.mark.parametrize("rounding", ["block", "exact"])
def test_threads_share_one_cache(rounding):
    inner = Counted(MemorySource(DATA))
    source = Blocks(inner, block=64, head=256, capacity=2000, rounding=rounding)
    wanted = [(at * 37 % len(DATA), 50) for at in range(500)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda item: source.read(*item), wanted))
    assert found == [DATA[offset : offset + length] for offset, length in wanted]
    assert inner.ranges.count((0, 256)) <= 1 + (rounding == "exact")


def test_a_copy_for_another_process_reads_the_same():
    with Blocks(MemorySource(DATA), block=100, head=10, rounding="exact") as source:
        again = pickle.loads(pickle.dumps(source))
        assert again.read(5, 10) == source.read(5, 10)
        assert repr(again) == repr(source)


def test_negative_ranges_and_bad_settings_are_refused():
    source = Blocks(MemorySource(DATA))
    with pytest.raises(SourceError):
        source.read(-1, 5)
    with pytest.raises(ValueError, match="block"):
        Blocks(MemorySource(DATA), block=0)
