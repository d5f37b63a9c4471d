"""`Folding`: a reduction of the values of an expression in portions; and `fold_in_portions`, which runs one.

A portion is folded as if it were all there is (`fold_whole`), by a thread of this machine, a worker of a cluster or a
server: so each of them gets the same bits. Which portions there are, and in which order they are merged, follows from
the expression and from what is asked: see `parts_by_folder` and `portions`.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce as fold_left
from typing import Any, Self

import numpy.typing as npt

from insitu.engines.choose import engine_for
from insitu.engines.executor import fold_here
from insitu.expressions.boxes import Box
from insitu.model import Selection, normalise_axes
from insitu.reducing.expression_values import ExpressionValues
from insitu.reducing.merged_partial import MergedPartial, renumber_positions
from insitu.reducing.partial_fields import Partial
from insitu.reducing.parts_by_folder import split_by_folder
from insitu.reducing.portions import Region, cut_portions, is_one_portion
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reductions import Reduction

__all__ = [
    "Folding",
    "PlainFolding",
    "Portion",
    "PortionFolds",
    "Results",
    "StreamedFolding",
    "fold_in_portions",
    "run_portions",
    "state_bytes",
]

Results = dict[str, npt.NDArray[Any]]
"""Arrays by statistic."""
State = Any
"""What portions are merged as: a partial, of groups with their numbers."""


@dataclass(frozen=True, slots=True)
class Folding(ABC):
    """A reduction that can be done in portions: plain, with weights, of groups. A state is a partial, or has one."""

    values: ExpressionValues
    """What is reduced."""
    query: ReductionQuery
    """Which statistics, along which axes; its selection does not count."""

    @property
    @abstractmethod
    def along(self) -> tuple[int, ...]:
        """The axes that have length 1 in a partial."""

    @property
    @abstractmethod
    def fields(self) -> Sequence[str]:
        """Names of the arrays of a partial."""

    @property
    def name(self) -> str:
        """What is computed, for the names of tasks."""
        return f"{','.join(self.query.methods)}({self.values.name})"

    @abstractmethod
    def regions(self) -> list[Region]:
        """Return the regions of the result, with their portions."""

    @abstractmethod
    def fold_whole(self) -> Partial:
        """Return the partial of all values, as one portion."""

    @abstractmethod
    def empty_partial(self) -> Partial:
        """Return the partial of no data."""

    @abstractmethod
    def merge_partials(self, one: Partial, other: Partial) -> Partial:
        """Return the partial of two partials of the same places together."""

    @abstractmethod
    def finalise(self, partial: Partial) -> Results:
        """Return the results of the partial of all values."""

    def with_values(self, values: ExpressionValues) -> Self:
        """Return the same reduction of other values, or of the same that are read in another way."""
        return replace(self, values=values)

    def select(self, piece: Selection) -> Self:
        """Return the reduction of a piece of the values."""
        return self.with_values(self.values.select(piece))

    def state(self, box: Box, partial: Partial) -> State:
        """Return the partial of a box, which was folded on its own, as one of the values."""
        return partial

    def merge(self, states: Sequence[State]) -> State:
        """Return the state of several portions together: the first merged with the second, and so on."""
        return fold_left(self.merge_partials, states)

    def put(self, total: Partial, region: Region, state: State) -> None:
        """Put the state of a region into the partial of all values."""
        for name, found in state.items():
            total[name][region.place] = found

    def place(self, part: Selection) -> Selection:
        """Return where the partial of a part lies in that of all values."""
        return part

    def begin(self) -> MergedPartial:
        """Return the partial of no data, to which parts of the values are added."""
        return MergedPartial(self.along, self.empty_partial(), self.merge_partials)


@dataclass(frozen=True, slots=True)
class StreamedFolding(Folding):
    """A folding whose partials are those of a `Reduction`."""

    @property
    def reduction(self) -> Reduction:
        """The statistics."""
        return Reduction(self.query.methods, self.values.dtype, self.query.rules)

    @property
    def fields(self) -> Sequence[str]:
        """Names of the arrays of a partial."""
        return self.reduction.fields

    def merge_partials(self, one: Partial, other: Partial) -> Partial:
        """Return the partial of two partials of the same places together."""
        return self.reduction.merge(one, other)


@dataclass(frozen=True, slots=True)
class PlainFolding(StreamedFolding):
    """Statistics along some axes that can be computed in one pass."""

    @property
    def along(self) -> tuple[int, ...]:
        """The axes that are reduced, in the order in which they count for positions."""
        return normalise_axes(self.query.axes, self.values.ndim)

    def regions(self) -> list[Region]:
        """Return the regions of the result, with their portions."""
        return cut_portions(self.values, self.along, state_bytes(self.reduction))

    def fold_whole(self) -> Partial:
        """Return the partial of all values, as one portion."""
        return self.values.fold_all(self.along, self.reduction)

    def state(self, box: Box, partial: Partial) -> Partial:
        """Return the partial of a box with the positions of extremes in the whole array."""
        return renumber_positions(partial, Selection.of(box, self.values.shape), self.along)

    def empty_partial(self) -> Partial:
        """Return the partial of no data."""
        return self.reduction.empty_partial(self.values.shape, self.along)

    def finalise(self, partial: Partial) -> Results:
        """Return the results of the partial of all values."""
        shape = self.values.shape
        found = self.reduction.finalise(partial, math.prod(shape[axis] for axis in self.along))
        return self.query.drop_axes(found, len(shape))


@dataclass(frozen=True, slots=True)
class Portion:
    """A box of one of the parts of the values."""

    part: int
    box: Box


@dataclass(frozen=True, slots=True)
class PortionFolds:
    """The portions of a reduction, as what an engine computes (`insitu.engines.PortionJob`)."""

    parts: tuple[Folding, ...]
    """The reduction of each part of the values."""

    @property
    def name(self) -> str:
        """What is computed, for the names of tasks."""
        return self.parts[0].name

    def of_portion(self, portion: Portion) -> Folding:
        """Return the reduction of a portion on its own."""
        part = self.parts[portion.part]
        return part.select(Selection.of(portion.box, part.values.shape))

    def state(self, portion: Portion, partial: Partial) -> State:
        """Return the state of a portion that has this partial on its own."""
        return self.parts[portion.part].state(portion.box, partial)

    def fold_portion(self, portion: Portion) -> State:
        """Return the state of a portion."""
        return self.state(portion, self.of_portion(portion).fold_whole())

    def merge(self, states: Sequence[State]) -> State:
        """Return the state of several portions of a part together."""
        return self.parts[0].merge(states)

    def for_workers(self) -> PortionFolds:
        """Return the same without what cannot leave this process."""
        return replace(self, parts=tuple(part.with_values(part.values.for_workers()) for part in self.parts))


Run = Callable[[PortionFolds, Sequence[Sequence[Portion]]], Iterator[State]]
"""Yields the merged states of groups of portions, in order."""


def fold_in_portions(whole: Folding, run: Run | None = None) -> Partial:
    """Return the partial of all values of a reduction.

    Parameters
    ----------
    whole
        The reduction.
    run
        What computes the portions; None: the engine of the values, or this process.
    """
    places = split_by_folder(whole.values)
    if run is None and len(places) == 1 and is_one_portion(whole.values):
        return whole.fold_whole()
    job = PortionFolds((whole,) if len(places) == 1 else tuple(whole.select(place) for place in places))
    regions = [(number, region) for number, part in enumerate(job.parts) for region in part.regions()]
    groups = [[Portion(number, box) for box in region.boxes] for number, region in regions]
    states = (run or run_portions)(job, groups)
    merged = None if len(places) == 1 else whole.begin()
    total: Partial = {}
    for number, found in itertools.groupby(zip(regions, states, strict=True), key=lambda item: item[0][0]):
        part = job.parts[number]
        total = part.empty_partial()
        for (_, region), state in found:
            part.put(total, region, state)
        if merged is not None:
            merged.add(places[number], whole.place(places[number]), total)
    return total if merged is None else merged.partial


def run_portions(job: PortionFolds, groups: Sequence[Sequence[Portion]]) -> Iterator[State]:
    """Yield the merged states of groups of portions, in order: by the engine of the values, or in this process. A
    single portion is always computed here: to send it would take longer.
    """
    values = job.parts[0].values
    single = sum(map(len, groups)) <= 1
    engine = None if single else engine_for(values.engine)
    if engine is None:
        return fold_here(job, groups, overlapped=not single and values.is_remote)
    return engine.fold_portions(job, groups)


def state_bytes(reduction: Reduction) -> int:
    """Return the bytes of a partial for each element of the result."""
    return sum(found.dtype.itemsize for found in reduction.empty_partial(()).values())
