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
from insitu.reducing.statistic import position_fields

__all__ = ["MergedPartial", "renumber_positions"]


class MergedPartial:
    """The partial of a whole array, to which those of its parts are added in their order.

    Parameters
    ----------
    along
        Axes that are reduced, in the order in which they count for positions.
    empty
        The partial of no data, of the shape of the result.
    merge
        Returns the partial of two partials together.
    """

    def __init__(self, along: Sequence[int], empty: Partial, merge: Callable[[Partial, Partial], Partial]) -> None:
        self.along, self.merge = tuple(along), merge
        self.partial = empty
        self._touched = np.zeros(next(iter(empty.values())).shape, bool)
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
        partial, where = renumber_positions(partial, part, self.along), _open_mesh(keys)
        if self._touched[where].any():
            partial = self.merge({name: values[where] for name, values in self.partial.items()}, partial)
        for name, values in partial.items():
            self.partial[name][where] = values
        self._touched[where] = True


def renumber_positions(partial: Partial, part: Selection, along: Sequence[int]) -> Partial:
    """Return a partial with positions of extremes in the whole array instead of in a part of it.

    Parameters
    ----------
    partial
        Of the part.
    part
        Where the part lies in the whole array.
    along
        Axes that are reduced, in the order in which they count for positions.
    """
    moved = dict(partial)
    for name in position_fields(partial):
        positions = [_positions(part.selectors[axis]) for axis in along]
        lengths = [len(places) for places in positions]
        size = math.prod(lengths)
        index = np.unravel_index(np.minimum(partial[name], size - 1), lengths)
        there = tuple(places[i] for places, i in zip(positions, index, strict=True))
        place = np.ravel_multi_index(there, [part.shape[axis] for axis in along])
        moved[name] = np.where(partial[name] < size, place, partial[name])  # larger: no value was there
    return moved


def _open_mesh(keys: Sequence[Any]) -> tuple[Any, ...]:
    """Return keys that index each axis of an array on its own."""
    if not any(isinstance(key, np.ndarray) for key in keys):
        return tuple(key.as_slice if isinstance(key, Stride) else key for key in keys)
    return np.ix_(*(np.zeros(1, np.int64) if isinstance(key, slice) else _positions(key) for key in keys))


def _positions(selector: Selector) -> npt.NDArray[np.int64]:
    """Return the positions along an axis that a part has; parts keep all axes."""
    assert not isinstance(selector, int)
    return selector if isinstance(selector, np.ndarray) else selector.positions
