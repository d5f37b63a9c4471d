"""What is a statistic? Which fields of the data it needs, and what it makes of them.

A `Reduction` is one or several statistics of values of one type, taken together in one pass: `step` measures the values of a chunk, `merge`
puts two partials together, `finalise` makes the answers. Which values count, which type an answer has and what is missing follow xarray:
NaN is left out of floating and complex values unless `skipna=False`, integers are summed in 64 bits, the mean of float32 is float32
(but was accumulated in float64).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import ModelError, UnsupportedError
from insitu.reducing.block_facts import Array, Part
from insitu.reducing.extremes import EXTREMES
from insitu.reducing.field import Field, Partial
from insitu.reducing.sketches import counts, histogram_field, quantiles, tdigest_field
from insitu.reducing.sums import SUMS

__all__ = ["METHODS", "SKETCHES", "STREAMED", "Reduction", "Rules"]

NUMBERS = "biufc"
TIMES = "mM"
FIELDS: Mapping[str, Field] = {**SUMS, **EXTREMES, "tdigest": tdigest_field}
"""Every field of a partial by name, except the histogram, which depends on its edges."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What counts in a statistic."""

    skipna: bool | None = None
    """Whether missing values are left out; None: where the type is floating or complex."""
    ddof: float = 0
    """Of `std` and `var`: what is subtracted from the number of values."""
    min_count: int | None = None
    """Of `sum` and `prod`: with fewer values than this the answer is missing. Only where missing values are left out."""
    q: Any = None
    """Of `quantile` and `tdigest`: one or several numbers from 0 to 1."""
    edges: tuple[float, ...] | None = None
    """Of `histogram`: the edges of its bins, increasing."""


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
    """Names out of `METHODS`."""
    dtype: np.dtype[Any]
    """Of the values, in native byte order."""
    rules: Rules = Rules()

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.dtype).newbyteorder("="))
        for method in self.methods:
            if method not in STREAMED:
                raise UnsupportedError(
                    f"{method!r} is not a reduction", hint=f"There are {', '.join(sorted(STREAMED))}"
                )
            if self.dtype.kind not in STREAMED[method].kinds:
                raise UnsupportedError(f"there is no {method} of values of {self.dtype}")
            if method == "histogram" and self.rules.edges is None:
                raise ModelError(
                    "a histogram needs to know its edges", hint="Give edges, an increasing list of numbers"
                )

    @property
    def skips(self) -> bool:
        """Whether missing values are left out."""
        return self.dtype.kind in "fc" if self.rules.skipna is None else self.rules.skipna

    @property
    def fields(self) -> tuple[str, ...]:
        """What a partial has, for all of the statistics."""
        needed = [name for method in self.methods for name in STREAMED[method].needs(self)]
        # Squares first: joining them takes the counts and totals from before.
        return tuple(sorted(dict.fromkeys(needed), key=lambda name: name != "squares"))

    @property
    def positional(self) -> bool:
        """Whether `step` needs to know where the values lie."""
        return any(name in ("argmin", "argmax") for name in self.methods)

    def field(self, name: str) -> Field:
        """One of the fields."""
        if name == "histogram":
            assert self.rules.edges is not None
            return histogram_field(self.rules.edges)
        return FIELDS[name]

    def step(
        self, values: Array, axes: Sequence[int], positions: Sequence[npt.NDArray[np.int64]] | None = None
    ) -> Partial:
        """Measure the values of a chunk, or of the part of it that is wanted.

        Parameters
        ----------
        values
            Of this reduction's type.
        axes
            To reduce; they have length 1 in the partial.
        positions
            For argmin and argmax: for each of the axes, what each of its elements adds to a position in all of the data.
        """
        fields = self.fields
        part = Part(values, tuple(axes), self.skips, positions, totalled="total" in fields)
        return {name: self.field(name).measure(part) for name in fields}

    def merge(self, one: Partial, other: Partial, *, reuse: bool = False) -> Partial:
        """The partial of both parts.

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
        """Partials that lie one behind the other along a first axis, merged into one without it."""
        count = len(next(iter(partial.values())))
        while count > 1:  # by halves: as few merges as can be
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
        """The partial of the same values at positions that are larger by so much."""
        return {name: found + by if name in ("argmin", "argmax") else found for name, found in partial.items()}

    def nothing(self, shape: Sequence[int]) -> Partial:
        """The partial of no data: what everything else is merged into."""
        return {name: np.full(shape, self.field(name).nothing(self.dtype, self.skips)) for name in self.fields}

    def repeat(self, partial: Partial, times: Any, first: Array | None = None) -> Partial:
        """The partial of the same values, each so many times (0: of nothing); `first`: where the first of them lies."""
        nothing = self.nothing(())
        many = {}
        for name, found in partial.items():
            repeated = self.field(name).repeat(found, times)
            if first is not None and name in ("argmin", "argmax"):
                repeated = first
            many[name] = repeated if np.all(times) else np.where(np.equal(times, 0), nothing[name], repeated)
        return many

    def finalise(self, partial: Partial, size: int) -> dict[str, Array]:
        """The answers, by method.

        Parameters
        ----------
        partial
            Of all the data.
        size
            How many values, missing ones too, each answer is about.
        """
        return {method: STREAMED[method].finalise(self, partial, size) for method in self.methods}


@dataclass(frozen=True, slots=True)
class Method:
    """One statistic."""

    needs: Callable[[Reduction], tuple[str, ...]]
    """The fields."""
    finalise: Callable[[Reduction, Partial, int], Array]
    kinds: str = NUMBERS
    """Of which values."""


def _cast(values: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values).astype(dtype, copy=False)


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Type of the variance: floats of the same width, float64 for integers."""
    return np.zeros((), dtype).real.dtype if dtype.kind in "fc" else np.dtype(np.float64)


def _sum_needs(reduction: Reduction) -> tuple[str, ...]:
    if reduction.dtype.kind == "m":
        return ("sum", "valid")
    counted = ("count",) if reduction.rules.min_count is not None and reduction.skips else ()
    return ("total" if reduction.dtype.kind in "fc" else "sum", *counted)


def _sum(reduction: Reduction, partial: Partial, size: int) -> Array:
    if reduction.dtype.kind == "m":
        enough = partial["valid"] >= (reduction.rules.min_count or 0) if reduction.skips else partial["valid"] == size
        return np.where(enough, partial["sum"].view(reduction.dtype), np.array("NaT", reduction.dtype))
    if reduction.dtype.kind in "fc":
        return _enough(reduction, partial, _cast(partial["total"], reduction.dtype))
    return _enough(reduction, partial, partial["sum"])


def _product(reduction: Reduction, partial: Partial, size: int) -> Array:
    product = partial["product"]
    if reduction.dtype.kind in "fc":
        product = _cast(product, reduction.dtype)
    return _enough(reduction, partial, product)


def _enough(reduction: Reduction, partial: Partial, values: Array) -> Array:
    """Missing where there were too few values."""
    if reduction.rules.min_count is None or not reduction.skips:
        return values
    dtype = values.dtype if values.dtype.kind in "fc" else np.dtype(np.float64)
    return np.where(partial["count"] < reduction.rules.min_count, dtype.type(np.nan), values.astype(dtype))


def _mean_needs(reduction: Reduction) -> tuple[str, ...]:
    return ("valid", "high", "low", "earliest", "latest") if reduction.dtype.kind in TIMES else ("count", "total")


def _mean(reduction: Reduction, partial: Partial, size: int) -> Array:
    if reduction.dtype.kind in TIMES:
        return _mean_time(reduction, partial, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = partial["total"] / partial["count"]
    return _cast(mean, reduction.dtype if reduction.dtype.kind in "fc" else np.dtype(np.float64))


def _mean_time(reduction: Reduction, partial: Partial, size: int) -> Array:
    """The exact mean, cut off as xarray does: towards the year in the middle of all times, in units of the type."""
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


def _extreme(name: str) -> Callable[[Reduction, Partial, int], Array]:
    def finalise(reduction: Reduction, partial: Partial, size: int) -> Array:
        found = partial[name]
        if not size:
            raise ModelError(f"there is no {name} of no values: a reduced dimension has length 0")
        return found

    return finalise


def _position(name: str) -> Callable[[Reduction, Partial, int], Array]:
    def finalise(reduction: Reduction, partial: Partial, size: int) -> Array:
        found, value = partial[name], partial[f"{name}_value"]
        if not size:
            raise ModelError(f"there is no {name} of no values: a reduced dimension has length 0")
        if reduction.skips and value.dtype.kind in "fc" and np.isnan(value).any():
            raise ModelError(f"All-NaN slice encountered: there is no {name} where every value is missing")
        return found

    return finalise


METHODS: Mapping[str, Method] = {
    "sum": Method(_sum_needs, _sum, NUMBERS + "m"),
    "prod": Method(
        lambda reduction: (
            ("product", "count") if reduction.rules.min_count is not None and reduction.skips else ("product",)
        ),
        _product,
    ),
    "mean": Method(_mean_needs, _mean, NUMBERS + TIMES),
    "var": Method(
        lambda reduction: ("count", "total", "squares"),
        lambda reduction, partial, size: _cast(_variance(reduction, partial, size), _real(reduction.dtype)),
    ),
    "std": Method(
        lambda reduction: ("count", "total", "squares"),
        lambda reduction, partial, size: _cast(np.sqrt(_variance(reduction, partial, size)), _real(reduction.dtype)),
    ),
    "count": Method(
        lambda reduction: ("count",) if reduction.skips else ("valid",),
        lambda reduction, partial, size: partial["count" if reduction.skips else "valid"],
        NUMBERS + TIMES + "SUV",
    ),
    "min": Method(lambda reduction: ("min",), _extreme("min"), NUMBERS + TIMES),
    "max": Method(lambda reduction: ("max",), _extreme("max"), NUMBERS + TIMES),
    "any": Method(lambda reduction: ("any",), lambda reduction, partial, size: partial["any"], NUMBERS + TIMES),
    "all": Method(lambda reduction: ("all",), lambda reduction, partial, size: partial["all"], NUMBERS + TIMES),
    "argmin": Method(lambda reduction: ("argmin", "argmin_value"), _position("argmin"), NUMBERS + TIMES),
    "argmax": Method(lambda reduction: ("argmax", "argmax_value"), _position("argmax"), NUMBERS + TIMES),
}
"""Every statistic that can be taken chunk by chunk, by its name."""

SKETCHES: Mapping[str, Method] = {
    "histogram": Method(lambda reduction: ("histogram",), lambda reduction, partial, size: counts(partial), "biuf"),
    "tdigest": Method(
        lambda reduction: ("tdigest",),
        lambda reduction, partial, size: quantiles(partial, reduction.rules.q, reduction.skips),
        "biuf",
    ),
}
"""Statistics of which each is several numbers, along a first axis of the answer: the bins, the quantiles (none for a single one)."""

STREAMED: Mapping[str, Method] = {**METHODS, **SKETCHES}
"""All of them."""
