"""Weighted and grouped statistics in one pass over the chunks, on this machine or within a server.

An axis with weights or labels is kept while chunks are reduced, so that each of its elements has
its own partial. These are then contracted with the weights, or merged into their groups. The array
is processed in boxes that end at chunk borders, so that the partials take about `BOX_BYTES` at
most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce as fold_left
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline
from insitu.errors import ModelError, UnsupportedError
from insitu.model import Selection, VirtualArray
from insitu.model.gaps import fill_gaps_with_absent
from insitu.reading import ReadContext
from insitu.reducing.engines import run_portions
from insitu.reducing.fold_portions import state_bytes
from insitu.reducing.foldable_values import Box, Foldable, StoredValues
from insitu.reducing.group_rows import GroupPartials, collapse_rows, merge_groups, reduce_rows
from insitu.reducing.partial_fields import Partial
from insitu.reducing.portions import STATE_BYTES, Region, cut_portions
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reduce import normalise_axes
from insitu.reducing.reductions import METHODS, Reduction
from insitu.reducing.whole_blocks import block_shape, box_slices

__all__ = [
    "WEIGHTED_FIELDS",
    "WEIGHTED_METHODS",
    "Groups",
    "Weights",
    "finalise_groups",
    "finalise_weights",
    "fold_groups",
    "fold_weights",
    "group_values",
    "grouped_statistics",
    "merge_weights",
    "weigh_values",
    "weighted_statistics",
]

BOX_BYTES = 64 << 20
"""Bytes of partials, or of values, that are held before they are contracted."""
MANY_VALUES = 16
"""So many values of each row, and more, are reduced chunk by chunk before the rows are grouped."""
STATES = 4
"""The partials of the groups of a portion take so many times `STATE_BYTES`, at most."""
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


@dataclass(frozen=True, slots=True)
class Groups:
    """The group of each element along an axis."""

    axis: int
    """Axis of the selection's shape."""
    codes: npt.NDArray[np.int64]
    """Number of the group of each element; -1: none."""
    count: int

    def __post_init__(self) -> None:
        if self.codes.ndim != 1 or (len(self.codes) and (self.codes.max() >= self.count or self.codes.min() < -1)):
            raise ModelError(f"labels of {self.count} groups must be a list of numbers from -1 to {self.count - 1}")


def grouped_statistics(
    array: VirtualArray, groups: Groups, query: ReductionQuery, context: ReadContext | None = None
) -> dict[str, npt.NDArray[Any]]:
    """Return statistics of each group: the grouped axis stays, with one element per group.

    Parameters
    ----------
    array
        The array.
    groups
        The groups along one axis.
    query
        What to compute, without `argmin`, `argmax`, `median` and `quantile`. Its axes are reduced
        in addition to the grouped one; without axes, only that one.
    context
        How to read the values.
    """
    chosen = Selection.of(query.selection, array.shape)
    with (context or ReadContext()).open_sources() as opened:
        return group_values(StoredValues(fill_gaps_with_absent(array[chosen]), opened), groups, query)


def group_values(values: Foldable, groups: Groups, query: ReductionQuery) -> dict[str, npt.NDArray[Any]]:
    """Return statistics of each group of any values, as `grouped_statistics`; the selection of the
    query does not count.
    """
    return finalise_groups(fold_groups(values, groups, query), values.shape, values.dtype, groups, query)


def fold_groups(values: Foldable, groups: Groups, query: ReductionQuery) -> Partial:
    """Return the partial of each group of some values: of their shape, with one element per group
    along the axis of the groups, and one along each other axis that is reduced.
    """
    methods, shape = query.methods, values.shape
    others = _axes_beside_groups(groups, query, len(shape))
    if any(method not in METHODS or method.startswith("arg") for method in methods):
        raise UnsupportedError(
            f"cannot compute for groups: {', '.join(m for m in methods if m not in METHODS or m.startswith('arg'))}"
        )
    if groups.axis >= len(shape):
        raise ModelError(f"groups along axis {groups.axis} of an array of {len(shape)} dimensions are not possible")
    if len(groups.codes) != shape[groups.axis]:
        raise ModelError(
            f"the axis has length {shape[groups.axis]}, but there are {len(groups.codes)} labels of groups"
        )
    reduction = Reduction(methods, values.dtype, query.rules)
    kept = [1 if axis in others else length for axis, length in enumerate(shape)]
    kept[groups.axis] = groups.count
    total = reduction.nothing(kept)
    job = _GroupedJob(values, groups, others, reduction)
    for region, part in run_portions(job, job.regions(), values):
        merge_groups(total, region.place, groups.axis, part, reduction)
    return total


def finalise_groups(
    total: Partial, shape: Sequence[int], dtype: np.dtype[Any], groups: Groups, query: ReductionQuery
) -> dict[str, npt.NDArray[Any]]:
    """Return the statistics of the partial that `fold_groups` returned.

    Parameters
    ----------
    total
        The partial, of all values.
    shape, dtype
        Of the values.
    groups, query
        As for `fold_groups`.
    """
    methods, reduction = query.methods, Reduction(query.methods, dtype, query.rules)
    others = _axes_beside_groups(groups, query, len(shape))
    other = math.prod(shape[axis] for axis in others)
    sizes = np.bincount(groups.codes[groups.codes >= 0], minlength=groups.count)
    found: dict[str, list[npt.NDArray[Any]]] = {method: [] for method in methods}
    for code in range(groups.count):
        check_deadline()
        where = (slice(None),) * groups.axis + (slice(code, code + 1),)
        part = {field: numbers[where] for field, numbers in total.items()}
        for method, result in reduction.finalise(part, other * max(int(sizes[code]), 1)).items():
            found[method].append(result)
    joined = {method: np.concatenate(parts, axis=groups.axis) for method, parts in found.items()}
    return {method: result.squeeze(others) if others else result for method, result in joined.items()}


def _axes_beside_groups(groups: Groups, query: ReductionQuery, ndim: int) -> tuple[int, ...]:
    along = normalise_axes([groups.axis] if query.axes is None else query.axes, ndim)
    return tuple(axis for axis in along if axis != groups.axis)


@dataclass(frozen=True, slots=True)
class _GroupedJob:
    """Statistics of groups, in portions."""

    values: Foldable
    groups: Groups
    others: tuple[int, ...]
    """Axes that are reduced in addition to the grouped one."""
    reduction: Reduction

    @property
    def name(self) -> str:
        return f"{','.join(self.reduction.methods)} of groups({self.values.name})"

    def regions(self) -> list[Region]:
        """Return the portions. Few groups are merged on the workers; many are sent here as they are."""
        groups, number = self.groups, state_bytes(self.reduction)
        axes = tuple({*self.others, groups.axis})
        regions = cut_portions(self.values, axes, number)
        place = number * math.prod(part.stop - part.start for part in regions[0].place)
        if groups.count * place <= STATES * STATE_BYTES:
            return regions
        changes = np.count_nonzero(np.diff(groups.codes)) + 1
        longest = max(STATES * STATE_BYTES // place - 1, 1) * len(groups.codes) // changes
        regions = cut_portions(self.values, axes, number, (groups.axis, longest))
        return [Region(region.place, (box,)) for region in regions for box in region.boxes]

    def fold_portion(self, box: Box) -> GroupPartials:
        groups, reduction, axis = self.groups, self.reduction, self.groups.axis
        known = np.unique(groups.codes[box[axis]])
        known = known[known >= 0]
        lengths = [1 if a in self.others else part.stop - part.start for a, part in enumerate(box)]
        lengths[axis] = len(known)
        total = reduction.nothing(lengths)
        if not len(known):
            return known, total
        for inside, parts in _groups_by_box(self.values, groups, self.others, reduction, box):
            within = tuple(
                slice(0, 1) if a in self.others else slice(part.start - whole.start, part.stop - whole.start)
                for a, (part, whole) in enumerate(zip(inside, box, strict=True))
            )
            for codes, partial in parts:
                merge_groups(total, within, axis, (np.searchsorted(known, codes), partial), reduction)
        return known, total

    def merge(self, states: Sequence[GroupPartials]) -> GroupPartials:
        return fold_left(self._merge_two, states)

    def for_workers(self) -> Self:
        return replace(self, values=self.values.for_workers())

    def _merge_two(self, one: GroupPartials, other: GroupPartials) -> GroupPartials:
        axis = self.groups.axis
        known = np.union1d(one[0], other[0])
        lengths = list(next(iter(one[1].values())).shape)
        lengths[axis] = len(known)
        total = self.reduction.nothing(lengths)
        everywhere = (slice(None),) * len(lengths)
        for codes, partial in (one, other):
            merge_groups(total, everywhere, axis, (np.searchsorted(known, codes), partial), self.reduction)
        return known, total


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
        for inside, partial in _partials_by_box(self.values, self.inner, self.reduction, box):
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


def _groups_by_box(
    values: Foldable, groups: Groups, others: tuple[int, ...], reduction: Reduction, within: Box
) -> Iterator[tuple[Box, Iterator[GroupPartials]]]:
    """Yield the partials of the groups of each box of a portion, whose `others` axes are `slice(0, 1)`."""
    axis, shape = groups.axis, [part.stop - part.start for part in within]
    if math.prod(shape[other] for other in others) >= MANY_VALUES:
        for box, partial in _partials_by_box(values, others, reduction, within):
            yield box, collapse_rows(partial, axis, groups.codes[box[axis]], reduction)
        return
    # A partial of each row would take more memory than its values, and longer than to read them.
    allowed, cells = BOX_BYTES // max(values.dtype.itemsize, 1), values.chunk_lengths(range(len(shape)))
    sizes, _ = block_shape(shape, cells, max(allowed, min(math.prod(cells), 4 * allowed)))
    room = np.empty(min(math.prod(sizes), math.prod(shape)), values.dtype)
    for cell in np.ndindex(*(-(-length // size) for length, size in zip(shape, sizes, strict=True))):
        box = _shift(box_slices(cell, dict(enumerate(sizes)), shape), within)
        lengths = [part.stop - part.start for part in box]
        block = values.read_box(box, room[: math.prod(lengths)].reshape(lengths))
        place = tuple(slice(0, 1) if number in others else part for number, part in enumerate(box))
        yield place, reduce_rows(block, axis, groups.codes[box[axis]], others, reduction)


def _shift(inside: Box, within: Box) -> Box:
    """Return a box of a portion as a box of the whole array."""
    return tuple(
        slice(part.start + whole.start, part.stop + whole.start) for part, whole in zip(inside, within, strict=True)
    )


def _partials_by_box(
    values: Foldable, inner: tuple[int, ...], reduction: Reduction, within: Box
) -> Iterator[tuple[Box, Partial]]:
    """Yield partials of the boxes that a portion of some values consists of, reduced along the
    `inner` axes, where their box is `slice(0, 1)`.
    """
    kept = [axis for axis in range(values.ndim) if axis not in inner]
    allowed = max(BOX_BYTES // (8 * len(reduction.fields)), 1)
    shape = [part.stop - part.start for part in within]
    lengths, cells = [shape[axis] for axis in kept], values.chunk_lengths(kept)
    # Boxes of whole chunks if possible:
    # a chunk that lies in several boxes is decoded for each of them.
    sizes, _ = block_shape(lengths, cells, max(allowed, min(math.prod(cells), 4 * allowed)))
    steps = dict(zip(kept, sizes, strict=True))
    counts = [-(-shape[axis] // steps[axis]) if axis in steps else 1 for axis in range(values.ndim)]
    for cell in np.ndindex(*counts):
        check_deadline()
        key = _shift(box_slices(cell, steps, shape), within)
        partial = values.fold_box(key, inner, reduction)
        yield tuple(part if axis in steps else slice(0, 1) for axis, part in enumerate(key)), partial
