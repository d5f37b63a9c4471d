"""Reductions of masked arrays and null tests, rewritten as reductions of the stored array.

The number of missing values is the size less the count. After `where` with a mask that varies along
kept dimensions only, the result is masked in place of the array; with one that varies along reduced
dimensions only, the mask is a weight of 0 or 1. So these run next to the data, where steps cannot
go.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.active.reduce_array import weigh_array
from insitu.lazy_array.deferred_values import DeferredValues
from insitu.lazy_array.duck_array import LazyArray
from insitu.lazy_array.steps import FillNull, IsNull, Not, Where
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reductions import ReductionRules
from insitu.reducing.weighted_statistics import Weights

__all__ = ["reduce_masked", "reduce_null_test", "without_steps"]

TakeStatistic = Callable[[LazyArray, str, ReductionRules], npt.NDArray[Any]]
"""Takes a statistic of an array, with its reduced axes in place."""
EMPTY_RESULTS = {"sum": 0, "count": 0, "mean": np.nan, "min": np.nan, "max": np.nan, "std": np.nan, "var": np.nan}
"""Results where everything is masked."""


def without_steps(array: LazyArray) -> LazyArray:
    """Return the stored array of an array with steps, which finds the values that are kept of it."""
    bare = LazyArray(array._array, array.access)
    node: DeferredValues = array
    while node.steps and node.parent is not None:
        node = node.parent[0]
    if not node.steps and node._array is array._array:
        bare.key, bare.parent = node.key, node.parent
    return bare


def reduce_null_test(
    array: LazyArray, method: str, axes: tuple[int, ...], take: TakeStatistic
) -> npt.NDArray[Any] | None:
    """Return a statistic of `isnan(a)` or `~isnan(a)`; None if it is not one of those."""
    counting = array.steps == (IsNull(), Not())
    if array.steps != (IsNull(),) and not counting:
        return None
    size = math.prod(array.shape[axis] for axis in axes)
    count = take(without_steps(array), "count", ReductionRules(True))
    many = count if counting else size - count
    if method == "mean":
        return many / size
    return {"sum": many, "any": many > 0, "all": many == size}.get(method)


def reduce_masked(
    array: LazyArray, method: str, axes: tuple[int, ...], rules: ReductionRules, skipna: bool, take: TakeStatistic
) -> npt.NDArray[Any] | None:
    """Return a statistic of values masked by `where`, computed next to the data.

    None if that is not possible.
    """
    first, *rest = array.steps
    if (
        not isinstance(first, Where)
        or first.to != array.array.dtype
        or first.to.kind != "f"
        or not np.isnan(first.other)
    ):
        return None
    if method == "sum" and rest == [FillNull(0, first.to)]:
        skipna = True
    elif method == "sum" and rest == [IsNull(), Not()]:
        method, skipna = "count", True
    elif rest:
        return None
    if not skipna or method not in EMPTY_RESULTS:
        return None
    bare = without_steps(array)
    condition = first.condition
    varies = [axis for axis in range(array.ndim) if condition.strides[axis] and condition.shape[axis] > 1]
    shown = condition[tuple(slice(None) if axis in varies else slice(0, 1) for axis in range(array.ndim))]
    if not set(varies) & set(axes):
        found = take(bare, method, ReductionRules(True, rules.ddof))
        return np.where(shown, found, np.asarray(EMPTY_RESULTS[method]).astype(found.dtype))
    if set(varies) - set(axes) or method not in ("sum", "mean", "count"):
        return None
    weights: Weights = {tuple(varies): shown.reshape([array.shape[axis] for axis in varies]).astype(np.float64)}
    asked = ["sum_of_weights"] if method == "count" else ["sum", "mean", "sum_of_weights"]
    query = ReductionQuery.of(asked, axes, skipna=True)
    taken = weigh_array(array.array, weights, query, array.access.read_context, array.access.active)
    some = np.isfinite(taken["sum_of_weights"])
    kept = tuple(1 if axis in axes else length for axis, length in enumerate(array.shape))
    if method == "count":
        return np.where(some, taken["sum_of_weights"], 0).astype(np.int64).reshape(kept)
    if not np.isfinite(taken["sum"][some]).all():
        return None  # an infinity that the mask hides is not hidden by a weight of 0
    return np.asarray(taken[method].reshape(kept), first.to)
