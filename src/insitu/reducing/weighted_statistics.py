"""Weighted statistics in one pass over the chunks, on this machine or within a server.

An axis with weights is kept while chunks are reduced, so that each of its elements has its own
partial; these are then contracted with the weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce as fold_left
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from insitu.errors import ModelError, UnsupportedError
from insitu.model import Selection, VirtualArray, normalise_axes
from insitu.model.gaps import fill_gaps_with_absent
from insitu.reading import ReadContext
from insitu.reducing.fold_portions import run_portions
from insitu.reducing.foldable_values import Box, Foldable, StoredValues
from insitu.reducing.partial_fields import Partial
from insitu.reducing.partials_by_box import partials_by_box
from insitu.reducing.portions import cut_portions
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reductions import Reduction

__all__ = [
    "WEIGHTED_FIELDS",
    "WEIGHTED_METHODS",
    "Weights",
    "finalise_weights",
    "fold_weights",
    "merge_weights",
    "weigh_values",
    "weighted_statistics",
]

WEIGHTED_METHODS = ("sum", "mean", "var", "std", "sum_of_weights", "count")
"""Statistics that can be weighted."""

Weights = Mapping[int | tuple[int, ...], npt.NDArray[Any]]
"""Weights for the elements along an axis, or along several axes together."""
WeightedState = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]
"""Sum of weights, weighted sum, weighted squared deviations from the mean, count."""
WEIGHTED_FIELDS = ("weights", "sums", "squares", "count")
"""The names of their arrays."""
WEIGHTED_BYTES = 8 * len(WEIGHTED_FIELDS)
"""Bytes of them for each element of the result."""


def weighted_statistics(
    array: VirtualArray, weights: Weights, query: ReductionQuery, context: ReadContext | None = None
) -> dict[str, npt.NDArray[Any]]:
    """Return weighted statistics. The weight of a value is the product of the weights along the
    axes.

    Parameters
    ----------
    array
        The array.
    weights
        By reduced axis, one number per element; by a tuple of axes for several axes together.
    query
        What to compute: `sum`, `mean`, `var`, `std` (all in float64), `sum_of_weights`, `count`. As
        in xarray's `weighted`: NaN is left out, and where the remaining weights add up to 0 the
        result is NaN.
    context
        How to read the values.
    """
    chosen = Selection.of(query.selection, array.shape)
    with (context or ReadContext()).open_sources() as opened:
        return weigh_values(StoredValues(fill_gaps_with_absent(array[chosen]), opened), weights, query)


def weigh_values(values: Foldable, weights: Weights, query: ReductionQuery) -> dict[str, npt.NDArray[Any]]:
    """Return weighted statistics of any values, as `weighted_statistics`; the selection of the query
    does not count.
    """
    return finalise_weights(fold_weights(values, weights, query), query, values.ndim)


def fold_weights(values: Foldable, weights: Weights, query: ReductionQuery) -> Partial:
    """Return the weighted state of some values by the names of `WEIGHTED_FIELDS`, of length 1 along
    each reduced axis.
    """
    methods, shape = query.methods, values.shape
    along = normalise_axes(query.axes, len(shape))
    bad = [method for method in methods if method not in WEIGHTED_METHODS]
    if bad or values.dtype.kind not in "biuf":
        raise UnsupportedError(f"cannot compute the weighted {', '.join(bad) or 'statistics'} of {values.dtype} values")
    factors = [_check_weights(along, shape, key, numbers) for key, numbers in weights.items()]
    weighed = {axis for axes_, _ in factors for axis in axes_}
    inner = tuple(axis for axis in along if axis not in weighed)
    # Squares only if they are needed: without them, one pass over a chunk is enough.
    measured = "var" if {"var", "std"} & set(methods) else "mean"
    reduction = Reduction((measured,), values.dtype, replace(query.rules, ddof=0))
    kept = [1 if axis in along else length for axis, length in enumerate(shape)]
    if not math.prod(shape):
        raise ModelError("cannot compute weighted statistics: the selection is empty")
    total: WeightedState = (np.zeros(kept), np.zeros(kept), np.zeros(kept), np.zeros(kept))
    job = _WeightedJob(values, tuple(factors), along, inner, reduction)
    for region, state in run_portions(job, cut_portions(values, along, WEIGHTED_BYTES), values):
        for whole, part in zip(total, state, strict=True):
            whole[region.place] = part
    return dict(zip(WEIGHTED_FIELDS, total, strict=True))


def merge_weights(one: Partial, other: Partial) -> Partial:
    """Return the weighted state of the values of two states together."""
    first, second = ((state["weights"], state["sums"], state["squares"], state["count"]) for state in (one, other))
    return dict(zip(WEIGHTED_FIELDS, _merge_states(first, second), strict=True))


def finalise_weights(partial: Partial, query: ReductionQuery, ndim: int) -> dict[str, npt.NDArray[Any]]:
    """Return the weighted statistics of the state of all values."""
    along = normalise_axes(query.axes, ndim)
    state = (partial["weights"], partial["sums"], partial["squares"], partial["count"])
    found = {method: _finalise_weighted(method, state) for method in query.methods}
    return found if query.keepdims else {method: result.squeeze(along) for method, result in found.items()}


@dataclass(frozen=True, slots=True)
class _WeightedJob:
    """Weighted statistics, in portions."""

    values: Foldable
    factors: tuple[tuple[tuple[int, ...], npt.NDArray[np.float64]], ...]
    """Axes and their weights."""
    along: tuple[int, ...]
    inner: tuple[int, ...]
    """The axes without weights among those that are reduced."""
    reduction: Reduction

    @property
    def name(self) -> str:
        return f"weighted {','.join(self.reduction.methods)}({self.values.name})"

    def fold_portion(self, box: Box) -> WeightedState:
        lengths = [1 if a in self.along else part.stop - part.start for a, part in enumerate(box)]
        state: WeightedState = (np.zeros(lengths), np.zeros(lengths), np.zeros(lengths), np.zeros(lengths))
        for inside, partial in partials_by_box(self.values, self.inner, self.reduction, box):
            weight: Any = np.float64(1)
            for axes, numbers in self.factors:
                part = numbers[tuple(inside[axis] for axis in axes)]
                weight = weight * part.reshape([part.shape[axes.index(i)] if i in axes else 1 for i in range(len(box))])
            where = tuple(
                slice(0, 1) if axis in self.along else slice(part.start - whole.start, part.stop - whole.start)
                for axis, (part, whole) in enumerate(zip(inside, box, strict=True))
            )
            before = (state[0][where], state[1][where], state[2][where], state[3][where])
            for total, found in zip(state, _merge_states(before, _contract(partial, weight, self.along)), strict=True):
                total[where] = found
        return state

    def merge(self, states: Sequence[WeightedState]) -> WeightedState:
        return fold_left(_merge_states, states)

    def for_workers(self) -> Self:
        return replace(self, values=self.values.for_workers())


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


def _contract(partial: Partial, weight: Any, along: Sequence[int]) -> WeightedState:
    """Return the weighted state of all elements of a box together."""
    axes = tuple(along)
    count, total = np.asarray(partial["count"], np.float64), np.asarray(partial["total"], np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = np.sum(weight * count, axis=axes, keepdims=True)
        sums = np.sum(weight * total, axis=axes, keepdims=True)
        mean = np.where(weights != 0, sums / weights, 0)
        squares = np.zeros_like(sums)
        if "squares" in partial:
            between = np.where(count > 0, count * (total / np.maximum(count, 1) - mean) ** 2, 0)
            squares = np.sum(weight * (partial["squares"] + between), axis=axes, keepdims=True)
    return weights, sums, squares, np.sum(count, axis=axes, keepdims=True)


def _merge_states(one: WeightedState, other: WeightedState) -> WeightedState:
    w, v = one[0], other[0]
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.where((w != 0) & (v != 0), (other[1] / v - one[1] / w) ** 2 * (w / (w + v) * v), 0)
    return w + v, one[1] + other[1], one[2] + other[2] + apart, one[3] + other[3]


def _finalise_weighted(method: str, state: tuple[Any, Any, Any, Any]) -> npt.NDArray[Any]:
    weights, sums, squares, count = state
    if method == "count":
        return np.asarray(count, np.int64)
    if method == "sum":
        return np.asarray(sums)
    if method == "sum_of_weights":
        return np.where(weights != 0, weights, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(weights != 0, sums / weights, np.nan)
        variance = np.where(weights != 0, squares / weights, np.nan)
    return {"mean": mean, "var": variance, "std": np.sqrt(variance)}[method]
