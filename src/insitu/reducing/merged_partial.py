"""The partial of a whole array, made of those of its parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.model import Selection
from insitu.model.selection import Selector, Stride
from insitu.reducing.partial_fields import Partial
from insitu.reducing.statistics import position_fields

__all__ = ["MergedPartial"]


class MergedPartial:
    """The partial of a whole array, to which those of its parts are added in their order.

    Parameters
    ----------
    shape, along
        Of the array, and its axes that are reduced.
    nothing
        The partial of no data, of the shape of the result.
    merge
        Returns the partial of two partials together.
    """

    def __init__(
        self,
        shape: Sequence[int],
        along: Sequence[int],
        nothing: Partial,
        merge: Callable[[Partial, Partial], Partial],
    ) -> None:
        self.shape, self.along, self.merge = tuple(shape), tuple(along), merge
        self.partial = nothing
        self._touched = np.zeros(next(iter(nothing.values())).shape, bool)
        """Places of the result that have a value: what comes first is taken as it is."""

    def add(self, part: Selection, place: Selection, partial: Partial) -> None:
        """Merge the partial of a part.

        Parameters
        ----------
        part
            What it is the partial of: its positions of extremes count from the start of that.
        place
            Where it lies in the partial of the whole, along the axes that are not reduced.
        partial
            The partial.
        """
        keys: list[Any] = [slice(0, 1) if axis in self.along else key for axis, key in enumerate(place.selectors)]
        partial, where = self._renumber_positions(part, partial), _open_mesh(keys)
        if self._touched[where].any():
            partial = self.merge({name: values[where] for name, values in self.partial.items()}, partial)
        for name, values in partial.items():
            self.partial[name][where] = values
        self._touched[where] = True

    def _renumber_positions(self, part: Selection, partial: Partial) -> Partial:
        """Return a partial with positions of extremes in the whole array instead of in a part of it."""
        moved = dict(partial)
        for name in position_fields(partial):
            positions = [_positions(part.selectors[axis]) for axis in self.along]
            lengths = [len(along) for along in positions]
            size = math.prod(lengths)
            index = np.unravel_index(np.minimum(partial[name], size - 1), lengths)
            there = tuple(along[i] for along, i in zip(positions, index, strict=True))
            place = np.ravel_multi_index(there, [self.shape[axis] for axis in self.along])
            moved[name] = np.where(partial[name] < size, place, partial[name])  # larger: no value was there
        return moved


def _open_mesh(keys: Sequence[Any]) -> tuple[Any, ...]:
    """Return keys that index each axis of an array on its own."""
    if not any(isinstance(key, np.ndarray) for key in keys):
        return tuple(slice(key.start, key.start + key.length) if isinstance(key, Stride) else key for key in keys)
    return np.ix_(*(np.zeros(1, np.int64) if isinstance(key, slice) else _positions(key) for key in keys))


def _positions(selector: Selector) -> npt.NDArray[np.int64]:
    """Return the positions along an axis that a part has; parts keep all axes."""
    assert not isinstance(selector, int)
    return selector if isinstance(selector, np.ndarray) else np.arange(selector.start, selector.start + selector.length)
