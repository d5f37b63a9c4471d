"""Reductions of null tests, rewritten as reductions of the stored array: the number of missing values is the size less
the count.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from insitu.expressions.element_operations import find_null_tested, find_operand
from insitu.expressions.nodes import Expression, is_stored
from insitu.lazy_array.duck_array import LazyArray
from insitu.reducing.reductions import ReductionRules

__all__ = ["find_tested", "reduce_null_test"]

TakeStatistic = Callable[[LazyArray, str, ReductionRules], npt.NDArray[Any]]
"""Takes a statistic of an array, with its reduced axes in place."""


def find_tested(expression: Expression) -> tuple[Expression | None, bool]:
    """Return the expression of which is told which values are missing or, negated, which are there; and whether it is
    negated.
    """
    negated = find_operand(expression, "logical_not", "invert")
    return (find_null_tested(expression), False) if negated is None else (find_null_tested(negated), True)


def reduce_null_test(
    array: LazyArray, method: str, axes: tuple[int, ...], take: TakeStatistic
) -> npt.NDArray[Any] | None:
    """Return a statistic of `isnan(a)` or `~isnan(a)` of a stored array; None if it is not one of those."""
    tested, counting = find_tested(array.node)
    if tested is None or not is_stored(tested) or tested.dtype.kind not in "fcmM":
        return None
    size = math.prod(array.shape[axis] for axis in axes)
    count = take(LazyArray(tested), "count", ReductionRules(True))
    many = count if counting else size - count
    if method == "mean":
        return many / size
    return {"sum": many, "any": many > 0, "all": many == size}.get(method)
