"""`numpy.einsum` of virtual arrays: with weights in memory a weighted statistic, else box by box.

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
from insitu.expressions.boxes import iterate_boxes
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
from insitu.reducing.expression_values import reduction_memory
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
) -> npt.NDArray[Any]:
    """Return `einsum` of a virtual array and weights, as a weighted sum or the sum of a product.

    Parameters
    ----------
    array, mine
        The array and the label of each of its axes.
    weights, labels
        The same of the weights.
    result_labels
        The labels of the result.
    """
    reduced = [label for label in own_labels if label not in result_labels]
    axes = [own_labels.index(label) for label in reduced]
    about = hashlib.sha256(np.ascontiguousarray(weights).tobytes()).digest()
    stored, pattern = _find_pattern(array)
    key = (stored and _identity(stored), own_labels, labels, result_labels, np.asarray(weights).dtype.str, about)
    factor: Weights = {tuple(own_labels.index(label) for label in labels): np.asarray(weights)}

    def ask(methods: list[str], skipna: bool) -> dict[str, npt.NDArray[Any]]:
        assert stored is not None
        known = values_of_used_array(LazyArray(stored))
        query = ReductionQuery.of(methods, axes, skipna=skipna)
        return answer_folding(stored, lambda values: WeightedFolding(values, query, factor), known)

    is_weighted = bool(labels) and set(labels) <= set(reduced) and not np.isnan(weights).any()
    if not is_weighted or stored is None:
        found = _sum_products(array, own_labels, weights, labels, axes)
    elif pattern == "filled":
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
    turned: npt.NDArray[Any] = found.transpose([rest.index(label) for label in result_labels])
    with np.errstate(over="ignore"):
        return turned.astype(np.result_type(array.dtype, weights), copy=False)


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


def _is_sum_of_products(
    array: LazyArray, own_labels: str, weights: npt.NDArray[Any], labels: str, result_labels: str
) -> bool:
    """Return whether `einsum` is a sum along dimensions of an array, times weights."""
    if (
        not array.size
        or array.dtype.kind not in "biuf"
        or weights.dtype.kind not in "biuf"
        or len(set(labels)) < len(labels)
        or len(set(own_labels)) < len(own_labels)
        or set(result_labels) - set(own_labels) - set(labels)
    ):
        return False
    lengths = dict(zip(own_labels, array.shape, strict=True))
    return all(lengths.get(label, length) == length for label, length in zip(labels, weights.shape, strict=True))


def _with_labels(array: LazyArray, own_labels: str, labels: str) -> tuple[LazyArray, str]:
    """Return an array with dimensions of length 1 for labels that it does not have."""
    new = "".join(label for label in labels if label not in own_labels)
    for _ in new:
        array = array.expand_dims(array.ndim)
    return array, own_labels + new


def _without_foreign_labels(weights: npt.NDArray[Any], labels: str, known: str) -> tuple[npt.NDArray[Any], str]:
    """Return weights summed along what neither the array nor the result has."""
    foreign = tuple(axis for axis, label in enumerate(labels) if label not in known)
    return weights.sum(axis=foreign), "".join(label for label in labels if label in known)


def _sum_products(
    array: LazyArray, own_labels: str, weights: npt.NDArray[Any], labels: str, axes: Sequence[int]
) -> npt.NDArray[Any]:
    """Return a sum of products as the reduction of an expression."""
    order = [labels.index(label) for label in own_labels if label in labels]
    aligned = weights.transpose(order).reshape(
        [weights.shape[labels.index(label)] if label in labels else 1 for label in own_labels]
    )
    dtype = np.result_type(array.dtype, weights)
    wide = np.result_type(dtype, np.float64) if dtype.kind == "f" else dtype
    with np.errstate(invalid="ignore", over="ignore"):
        product = array.astype(wide) * aligned
    return reduce_lazy_array(product, ReductionQuery.of("sum", tuple(axes), skipna=False))["sum"]


def _find_weights(
    array: LazyArray, own_labels: str, labels: Sequence[str], result_labels: str, operands: Sequence[Any]
) -> tuple[npt.NDArray[Any], str] | None:
    """Return the one array in memory that an array is multiplied with, and its labels; None if the product is no sum
    of products with weights.
    """
    others = [number for number, operand in enumerate(operands) if operand is not array]
    if len(operands) != 2 or len(others) != 1 or isinstance(operands[others[0]], LazyArray):
        return None
    weights, names = _without_foreign_labels(
        np.asarray(operands[others[0]]), labels[others[0]], own_labels + result_labels
    )
    return (weights, names) if _is_sum_of_products(array, own_labels, weights, names, result_labels) else None


@implements(np.einsum)
def einsum(subscripts: Any, *operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    """Return `numpy.einsum` with virtual arrays among the operands, in boxes of the largest.

    NotImplemented if that cannot be done in pieces.
    """
    if isinstance(subscripts, LazyArray):
        report_not_on_server(subscripts, "einsum")
    if out is not None or kwargs or not isinstance(subscripts, str):
        return NotImplemented
    if any(
        hasattr(o, "__array_function__") and not isinstance(o, (LazyArray, np.ndarray, np.generic)) for o in operands
    ):
        return NotImplemented  # a Dask array, for one
    operands = tuple(o if isinstance(o, LazyArray) else np.asarray(o) for o in operands)
    lazy = [number for number, operand in enumerate(operands) if isinstance(operand, LazyArray)]
    dtype = np.result_type(*(operand.dtype for operand in operands))
    if not lazy or dtype.kind not in "iufc" or "->" not in subscripts:
        return NotImplemented
    labels, result_labels = _expand_ellipsis(subscripts, operands)
    largest = max(lazy, key=lambda number: operands[number].nbytes)
    array, own_labels = operands[largest], labels[largest]
    if not set(own_labels) <= set(result_labels):  # else nothing of it is reduced
        found = _find_weights(array, own_labels, labels, result_labels, operands)
        if found is not None and found[0].nbytes <= CONSTANT_BYTES:
            weights, names = found
            return _weigh(*_with_labels(array, own_labels, names), weights, names, result_labels)
        report_not_on_server(array, f"this product (einsum of {subscripts})")
    if len(set(own_labels)) < len(own_labels) or not array.size:
        return NotImplemented
    lengths: dict[str, int] = {}
    for operand, names in zip(operands, labels, strict=True):
        for name, length in zip(names, operand.shape, strict=True):
            lengths[name] = max(lengths.get(name, 1), length)
    # In float64, as all sums; and in boxes that no option changes, so that the bits are the same every time.
    out = np.zeros(
        [lengths[name] for name in result_labels], np.result_type(dtype, np.float64) if dtype.kind in "fc" else dtype
    )
    plain = f"{','.join(labels)}->{result_labels}"
    known = [values_of_used_array(operand) if number in lazy else None for number, operand in enumerate(operands)]
    sources = [operand if values is None else values for operand, values in zip(operands, known, strict=True)]
    for box in iterate_boxes(array.node, reduction_memory()):
        where = {name: part for name, part, n in zip(own_labels, box, array.shape, strict=True) if n > 1}
        parts = [
            source[box] if number == largest else _select_box(source, labels[number], where)
            for number, source in enumerate(sources)
        ]
        values = [part.read(once=True) if isinstance(part, LazyArray) else np.asarray(part) for part in parts]
        values = [np.require(part, None, ("C", "A")) for part in values]
        with np.errstate(invalid="ignore", over="ignore"):
            out[tuple(where.get(name, slice(None)) for name in result_labels)] += np.einsum(
                plain, *values, dtype=out.dtype
            )
    with np.errstate(over="ignore"):
        return out.astype(dtype, copy=False)


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


def _select_box(values: Any, names: str, where: dict[str, slice]) -> Any:
    """Return the part of another operand that belongs to a box; a length of 1 is broadcast."""
    return values[
        tuple(
            where.get(name, slice(None)) if n > 1 else slice(None) for name, n in zip(names, values.shape, strict=True)
        )
    ]
