"""`Reduction`: one or several statistics of values of one type, taken in one pass.

`step` reduces the values of a chunk to a partial, `merge` merges two partials, `finalise` computes
the results. What is particular to each statistic is declared in `insitu.reducing.statistics`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import UnsupportedError
from insitu.reducing.block_facts import Array, ValueBlock, reduced_shape
from insitu.reducing.partial_fields import Partial, PartialField
from insitu.reducing.statistic import FIELDS, position_fields
from insitu.reducing.statistics import STATISTICS

__all__ = ["Reduction", "ReductionRules"]


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
    """Names of `STATISTICS` that are computed chunk by chunk."""
    dtype: np.dtype[Any]
    """Type of the values, in native byte order."""
    rules: ReductionRules = ReductionRules()
    fields: tuple[str, ...] = field(init=False, compare=False, repr=False)
    """Names of the fields of a partial, for all of the statistics."""

    def __post_init__(self) -> None:
        dtype = np.dtype(self.dtype)
        # The same object if it can stay: a new one has no hash yet, and NumPy compares it field by field.
        object.__setattr__(self, "dtype", dtype if dtype.isnative else dtype.newbyteorder("="))
        for method in self.methods:
            statistic = STATISTICS[method]
            if not STATISTICS.can_stream(method, self.dtype):
                raise UnsupportedError(f"cannot compute {method} of {self.dtype} values")
            statistic.check_options(self.rules)
        needed = [name for method in self.methods for name in STATISTICS[method].fields_of(self)]
        in_order = sorted(dict.fromkeys(needed), key=lambda name: not self.field(name).is_joined_first)
        object.__setattr__(self, "fields", tuple(in_order))

    @property
    def skips(self) -> bool:
        """Whether missing values are left out."""
        return self.dtype.kind in "fc" if self.rules.skipna is None else self.rules.skipna

    @property
    def positional(self) -> bool:
        """Whether `step` needs the positions of the values."""
        return bool(position_fields(self.fields))

    def field(self, name: str) -> PartialField:
        """Return a field by name."""
        found = FIELDS[name]
        return found if isinstance(found, PartialField) else found(self.rules)

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
        return {**partial, **{name: partial[name] + by for name in position_fields(partial)}}

    def empty_partial(self, shape: Sequence[int], along: Sequence[int] = ()) -> Partial:
        """Return the partial of no data of a shape, reduced along axes: it changes nothing that it is merged with."""
        shape = reduced_shape(shape, along)
        return {name: np.full(shape, self.field(name).neutral(self.dtype, self.skips)) for name in self.fields}

    def repeat(self, partial: Partial, times: Any, first: Array | None = None) -> Partial:
        """Return the partial of the same values, each so many times (0: no data);
        `first` is the first position.
        """
        empty, positions = self.empty_partial(()), position_fields(partial)
        many = {}
        for name, found in partial.items():
            repeated = self.field(name).repeat(found, times)
            if first is not None and name in positions:
                repeated = first
            many[name] = repeated if np.all(times) else np.where(np.equal(times, 0), empty[name], repeated)
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
        return {method: STATISTICS[method].result(self, partial, size) for method in self.methods}

    def of_values(self, values: Array, axes: Sequence[int]) -> dict[str, Array]:
        """Return the results of values in memory, by method; reduced axes have length 1."""
        partial = self.step(values, axes) if values.size else self.empty_partial(values.shape, axes)
        return self.finalise(partial, math.prod(values.shape[axis] for axis in axes))
