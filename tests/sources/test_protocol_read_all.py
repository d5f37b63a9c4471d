from __future__ import annotations

import pytest

from insitu.sources import CountingSource, MemorySource, read_all, resolve


class Far(MemorySource):
    """A source that is not local, and counts how often its size is asked for."""

    requests = 0

    def size(self) -> int:
        self.requests += 1
        return super().size()


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 35])
@pytest.mark.parametrize("offset", [0, 3, 50])
def test_every_size(monkeypatch: pytest.MonkeyPatch, size: int, offset: int) -> None:
    monkeypatch.setattr(resolve, "FIRST_PART", 10)
    monkeypatch.setattr(resolve, "is_local", lambda source: False)
    data = bytes(range(size))
    source = Far(data)
    counted = CountingSource(source)
    assert read_all(counted, offset) == data[offset:]
    left = max(size - offset, 0)
    assert source.requests == (1 if left >= 10 else 0)
    assert read_all(MemorySource(data), offset) == data[offset:]
