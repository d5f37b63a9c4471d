"""Statistics of large arrays and expressions, portion by portion: here, or by an engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce as fold_left
from typing import Self

import numpy as np

from insitu.reducing.engines import run_portions
from insitu.reducing.foldable_values import Box, Foldable
from insitu.reducing.partial_fields import Partial
from insitu.reducing.portions import cut_portions
from insitu.reducing.reductions import Reduction

__all__ = ["fold_values", "renumber_positions", "state_bytes"]


def fold_values(values: Foldable, axes: tuple[int, ...], reduction: Reduction) -> Partial:
    """Return the partial of some values, with length 1 along each reduced axis.

    Parameters
    ----------
    values
        Stored values, or those of an expression; large ones are cut into portions.
    axes
        Axes to reduce, in the order in which they count for positions.
    reduction
        The statistics.
    """
    regions = cut_portions(values, axes, state_bytes(reduction))
    states = run_portions(_StatisticsJob(values, axes, reduction), regions, values)
    if len(regions) == 1:
        return dict(next(states)[1])
    total = reduction.nothing([1 if axis in axes else length for axis, length in enumerate(values.shape)])
    for region, partial in states:
        for name, found in partial.items():
            total[name][region.place] = found
    return total


def state_bytes(reduction: Reduction) -> int:
    """Return the bytes of a partial for each element of the result."""
    return sum(found.dtype.itemsize for found in reduction.nothing(()).values())


@dataclass(frozen=True, slots=True)
class _StatisticsJob:
    """Statistics along some axes; a state is a partial."""

    values: Foldable
    axes: tuple[int, ...]
    reduction: Reduction

    @property
    def name(self) -> str:
        return f"{','.join(self.reduction.methods)}({self.values.name})"

    def fold_portion(self, box: Box) -> Partial:
        partial = self.values.fold_box(box, self.axes, self.reduction)
        return renumber_positions(partial, box, self.values.shape, self.axes)

    def merge(self, states: Sequence[Partial]) -> Partial:
        return fold_left(self.reduction.merge, states)

    def for_workers(self) -> Self:
        return replace(self, values=self.values.for_workers())


def renumber_positions(partial: Partial, box: Box, shape: Sequence[int], axes: Sequence[int]) -> Partial:
    """Return the partial of a box with the positions of extremes in the whole array."""
    moved = dict(partial)
    for name in {"argmin", "argmax"} & set(partial):
        lengths = [box[axis].stop - box[axis].start for axis in axes]
        size = math.prod(lengths)
        index = np.unravel_index(np.minimum(partial[name], size - 1), lengths)
        places = [inside + box[axis].start for inside, axis in zip(index, axes, strict=True)]
        found = np.ravel_multi_index(tuple(places), [shape[axis] for axis in axes])
        moved[name] = np.where(partial[name] < size, found, partial[name])  # a larger position: no value was there
    return moved
