"""`numpy.einsum` of a virtual array and weights: on a server next to the data, or box by box.

xarray's `weighted(...).mean()` asks for two products, one of the values and one of the mask of
missing values. The server computes both at once, and the second waits here until xarray asks for
it.
"""

from __future__ import annotations

import hashlib
import string
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.active.reduce_array import weigh_array
from insitu.lazy_array.box_iteration import iterate_boxes
from insitu.lazy_array.dispatch import implements
from insitu.lazy_array.duck_array import LazyArray
from insitu.lazy_array.numpy_reductions import report_not_on_server
from insitu.lazy_array.options import options
from insitu.lazy_array.steps import FillNull, IsNull, Not
from insitu.lru import LruCache
from insitu.model import VirtualArray
from insitu.reducing.query import ReductionQuery
from insitu.reducing.weighted_and_grouped import Weights

__all__ = ["einsum"]

MAX_ANSWERS, ANSWER_SECONDS = 4, 60.0
"""How many answers are kept for the question that follows, and for how long."""


_answers: LruCache[Any, tuple[float, VirtualArray, npt.NDArray[Any]]] = LruCache(MAX_ANSWERS)
"""Sums of weights that the server sent along, until xarray asks for them: the time, the array (kept
so that no other takes its identity), the sums.
"""


def _take_answer(key: Any) -> npt.NDArray[Any] | None:
    """Return an answer and forget it; None if there is none, or it is too old."""
    found = _answers.pop(key)
    return None if found is None or time.monotonic() - found[0] > ANSWER_SECONDS else found[2]


def einsum_on_server(
    array: LazyArray, mine: str, weights: npt.NDArray[Any], labels: str, kept: str
) -> npt.NDArray[Any] | None:
    """Return `einsum` of a virtual array and weights, computed next to the data.

    None if that is not possible.

    Parameters
    ----------
    array, mine
        The array and the label of each of its axes.
    weights, labels
        The same of the weights.
    kept
        The labels of the result.
    """
    active, stored = array.access.active, array.array.dtype
    gone = [label for label in mine if label not in kept]
    if (
        active is None
        or not array.size
        or stored.kind not in "biuf"
        or not labels
        or np.asarray(weights).dtype.kind not in "biuf"
        or len(set(labels)) < len(labels)
        or set(labels) - set(gone)
        or set(kept) - set(mine)
    ):
        return None
    lengths = dict(zip(mine, array.shape, strict=True))
    if tuple(lengths[label] for label in labels) != np.shape(weights) or np.isnan(weights).any():
        return None
    axes = [mine.index(label) for label in gone]
    about = hashlib.sha256(np.ascontiguousarray(weights).tobytes()).digest()
    key = (id(array.array), active, mine, labels, kept, np.asarray(weights).dtype.str, about)
    factor: Weights = {tuple(mine.index(label) for label in labels): np.asarray(weights)}

    def ask(methods: list[str], skipna: bool) -> dict[str, npt.NDArray[Any]]:
        query = ReductionQuery.of(methods, axes, skipna=skipna)
        return weigh_array(array.array, factor, query, array.access.read_context, active)

    if array.steps == (FillNull(0, stored),):
        both = ask(["sum", "sum_of_weights"], True)
        _answers.put(key, (time.monotonic(), array.array, both["sum_of_weights"]))
        found = both["sum"]
    elif array.steps == (IsNull(), Not()):
        waiting = _take_answer(key)
        found = ask(["sum_of_weights"], True)["sum_of_weights"] if waiting is None else waiting
        found = np.where(np.isnan(found), 0, found)  # xarray makes NaN of 0
    elif not array.steps:
        found = ask(["sum"], False)["sum"]
    else:
        return None
    rest = [label for label in mine if label in kept]
    turned: npt.NDArray[Any] = found.transpose([rest.index(label) for label in kept])
    return turned.astype(np.result_type(array.dtype, weights), copy=False)


@implements(np.einsum)
def einsum(subscripts: Any, *operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    """Return `numpy.einsum` with one virtual array among the operands.

    NotImplemented if that cannot be done in pieces.
    """
    if isinstance(subscripts, LazyArray):
        report_not_on_server(subscripts, "einsum")
    if out is not None or kwargs or not isinstance(subscripts, str):
        return NotImplemented
    lazy = [number for number, operand in enumerate(operands) if isinstance(operand, LazyArray)]
    dtype = np.result_type(*(operand.dtype for operand in operands))
    if len(lazy) != 1 or dtype.kind not in "iufc" or "->" not in subscripts:
        return NotImplemented
    labels, kept = _expand_ellipsis(subscripts, operands)
    array, mine = operands[lazy[0]], labels[lazy[0]]
    if len(operands) == 2:
        other = 1 - lazy[0]
        found = einsum_on_server(array, mine, np.asarray(operands[other]), labels[other], kept)
        if found is not None:
            return found
    if len(set(mine)) < len(mine) or array.nbytes <= options.block_bytes:
        return NotImplemented
    lengths: dict[str, int] = {}
    for operand, names in zip(operands, labels, strict=True):
        for name, length in zip(names, operand.shape, strict=True):
            lengths[name] = max(lengths.get(name, 1), length)
    # In float64, as sums of many boxes lose digits.
    out = np.zeros([lengths[name] for name in kept], np.result_type(dtype, np.float64) if dtype.kind in "fc" else dtype)
    plain = f"{','.join(labels)}->{kept}"
    for box in iterate_boxes(array):
        where = {name: part for name, part in zip(mine, box, strict=True) if lengths[name] > 1}
        values = [
            array[box].read(once=True) if number == lazy[0] else _select_box(np.asarray(operand), labels[number], where)
            for number, operand in enumerate(operands)
        ]
        out[tuple(where.get(name, slice(None)) for name in kept)] += np.einsum(plain, *values, dtype=out.dtype)
    return out.astype(dtype, copy=False)


def _expand_ellipsis(subscripts: str, operands: Sequence[Any]) -> tuple[list[str], str]:
    """Return the labels of each operand and of the result, with letters in place of an ellipsis."""
    given, kept = subscripts.replace(" ", "").split("->")
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
    return labels, kept.replace("...", spread[len(spread) - widest :])


def _select_box(values: npt.NDArray[Any], names: str, where: dict[str, slice]) -> npt.NDArray[Any]:
    """Return the part of another operand that belongs to a box; a length of 1 is broadcast."""
    return values[
        tuple(
            where.get(name, slice(None)) if n > 1 else slice(None) for name, n in zip(names, values.shape, strict=True)
        )
    ]
