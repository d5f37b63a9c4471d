"""Bytes are served from memory; missing ones are fetched in one batch."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from insitu.errors import FormatError
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.parsing.scheduler import ExactRanges
from insitu.sources import CountingSource, MemorySource

DATA = random.Random(0).randbytes(3_000_000)
RANGES = st.lists(st.tuples(st.integers(0, 2_999_000), st.integers(0, 1000)), min_size=1, max_size=6)


@given(st.lists(st.tuples(RANGES, st.booleans()), min_size=1, max_size=8), st.booleans())
def test_always_the_right_bytes(requests, remote) -> None:
    source = CountingSource(MemorySource(DATA))
    window = ReadCache(source, remote=remote)
    for ranges, exact in requests:
        request = ExactRanges(ranges) if exact else ranges
        found = window.peek_many(request)
        if found is None:
            (found,) = window.fetch([request])
        assert found == [DATA[offset : offset + length] for offset, length in ranges]
    assert source.batches <= 1 + len(requests)


def test_neighbours_come_along_but_not_with_exact_ranges() -> None:
    source = CountingSource(MemorySource(DATA))
    window = ReadCache(source, remote=True)
    window.fetch([[(1_000_000, 10)]])
    assert window.peek_many([(1_050_000, 100)]) is not None
    before = source.bytes
    window.fetch([ExactRanges([(2_000_000, 10), (2_500_000, 10)])])
    assert source.bytes - before == 20
    assert window.peek_many([(2_000_000, 10)]) is None


def test_what_is_read_on_suspicion_has_a_limit() -> None:
    size = 1 << 30

    class Huge(MemorySource):
        def size(self) -> int:
            return size

        def read(self, offset, length):
            return bytes(length)

        def read_many(self, ranges):
            return [bytes(length) for _, length in ranges]

    source = CountingSource(Huge(bytes(10)))
    window = ReadCache(source, remote=True)
    places = np.random.default_rng(0).integers(0, size - 100, 2000).tolist()
    for start in range(0, 2000, 100):
        window.fetch([[(place, 10) for place in places[start : start + 100]]])
    assert source.bytes < 10 << 20


def test_a_short_answer_is_an_error() -> None:
    class Short(MemorySource):
        def read_many(self, ranges):
            return [bytes(1) for _ in ranges]

    window = ReadCache(Short(DATA), remote=False)
    with pytest.raises(FormatError, match="too early"):
        window.fetch([[(500_000, 10)]])
