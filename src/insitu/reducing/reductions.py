"""The statistics: which fields of a partial each of them needs, and how it is computed from them.

A `Reduction` is one or several statistics of values of one type, taken in one pass: `step` reduces
the values of a chunk to a partial, `merge` merges two partials, `finalise` computes the results.
Types of results and missing values follow xarray: NaN is left out of floating-point and complex
values unless `skipna=False`, integers are summed in 64 bits, the mean of float32 is float32 (but
accumulated in float64).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import ModelError, UnsupportedError
from insitu.reducing.block_facts import Array, ValueBlock
from insitu.reducing.extremes import EXTREMES
from insitu.reducing.partial_fields import Partial, PartialField
from insitu.reducing.sketches import histogram_counts, histogram_field, tdigest_field, tdigest_quantiles
from insitu.reducing.sums import SUMS

__all__ = ["METHODS", "SKETCHES", "STREAMED", "Reduction", "ReductionRules"]

NUMBERS = "biufc"
TIMES = "mM"
FIELDS: Mapping[str, PartialField] = {**SUMS, **EXTREMES, "tdigest": tdigest_field}
"""Every field of a partial by name, except the histogram, which depends on its edges."""


@dataclass(frozen=True, slots=True)
class ReductionRules:
    """Options of statistics: missing values, degrees of freedom, quantiles, edges."""

    skipna: bool | None = None
    """Whether missing values are left out; None: for floating-point and complex values."""
    ddof: float = 0
    """For `std` and `var`: subtracted from the number of values in the divisor."""
    min_count: int | None = None
    """For `sum` and `prod`: with fewer values the result is missing.

    Only if missing values are left out.
    """
    q: Any = None
    """For `quantile` and `tdigest`: one or several numbers from 0 to 1."""
    edges: tuple[float, ...] | None = None
    """For `histogram`: increasing edges of the bins."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """One or several statistics of values of one type.

    Examples
    --------
    >>> import numpy as np
    >>> both = Reduction(("mean", "max"), np.dtype("f4"))
    >>> one, other = (both.step(np.array(values, "f4"), (0,)) for values in ([1, 2], [6, np.nan]))
    >>> {name: value.item() for name, value in both.finalise(both.merge(one, other), 4).items()}
    {'mean': 3.0, 'max': 6.0}
    """

    methods: tuple[str, ...]
    """Names of `STREAMED`."""
    dtype: np.dtype[Any]
    """Type of the values, in native byte order."""
    rules: ReductionRules = ReductionRules()

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.dtype).newbyteorder("="))
        for method in self.methods:
            if method not in STREAMED:
                raise UnsupportedError(
                    f"{method!r} is not a known reduction", hint=f"Use one of {', '.join(sorted(STREAMED))}"
                )
            if self.dtype.kind not in STREAMED[method].kinds:
                raise UnsupportedError(f"cannot compute {method} of {self.dtype} values")
            if method == "histogram" and self.rules.edges is None:
                raise ModelError("a histogram needs edges", hint="Give edges, an increasing list of numbers")

    @property
    def skips(self) -> bool:
        """Whether missing values are left out."""
        return self.dtype.kind in "fc" if self.rules.skipna is None else self.rules.skipna

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields of a partial, for all of the statistics."""
        needed = [name for method in self.methods for name in STREAMED[method].needs(self)]
        # Squares first: joining them needs the counts and totals from before the merge.
        return tuple(sorted(dict.fromkeys(needed), key=lambda name: name != "squares"))

    @property
    def positional(self) -> bool:
        """Whether `step` needs the positions of the values."""
        return any(name in ("argmin", "argmax") for name in self.methods)

    def field(self, name: str) -> PartialField:
        """Return a field by name."""
        if name == "histogram":
            assert self.rules.edges is not None
            return histogram_field(self.rules.edges)
        return FIELDS[name]

    def step(
        self, values: Array, axes: Sequence[int], positions: Sequence[npt.NDArray[np.int64]] | None = None
    ) -> Partial:
        """Return the partial of the values of a chunk, or of a part of it.

        Parameters
        ----------
        values
            Values of this reduction's type.
        axes
            Axes to reduce; they have length 1 in the partial.
        positions
            For argmin and argmax: for each reduced axis, what its elements add to a position in the
            whole array.
        """
        fields = self.fields
        part = ValueBlock(values, tuple(axes), self.skips, positions, totalled="total" in fields)
        return {name: self.field(name).measure(part) for name in fields}

    def merge(self, one: Partial, other: Partial, *, reuse: bool = False) -> Partial:
        """Return the partial of the values of two partials together.

        Parameters
        ----------
        one, other
            Their arrays broadcast against each other.
        reuse
            Whether the arrays of `one` may be overwritten.
        """
        skips = self.skips
        return {name: self.field(name).join(one, other, skips, one[name] if reuse else None) for name in one}

    def collapse(self, partial: Partial) -> Partial:
        """Merge partials that are stacked along a first axis into one without it."""
        count = len(next(iter(partial.values())))
        while count > 1:  # by halves: as few merges as possible
            half = count // 2
            merged = self.merge(
                {name: found[:half] for name, found in partial.items()},
                {name: found[half : 2 * half] for name, found in partial.items()},
            )
            if count % 2:
                merged = {name: np.concatenate([found, partial[name][-1:]]) for name, found in merged.items()}
            partial, count = merged, count - half
        return {name: found[0] for name, found in partial.items()}

    def shift_positions(self, partial: Partial, by: Array) -> Partial:
        """Return the partial of the same values at positions that are larger by `by`."""
        return {name: found + by if name in ("argmin", "argmax") else found for name, found in partial.items()}

    def nothing(self, shape: Sequence[int]) -> Partial:
        """Return the partial of no data, which changes nothing that it is merged with."""
        return {name: np.full(shape, self.field(name).nothing(self.dtype, self.skips)) for name in self.fields}

    def repeat(self, partial: Partial, times: Any, first: Array | None = None) -> Partial:
        """Return the partial of the same values, each so many times (0: no data);
        `first` is the first position.
        """
        nothing = self.nothing(())
        many = {}
        for name, found in partial.items():
            repeated = self.field(name).repeat(found, times)
            if first is not None and name in ("argmin", "argmax"):
                repeated = first
            many[name] = repeated if np.all(times) else np.where(np.equal(times, 0), nothing[name], repeated)
        return many

    def finalise(self, partial: Partial, size: int) -> dict[str, Array]:
        """Return the results, by method.

        Parameters
        ----------
        partial
            The partial of all data.
        size
            Number of values, missing ones included, for each element of the result.
        """
        return {method: STREAMED[method].finalise(self, partial, size) for method in self.methods}


@dataclass(frozen=True, slots=True)
class Statistic:
    """One statistic."""

    needs: Callable[[Reduction], tuple[str, ...]]
    """Returns the names of the fields that it needs."""
    finalise: Callable[[Reduction, Partial, int], Array]
    kinds: str = NUMBERS
    """Kinds of NumPy types that it supports."""


def _cast(values: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values).astype(dtype, copy=False)


def _real_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of the variance: floats of the same width, float64 for integers."""
    return np.zeros((), dtype).real.dtype if dtype.kind in "fc" else np.dtype(np.float64)


def _sum_fields(reduction: Reduction) -> tuple[str, ...]:
    if reduction.dtype.kind == "m":
        return ("sum", "valid")
    counted = ("count",) if reduction.rules.min_count is not None and reduction.skips else ()
    return ("total" if reduction.dtype.kind in "fc" else "sum", *counted)


def _finalise_sum(reduction: Reduction, partial: Partial, size: int) -> Array:
    if reduction.dtype.kind == "m":
        enough = partial["valid"] >= (reduction.rules.min_count or 0) if reduction.skips else partial["valid"] == size
        return np.where(enough, partial["sum"].view(reduction.dtype), np.array("NaT", reduction.dtype))
    if reduction.dtype.kind in "fc":
        return _apply_min_count(reduction, partial, _cast(partial["total"], reduction.dtype))
    return _apply_min_count(reduction, partial, partial["sum"])


def _finalise_product(reduction: Reduction, partial: Partial, size: int) -> Array:
    product = partial["product"]
    if reduction.dtype.kind in "fc":
        product = _cast(product, reduction.dtype)
    return _apply_min_count(reduction, partial, product)


def _apply_min_count(reduction: Reduction, partial: Partial, values: Array) -> Array:
    """Return values that are missing where there were fewer than `min_count`."""
    if reduction.rules.min_count is None or not reduction.skips:
        return values
    dtype = values.dtype if values.dtype.kind in "fc" else np.dtype(np.float64)
    return np.where(partial["count"] < reduction.rules.min_count, dtype.type(np.nan), values.astype(dtype))


def _mean_fields(reduction: Reduction) -> tuple[str, ...]:
    return ("valid", "high", "low", "earliest", "latest") if reduction.dtype.kind in TIMES else ("count", "total")


def _finalise_mean(reduction: Reduction, partial: Partial, size: int) -> Array:
    if reduction.dtype.kind in TIMES:
        return _finalise_mean_time(reduction, partial, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = partial["total"] / partial["count"]
    return _cast(mean, reduction.dtype if reduction.dtype.kind in "fc" else np.dtype(np.float64))


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


def _variance(reduction: Reduction, partial: Partial, size: int) -> Array:
    freedom = partial["count"] - reduction.rules.ddof
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = partial["squares"] / np.maximum(freedom, 0)
    if reduction.skips and reduction.dtype.kind in "fc":
        variance = np.where(freedom > 0, variance, np.nan)
    return variance


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


METHODS: Mapping[str, Statistic] = {
    "sum": Statistic(_sum_fields, _finalise_sum, NUMBERS + "m"),
    "prod": Statistic(
        lambda reduction: (
            ("product", "count") if reduction.rules.min_count is not None and reduction.skips else ("product",)
        ),
        _finalise_product,
    ),
    "mean": Statistic(_mean_fields, _finalise_mean, NUMBERS + TIMES),
    "var": Statistic(
        lambda reduction: ("count", "total", "squares"),
        lambda reduction, partial, size: _cast(_variance(reduction, partial, size), _real_dtype(reduction.dtype)),
    ),
    "std": Statistic(
        lambda reduction: ("count", "total", "squares"),
        lambda reduction, partial, size: _cast(
            np.sqrt(_variance(reduction, partial, size)), _real_dtype(reduction.dtype)
        ),
    ),
    "count": Statistic(
        lambda reduction: ("count",) if reduction.skips else ("valid",),
        lambda reduction, partial, size: partial["count" if reduction.skips else "valid"],
        NUMBERS + TIMES + "SUV",
    ),
    "min": Statistic(lambda reduction: ("min",), _finalise_extreme("min"), NUMBERS + TIMES),
    "max": Statistic(lambda reduction: ("max",), _finalise_extreme("max"), NUMBERS + TIMES),
    "any": Statistic(lambda reduction: ("any",), lambda reduction, partial, size: partial["any"], NUMBERS + TIMES),
    "all": Statistic(lambda reduction: ("all",), lambda reduction, partial, size: partial["all"], NUMBERS + TIMES),
    "argmin": Statistic(lambda reduction: ("argmin", "argmin_value"), _finalise_position("argmin"), NUMBERS + TIMES),
    "argmax": Statistic(lambda reduction: ("argmax", "argmax_value"), _finalise_position("argmax"), NUMBERS + TIMES),
}
"""Statistics with one number per element of the result, chunk by chunk, by name."""

SKETCHES: Mapping[str, Statistic] = {
    "histogram": Statistic(
        lambda reduction: ("histogram",), lambda reduction, partial, size: histogram_counts(partial), "biuf"
    ),
    "tdigest": Statistic(
        lambda reduction: ("tdigest",),
        lambda reduction, partial, size: tdigest_quantiles(partial, reduction.rules.q, reduction.skips),
        "biuf",
    ),
}
"""Statistics with several numbers per element, along a first axis:
bins, quantiles (no axis for one).
"""

STREAMED: Mapping[str, Statistic] = {**METHODS, **SKETCHES}
"""All statistics that can be taken chunk by chunk, by name."""
