"""Weighted statistics in one pass over the chunks, on this machine or within a server.

An axis with weights is kept while chunks are reduced, so that each of its elements has its own
partial; these are then contracted with the weights.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from insitu.errors import ModelError, UnsupportedError
from insitu.model import Selection, normalise_axes
from insitu.model.selection import Selector, Stride
from insitu.reducing.block_facts import reduced_shape
from insitu.reducing.fold_portions import Folding, Results
from insitu.reducing.partial_fields import Partial, merge_into
from insitu.reducing.partials_by_box import partials_by_box
from insitu.reducing.portions import Region, cut_portions
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reductions import Reduction
from insitu.reducing.statistic import WeightedForm
from insitu.reducing.statistics import STATISTICS

__all__ = ["WEIGHTED_FIELDS", "WeightedFolding", "Weights", "take"]

Weights = Mapping[int | tuple[int, ...], npt.NDArray[Any]]
"""Weights for the elements along an axis, or along several axes together."""
WEIGHTED_FIELDS = ("weights", "sums", "squares", "count")
"""The arrays of a partial: sum of weights, weighted sum, weighted squared deviations from the mean, count."""
WEIGHTED_BYTES = 8 * len(WEIGHTED_FIELDS)
"""Bytes of them for each element of the result."""


@dataclass(frozen=True, slots=True)
class WeightedFolding(Folding):
    """Weighted statistics along some axes, in float64: such as have a weighted form, `mean` and `sum_of_weights`, say.
    The weight of a value is the product of the weights along the axes.

    As in xarray's `weighted`: NaN is left out, and where the remaining weights add up to 0 the result is NaN.
    """

    weights: Weights
    """By reduced axis, one number per element; by a tuple of axes for several axes together."""

    @property
    def along(self) -> tuple[int, ...]:
        """The axes that are reduced."""
        return normalise_axes(self.query.axes, self.values.ndim)

    @property
    def fields(self) -> Sequence[str]:
        """Names of the arrays of a partial."""
        return WEIGHTED_FIELDS

    def regions(self) -> list[Region]:
        """Return the regions of the result, with their portions."""
        self._check()
        return cut_portions(self.values, self.along, WEIGHTED_BYTES)

    def select(self, piece: Selection) -> Self:
        """Return the reduction of a piece of the values."""
        weights = {
            key: take(np.asarray(w, np.float64), [piece.selectors[a] for a in normalise_axes(key, self.values.ndim)])
            for key, w in self.weights.items()
        }
        return replace(self, values=self.values.select(piece), weights=weights)

    def fold_whole(self) -> Partial:
        """Return the partial of all values, as one portion."""
        forms, factors = self._check()
        along, ndim = self.along, self.values.ndim
        weighed = {axis for axes, _ in factors for axis in axes}
        inner = tuple(axis for axis in along if axis not in weighed)
        # Squares only if they are needed: without them, one pass over a chunk is enough.
        measured = "var" if any(form.needs_squares for form in forms.values()) else "mean"
        reduction = Reduction((measured,), self.values.dtype, replace(self.query.rules, ddof=0))
        total = self.empty_partial()
        for box, partial in partials_by_box(self.values, inner, reduction):
            weight: Any = np.float64(1)
            for axes, numbers in factors:
                part = numbers[tuple(box[axis] for axis in axes)]
                weight = weight * part.reshape([part.shape[axes.index(i)] if i in axes else 1 for i in range(ndim)])
            where = tuple(slice(0, 1) if axis in along else part for axis, part in enumerate(box))
            merge_into(total, where, _contract(partial, weight, along), _merge_weights)
        return total

    def empty_partial(self) -> Partial:
        """Return the partial of no data."""
        shape = reduced_shape(self.values.shape, self.along)
        return {name: np.zeros(shape) for name in WEIGHTED_FIELDS}

    def merge_partials(self, one: Partial, other: Partial) -> Partial:
        """Return the partial of two partials of the same places together."""
        return _merge_weights(one, other)

    def finalise(self, partial: Partial) -> Results:
        """Return the results of the partial of all values."""
        found = {method: form.finalise(partial) for method, form in _weighted_forms(self.query).items()}
        return (
            found if self.query.keepdims else {method: result.squeeze(self.along) for method, result in found.items()}
        )

    def _check(self) -> tuple[dict[str, WeightedForm], list[tuple[tuple[int, ...], npt.NDArray[np.float64]]]]:
        """Return the weighted forms of the statistics, and the weights with their axes."""
        forms = _weighted_forms(self.query)
        if self.values.dtype.kind not in "biuf":
            raise UnsupportedError(f"cannot compute weighted statistics of {self.values.dtype} values")
        factors = [_check_weights(self.along, self.values.shape, key, numbers) for key, numbers in self.weights.items()]
        if not math.prod(self.values.shape):
            raise ModelError("cannot compute weighted statistics: the selection is empty")
        return forms, factors


def take(numbers: npt.NDArray[Any], selectors: Sequence[Selector]) -> npt.NDArray[Any]:
    """Return what numbers along some axes are within a piece; wrong numbers as they are, for the check of weights."""
    if numbers.ndim != len(selectors):
        return numbers
    for axis, selector in enumerate(selectors):
        key: Any = selector.as_slice if isinstance(selector, Stride) else selector
        numbers = numbers[(slice(None),) * axis + (key,)]
    return numbers


def _merge_weights(one: Partial, other: Partial) -> Partial:
    """Return the partial of the values of two partials together."""
    w, v = one["weights"], other["weights"]
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.where((w != 0) & (v != 0), (other["sums"] / v - one["sums"] / w) ** 2 * (w / (w + v) * v), 0)
    return {
        "weights": w + v,
        "sums": one["sums"] + other["sums"],
        "squares": one["squares"] + other["squares"] + apart,
        "count": one["count"] + other["count"],
    }


def _check_weights(
    along: Sequence[int], shape: Sequence[int], key: int | tuple[int, ...], numbers: npt.NDArray[Any]
) -> tuple[tuple[int, ...], npt.NDArray[np.float64]]:
    """Return checked weights and their axes, in ascending order."""
    axes = normalise_axes([key] if isinstance(key, int) else list(key), len(shape))
    if set(axes) - set(along) or np.shape(numbers) != tuple(shape[axis] for axis in axes):
        wanted = " x ".join(str(shape[axis]) for axis in axes)
        raise ModelError(
            f"weights along axis {key} must have {wanted} numbers, and the axis must be one of those that are reduced"
        )
    values = np.asarray(numbers, np.float64)
    if np.isnan(values).any():
        raise ModelError("weights must not contain missing values (NaN)")
    order = np.argsort(axes)
    return tuple(axes[i] for i in order), values.transpose(order)


def _contract(partial: Partial, weight: Any, along: Sequence[int]) -> Partial:
    """Return the weighted partial of all elements of a box together."""
    axes = tuple(along)
    count, total = np.asarray(partial["count"], np.float64), np.asarray(partial["total"], np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = _sum_products(weight, count, axes)
        sums = _sum_products(weight, total, axes)
        mean = np.where(weights != 0, sums / weights, 0)
        squares = np.zeros_like(sums)
        if "squares" in partial:
            between = np.where(count > 0, count * (total / np.maximum(count, 1) - mean) ** 2, 0)
            squares = _sum_products(weight, partial["squares"] + between, axes)
    counted = np.sum(count, axis=axes, keepdims=True)
    return {"weights": weights, "sums": sums, "squares": squares, "count": counted}


def _sum_products(
    weight: npt.NDArray[np.float64], values: npt.NDArray[np.float64], axes: tuple[int, ...]
) -> npt.NDArray[np.float64]:
    """Return the sum of weights times values along axes, which stay with length 1; the products are never all there."""
    varies = [axis for axis, length in enumerate(np.shape(weight)) if length > 1]
    letters = string.ascii_letters[: values.ndim]
    labels = "".join(letters[axis] for axis in varies)
    rest = "".join(letter for axis, letter in enumerate(letters) if axis not in axes)
    numbers = np.reshape(weight, [values.shape[axis] for axis in varies])
    found = np.einsum(f"{letters},{labels}->{rest}", values, numbers)
    return np.expand_dims(np.asarray(found), axes)


def _weighted_forms(query: ReductionQuery) -> dict[str, WeightedForm]:
    """Return the weighted forms of the statistics of a query; an error if one has none."""
    forms = {name: STATISTICS[name].weighted if name in STATISTICS else None for name in query.methods}
    if bad := [name for name, form in forms.items() if form is None]:
        raise UnsupportedError(f"cannot compute with weights: {', '.join(bad)}")
    return {name: form for name, form in forms.items() if form is not None}
