"""Points: index arrays that are paired up, against NumPy.

Modules: reading/chunk_sink.py
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from insitu.errors import SelectionError
from insitu.model import Selection
from insitu.reading import ReadContext, ReadStatistics, plan_read
from insitu.reading import pointwise as module
from insitu.reading.pointwise import read_points
from insitu.sources import MemorySource
from mosaics import Case, chunked, mosaics


@pytest.fixture(scope="module")
def in_memory() -> Iterator[dict[str, bytes]]:
    """The bytes of every case lie in memory."""
    disk: dict[str, bytes] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("insitu.reading.source_pool.open_source", lambda url, options, expected: MemorySource(disk[url]))
        yield disk


@given(st.data())
@settings(max_examples=100)
def test_points_and_slices(in_memory, data: st.DataObject) -> None:
    case: Case = data.draw(mosaics(3))
    in_memory.update(case.disk)
    if not case.values.ndim or 0 in case.values.shape:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SMALL_CHUNK", data.draw(st.sampled_from([0, 1 << 16])))
        ndim = case.values.ndim
        paired = data.draw(st.sets(st.integers(0, ndim - 1), min_size=1))
        shape = data.draw(st.sampled_from([(1,), (5,), (2, 3)]))
        keys = []
        for dimension, length in enumerate(case.values.shape):
            if dimension in paired:
                number = st.integers(-length, length - 1)
                flat = data.draw(st.lists(number, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
                keys.append(np.array(flat).reshape(shape))
            else:
                start = st.none() | st.integers(-length, length)
                keys.append(data.draw(st.builds(slice, start, st.none(), st.sampled_from([None, 1, 2, -1]))))
        front = sorted(paired)
        rest = [d for d in range(ndim) if d not in paired]
        turned = case.values.transpose(*front, *rest)
        expected = turned[tuple(keys[d] for d in front) + tuple(keys[d] for d in rest)]
        np.testing.assert_array_equal(read_points(case.array, keys), expected)


def test_each_chunk_is_decoded_once(in_memory) -> None:
    case = chunked(np.arange(10_000, dtype="<i4").reshape(100, 100), (50, 50), "f")
    in_memory.update(case.disk)
    tally = ReadStatistics()
    lat, lon = np.random.default_rng(0).integers(0, 100, (2, 500))
    np.testing.assert_array_equal(read_points(case.array, (lat, lon), ReadContext(tally=tally)), case.values[lat, lon])
    assert tally.chunks == 4
    assert tally.bytes_decoded == 4 * 50 * 50 * 4


def test_a_point_of_a_large_uncompressed_chunk_costs_its_bytes(in_memory) -> None:
    case = chunked(np.arange(200_000, dtype="<f8").reshape(400, 500), (400, 500), "f")
    in_memory.update(case.disk)
    tally = ReadStatistics()
    values = read_points(case.array, (np.array([3, 399]), np.array([499, 0])), ReadContext(tally=tally))
    assert values.tolist() == [case.values[3, 499], case.values[399, 0]]
    assert tally.bytes_fetched == 16
    assert plan_read(case.array, Selection.of(..., case.array.shape)).nbytes == 1_600_000


def test_wrong_points_are_refused() -> None:
    case = chunked(np.arange(12).reshape(3, 4), (3, 4), "f")
    with pytest.raises(SelectionError, match="out of bounds for axis 1"):
        read_points(case.array, ([0], [4]))
    with pytest.raises(SelectionError, match="cannot be paired"):
        read_points(case.array, ([0, 1], [1, 2, 3]))
    with pytest.raises(SelectionError, match="must be integers"):
        read_points(case.array, ([0.5], [1]))
    with pytest.raises(SelectionError, match="too many"):
        read_points(case.array, ([0], [1], [2]))
