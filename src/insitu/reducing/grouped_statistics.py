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
from insitu.expressions.boxes import Box, cut_boxes
from insitu.model import Selection, normalise_axes
from insitu.reducing.block_facts import reduced_shape
from insitu.reducing.expression_values import ExpressionValues
from insitu.reducing.fold_portions import Results, StreamedFolding, state_bytes
from insitu.reducing.group_rows import GroupPartials, collapse_rows, merge_groups, reduce_rows
from insitu.reducing.partial_fields import Partial
from insitu.reducing.partials_by_box import BOX_BYTES, partials_by_box
from insitu.reducing.portions import STATE_BYTES, Region, cut_portions
from insitu.reducing.reductions import Reduction
from insitu.reducing.statistics import STATISTICS
from insitu.reducing.weighted_statistics import take
from insitu.reducing.whole_blocks import block_shape

__all__ = ["GroupedFolding", "Groups"]

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


@dataclass(frozen=True, slots=True)
class GroupedFolding(StreamedFolding):
    """Statistics of each group along an axis, which stays, with one element per group: not positions, medians and
    quantiles. The axes of the query are reduced in addition to the grouped one; without axes, only that one.

    A partial has one element per group along the axis of the groups; a state has those of the groups that occur in a
    portion, and their numbers.
    """

    groups: Groups

    @property
    def along(self) -> tuple[int, ...]:
        """The axes that are reduced in addition to that of the groups."""
        along = normalise_axes([self.groups.axis] if self.query.axes is None else self.query.axes, self.values.ndim)
        return tuple(axis for axis in along if axis != self.groups.axis)

    def regions(self) -> list[Region]:
        """Return the portions. Few groups are merged on the workers; many are sent here as they are."""
        self._check()
        groups, number = self.groups, state_bytes(self.reduction)
        axes = tuple({*self.along, groups.axis})
        regions = cut_portions(self.values, axes, number)
        place = number * math.prod(part.stop - part.start for part in regions[0].place)
        if groups.count * place <= STATES * STATE_BYTES:
            return regions
        changes = np.count_nonzero(np.diff(groups.codes)) + 1
        longest = max(STATES * STATE_BYTES // place - 1, 1) * len(groups.codes) // changes
        regions = cut_portions(self.values, axes, number, (groups.axis, longest))
        return [Region(region.place, (box,)) for region in regions for box in region.boxes]

    def select(self, piece: Selection) -> Self:
        """Return the reduction of a piece of the values: of the groups in it, numbered from 0."""
        known = self._known_groups(piece)
        codes = take(self.groups.codes, [piece.selectors[self.groups.axis]])
        numbers = np.where(codes < 0, -1, np.searchsorted(known, codes))
        return replace(self, values=self.values.select(piece), groups=Groups(self.groups.axis, numbers, len(known)))

    def fold_whole(self) -> Partial:
        """Return the partial of all values, as one portion."""
        self._check()
        reduction, axis, total = self.reduction, self.groups.axis, self.empty_partial()
        for box, parts in _groups_by_box(self.values, self.groups, self.along, reduction):
            for part in parts:
                merge_groups(total, box, axis, part, reduction)
        return total

    def state(self, box: Box, partial: Partial) -> GroupPartials:
        """Return the partial of a box with the numbers of its groups."""
        return self._known_groups(Selection.of(box, self.values.shape)), partial

    def merge(self, states: Sequence[GroupPartials]) -> GroupPartials:
        """Return the state of several portions together."""
        return fold_left(self._merge_two, states)

    def empty_partial(self) -> Partial:
        """Return the partial of no data."""
        lengths = list(reduced_shape(self.values.shape, self.along))
        lengths[self.groups.axis] = self.groups.count
        return self.reduction.empty_partial(lengths)

    def put(self, total: Partial, region: Region, state: GroupPartials) -> None:
        """Merge the state of a region into the partial of all values."""
        merge_groups(total, region.place, self.groups.axis, state, self.reduction)

    def place(self, part: Selection) -> Selection:
        """Return where the partial of a part lies in that of all values: at its groups."""
        axis = self.groups.axis
        selectors = (*part.selectors[:axis], self._known_groups(part), *part.selectors[axis + 1 :])
        return replace(part, selectors=selectors)

    def finalise(self, partial: Partial) -> Results:
        """Return the results of the partial of all values."""
        groups, shape, others = self.groups, self.values.shape, self.along
        other = math.prod(shape[axis] for axis in others)
        sizes = np.bincount(groups.codes[groups.codes >= 0], minlength=groups.count)
        found: dict[str, list[npt.NDArray[Any]]] = {method: [] for method in self.query.methods}
        for code in range(groups.count):
            check_deadline()
            where = (slice(None),) * groups.axis + (slice(code, code + 1),)
            part = {field: numbers[where] for field, numbers in partial.items()}
            for method, result in self.reduction.finalise(part, other * max(int(sizes[code]), 1)).items():
                found[method].append(result)
        joined = {method: np.concatenate(parts, axis=groups.axis) for method, parts in found.items()}
        return {method: result.squeeze(others) if others else result for method, result in joined.items()}

    def _check(self) -> None:
        methods, groups, shape = self.query.methods, self.groups, self.values.shape
        bad = [method for method in methods if method not in STATISTICS or not STATISTICS[method].groups]
        if bad:
            raise UnsupportedError(f"cannot compute for groups: {', '.join(bad)}")
        if groups.axis >= len(shape):
            raise ModelError(f"groups along axis {groups.axis} of an array of {len(shape)} dimensions are not possible")
        if len(groups.codes) != shape[groups.axis]:
            raise ModelError(
                f"the axis has length {shape[groups.axis]}, but there are {len(groups.codes)} labels of groups"
            )

    def _known_groups(self, piece: Selection) -> npt.NDArray[np.int64]:
        """Return the numbers of the groups that occur in a piece; of the first, if there are none."""
        codes = take(self.groups.codes, [piece.selectors[self.groups.axis]])
        known = np.unique(codes[codes >= 0])
        return known if len(known) else np.zeros(1, np.int64)

    def _merge_two(self, one: GroupPartials, other: GroupPartials) -> GroupPartials:
        axis, reduction = self.groups.axis, self.reduction
        known = np.union1d(one[0], other[0])
        lengths = list(next(iter(one[1].values())).shape)
        lengths[axis] = len(known)
        total = reduction.empty_partial(lengths)
        everywhere = (slice(None),) * len(lengths)
        for codes, partial in (one, other):
            merge_groups(total, everywhere, axis, (np.searchsorted(known, codes), partial), reduction)
        return known, total


def _groups_by_box(
    values: ExpressionValues, groups: Groups, others: tuple[int, ...], reduction: Reduction
) -> Iterator[tuple[Box, Iterator[GroupPartials]]]:
    """Yield the partials of the groups of each box of some values, whose `others` axes are `slice(0, 1)`."""
    axis, shape = groups.axis, values.shape
    if math.prod(shape[other] for other in others) >= MANY_VALUES:
        for box, partial in partials_by_box(values, others, reduction):
            yield box, collapse_rows(partial, axis, groups.codes[box[axis]], reduction)
        return
    # A partial of each row would take more memory than its values, and longer than to read them.
    allowed, cells = BOX_BYTES // max(values.dtype.itemsize, 1), values.chunk_lengths(range(len(shape)))
    sizes, _ = block_shape(shape, cells, max(allowed, min(math.prod(cells), 4 * allowed)))
    room = np.empty(min(math.prod(sizes), math.prod(shape)), values.dtype)
    for box in cut_boxes(shape, sizes):
        lengths = [part.stop - part.start for part in box]
        block = values.select_box(box).read(room[: math.prod(lengths)].reshape(lengths))
        place = tuple(slice(0, 1) if number in others else part for number, part in enumerate(box))
        yield place, reduce_rows(block, axis, groups.codes[box[axis]], others, reduction)
