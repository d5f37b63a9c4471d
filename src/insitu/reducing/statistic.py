"""What a statistic is, and the fields that its partials consist of.

A `Statistic` declares which fields of a partial it needs, how the result is computed from them, its
type, its options, its names in NumPy and xarray, and its forms: chunk by chunk, of groups, with
weights, of all values at once. What is particular to a field (measure, merge) is in `FIELDS`. All of
them are in the table `statistics.STATISTICS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from insitu.errors import ModelError, UnsupportedError
from insitu.reducing.block_facts import Array
from insitu.reducing.extremes import EXTREMES
from insitu.reducing.partial_fields import Partial, PartialField
from insitu.reducing.sketches import histogram_field, tdigest_field
from insitu.reducing.sums import SUMS

if TYPE_CHECKING:
    from insitu.reducing.reductions import Reduction, ReductionRules

__all__ = [
    "FIELDS",
    "NUMBERS",
    "OBJECTS",
    "TEXT",
    "TIMES",
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
    """One statistic: see the table `statistics.STATISTICS`."""

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
