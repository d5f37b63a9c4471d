"""Fields of a partial that are sums or products.

Sums are taken in float64 (longdouble for longdouble), those of integers in 64-bit integers.
Variances are sums of squared deviations from the block's own mean, merged as by Chan, Golub and
LeVeque (1983), which avoids cancellation. Means of times are taken in exact integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from insitu.reducing.block_facts import Array, ValueBlock, accumulator_dtype, replace_masked
from insitu.reducing.partial_fields import Partial, PartialField, apply_ufunc, sum_field

__all__ = ["SUMS"]


def _zero(dtype: np.dtype[Any], skipna: bool) -> Any:
    return np.int64(0)


def _measure_sum(part: ValueBlock) -> Array:
    """Return the sum of integers in 64 bits, wrapping around as in NumPy; of durations as
    integers.
    """
    values = part.fill_skipped(0)
    if values.dtype.kind == "m":
        values = values.view(np.int64)
        if part.skipped is None and part.nulls is not None:
            values = np.where(part.nulls, 0, values)  # `valid` counts the others
    return part.reduce(np.add, values, accumulator_dtype(values.dtype, integers=True))


def _neutral_sum(dtype: np.dtype[Any], skipna: bool) -> Any:
    return accumulator_dtype(np.dtype(np.int64) if dtype.kind == "m" else dtype, integers=True).type(0)


def _neutral_total(dtype: np.dtype[Any], skipna: bool) -> Any:
    return accumulator_dtype(dtype).type(0)


def _measure_squares(part: ValueBlock) -> Array:
    """Return the sum of squared deviations from the block's mean."""
    accurate = accumulator_dtype(part.values.dtype)
    with np.errstate(all="ignore"):
        deviation = np.subtract(part.values, part.total / part.count, dtype=accurate)
        if part.skipped is not None:
            deviation = replace_masked(deviation, part.skipped, 0)
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


def _neutral_squares(dtype: np.dtype[Any], skipna: bool) -> Any:
    return np.zeros((), accumulator_dtype(dtype)).real[()]


def _measure_product(part: ValueBlock) -> Array:
    """Return the product.

    An infinite intermediate result times 0 is NaN or 0 by the order of values, as in NumPy.
    """
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        return part.reduce(np.multiply, part.fill_skipped(1), accumulator_dtype(part.values.dtype, integers=True))


def _join_products(one: Partial, other: Partial, skipna: bool, out: Array | None) -> Array:
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        return apply_ufunc(np.multiply, one["product"], other["product"], out)


def _repeat_product(found: Array, times: Any) -> Array:
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        # In NumPy the power of integers wraps around as products do.
        return np.asarray(np.power(found, np.asarray(times).astype(found.dtype)), found.dtype)


def _ticks(part: ValueBlock) -> Array:
    ticks = part.values.view(np.int64)
    return ticks if part.nulls is None else np.where(part.nulls, 0, ticks)


def _measure_high(part: ValueBlock) -> Array:
    """Return the sum of the upper halves of ticks:
    sums of 32-bit halves are exact for billions of times.
    """
    return part.reduce(np.add, _ticks(part) >> 32)


def _measure_low(part: ValueBlock) -> Array:
    return part.reduce(np.add, _ticks(part) & 0xFFFFFFFF)


SUMS: Mapping[str, PartialField] = {
    "count": sum_field("count", lambda part: part.count, _zero),
    "valid": sum_field("valid", lambda part: part.valid, _zero),
    "sum": sum_field("sum", _measure_sum, _neutral_sum),
    "total": sum_field("total", lambda part: part.total, _neutral_total),
    "squares": PartialField(
        _measure_squares,
        _join_squares,
        _neutral_squares,
        lambda found, times: np.asarray(np.where(times == 0, 0, found * times), found.dtype),
        is_joined_first=True,  # the counts and totals from before the merge
    ),
    "product": PartialField(
        _measure_product,
        _join_products,
        lambda dtype, skipna: accumulator_dtype(dtype, integers=True).type(1),
        _repeat_product,
    ),
    "high": sum_field("high", _measure_high, _zero),
    "low": sum_field("low", _measure_low, _zero),
}
"""Fields that are sums or products, by name."""
