"""`numpy.einsum` of virtual arrays: a weighted statistic, the sum of a formula, or what NumPy makes of boxes.

xarray's `weighted(...).mean()` asks for two products, one of the values and one of the mask of
missing values. Both are computed in one pass, and the second waits until xarray asks for it.
"""

from __future__ import annotations

import hashlib
import string
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.active.answer import answer_folding
from insitu.expressions.element_operations import CONSTANT_BYTES, find_filled
from insitu.expressions.nodes import Expression, Stored, is_stored, without_moves
from insitu.lazy_array.dispatch import implements
from insitu.lazy_array.duck_array import LazyArray
from insitu.lazy_array.numpy_reductions import (
    find_tested,
    reduce_lazy_array,
    report_not_on_server,
    values_of_used_array,
)
from insitu.lru import LruCache
from insitu.reducing.contraction import contract
from insitu.reducing.query import ReductionQuery
from insitu.reducing.weighted_statistics import WeightedFolding, Weights

__all__ = ["einsum"]

MAX_ANSWERS, ANSWER_SECONDS = 4, 60.0
"""How many answers are kept for the question that follows, and for how long."""


_answers: LruCache[Any, tuple[float, Expression, npt.NDArray[Any]]] = LruCache(MAX_ANSWERS)
"""Sums of weights that were computed along, until xarray asks for them: the time, the array (kept
so that no other takes its identity), the sums.
"""


def _take_answer(key: Any) -> npt.NDArray[Any] | None:
    """Return an answer and forget it; None if there is none, or it is too old."""
    found = _answers.pop(key)
    return None if found is None or time.monotonic() - found[0] > ANSWER_SECONDS else found[2]


def _weigh(
    array: LazyArray, own_labels: str, weights: npt.NDArray[Any], labels: str, result_labels: str
) -> npt.NDArray[Any] | None:
    """Return `einsum` of a virtual array and weights as a weighted sum; None if it is none.

    Parameters
    ----------
    array, own_labels
        The array and the label of each of its axes.
    weights, labels
        The same of the weights.
    result_labels
        The labels of the result.
    """
    stored, pattern = _find_pattern(array)
    reduced = [label for label in own_labels if label not in result_labels]
    if stored is None or not labels or not set(labels) <= set(reduced) or len(set(labels)) < len(labels):
        return None
    if np.result_type(array.dtype, weights).kind != "f" or np.isnan(weights).any():
        return None
    axes = [own_labels.index(label) for label in reduced]
    if weights.shape != tuple(array.shape[own_labels.index(label)] for label in labels):
        return None  # broadcast
    about = hashlib.sha256(np.ascontiguousarray(weights).tobytes()).digest()
    key = _identity(stored), own_labels, labels, result_labels, weights.dtype.str, about
    factor: Weights = {tuple(own_labels.index(label) for label in labels): weights}

    def ask(methods: list[str], skipna: bool) -> dict[str, npt.NDArray[Any]]:
        known = values_of_used_array(LazyArray(stored))
        query = ReductionQuery.of(methods, axes, skipna=skipna)
        return answer_folding(stored, lambda values: WeightedFolding(values, query, factor), known)

    if pattern == "filled":
        both = ask(["sum", "sum_of_weights"], True)
        _answers.put(key, (time.monotonic(), stored, both["sum_of_weights"]))
        found = both["sum"]
    elif pattern == "present":
        waiting = _take_answer(key)
        found = ask(["sum_of_weights"], True)["sum_of_weights"] if waiting is None else waiting
        found = np.where(np.isnan(found), 0, found)  # xarray makes NaN of 0
    else:
        found = ask(["sum"], False)["sum"]
    rest = [label for label in own_labels if label in result_labels]
    return found.transpose([rest.index(label) for label in result_labels])


def _identity(expression: Expression) -> Any:
    stored = without_moves(expression)
    assert isinstance(stored, Stored)
    return stored.identity


def _find_pattern(array: LazyArray) -> tuple[Expression | None, str]:
    """Return the stored array that an array is ("itself"), or is with 0 in place of missing values ("filled"), or tells
    which values of it are there ("present"); None if it is something else.
    """
    filled, (tested, is_negated) = find_filled(array.node), find_tested(array.node)
    if is_stored(array.node):
        found, pattern = array.node, "itself"
    elif filled is not None and filled[0].dtype == array.dtype and filled[1] == 0:
        found, pattern = filled[0], "filled"
    elif tested is not None and is_negated:
        found, pattern = tested, "present"
    else:
        return None, ""
    # With its moves, by which it finds values that were kept of what it was selected from.
    return (found, pattern) if is_stored(found) and found.dtype.kind in "biuf" else (None, "")


def _find_weights(
    array: LazyArray,
    operands: Sequence[Any],
    labels: Sequence[str],
    known: str,
    wide: np.dtype[Any],
) -> tuple[npt.NDArray[Any], str] | None:
    """Return the one array in memory that an array is multiplied with, summed along what neither the array nor the
    result has, and its labels; None if there is none.
    """
    others = [number for number, operand in enumerate(operands) if operand is not array]
    if len(operands) != 2 or len(others) != 1 or isinstance(operands[others[0]], LazyArray):
        return None
    weights, names = operands[others[0]], labels[others[0]]
    foreign = tuple(axis for axis, label in enumerate(names) if label not in known)
    weights = weights.sum(axis=foreign, dtype=wide) if foreign else weights
    return weights, "".join(label for label in names if label in known)


def _multiply(operands: Sequence[Any], labels: Sequence[str], space: str, wide: np.dtype[Any]) -> LazyArray | None:
    """Return the product of some operands as a formula; None if that is not possible.

    Parameters
    ----------
    operands, labels
        Virtual arrays and arrays in memory, and the label of each of their axes.
    space
        The labels of the axes of the product.
    wide
        Its type.
    """
    product: Any = None
    for operand, names in zip(operands, labels, strict=True):
        is_large = not isinstance(operand, LazyArray) and operand.nbytes > CONSTANT_BYTES
        if is_large or len(set(names)) < len(names) or not set(names) <= set(space):
            return None
        lengths = [operand.shape[names.index(label)] if label in names else 1 for label in space]
        factor = operand.transpose([names.index(label) for label in space if label in names]).reshape(lengths)
        with np.errstate(invalid="ignore", over="ignore"):
            product = factor.astype(wide) if product is None else product * factor
    return product if isinstance(product, LazyArray) else None


@implements(np.einsum)
def einsum(subscripts: Any, *operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    """Return `numpy.einsum` with virtual arrays among the operands; NotImplemented if that cannot be done in pieces."""
    if isinstance(subscripts, LazyArray):
        report_not_on_server(subscripts, "einsum")
    if out is not None or kwargs or not isinstance(subscripts, str):
        return NotImplemented
    if any(
        hasattr(o, "__array_function__") and not isinstance(o, (LazyArray, np.ndarray, np.generic)) for o in operands
    ):
        return NotImplemented  # a Dask array, for one
    operands = tuple(o if isinstance(o, LazyArray) else np.asarray(o) for o in operands)
    lazy = [operand for operand in operands if isinstance(operand, LazyArray)]
    dtype = np.result_type(*(operand.dtype for operand in operands))
    if not lazy or dtype.kind not in "iufc" or "->" not in subscripts:
        return NotImplemented
    labels, result_labels = _expand_ellipsis(subscripts, operands)
    largest = max(range(len(operands)), key=lambda n: (isinstance(operands[n], LazyArray), operands[n].nbytes))
    array, own_labels = operands[largest], labels[largest]
    if any(len(names) != operand.ndim for names, operand in zip(labels, operands, strict=True)):
        return NotImplemented
    if not array.size or len(set(own_labels)) < len(own_labels):
        return NotImplemented
    wide = np.result_type(dtype, np.float64) if dtype.kind in "fc" else dtype  # as all sums
    found, space = None, own_labels
    weighed = _find_weights(array, operands, labels, own_labels + result_labels, wide)
    if weighed is not None:
        weights, names = weighed
        operands, labels, largest = (array, weights), [own_labels, names], 0
        space += "".join(label for label in names if label not in own_labels)
        found = _weigh(array, own_labels, weights, names, result_labels)
    if found is None:
        found = _sum_product(_multiply(operands, labels, space, wide), space, result_labels)
    if found is None:
        report_not_on_server(array, f"this product (einsum of {subscripts})")
        nodes = [operand.node if isinstance(operand, LazyArray) else operand for operand in operands]
        known = [values_of_used_array(operand) if isinstance(operand, LazyArray) else None for operand in operands]
        found = contract(nodes, known, labels, result_labels, largest, wide)
    with np.errstate(over="ignore"):
        return found.astype(dtype, copy=False)


def _sum_product(product: LazyArray | None, space: str, result_labels: str) -> Any:
    """Return the sum of a product along what the result does not have; None of none."""
    axes = tuple(axis for axis, label in enumerate(space) if label not in result_labels)
    if product is not None and axes:
        found: Any = reduce_lazy_array(product, ReductionQuery.of("sum", axes, skipna=False))["sum"]
    else:
        found = product
    rest = [label for label in space if label in result_labels]
    return None if found is None else found.transpose([rest.index(label) for label in result_labels])


def _expand_ellipsis(subscripts: str, operands: Sequence[Any]) -> tuple[list[str], str]:
    """Return the labels of each operand and of the result, with letters in place of an ellipsis."""
    given, result_labels = subscripts.replace(" ", "").split("->")
    free = [letter for letter in string.ascii_letters if letter not in subscripts]
    spread = "".join(free[: max((operand.ndim for operand in operands), default=0)])
    labels = []
    widest = 0
    for names, operand in zip(given.split(","), operands, strict=True):
        if "..." in names:
            extra = operand.ndim - len(names.replace("...", ""))
            widest = max(widest, extra)
            names = names.replace("...", spread[len(spread) - extra :])
        labels.append(names)
    return labels, result_labels.replace("...", spread[len(spread) - widest :])
