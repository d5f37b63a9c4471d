"""A source that remembers what was read: whatever is asked for, the bytes are the file's, and none come twice."""

from __future__ import annotations

import random

import pytest

from insitu.sources import CountingSource, MemorySource, remembering_source
from insitu.sources.remembering_source import RememberingSource

FILE = random.Random(0).randbytes(5000)


@pytest.mark.parametrize("room", [0, 1000, 1 << 20])
@pytest.mark.parametrize("seed", range(20))
def test_any_ranges(monkeypatch: pytest.MonkeyPatch, seed: int, room: int) -> None:
    monkeypatch.setattr(remembering_source, "MOST_BYTES", room)
    counted = CountingSource(MemorySource(FILE))
    source, dice = RememberingSource(counted), random.Random(seed)
    for _ in range(30):
        begins = [dice.randrange(len(FILE)) for _ in range(dice.randrange(4))]
        ranges = [(begin, dice.randrange(min(700, len(FILE) - begin) + 1)) for begin in begins]
        assert source.read_many(ranges) == [FILE[begin : begin + length] for begin, length in ranges]
        before = counted.batches
        assert all(source.read(begin, length) == FILE[begin : begin + length] for begin, length in ranges)
        if room == 1 << 20 and len(ranges) == 1:
            assert counted.batches == before
    assert source.tail(10) == FILE[-10:]
