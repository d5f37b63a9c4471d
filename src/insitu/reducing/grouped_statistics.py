"""Statistics of groups in one pass over the chunks, on this machine or within a server.

The grouped axis is kept while chunks are reduced, so that each of its elements has its own partial;
these are then merged into their groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce as fold_left
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline
from insitu.errors import ModelError, UnsupportedError
from insitu.model import Selection, VirtualArray, normalise_axes
from insitu.model.gaps import fill_gaps_with_absent
from insitu.reading import ReadContext
from insitu.reducing.fold_portions import run_portions, state_bytes
from insitu.reducing.foldable_values import Box, Foldable, StoredValues
from insitu.reducing.group_rows import GroupPartials, collapse_rows, merge_groups, reduce_rows
from insitu.reducing.partial_fields import Partial
from insitu.reducing.partials_by_box import BOX_BYTES, partials_by_box, shift_box
from insitu.reducing.portions import STATE_BYTES, Region, cut_portions
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reductions import METHODS, Reduction
from insitu.reducing.whole_blocks import block_shape, box_slices

__all__ = ["Groups", "finalise_groups", "fold_groups", "group_values", "grouped_statistics"]

MANY_VALUES = 16
"""So many values of each row, and more, are reduced chunk by chunk before the rows are grouped."""
STATES = 4
"""The partials of the groups of a portion take so many times `STATE_BYTES`, at most."""


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


def _groups_by_box(
    values: Foldable, groups: Groups, others: tuple[int, ...], reduction: Reduction, within: Box
) -> Iterator[tuple[Box, Iterator[GroupPartials]]]:
    """Yield the partials of the groups of each box of a portion, whose `others` axes are `slice(0, 1)`."""
    axis, shape = groups.axis, [part.stop - part.start for part in within]
    if math.prod(shape[other] for other in others) >= MANY_VALUES:
        for box, partial in partials_by_box(values, others, reduction, within):
            yield box, collapse_rows(partial, axis, groups.codes[box[axis]], reduction)
        return
    # A partial of each row would take more memory than its values, and longer than to read them.
    allowed, cells = BOX_BYTES // max(values.dtype.itemsize, 1), values.chunk_lengths(range(len(shape)))
    sizes, _ = block_shape(shape, cells, max(allowed, min(math.prod(cells), 4 * allowed)))
    room = np.empty(min(math.prod(sizes), math.prod(shape)), values.dtype)
    for cell in np.ndindex(*(-(-length // size) for length, size in zip(shape, sizes, strict=True))):
        box = shift_box(box_slices(cell, dict(enumerate(sizes)), shape), within)
        lengths = [part.stop - part.start for part in box]
        block = values.read_box(box, room[: math.prod(lengths)].reshape(lengths))
        place = tuple(slice(0, 1) if number in others else part for number, part in enumerate(box))
        yield place, reduce_rows(block, axis, groups.codes[box[axis]], others, reduction)
