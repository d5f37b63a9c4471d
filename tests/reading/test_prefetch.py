from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import insitu
from insitu.errors import InsituError
from insitu.model import Selection
from insitu.reading.prefetch import get_prefetcher, predict_next
from insitu.sources import LocalSource
from waiting import LONG

VALUES = np.arange(12 * 20 * 30, dtype="f4").reshape(12, 20, 30)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.nc"
    xr.Dataset({"t": (("time", "y", "x"), VALUES)}).to_netcdf(
        path, encoding={"t": {"chunksizes": (1, 20, 30), "zlib": True}}
    )
    return path


@pytest.fixture
def offsets(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where in the file something was read, by anybody."""
    seen: list[int] = []
    lock = threading.Lock()
    read = LocalSource.read

    def noting(self: LocalSource, offset: int, length: int) -> bytes:
        with lock:
            seen.append(offset)
        return read(self, offset, length)

    monkeypatch.setattr(LocalSource, "read", noting)
    return seen


def settled(cache: insitu.ChunkCache) -> None:
    for history in get_prefetcher(cache)._histories.values():
        if history.under_way is not None:
            history.under_way.result(timeout=LONG)


def test_the_third_step_is_there_before_it_is_asked_for(file: Path, offsets: list[int]) -> None:
    cache = insitu.ChunkCache(1 << 24, ahead=True)
    group = insitu.scan(file, decode=False)
    for step in range(2):
        assert np.array_equal(insitu.read(group, "t", step, cache=cache, decode=False), VALUES[step])
    settled(cache)
    offsets.clear()
    assert np.array_equal(insitu.read(group, "t", 2, cache=cache, decode=False), VALUES[2])
    settled(cache)
    third = group.arrays["t"].tiles[0].chunks
    assert third[2, 0, 0].offset not in offsets  # it was read before
    assert third[3, 0, 0].offset in offsets  # and the fourth after it
    assert get_prefetcher(cache).right == 1


def test_each_chunk_is_fetched_once_in_a_walk_through_a_dataset(file: Path, offsets: list[int]) -> None:
    cache = insitu.ChunkCache(1 << 24, ahead=True)
    dataset = insitu.open_dataset(file, cache=cache)
    chunks = insitu.scan(file, decode=False).arrays["t"].tiles[0].chunks
    offsets.clear()
    for step in range(12):
        assert np.array_equal(dataset.t.isel(time=step).values, VALUES[step])
    settled(cache)
    for step in range(12):
        assert offsets.count(chunks[step, 0, 0].offset) == 1
    assert get_prefetcher(cache).right == 10


def test_without_the_wish_nothing_is_read_ahead(file: Path) -> None:
    cache = insitu.ChunkCache(1 << 24)
    for step in range(4):
        insitu.read(insitu.scan(file, decode=False), "t", step, cache=cache, decode=False)
    assert cache.misses == 4


def test_a_failure_is_told_by_the_read_itself(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = insitu.ChunkCache(1 << 24, ahead=True)
    group = insitu.scan(file, decode=False)
    table = group.arrays["t"].tiles[0].chunks[2, 0, 0]
    insitu.read(group, "t", 0, cache=cache, decode=False)
    with h5py.File(file, "a"):
        pass
    damaged = bytearray(file.read_bytes())
    damaged[table.offset : table.offset + 20] = bytes(20)
    file.write_bytes(damaged)
    group2 = insitu.scan(file, decode=False)
    with caplog.at_level(logging.DEBUG, "insitu.read"):
        for step in range(2):
            insitu.read(group2, "t", step, cache=cache, decode=False)
        settled(cache)
    assert "prefetching failed" in caplog.text
    with pytest.raises(InsituError, match=r"chunk \(2, 0, 0\)"):
        insitu.read(group2, "t", 2, cache=cache, decode=False)


@given(
    before=st.integers(0, 30),
    step=st.integers(-8, 8),
    length=st.integers(1, 6),
    stride=st.integers(1, 3),
    size=st.integers(1, 40),
)
def test_a_guess_lies_in_the_array(before: int, step: int, length: int, stride: int, size: int) -> None:
    def at(position: int) -> Selection | None:
        if position < 0 or position + (length - 1) * stride >= size:
            return None
        return Selection.of((slice(position, position + length * stride, stride), 1), (size, 3))

    first, second, third = at(before), at(before + step), at(before + 2 * step)
    if first is None or second is None:
        return
    guess = predict_next(first, second, (size, 3))
    if third is not None and step:
        assert guess is not None
        assert guess.selectors == third.selectors
    if guess is not None:
        assert step
        taken: Any = guess.selectors[0]
        assert taken.start >= 0
        assert taken.start + (taken.length - 1) * taken.step < size


def test_other_moves_are_no_course() -> None:
    def selection(*key: Any) -> Selection:
        return Selection.of(key, (10, 10))

    assert predict_next(selection(1, 1), selection(2, 2), (10, 10)) is None
    assert predict_next(selection(1, 1), selection(1, 1), (10, 10)) is None
    assert predict_next(selection(8, 1), selection(9, 1), (10, 10)) is None
    assert predict_next(selection([1, 2], 1), selection([3, 4], 1), (10, 10)) is None
    assert predict_next(selection([1, 2], 1), selection([1, 2], 3), (10, 10)).selectors[1] == 5
    assert predict_next(selection(slice(0, 3), 1), selection(4, 1), (10, 10)) is None
