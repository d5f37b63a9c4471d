"""The table of statistics: everything that is particular to one of them is said here, once.

The functions of this package, NumPy's functions on virtual arrays, the accessors of xarray, the
command line and the server read this table and that of fields (`statistic.FIELDS`): to add a
statistic is to add its declaration.

Types of results and missing values follow xarray: NaN is left out of floating-point and complex
values unless `skipna=False`, integers are summed in 64 bits, the mean of float32 is float32 (but
accumulated in float64).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from insitu.errors import ModelError
from insitu.reducing.block_facts import Array, reduced_shape
from insitu.reducing.partial_fields import Partial
from insitu.reducing.sketches import histogram_counts, tdigest_quantiles
from insitu.reducing.statistic import (
    NUMBERS,
    OBJECTS,
    TEXT,
    TIMES,
    Statistic,
    Statistics,
    WeightedForm,
    like_deviation,
    like_mean,
    like_sum,
)

if TYPE_CHECKING:
    from insitu.reducing.reductions import Reduction, ReductionRules

__all__ = ["STATISTICS"]

PROMOTES_MISSING = np.lib.NumpyVersion(np.__version__) >= "2.5.5"
"""Whether NumPy gives several quantiles of a column without values the type that those of other columns have."""

# Sums and products.


def _has_min_count(reduction: Reduction) -> bool:
    return reduction.rules.min_count is not None and reduction.skips


def _sum_fields(reduction: Reduction) -> tuple[str, ...]:
    if reduction.dtype.kind == "m":
        return ("sum", "valid")
    counted = ("count",) if _has_min_count(reduction) else ()
    return ("total" if reduction.dtype.kind in "fc" else "sum", *counted)


def _finalise_sum(reduction: Reduction, partial: Partial, size: int) -> Array:
    if reduction.dtype.kind == "m":
        enough = partial["valid"] >= (reduction.rules.min_count or 0) if reduction.skips else partial["valid"] == size
        return np.where(enough, partial["sum"].view(reduction.dtype), np.array("NaT", reduction.dtype))
    return _apply_min_count(reduction, partial, partial["total" if reduction.dtype.kind in "fc" else "sum"])


def _product_fields(reduction: Reduction) -> tuple[str, ...]:
    return ("product", "count") if _has_min_count(reduction) else ("product",)


def _finalise_product(reduction: Reduction, partial: Partial, size: int) -> Array:
    return _apply_min_count(reduction, partial, partial["product"])


def _apply_min_count(reduction: Reduction, partial: Partial, values: Array) -> Array:
    """Return values that are missing where there were fewer than `min_count`."""
    if not _has_min_count(reduction):
        return values
    dtype = values.dtype if values.dtype.kind in "fc" else np.dtype(np.float64)
    return np.where(partial["count"] < reduction.rules.min_count, dtype.type(np.nan), values.astype(dtype))


# Means and variances.


def _mean_fields(reduction: Reduction) -> tuple[str, ...]:
    return ("valid", "high", "low", "earliest", "latest") if reduction.dtype.kind in TIMES else ("count", "total")


def _finalise_mean(reduction: Reduction, partial: Partial, size: int) -> Array:
    if reduction.dtype.kind in TIMES:
        return _finalise_mean_time(reduction, partial, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(partial["total"] / partial["count"])


def _finalise_mean_time(reduction: Reduction, partial: Partial, size: int) -> Array:
    """Return the exact mean of times, rounded as xarray does:
    towards the year in the middle of all times.
    """
    valid = partial["valid"]
    ticks = np.zeros(valid.shape, np.int64)
    offset = _middle_year(np.fmin.reduce(partial["earliest"], axis=None), np.fmax.reduce(partial["latest"], axis=None))
    for index in np.ndindex(valid.shape):  # Python's integers: the sum may be wider than 64 bits
        if valid[index]:
            total = (int(partial["high"][index]) << 32) + int(partial["low"][index]) - offset * int(valid[index])
            ticks[index] = offset + abs(total) // int(valid[index]) * (1 if total >= 0 else -1)
    known = valid == size if reduction.rules.skipna is False else valid > 0
    return np.where(known, ticks.view(reduction.dtype), np.array("NaT", reduction.dtype))


def _middle_year(earliest: Any, latest: Any) -> int:
    if np.isnat(earliest):
        return 0
    if earliest.dtype.kind == "m":
        # xarray reads durations as times since 1970 here.
        unit = np.datetime_data(earliest.dtype)[0]
        earliest, latest = (t.astype(np.int64).astype(f"M8[{unit}]") for t in (earliest, latest))
    low, high = (int(time.astype("M8[Y]").astype(np.int64)) for time in (earliest, latest))
    return int(np.datetime64(low + (high - low) // 2, "Y").astype(earliest.dtype).astype(np.int64))


def _finalise_variance(reduction: Reduction, partial: Partial, size: int) -> Array:
    freedom = partial["count"] - reduction.rules.ddof
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = partial["squares"] / np.maximum(freedom, 0)
    if reduction.skips and reduction.dtype.kind in "fc":
        variance = np.where(freedom > 0, variance, np.nan)
    return variance


def _finalise_deviation(reduction: Reduction, partial: Partial, size: int) -> Array:
    return np.asarray(np.sqrt(_finalise_variance(reduction, partial, size)))


# Extremes and positions.


def _finalise_extreme(name: str) -> Callable[[Reduction, Partial, int], Array]:
    def finalise(reduction: Reduction, partial: Partial, size: int) -> Array:
        found = partial[name]
        if not size:
            raise ModelError(f"cannot compute {name}: a reduced dimension has length 0")
        return found

    return finalise


def _finalise_position(name: str) -> Callable[[Reduction, Partial, int], Array]:
    def finalise(reduction: Reduction, partial: Partial, size: int) -> Array:
        found, value = partial[name], partial[f"{name}_value"]
        if not size:
            raise ModelError(f"cannot compute {name}: a reduced dimension has length 0")
        if reduction.skips and value.dtype.kind in "fc" and np.isnan(value).any():
            raise ModelError(f"All-NaN slice encountered: cannot compute {name} where every value is missing")
        return found

    return finalise


def _finalise_field(name: str) -> Callable[[Reduction, Partial, int], Array]:
    """Return the function that returns a field as it is."""
    return lambda reduction, partial, size: partial[name]


# All values at once.


def _median(values: Array, axes: tuple[int, ...], rules: ReductionRules, skips: bool) -> Array:
    median: Any = np.nanmedian if skips else np.median
    return np.asarray(median(values, axis=axes, keepdims=True))


def _quantile(values: Array, axes: tuple[int, ...], rules: ReductionRules, skips: bool) -> Array:
    quantile: Any = np.quantile
    q = np.asarray(rules.q, np.float64)
    if not skips or values.dtype.kind not in "fc" or not values.size:
        return np.asarray(quantile(values, q, axis=axes, keepdims=True))
    kept_axes = [axis for axis in range(values.ndim) if axis not in axes]
    rows = values.transpose(*axes, *kept_axes).reshape(math.prod(values.shape[axis] for axis in axes), -1)
    # np.nanquantile takes them column by column: here all columns with as many values are taken at once.
    missing = np.isnan(rows)
    counts = len(rows) - np.count_nonzero(missing, axis=0)
    if counts.min() < len(rows):
        rows = np.take_along_axis(rows, np.argsort(missing, axis=0, kind="stable"), 0)
    dtype = quantile(rows[:1, :1], q).dtype
    if not counts[0] and not (q.ndim and PROMOTES_MISSING):  # NumPy's type is that of the first column
        dtype = rows.dtype
    found = np.full((*q.shape, rows.shape[1]), np.nan, dtype)
    for count in np.unique(counts[counts > 0]).tolist():
        these = counts == count
        found[..., these] = quantile(rows[:count, these], q, axis=0)
    return found.reshape(*q.shape, *reduced_shape(values.shape, axes))


# Weights. As in xarray, the result is NaN where they add up to 0.


def _divide_by_weights(state: Partial, field: str) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(state["weights"] != 0, state[field] / state["weights"], np.nan)


STATISTICS = Statistics()
"""Every statistic by name."""

STATISTICS.add(
    Statistic(
        name="sum",
        kinds=NUMBERS + "m",
        fields=_sum_fields,
        finalise=_finalise_sum,
        dtype=like_sum,
        groups=True,
        weighted=WeightedForm(lambda state: state["sums"]),
        options=("skipna", "min_count"),
        numpy=("sum", "nansum"),
        xarray="sum",
        keeps_values_without_axes=True,
        neutral_element=0,
    ),
    Statistic(
        name="mean",
        kinds=NUMBERS + TIMES,
        fields=_mean_fields,
        finalise=_finalise_mean,
        dtype=like_mean,
        groups=True,
        weighted=WeightedForm(lambda state: _divide_by_weights(state, "sums")),
        options=("skipna",),
        numpy=("mean", "nanmean"),
        xarray="mean",
        keeps_values_without_axes=True,
    ),
    Statistic(
        name="min",
        kinds=NUMBERS + TIMES,
        fields=("min",),
        finalise=_finalise_extreme("min"),
        groups=True,
        options=("skipna",),
        numpy=("min", "amin", "nanmin"),
        xarray="min",
        keeps_values_without_axes=True,
    ),
    Statistic(
        name="max",
        kinds=NUMBERS + TIMES,
        fields=("max",),
        finalise=_finalise_extreme("max"),
        groups=True,
        options=("skipna",),
        numpy=("max", "amax", "nanmax"),
        xarray="max",
        keeps_values_without_axes=True,
    ),
    Statistic(
        name="std",
        fields=("count", "total", "squares"),
        finalise=_finalise_deviation,
        dtype=like_deviation,
        groups=True,
        weighted=WeightedForm(lambda state: np.sqrt(_divide_by_weights(state, "squares")), needs_squares=True),
        options=("skipna", "ddof"),
        numpy=("std", "nanstd"),
        xarray="std",
    ),
    Statistic(
        name="var",
        fields=("count", "total", "squares"),
        finalise=_finalise_variance,
        dtype=like_deviation,
        groups=True,
        weighted=WeightedForm(lambda state: _divide_by_weights(state, "squares"), needs_squares=True),
        options=("skipna", "ddof"),
        numpy=("var", "nanvar"),
        xarray="var",
    ),
    Statistic(
        name="count",
        kinds=NUMBERS + TIMES + TEXT,
        fields=lambda reduction: ("count",) if reduction.skips else ("valid",),
        finalise=lambda reduction, partial, size: partial["count" if reduction.skips else "valid"],
        groups=True,
        weighted=WeightedForm(lambda state: np.asarray(state["count"], np.int64)),
        xarray="count",
    ),
    Statistic(
        name="any",
        kinds=NUMBERS + TIMES,
        fields=("any",),
        finalise=_finalise_field("any"),
        groups=True,
        numpy=("any",),
        xarray="any",
    ),
    Statistic(
        name="all",
        kinds=NUMBERS + TIMES,
        fields=("all",),
        finalise=_finalise_field("all"),
        groups=True,
        numpy=("all",),
        xarray="all",
    ),
    Statistic(
        name="argmin",
        kinds=NUMBERS + TIMES,
        fields=("argmin", "argmin_value"),
        finalise=_finalise_position("argmin"),
        options=("skipna",),
        numpy=("argmin", "nanargmin"),
        xarray="argmin",
    ),
    Statistic(
        name="argmax",
        kinds=NUMBERS + TIMES,
        fields=("argmax", "argmax_value"),
        finalise=_finalise_position("argmax"),
        options=("skipna",),
        numpy=("argmax", "nanargmax"),
        xarray="argmax",
    ),
    Statistic(
        name="prod",
        fields=_product_fields,
        finalise=_finalise_product,
        dtype=like_sum,
        groups=True,
        options=("skipna", "min_count"),
        numpy=("prod", "nanprod"),
        xarray="prod",
        keeps_values_without_axes=True,
        neutral_element=1,
    ),
    Statistic(
        name="median",
        compute=_median,
        options=("skipna",),
        numpy=("median", "nanmedian"),
        xarray="median",
        keeps_values_without_axes=True,
    ),
    Statistic(
        name="quantile",
        kinds=NUMBERS + TIMES + TEXT + OBJECTS,
        compute=_quantile,
        options=("skipna", "q"),
        required="q",
        numpy=("quantile", "nanquantile"),
        xarray="quantile",
    ),
    Statistic(
        name="histogram",
        kinds="biuf",
        fields=("histogram",),
        finalise=lambda reduction, partial, size: histogram_counts(partial),
        options=("edges",),
        required="edges",
        is_sketch=True,
    ),
    Statistic(
        name="tdigest",
        kinds="biuf",
        fields=("tdigest",),
        finalise=lambda reduction, partial, size: tdigest_quantiles(partial, reduction.rules.q, reduction.skips),
        options=("skipna", "q"),
        required="q",
        is_sketch=True,
    ),
    Statistic(
        name="sum_of_weights",
        weighted=WeightedForm(lambda state: np.where(state["weights"] != 0, state["weights"], np.nan)),
        xarray="sum_of_weights",
    ),
)
