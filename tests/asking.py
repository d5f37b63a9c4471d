"""Questions that are asked several times, and xarray's own answers without what else is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

__all__ = ["ask_twice", "assert_as_in_float64", "same_bits", "with_numpy_only"]


def with_numpy_only() -> Any:
    """Return a context in which xarray computes with NumPy: bottleneck, numbagg and flox add in other types."""
    return xr.set_options(use_bottleneck=False, use_numbagg=False, use_flox=False)


def ask_twice(question: Callable[[], Any]) -> Any:
    """Return the answer to a question; the second and the third time it has the same bits.

    The first time values are streamed, the second time they are read and kept, the third time they were kept.
    """
    first = question().load()
    for _ in range(2):
        again = question().load()
        assert type(again) is type(first)
        if isinstance(first, xr.Dataset):
            assert all(same_bits(first[name].values, again[name].values) for name in first.variables)
        else:
            assert same_bits(first.values, again.values)
        xr.testing.assert_identical(first, again)
    return first


def same_bits(one: Any, other: Any) -> bool:
    """Return whether two arrays are the same: type, shape, every bit but for those that tell one NaN from another."""
    one, other = np.asarray(one), np.asarray(other)
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.dtype.kind in "fc":
        return np.array_equal(one, other, equal_nan=True) and np.array_equal(
            np.signbit(one.real), np.signbit(other.real)
        )
    return np.array_equal(one, other) if one.dtype.kind not in "mM" else one.tobytes() == other.tobytes()


def assert_as_in_float64(found: Any, wanted: Any, why: object = "") -> None:
    """Compare a statistic with xarray's of the values in float64, cast to the type of the statistic: within 1 ulp.

    Of float64 itself the order in which numbers are added shows: then within 1e-12.
    """
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted, err_msg=str(why))
        return
    with np.errstate(over="ignore"):
        cast = wanted.astype(found.dtype)
    finite = np.isfinite(cast) & np.isfinite(found)
    np.testing.assert_array_equal(found[~finite], cast[~finite], err_msg=str(why))
    apart = np.abs(found[finite].astype("f8") - cast[finite].astype("f8"))
    bound = 1e-12 * np.abs(cast[finite]) if found.dtype.itemsize == 8 else np.spacing(np.abs(cast[finite]))
    assert (apart <= bound).all(), (why, apart.max())
