"""Fields of a partial that are sums or products.

Sums are taken in float64 (longdouble for longdouble), those of integers in 64-bit integers.
Variances are sums of squared deviations from the block's own mean, merged as by Chan, Golub and
LeVeque (1983), which avoids cancellation. Means of times are taken in exact integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from insitu.reducing.block_facts import Array, Part, accumulator, replaced
from insitu.reducing.field import Field, Partial, joined, summed

__all__ = ["SUMS"]


def _zero(dtype: np.dtype[Any], skipna: bool) -> Any:
    return np.int64(0)


def _sum(part: Part) -> Array:
    """Return the sum of integers in 64 bits, wrapping around as in NumPy; of durations as integers."""
    values = part.fill_skipped(0)
    if values.dtype.kind == "m":
        values = values.view(np.int64)
        if part.skipped is None and part.nulls is not None:
            values = np.where(part.nulls, 0, values)  # `valid` counts the others
    return part.reduce(np.add, values, accumulator(values.dtype, integers=True))


def _sum_of_nothing(dtype: np.dtype[Any], skipna: bool) -> Any:
    return accumulator(np.dtype(np.int64) if dtype.kind == "m" else dtype, integers=True).type(0)


def _total_of_nothing(dtype: np.dtype[Any], skipna: bool) -> Any:
    return accumulator(dtype).type(0)


def _squares(part: Part) -> Array:
    """Return the sum of squared deviations from the block's mean."""
    accurate = accumulator(part.values.dtype)
    with np.errstate(all="ignore"):
        deviation = np.subtract(part.values, part.total / part.count, dtype=accurate)
        if part.skipped is not None:
            deviation = replaced(deviation, part.skipped, 0)
        if accurate.kind == "c":
            deviation = np.square(deviation.real) + np.square(deviation.imag)
        else:
            np.multiply(deviation, deviation, out=deviation)
        return part.reduce(np.add, deviation)


def _join_squares(one: Partial, other: Partial, skipna: bool, out: Array | None) -> Array:
    """Merge as Chan, Golub and LeVeque: add the deviation between the two means."""
    n, m = one["count"], other["count"]
    both = np.maximum(n + m, 1)
    with np.errstate(all="ignore"):
        between = np.abs(other["total"] / np.maximum(m, 1) - one["total"] / np.maximum(n, 1)) ** 2 * (n / both * m)
        # An empty partial has no mean (and infinity times 0 is NaN).
        return np.asarray(one["squares"] + other["squares"] + np.where((n == 0) | (m == 0), 0, between))


def _squares_of_nothing(dtype: np.dtype[Any], skipna: bool) -> Any:
    return np.zeros((), accumulator(dtype)).real[()]


def _product(part: Part) -> Array:
    """Return the product.

    An infinite intermediate result times 0 is NaN or 0 by the order of values, as in NumPy.
    """
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        return part.reduce(np.multiply, part.fill_skipped(1), accumulator(part.values.dtype, integers=True))


def _join_products(one: Partial, other: Partial, skipna: bool, out: Array | None) -> Array:
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        return joined(np.multiply, one["product"], other["product"], out)


def _product_again(found: Array, times: Any) -> Array:
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        # In NumPy the power of integers wraps around as products do.
        return np.asarray(np.power(found, np.asarray(times).astype(found.dtype)), found.dtype)


def _ticks(part: Part) -> Array:
    ticks = part.values.view(np.int64)
    return ticks if part.nulls is None else np.where(part.nulls, 0, ticks)


def _high(part: Part) -> Array:
    """Return the sum of the upper halves of ticks:
    sums of 32-bit halves are exact for billions of times.
    """
    return part.reduce(np.add, _ticks(part) >> 32)


def _low(part: Part) -> Array:
    return part.reduce(np.add, _ticks(part) & 0xFFFFFFFF)


SUMS: Mapping[str, Field] = {
    "count": summed("count", lambda part: part.count, _zero),
    "valid": summed("valid", lambda part: part.valid, _zero),
    "sum": summed("sum", _sum, _sum_of_nothing),
    "total": summed("total", lambda part: part.total, _total_of_nothing),
    "squares": Field(
        _squares,
        _join_squares,
        _squares_of_nothing,
        lambda found, times: np.asarray(np.where(times == 0, 0, found * times), found.dtype),
    ),
    "product": Field(
        _product, _join_products, lambda dtype, skipna: accumulator(dtype, integers=True).type(1), _product_again
    ),
    "high": summed("high", _high, _zero),
    "low": summed("low", _low, _zero),
}
"""Fields that are sums or products, by name."""
