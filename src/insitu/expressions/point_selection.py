"""Pointwise selection of virtual arrays: the dimensions of the points come first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import SelectionError
from insitu.expressions.moves import StructuralMove
from insitu.expressions.nodes import Stored, WindowsOf
from insitu.model import Tile, VirtualArray, concatenate

__all__ = ["SelectPoints", "TooManyPointsError", "index_pointwise"]


class TooManyPointsError(Exception):
    """There are too many points to keep them one by one: the values must be read."""


class SelectPoints(StructuralMove):
    """Pointwise selection.

    Parameters
    ----------
    shape
        Of the expression.
    keys
        For each dimension a slice, or an integer array; the arrays broadcast against each other.
    limit
        Up to how many points they are kept one by one.
    """

    def __init__(self, shape: Sequence[int], keys: tuple[Any, ...], limit: int) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.keys = (*keys, *[slice(None)] * (len(shape) - len(keys)))
        self.limit = limit

    @property
    def makes_view(self) -> bool:
        """Whether NumPy does it without copying values."""
        return False

    def of_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape after the operation."""
        return self.of_values(np.broadcast_to(np.int8(0), shape)).shape

    def of_stored(self, stored: Stored) -> Stored:
        """Return a stored array after the operation."""
        found = select_points(stored.array, self._keys_for(stored.shape), self.limit)
        if found is None:
            raise TooManyPointsError
        return Stored(found, stored.context)

    def of_values(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values after the operation."""
        return index_pointwise(values, self._keys_for(values.shape))

    def of_windows(self, windows: WindowsOf) -> WindowsOf:
        """Windows lie along dimensions, not at points: the values must be read."""
        raise TooManyPointsError

    def _keys_for(self, shape: Sequence[int]) -> tuple[Any, ...]:
        return tuple(
            key if length == whole else slice(None) if isinstance(key, slice) else np.zeros_like(key)
            for key, length, whole in zip(self.keys, shape, self.shape, strict=True)
        )


def index_pointwise(values: npt.NDArray[Any], keys: tuple[Any, ...]) -> npt.NDArray[Any]:
    """Return values indexed pointwise as NumPy does, with the points' dimensions in front."""
    where = [i for i, key in enumerate(keys) if not isinstance(key, slice)]
    turned = np.moveaxis(values, where, range(len(where)))
    points = turned[tuple(keys[i] for i in where)]
    rest = [key for key in keys if isinstance(key, slice)]
    return np.asarray(points[(Ellipsis, *rest)] if rest else points)


def select_points(array: VirtualArray, keys: tuple[Any, ...], limit: int) -> VirtualArray | None:
    """Return the array of these points, their dimensions in front of the sliced ones.

    None if there are too many.

    Parameters
    ----------
    array
        What to select from.
    keys
        For each dimension a slice, or an integer array; the arrays broadcast against each other.
    limit
        Up to how many points.
    """
    keys = (*keys, *[slice(None)] * (array.ndim - len(keys)))
    where = [i for i, key in enumerate(keys) if not isinstance(key, slice)]
    given = np.broadcast_arrays(*(np.asarray(keys[i]) for i in where))
    index = [np.where(part < 0, part + array.shape[i], part) for part, i in zip(given, where, strict=True)]
    for part, i in zip(index, where, strict=True):
        if part.size and (part.min() < 0 or part.max() >= array.shape[i]):
            raise SelectionError(f"a point is out of bounds for axis {i} with size {array.shape[i]}")
    points = index[0].shape
    sliced = array[tuple(key if isinstance(key, slice) else slice(None) for key in keys)]
    turned = sliced.transpose(*where, *(i for i in range(array.ndim) if i not in where))
    names = tuple(f"points_{number}" for number in range(len(points)))
    if len(where) == 1 and points:
        return _select_rows(turned, index[0], names, limit)
    if len(points) == 1 and (found := _select_by_groups(turned, index, names[0], limit)) is not None:
        return found
    if math.prod(points) > limit:
        return None
    tiles: list[Tile] = []
    origins = []
    for place in np.ndindex(*points):
        one = turned[tuple(int(part[place]) for part in index)]
        for number in reversed(range(len(points))):
            one = one.expand_dims(0, names[number])
        tiles += one.tiles
        origin = one.origins.copy()
        origin[:, : len(points)] = place
        origins.append(origin)
    rest = turned.shape[len(where) :]
    shape = (*points, *rest)
    table = np.concatenate(origins) if origins else np.zeros((0, len(shape)), np.int64)
    return replace(turned, shape=shape, dims=(*names, *turned.dims[len(where) :]), tiles=tuple(tiles), origins=table)


def _select_by_groups(
    array: VirtualArray, index: Sequence[npt.NDArray[np.int64]], name: str, limit: int
) -> VirtualArray | None:
    """Return the array with its first dimensions indexed by one row of points; None if it is better done one by one.

    The points of one index along some dimension are a selection along the others. So a year of
    hourly points in a table of runs and lead times is one tile, made of as many selections as there
    are lead times.

    Parameters
    ----------
    array, index
        What to select from, and the index of each point along each of its first dimensions.
    name, limit
        Of the points' dimension; up to how many tiles the result may have.
    """
    if len(index) == 1:
        return array.take(0, index[0])
    distinct = [np.unique(part) for part in index]
    by = min(range(len(index)), key=lambda number: len(distinct[number]))
    if not 0 < 2 * len(distinct[by]) <= min(len(index[by]), limit):
        return None
    parts, order = [], []
    for value in distinct[by].tolist():
        chosen = np.flatnonzero(index[by] == value)
        one = array[(*[slice(None)] * by, value)]
        part = _select_by_groups(one, [own[chosen] for at, own in enumerate(index) if at != by], name, limit)
        if part is None:
            return None
        parts.append(part)
        order.append(chosen)
    whole = concatenate(parts, 0)
    places = np.empty(len(index[0]), np.int64)
    places[np.concatenate(order)] = np.arange(len(places))
    # A tile for each run of points that lie in one: chunks that hold several indices of a dimension do not fuse.
    if len(whole.tiles) > 1 and np.count_nonzero(np.diff(places) != 1) >= limit:
        return None
    taken = whole.take(0, places)
    return replace(taken, dims=(name, *taken.dims[1:]))


def _select_rows(
    array: VirtualArray, index: np.ndarray[Any, np.dtype[np.int64]], names: tuple[str, ...], limit: int
) -> VirtualArray | None:
    """Return the array with its first dimension indexed by an array of any number of dimensions."""
    if index.ndim == 1:
        return array.take(0, index)
    if index.size // max(index.shape[-1], 1) > limit:
        return None
    if index.ndim == 2 and len(index):
        rows = [array.take(0, row).expand_dims(0, names[0]) for row in index]
        return concatenate(rows, 0)
    parts = [_select_rows(array, part, names[1:], limit) for part in index]
    if not parts or any(part is None for part in parts):
        return None
    return concatenate([part.expand_dims(0, names[0]) for part in parts if part is not None], 0)
