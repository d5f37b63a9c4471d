"""How are weighted and grouped statistics taken in one pass over the chunks?

An axis with weights or labels is kept while chunks are folded, so that one partial is left for each of its elements; those are then
contracted: with the weights, or into their groups. What is kept never grows beyond `SLAB_BYTES`, because the pass goes slab by slab along
that axis. The same code runs here and next to the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import ModelError, UnsupportedError
from insitu.model import Selection, VirtualArray
from insitu.model.selection import Stride
from insitu.reading import Opened, Tally
from insitu.reducing.partial import Partial
from insitu.reducing.reduce import normalised
from insitu.reducing.reductions import METHODS, Reduction, Rules
from insitu.reducing.stream import fold

__all__ = ["WEIGHTED", "Groups", "grouped", "weighted"]

SLAB_BYTES = 64 << 20
"""Of partials that are held before they are contracted."""
WEIGHTED = ("sum", "mean", "var", "std", "sum_of_weights", "count")
"""Statistics that weights are known for."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Which group each element along an axis belongs to."""

    axis: int
    """Of the selection's shape."""
    codes: npt.NDArray[np.int64]
    """The number of the group; -1: none."""
    count: int

    def __post_init__(self) -> None:
        if self.codes.ndim != 1 or (len(self.codes) and (self.codes.max() >= self.count or self.codes.min() < -1)):
            raise ModelError(f"labels of {self.count} groups are numbers from -1 to {self.count - 1}")


def grouped(
    array: VirtualArray,
    methods: Sequence[str],
    groups: Groups,
    opened: Opened,
    *,
    axes: Sequence[int] | None = None,
    selection: Any = ...,
    rules: Rules | None = None,
    name: str | None = None,
    tally: Tally | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Statistics of each group: the grouped axis stays, with one element for each group.

    Parameters
    ----------
    array, methods, selection, rules, opened, name, tally
        As for `insitu.reducing.statistics`; `argmin` and `argmax` have no positions in groups.
    groups
        The groups along one axis.
    axes
        Which axes go beside the grouped one; that one alone if not given.
    """
    chosen = Selection.of(selection, array.shape)
    shape = chosen.result_shape
    along = normalised([groups.axis] if axes is None else [*axes], len(shape))
    others = tuple(axis for axis in along if axis != groups.axis)
    if any(method not in METHODS or method.startswith("arg") for method in methods):
        raise UnsupportedError(
            f"groups have no {', '.join(m for m in methods if m not in METHODS or m.startswith('arg'))}"
        )
    if len(groups.codes) != shape[groups.axis]:
        raise ModelError(f"{len(groups.codes)} labels for an axis of length {shape[groups.axis]}")
    reduction = Reduction(tuple(methods), array.dtype, rules or Rules())
    kept = [1 if axis in others else length for axis, length in enumerate(shape)]
    kept[groups.axis] = groups.count
    total = reduction.nothing(kept)
    for begin, end, partial in _slabs(array, chosen, groups.axis, others, reduction, opened, name, tally):
        codes = groups.codes[begin:end]
        for code in np.unique(codes[codes >= 0]).tolist():
            at = np.flatnonzero(codes == code)
            rows = {field: np.moveaxis(found, groups.axis, 0)[at] for field, found in partial.items()}
            where = (slice(None),) * groups.axis + (code,)
            before = {field: found[where] for field, found in total.items()}
            for field, merged in reduction.merge(before, reduction.collapsed(rows)).items():
                total[field][where] = merged
    other = math.prod(shape[axis] for axis in others)
    sizes = np.bincount(groups.codes[groups.codes >= 0], minlength=groups.count)
    found: dict[str, list[npt.NDArray[Any]]] = {method: [] for method in methods}
    for code in range(groups.count):
        where = (slice(None),) * groups.axis + (slice(code, code + 1),)
        part = {field: values[where] for field, values in total.items()}
        for method, values in reduction.finalise(part, other * max(int(sizes[code]), 1)).items():
            found[method].append(values)
    joined = {method: np.concatenate(parts, axis=groups.axis) for method, parts in found.items()}
    return {method: values.squeeze(others) if others else values for method, values in joined.items()}


def weighted(
    array: VirtualArray,
    methods: Sequence[str],
    weights: Mapping[int, npt.NDArray[Any]],
    opened: Opened,
    *,
    axes: Sequence[int] | None = None,
    selection: Any = ...,
    rules: Rules | None = None,
    keepdims: bool = False,
    name: str | None = None,
    tally: Tally | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Statistics of values that count as much as their weights say; the weight of a value is the product of those along the axes.

    Parameters
    ----------
    array, selection, rules, opened, name, tally
        As for `insitu.reducing.statistics`.
    methods
        `sum`, `mean`, `var`, `std` (all in float64), `sum_of_weights`, `count`. As xarray's `weighted` has them: NaN is left out, and where
        the weights of what is left add up to 0 there is no answer.
    weights
        For some of the axes that are reduced, one number for each element.
    axes, keepdims
        As for `insitu.reducing.statistics`.
    """
    chosen = Selection.of(selection, array.shape)
    shape = chosen.result_shape
    along = normalised(axes, len(shape))
    bad = [method for method in methods if method not in WEIGHTED]
    if bad or array.dtype.kind not in "biuf":
        raise UnsupportedError(f"there is no weighted {', '.join(bad) or 'statistic'} of values of {array.dtype}")
    factors: dict[int, npt.NDArray[np.float64]] = {}
    for axis, numbers in weights.items():
        at = normalised([axis], len(shape))[0]
        if at not in along or np.shape(numbers) != (shape[at],):
            raise ModelError(f"weights along axis {axis} need {shape[at]} numbers, and the axis has to be reduced")
        factors[at] = np.asarray(numbers, np.float64)
        if np.isnan(factors[at]).any():
            raise ModelError("weights cannot contain missing values")
    inner = tuple(axis for axis in along if axis not in factors)
    reduction = Reduction(("var",), array.dtype, replace(rules or Rules(), ddof=0))
    state: tuple[Any, Any, Any, Any] | None = None
    lead = min(factors) if factors else along[0]
    for begin, end, partial in _slabs(array, chosen, lead, inner, reduction, opened, name, tally):
        part = _contracted(partial, factors, along, lead, begin, end, len(shape))
        state = part if state is None else _joined(state, part)
    if state is None:
        raise ModelError("there are no values to weigh")
    found = {method: _weighted(method, state) for method in methods}
    return found if keepdims else {method: values.squeeze(along) for method, values in found.items()}


def _contracted(
    partial: Partial,
    factors: Mapping[int, npt.NDArray[np.float64]],
    along: Sequence[int],
    lead: int,
    begin: int,
    end: int,
    ndim: int,
) -> tuple[Any, Any, Any, Any]:
    """(weights, weighted sum, weighted squares about their mean, count) of a slab."""
    weight: Any = np.float64(1)
    for axis, numbers in factors.items():
        part = numbers[begin:end] if axis == lead else numbers
        weight = weight * part.reshape([-1 if i == axis else 1 for i in range(ndim)])
    axes = tuple(along)
    count, total = np.asarray(partial["count"], np.float64), np.asarray(partial["total"], np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = np.sum(weight * count, axis=axes, keepdims=True)
        sums = np.sum(weight * total, axis=axes, keepdims=True)
        mean = np.where(weights != 0, sums / weights, 0)
        between = np.where(count > 0, count * (total / np.maximum(count, 1) - mean) ** 2, 0)
        squares = np.sum(weight * (partial["squares"] + between), axis=axes, keepdims=True)
    return weights, sums, squares, np.sum(count, axis=axes, keepdims=True)


def _joined(one: tuple[Any, Any, Any, Any], other: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
    w, v = one[0], other[0]
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.where((w != 0) & (v != 0), (other[1] / v - one[1] / w) ** 2 * (w / (w + v) * v), 0)
    return w + v, one[1] + other[1], one[2] + other[2] + apart, one[3] + other[3]


def _weighted(method: str, state: tuple[Any, Any, Any, Any]) -> npt.NDArray[Any]:
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


def _slabs(
    array: VirtualArray,
    selection: Selection,
    axis: int,
    inner: tuple[int, ...],
    reduction: Reduction,
    opened: Opened,
    name: str | None,
    tally: Tally | None,
) -> Iterator[tuple[int, int, Partial]]:
    """Partials of slabs along an axis of the selection's shape: (begin, end, partial)."""
    shape = selection.result_shape
    row = (
        math.prod(1 if i in inner or i == axis else length for i, length in enumerate(shape))
        * 8
        * len(reduction.fields)
    )
    step = max(SLAB_BYTES // max(row, 1), 1)
    number = [i for i, s in enumerate(selection.selectors) if not isinstance(s, int)][axis]
    step = _rounded(step, array, number)
    for begin in range(0, shape[axis], step):
        end = min(begin + step, shape[axis])
        chosen = selection.selectors[number]
        if isinstance(chosen, Stride):
            part: Any = Stride(chosen.start + chosen.step * begin, chosen.step, end - begin)
        else:
            assert isinstance(chosen, np.ndarray)
            part = chosen[begin:end]
        selectors = (*selection.selectors[:number], part, *selection.selectors[number + 1 :])
        yield begin, end, fold(array, Selection(selection.shape, selectors), inner, reduction, opened, name=name, tally=tally)  # fmt: skip


def _rounded(step: int, array: VirtualArray, dimension: int) -> int:
    """A step that is a multiple of the chunk's length where it can be, so that chunks are decoded once."""
    cut = array.tiles[0].axis_of(dimension) if array.tiles else None
    if cut is None or not cut.is_regular or cut.size > step:
        return step
    return step // cut.size * cut.size
