"""Plain statistics along some axes, in one pass over the values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from insitu.expressions.boxes import Box
from insitu.model import normalise_axes
from insitu.reducing.fold_portions import Folding, Results, state_bytes
from insitu.reducing.partial_fields import Partial
from insitu.reducing.portions import Region, cut_portions
from insitu.reducing.reduced_axes import squeeze_axes
from insitu.reducing.reductions import Reduction
from insitu.reducing.statistics import position_fields

__all__ = ["PlainFolding"]


@dataclass(frozen=True, slots=True)
class PlainFolding(Folding):
    """Statistics along some axes that can be computed in one pass."""

    @property
    def along(self) -> tuple[int, ...]:
        """The axes that are reduced, in the order in which they count for positions."""
        return normalise_axes(self.query.axes, self.values.ndim)

    @property
    def reduction(self) -> Reduction:
        """The statistics."""
        return Reduction(self.query.methods, self.values.dtype, self.query.rules)

    @property
    def fields(self) -> Sequence[str]:
        """Names of the arrays of a partial."""
        return self.reduction.fields

    def regions(self) -> list[Region]:
        """Return the regions of the result, with their portions."""
        return cut_portions(self.values, self.along, state_bytes(self.reduction))

    def fold_whole(self) -> Partial:
        """Return the partial of all values, as one portion."""
        return self.values.fold_all(self.along, self.reduction)

    def state(self, box: Box, partial: Partial) -> Partial:
        """Return the partial of a box with the positions of extremes in the whole array."""
        if all(part == slice(0, length) for part, length in zip(box, self.values.shape, strict=True)):
            return partial
        moved = dict(partial)
        for name in position_fields(partial):
            lengths = [box[axis].stop - box[axis].start for axis in self.along]
            size = math.prod(lengths)
            index = np.unravel_index(np.minimum(partial[name], size - 1), lengths)
            places = [inside + box[axis].start for inside, axis in zip(index, self.along, strict=True)]
            found = np.ravel_multi_index(tuple(places), [self.values.shape[axis] for axis in self.along])
            moved[name] = np.where(partial[name] < size, found, partial[name])  # larger: no value was there
        return moved

    def nothing(self) -> Partial:
        """Return the partial of no data."""
        along = self.along
        return self.reduction.nothing([1 if axis in along else n for axis, n in enumerate(self.values.shape)])

    def merge_partials(self, one: Partial, other: Partial) -> Partial:
        """Return the partial of two partials of the same places together."""
        return self.reduction.merge(one, other)

    def finalise(self, partial: Partial) -> Results:
        """Return the results of the partial of all values."""
        along, shape = self.along, self.values.shape
        found = self.reduction.finalise(partial, math.prod(shape[axis] for axis in along))
        if self.query.keepdims:
            return found
        return {method: squeeze_axes(values, along, len(shape)) for method, values in found.items()}
