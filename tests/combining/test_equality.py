"""Comparison of values: as xarray compares variables."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import xarray as xr

from insitu.combining.equality import has_equal_values

NAT = np.datetime64("NaT", "ns")
TIMES = np.array(["2000-01-01", "2000-01-02"], "M8[ns]")
VALUES: dict[str, Any] = {
    "i4": np.array([1, 2], "i4"),
    "big-endian": np.array([1, 2], ">i4"),
    "u8": np.array([1, 2], "u8"),
    "largest u8": np.array([1, 2**64 - 1], "u8"),
    "minus one": np.array([1, -1], "i8"),
    "one": np.array([1, 1]),
    "bool": np.array([True, True]),
    "f4": np.array([1, 2], "f4"),
    "f8": np.array([1, 2], "f8"),
    "f8, a bit more": np.nextafter([1.0, 2.0], 3),
    "NaN": np.array([1, np.nan]),
    "NaN, f4": np.array([1, np.nan], "f4"),
    "other NaN": np.array([np.nan, 1]),
    "minus zero": np.array([0.0, -0.0]),
    "zero": np.zeros(2, "i2"),
    "complex": np.array([1, 2], "c16"),
    "complex, NaN": np.array([1, complex(np.nan, 1)]),
    "times": TIMES,
    "times, s": TIMES.astype("M8[s]"),
    "NaT": np.array([TIMES[0], NAT]),
    "lengths": np.array([1, 2], "m8[ns]"),
    "texts": np.array(["1", "2"]),
    "objects": np.array([1, 2], object),
    "two dimensions": np.array([[1, 2]], "i4"),
    "empty": np.zeros(0),
    "empty, i4": np.zeros(0, "i4"),
    "scalar": np.float64(1).reshape(()),
    "scalar, i4": np.array(1, "i4"),
}


@pytest.mark.parametrize("one", VALUES)
def test_equal_where_xarray_says_so(one: str) -> None:
    for left, right in product([VALUES[one], VALUES[one].copy()], VALUES.values()):
        variables = [xr.Variable([f"d{axis}" for axis in range(values.ndim)], values) for values in (left, right)]
        assert has_equal_values(left, right) == variables[0].equals(variables[1]), right
