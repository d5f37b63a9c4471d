"""Plain statistics along some axes, in one pass over the values."""

from __future__ import annotations

import math
from dataclasses import dataclass

from insitu.expressions.boxes import Box
from insitu.model import Selection, normalise_axes
from insitu.reducing.fold_portions import Results, StreamedFolding, state_bytes
from insitu.reducing.merged_partial import renumber_positions
from insitu.reducing.partial_fields import Partial
from insitu.reducing.portions import Region, cut_portions
from insitu.reducing.reduced_axes import squeeze_axes

__all__ = ["PlainFolding"]


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
        along, shape = self.along, self.values.shape
        found = self.reduction.finalise(partial, math.prod(shape[axis] for axis in along))
        if self.query.keepdims:
            return found
        return {method: squeeze_axes(values, along, len(shape)) for method, values in found.items()}
