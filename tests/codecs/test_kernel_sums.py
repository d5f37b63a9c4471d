from __future__ import annotations

import math

import numpy as np
import pytest

from insitu.codecs.libraries import find_function

total = find_function("insitu.codecs._kernels", "total")
pytestmark = pytest.mark.skipif(total is None, reason="the C extension was not built")


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 4095, 4096, 4097, 100_003])
def test_the_sum_is_that_of_exact_arithmetic(dtype: str, count: int) -> None:
    values = np.random.default_rng(count).normal(300, 20, count).astype(dtype)
    exact = math.fsum(values.astype("f8"))
    assert total(values) == pytest.approx(exact, rel=1e-14)
    assert total(values.reshape(1, -1)) == total(values)
    spelled = np.frombuffer(
        values.tobytes(), values.dtype.newbyteorder("little")
    )  # read-only, and its order written out
    assert total(spelled) == total(values)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_what_is_no_number_comes_through(dtype: str) -> None:
    values = np.ones(5000, dtype)
    for odd in (np.nan, np.inf, -np.inf):
        values[4321] = odd
        assert np.array_equal(total(values), odd, equal_nan=True)
    values[1] = np.inf
    assert np.isnan(total(values))  # both infinities


@pytest.mark.parametrize("values", [np.ones(3, "i4"), np.ones(3, ">f4"), np.ones(3, "f2"), np.ones((4, 4))[:, ::2]])
def test_other_arrays_are_refused(values: np.ndarray) -> None:
    with pytest.raises((TypeError, ValueError, BufferError)):
        total(values)
