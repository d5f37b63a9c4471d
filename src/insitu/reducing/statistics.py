"""The table of statistics: everything that is particular to one of them is said here, once.

A `Statistic` declares which fields of a partial it needs, how the result is computed from them, its
type, its options, its names in NumPy and xarray, and its forms: chunk by chunk, of groups, with
weights, of all values at once. What is particular to a field (measure, merge) is in `FIELDS`. The
functions of this package, NumPy's functions on virtual arrays, the accessors of xarray, the command
line and the server read these two tables: to add a statistic is to add its declaration.

Types of results and missing values follow xarray: NaN is left out of floating-point and complex
values unless `skipna=False`, integers are summed in 64 bits, the mean of float32 is float32 (but
accumulated in float64).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from insitu.errors import ModelError, UnsupportedError
from insitu.reducing.block_facts import Array, reduced_shape
from insitu.reducing.extremes import EXTREMES
from insitu.reducing.partial_fields import Partial, PartialField
from insitu.reducing.sketches import histogram_counts, histogram_field, tdigest_field, tdigest_quantiles
from insitu.reducing.sums import SUMS

if TYPE_CHECKING:
    from insitu.reducing.reductions import Reduction, ReductionRules

__all__ = [
    "FIELDS",
    "STATISTICS",
    "Statistic",
    "Statistics",
    "WeightedForm",
    "like_deviation",
    "like_mean",
    "like_sum",
    "position_fields",
]

NUMBERS = "biufc"
TIMES = "mM"
TEXT = "SUV"
OBJECTS = "O"

DtypeRule = Callable[["Reduction"], "np.dtype[Any] | None"]
"""Returns the type of a result; None: that of its field."""
HINTS = {
    "q": "Give q, a number from 0 to 1 or a list of them",
    "edges": "Give edges, an increasing list of numbers",
}
"""What to do if an option is missing that a statistic requires."""


@dataclass(frozen=True, slots=True)
class WeightedForm:
    """A statistic of values that have weights."""

    finalise: Callable[[Partial], Array]
    """Returns the result of a state with the fields of `weighted_statistics.WEIGHTED_FIELDS`."""
    needs_squares: bool = False
    """Whether it needs the squared deviations, which take a second pass over a chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """One statistic: see the table `STATISTICS`."""

    name: str
    kinds: str = NUMBERS
    """Kinds of NumPy types of which it is computed here. xarray computes it of others: times, text,
    objects.
    """
    fields: tuple[str, ...] | Callable[[Reduction], tuple[str, ...]] = ()
    """Names of the fields of `FIELDS` that a partial needs."""
    finalise: Callable[[Reduction, Partial, int], Array] | None = None
    """Returns the result of the partial of all values. Its last argument is the number of values of
    each element of the result, missing ones included. None: it is not computed chunk by chunk.
    """
    dtype: DtypeRule | None = None
    """The type of the result; None: that of its field."""
    compute: Callable[[Array, tuple[int, ...], ReductionRules, bool], Array] | None = None
    """For a statistic that needs all values of an element at once: returns the result of values
    along axes, which stay with length 1. Its last argument is whether missing values are left out.
    """
    groups: bool = False
    """Whether it is computed of groups, in one pass."""
    weighted: WeightedForm | None = None
    """How it is computed of values that have weights, in one pass."""
    options: tuple[str, ...] = ()
    """Names of the `ReductionRules` that it takes."""
    required: str | None = None
    """The option without which it cannot be computed."""
    numpy: tuple[str, ...] = ()
    """Names of NumPy's functions for it; those that begin with `nan` leave out missing values."""
    xarray: str | None = None
    """Name of xarray's method for it; None: xarray has none."""
    is_sketch: bool = False
    """Whether its state is a summary of the distribution. The result has several numbers for each
    element, along a first axis.
    """
    keeps_values_without_axes: bool = False
    """Whether values and their type stay unchanged if no axis is reduced, as in xarray."""
    neutral_element: int | None = None
    """The value that changes nothing, in place of a missing one."""

    @property
    def is_streamed(self) -> bool:
        """Whether it is computed chunk by chunk."""
        return self.finalise is not None

    @property
    def needs_all_values(self) -> bool:
        """Whether all values of an element of the result are needed at once."""
        return self.compute is not None

    @property
    def is_plain(self) -> bool:
        """Whether it is computed of values without weights."""
        return self.is_streamed or self.needs_all_values

    @property
    def is_position(self) -> bool:
        """Whether the result is a position."""
        return not callable(self.fields) and bool(position_fields(self.fields))

    def fields_of(self, reduction: Reduction) -> tuple[str, ...]:
        """Return the names of the fields for a type of values and options."""
        return self.fields(reduction) if callable(self.fields) else self.fields

    def result(self, reduction: Reduction, partial: Partial, size: int) -> Array:
        """Return the result of the partial of all values, in its type."""
        assert self.finalise is not None
        found = self.finalise(reduction, partial, size)
        dtype = None if self.dtype is None else self.dtype(reduction)
        return found if dtype is None else _cast(found, dtype)

    def check_options(self, rules: ReductionRules) -> None:
        """Raise an error if the required option is missing."""
        if self.required is not None and getattr(rules, self.required) is None:
            raise ModelError(f"{self.name} needs {self.required}", hint=HINTS.get(self.required))


class Statistics(dict[str, Statistic]):
    """Statistics by name."""

    def __missing__(self, name: str) -> Statistic:
        known = self.names(lambda statistic: statistic.is_plain)
        raise UnsupportedError(f"{name!r} is not a known reduction", hint=f"Use one of {', '.join(sorted(known))}")

    def add(self, *statistics: Statistic) -> None:
        """Add statistics; an error if there is one of that name."""
        for statistic in statistics:
            if statistic.name in self:
                raise ValueError(f"there is a statistic {statistic.name!r} already")
            self[statistic.name] = statistic

    def names(self, condition: Callable[[Statistic], Any]) -> list[str]:
        """Return the names of the statistics that fulfil a condition.

        Examples
        --------
        >>> STATISTICS.names(lambda statistic: statistic.needs_all_values)
        ['median', 'quantile']
        """
        return [name for name, statistic in self.items() if condition(statistic)]

    def can_stream(self, name: str, dtype: np.dtype[Any]) -> bool:
        """Return whether there is a statistic of that name that is computed chunk by chunk of values
        of a type.
        """
        return name in self and self[name].is_streamed and dtype.kind in self[name].kinds


FIELDS: dict[str, PartialField | Callable[[ReductionRules], PartialField]] = {
    **SUMS,
    **EXTREMES,
    "tdigest": tdigest_field,
    "histogram": lambda rules: histogram_field(rules.edges or ()),
}
"""Every field of a partial by name; a function where it depends on options."""


def position_fields(names: Iterable[str]) -> list[str]:
    """Return those of some names of fields that hold positions in an array."""
    return [name for name in names if isinstance(field := FIELDS.get(name), PartialField) and field.is_position]


def _cast(values: Array, dtype: np.dtype[Any]) -> Array:
    if values.dtype == dtype:
        return np.asarray(values)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values).astype(dtype, copy=False)


# Types of results.


def like_sum(reduction: Reduction) -> np.dtype[Any] | None:
    """Return the type of a sum: that of floating-point and complex values; else that of its field."""
    return reduction.dtype if reduction.dtype.kind in "fc" else None


def like_mean(reduction: Reduction) -> np.dtype[Any]:
    """Return the type of a mean: float64 for integers, else that of the values."""
    return np.dtype(np.float64) if reduction.dtype.kind in "biu" else reduction.dtype


def like_deviation(reduction: Reduction) -> np.dtype[Any]:
    """Return the type of a variance: floats of the same width, float64 for integers."""
    dtype = reduction.dtype
    return np.zeros((), dtype).real.dtype if dtype.kind in "fc" else np.dtype(np.float64)


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
    found = np.full((*q.shape, rows.shape[1]), np.nan, dtype if counts[0] else rows.dtype)  # NumPy's: of the first one
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
