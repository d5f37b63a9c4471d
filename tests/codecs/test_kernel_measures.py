from __future__ import annotations

import math
import zlib

import numpy as np
import pytest

from insitu.codecs.libraries import find_function
from insitu.codecs.linked_libraries import linked_libraries

measure = find_function("insitu.codecs._kernels", "measure")
pytestmark = pytest.mark.skipif(measure is None, reason="the C extension was not built")
ALL = 3


def planes(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values.view("u1").reshape(-1, values.itemsize).T).reshape(-1)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 4095, 4096, 4097, 20_003])
@pytest.mark.parametrize("gaps", ["none", "nan", "number", "both"])
def test_what_is_not_missing_is_measured(dtype: str, count: int, gaps: str) -> None:
    random = np.random.default_rng(count)
    values = random.normal(300, 20, count).astype(dtype)
    if gaps in ("nan", "both"):
        values[random.random(count) < 0.4] = np.nan
    missing = ()
    if gaps in ("number", "both"):
        values[random.random(count) < 0.2], values[random.random(count) < 0.1] = 1e20, -9
        missing = (float(np.dtype(dtype).type(1e20)), -9.0)
    first, many = count // 5, count - count // 5 - count // 7
    part = values[first : first + many].astype("f8")
    there = part[~np.isnan(part) & ~np.isin(part, missing)]
    for data, shuffled in ((values, False), (planes(values), True)):
        total, valid, least, most, squares = measure(data, values.itemsize, shuffled, first, many, missing, ALL)
        assert valid == len(there)
        assert total == pytest.approx(math.fsum(there), rel=1e-14)
        if len(there):
            assert (least, most) == (there.min(), there.max())
            mean = math.fsum(there) / len(there)
            assert squares == pytest.approx(math.fsum((there - mean) ** 2), rel=1e-11, abs=1e-9)
        else:
            assert np.isnan(least)
            assert np.isnan(most)
            assert squares == 0


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_infinities_come_through(dtype: str) -> None:
    values = np.ones(9000, dtype)
    values[[5, 6000]] = np.inf, np.nan
    assert measure(values, values.itemsize, False, 0, 9000, (), ALL)[:4] == (np.inf, 8999, 1, np.inf)
    values[7] = -np.inf
    found = measure(values, values.itemsize, False, 0, 9000, (), ALL)
    assert np.isnan(found[0])  # both infinities
    assert found[1:4] == (8999, -np.inf, np.inf)
    assert np.isnan(found[4])


def test_the_mean_of_what_hardly_varies_is_not_lost() -> None:
    values = np.float64(1e9) + np.random.default_rng(1).normal(0, 1, 50_000)
    assert measure(values, 8, False, 0, 50_000, (), ALL)[4] == pytest.approx(values.var() * 50_000, rel=1e-9)


@pytest.mark.parametrize(
    "arguments",
    [
        (np.ones(4, "f4"), 4, False, 0, 5, (), 0),
        (np.ones(4, "f4"), 4, False, 3, 2, (), 0),
        (np.ones(4, "f4"), 4, False, -1, 2, (), 0),
        (np.ones(4, "f4"), 4, False, 0, -1, (), 0),
        (np.ones(4, "f4"), 4, False, 2**62, 2**62, (), 0),
        (np.ones(4, "f4"), 2, False, 0, 1, (), 0),
        (np.ones(4, "f4"), 4, False, 0, 1, (1.0, 2.0, 3.0), 0),
        (np.ones(4, "f4"), 4, False, 0, 1, ("x",), 0),
        (np.ones(4, "f4"), 4, False, 0, 1, [], 0),
        (np.ones((4, 4))[:, ::2], 8, False, 0, 1, (), 0),
    ],
)
def test_what_does_not_lie_in_the_data_is_refused(arguments: tuple) -> None:
    with pytest.raises((TypeError, ValueError, BufferError)):
        measure(*arguments)


def test_measuring_chunks_checks_what_it_is_given() -> None:
    if "zlib" not in linked_libraries():
        pytest.skip("the kernels were built without libraries")
    many = find_function("insitu.codecs._kernels", "measure_chunks")
    assert many is not None
    chunk = zlib.compress(np.arange(8, dtype="f4").tobytes())
    good = ("zlib", [chunk, chunk], 8, bytearray(32), 4, False, 2, 3, (), ALL)
    assert [found[:2] for found in many(*good)] == [(9.0, 3), (9.0, 3)]
    for at, wrong in {
        0: "lzma", 1: (chunk,), 2: 0, 3: bytearray(31), 4: 3, 6: 9, 7: 7, 8: (1.0, 2.0, 3.0), 9: "all",
    }.items():  # fmt: skip
        with pytest.raises((ValueError, TypeError)):
            many(*good[:at], wrong, *good[at + 1 :])
    assert many(*good[:2], 7, *good[3:]) == []  # a chunk of another size
    with pytest.raises(OverflowError):
        many(*good[:2], 2**62, *good[3:6], 0, 0, *good[8:])
