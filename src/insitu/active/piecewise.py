"""Reductions as what can be done in pieces: plain, of groups, with weights.

Each knows what a job says about one piece of the values, how the piece is reduced on this machine, how
partials of pieces become one, and the results of that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from insitu.active.request_pieces import MergedPartial
from insitu.active.wire import values_to_wire
from insitu.model import Selection, normalise_axes
from insitu.model.selection import Selector, Stride
from insitu.reducing.foldable_values import Foldable
from insitu.reducing.grouped_statistics import Groups, finalise_groups, fold_groups
from insitu.reducing.partial_fields import Partial
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reduce import squeeze_axes
from insitu.reducing.reductions import Reduction, ReductionRules
from insitu.reducing.weighted_statistics import WEIGHTED_FIELDS, Weights, finalise_weights, fold_weights, merge_weights

__all__ = ["GroupedPieces", "PiecewiseReduction", "PlainPieces", "Results", "WeightedPieces", "rules_to_wire"]

Results = dict[str, npt.NDArray[Any]]
"""Arrays by statistic."""


class PiecewiseReduction(Protocol):
    """A reduction of values of some shape that can be done in pieces."""

    @property
    def fields(self) -> Sequence[str]:
        """Names of the arrays of a partial."""

    def entries(self, piece: Selection) -> dict[str, Any]:
        """Return what a job says about the reduction of a piece."""

    def fold_piece(self, values: Foldable, piece: Selection) -> Partial:
        """Return the partial of the values of a piece, computed here."""

    def begin(self) -> MergedPartial:
        """Return the partial of no data, to which pieces are added."""

    def place(self, piece: Selection) -> Selection:
        """Return where the partial of a piece lies in that of all values."""

    def finalise(self, partial: Partial) -> Results:
        """Return the results of the partial of all values."""


@dataclass(frozen=True, slots=True)
class PlainPieces:
    """Statistics along some axes."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    query: ReductionQuery

    @property
    def along(self) -> tuple[int, ...]:
        """The axes that are reduced."""
        return normalise_axes(self.query.axes, len(self.shape))

    @property
    def reduction(self) -> Reduction:
        """The statistics."""
        return Reduction(self.query.methods, self.dtype, self.query.rules)

    @property
    def fields(self) -> Sequence[str]:
        """Names of the arrays of a partial."""
        return self.reduction.fields

    def entries(self, piece: Selection) -> dict[str, Any]:
        """Return what a job says about the reduction of a piece."""
        return _query_to_wire(self.query)

    def fold_piece(self, values: Foldable, piece: Selection) -> Partial:
        """Return the partial of the values of a piece, computed here."""
        return values.fold_box(tuple(slice(0, length) for length in values.shape), self.along, self.reduction)

    def begin(self) -> MergedPartial:
        """Return the partial of no data, to which pieces are added."""
        along, reduction = self.along, self.reduction
        nothing = reduction.nothing([1 if axis in along else n for axis, n in enumerate(self.shape)])
        return MergedPartial(self.shape, along, nothing, reduction.merge)

    def place(self, piece: Selection) -> Selection:
        """Return where the partial of a piece lies in that of all values."""
        return piece

    def finalise(self, partial: Partial) -> Results:
        """Return the results of the partial of all values."""
        along = self.along
        found = self.reduction.finalise(partial, math.prod(self.shape[axis] for axis in along))
        if self.query.keepdims:
            return found
        return {method: squeeze_axes(values, along, len(self.shape)) for method, values in found.items()}


@dataclass(frozen=True, slots=True)
class GroupedPieces:
    """Statistics of each group along an axis."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    query: ReductionQuery
    groups: Groups

    @property
    def fields(self) -> Sequence[str]:
        """Names of the arrays of a partial."""
        return Reduction(self.query.methods, self.dtype, self.query.rules).fields

    @property
    def others(self) -> tuple[int, ...]:
        """The axes that are reduced in addition to that of the groups."""
        axes = [self.groups.axis] if self.query.axes is None else self.query.axes
        return tuple(axis for axis in normalise_axes(axes, len(self.shape)) if axis != self.groups.axis)

    def entries(self, piece: Selection) -> dict[str, Any]:
        """Return what a job says about the reduction of a piece."""
        groups, _ = self._groups_of(piece)
        labels = {"axis": groups.axis, "codes": values_to_wire(groups.codes), "count": groups.count}
        return {**_query_to_wire(self.query), "groups": labels}

    def fold_piece(self, values: Foldable, piece: Selection) -> Partial:
        """Return the partial of the values of a piece, computed here."""
        return fold_groups(values, self._groups_of(piece)[0], self.query)

    def begin(self) -> MergedPartial:
        """Return the partial of no data, to which pieces are added."""
        reduction = Reduction(self.query.methods, self.dtype, self.query.rules)
        kept = [1 if axis in self.others else n for axis, n in enumerate(self.shape)]
        kept[self.groups.axis] = self.groups.count
        return MergedPartial(self.shape, self.others, reduction.nothing(kept), reduction.merge)

    def place(self, piece: Selection) -> Selection:
        """Return where the partial of a piece lies in that of all values: at its groups."""
        axis = self.groups.axis
        selectors = (*piece.selectors[:axis], self._groups_of(piece)[1], *piece.selectors[axis + 1 :])
        return replace(piece, selectors=selectors)

    def finalise(self, partial: Partial) -> Results:
        """Return the results of the partial of all values."""
        return finalise_groups(partial, self.shape, self.dtype, self.groups, self.query)

    def _groups_of(self, piece: Selection) -> tuple[Groups, Selector]:
        """Return the groups within a piece, numbered from 0, and which of all groups they are."""
        codes = _take(self.groups.codes, [piece.selectors[self.groups.axis]])
        if len(codes) == len(self.groups.codes):
            return replace(self.groups, codes=codes), Stride(0, 1, self.groups.count)
        known = np.unique(codes[codes >= 0])
        known = known if len(known) else np.zeros(1, np.int64)
        numbers = np.where(codes < 0, -1, np.searchsorted(known, codes))
        return Groups(self.groups.axis, numbers, len(known)), known


@dataclass(frozen=True, slots=True)
class WeightedPieces:
    """Weighted statistics along some axes."""

    shape: tuple[int, ...]
    query: ReductionQuery
    weights: Weights

    @property
    def fields(self) -> Sequence[str]:
        """Names of the arrays of a partial."""
        return WEIGHTED_FIELDS

    def entries(self, piece: Selection) -> dict[str, Any]:
        """Return what a job says about the reduction of a piece."""
        factors = {
            ",".join(map(str, [key] if isinstance(key, int) else key)): values_to_wire(numbers)
            for key, numbers in self._weights_of(piece).items()
        }
        return {**_query_to_wire(self.query), "weights": factors}

    def fold_piece(self, values: Foldable, piece: Selection) -> Partial:
        """Return the partial of the values of a piece, computed here."""
        return fold_weights(values, self._weights_of(piece), self.query)

    def begin(self) -> MergedPartial:
        """Return the partial of no data, to which pieces are added."""
        along = normalise_axes(self.query.axes, len(self.shape))
        kept = [1 if axis in along else n for axis, n in enumerate(self.shape)]
        return MergedPartial(self.shape, along, {name: np.zeros(kept) for name in WEIGHTED_FIELDS}, merge_weights)

    def place(self, piece: Selection) -> Selection:
        """Return where the partial of a piece lies in that of all values."""
        return piece

    def finalise(self, partial: Partial) -> Results:
        """Return the results of the partial of all values."""
        return finalise_weights(partial, self.query, len(self.shape))

    def _weights_of(self, piece: Selection) -> dict[int | tuple[int, ...], npt.NDArray[np.float64]]:
        return {
            key: _take(
                np.asarray(numbers, np.float64),
                [piece.selectors[axis] for axis in normalise_axes(key, len(self.shape))],
            )
            for key, numbers in self.weights.items()
        }


def _take(numbers: npt.NDArray[Any], selectors: Sequence[Selector]) -> npt.NDArray[Any]:
    """Return what numbers along some axes are within a piece; wrong numbers as they are, for the check of weights."""
    if numbers.ndim != len(selectors):
        return numbers
    for axis, selector in enumerate(selectors):
        key: Any = slice(selector.start, selector.start + selector.length) if isinstance(selector, Stride) else selector
        numbers = numbers[(slice(None),) * axis + (key,)]
    return numbers


def _query_to_wire(query: ReductionQuery) -> dict[str, Any]:
    return {
        "methods": list(query.methods),
        "axes": None if query.axes is None else np.atleast_1d(query.axes).tolist(),
        "keepdims": query.keepdims,
        **rules_to_wire(query.rules),
    }


def rules_to_wire(rules: ReductionRules) -> dict[str, Any]:
    """Return rules as entries of a job."""
    entries: dict[str, Any] = {"skipna": rules.skipna, "ddof": rules.ddof, "min_count": rules.min_count}
    if rules.q is not None:
        entries["q"] = values_to_wire(np.asarray(rules.q, np.float64)) if np.ndim(rules.q) else float(rules.q)
    if rules.edges is not None:
        entries["edges"] = values_to_wire(np.array(rules.edges))
    return entries
