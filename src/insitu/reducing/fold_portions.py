"""Statistics of large arrays and expressions, portion by portion: here, or by an engine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce as fold_left
from typing import Any, Self

import numpy as np

from insitu.engines.choose import engine_for
from insitu.engines.engine_protocol import PortionJob
from insitu.engines.executor import fold_here
from insitu.reducing.foldable_values import Box, Foldable
from insitu.reducing.partial_fields import Partial
from insitu.reducing.portions import Region, cut_portions
from insitu.reducing.reductions import Reduction

__all__ = ["fold_values", "renumber_positions", "run_portions", "state_bytes"]


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


def run_portions(job: PortionJob, regions: Sequence[Region], values: Foldable) -> Iterator[tuple[Region, Any]]:
    """Yield the regions of a result and their states, in order.

    Parameters
    ----------
    job
        What to compute.
    regions
        Of which portions.
    values
        What is reduced: its engine runs the portions. A single portion is always computed here: to send
        it would take longer.
    """
    groups = [region.boxes for region in regions]
    single = sum(map(len, groups)) <= 1
    engine = None if single else engine_for(values.engine)
    if engine is None:
        states = fold_here(job, groups, overlapped=not single and values.is_far)
    else:
        states = engine.fold_portions(job, groups)
    yield from zip(regions, states, strict=True)


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
