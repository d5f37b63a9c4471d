"""Padding, reindexing and masking of a `LazyArray`.

An index of -1 is an element that no file covers, with a given fill value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.lazy_array.duck_array import LazyArray
from insitu.lazy_array.steps import Where
from insitu.model import ABSENT, Columns, VirtualArray

__all__ = ["has_absent_elements", "is_same_fill", "take_with_fill"]


def take_with_fill(array: LazyArray, indices: Sequence[npt.NDArray[Any] | None], fill: Any) -> Any:
    """Return these elements along each dimension (None: all), and `fill` where an index is -1.

    It is virtual, unless there is nothing to take from.
    """
    value = _convert_fill(fill, array.dtype) if array.dtype.kind != "O" else fill
    if not array.size:  # then nothing is taken: all is filled, or there are no elements
        shape = [n if index is None else len(index) for n, index in zip(array.shape, indices, strict=True)]
        return np.full(shape, value, array.dtype)
    plain = not array.steps and array.dtype.kind in "biufcmMSU"
    if plain and (is_same_fill(_effective_fill_value(array.array), value) or not has_absent_elements(array.array)):
        virtual = replace(array.array, fill_value=value)
        for dimension, index in enumerate(indices):
            if index is not None:
                virtual = virtual.take(dimension, index)
        return LazyArray(virtual, array.access).derived_from(array, partial(_take_values, indices, value))
    # Absent elements are masked afterwards: the element beside stands there first, which is read anyway.
    moved = array
    keep = np.ones((), bool)
    for dimension, index in enumerate(indices):
        if index is None:
            continue
        along = (slice(None),) * dimension
        moved = moved[(*along, _fill_forward(index))]
        keep = keep & (index >= 0).reshape([-1 if d == dimension else 1 for d in range(array.ndim)])
    return moved.then(Where(np.broadcast_to(keep, moved.shape), value, array.dtype))


def _fill_forward(index: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an index with the one before in place of each -1; at the beginning, with the first that there is."""
    present = np.flatnonzero(index >= 0)
    if not present.size:
        return np.zeros_like(index)
    before = np.searchsorted(present, np.arange(len(index)), "right") - 1
    return index[present[np.maximum(before, 0)]]


def _convert_fill(fill: Any, dtype: np.dtype[Any]) -> Any:
    """Return a fill value as NumPy's padding has it once it is assigned: durations take floats, too."""
    element = np.empty((), dtype)
    element[()] = np.asarray(fill)[()]
    return element[()]


def _take_values(indices: Sequence[npt.NDArray[Any] | None], fill: Any, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the same of values in memory."""
    for dimension, index in enumerate(indices):
        if index is not None:
            shape = (*values.shape[:dimension], len(index), *values.shape[dimension + 1 :])
            # Nothing can be taken from a dimension of length 0: then all of it is filled.
            values = values.take(index, dimension) if values.shape[dimension] else np.empty(shape, values.dtype)
            values[(slice(None),) * dimension + (index < 0,)] = fill
    return values


def _effective_fill_value(array: VirtualArray) -> Any:
    if array.fill_value is None and array.dtype.kind in "mM":
        return np.array("NaT", array.dtype)[()]
    if array.fill_value is None and array.dtype.kind in "fc":
        return array.absent_value()
    return array.fill_value


def is_same_fill(one: Any, other: Any) -> bool:
    """Return whether two fill values are the same, NaN and NaT included."""
    if one is None or other is None:
        return one is other
    if one != one or other != other:
        return bool(one != one and other != other)
    return bool(one == other)


def has_absent_elements(array: VirtualArray) -> bool:
    """Return whether some element of an array is covered by no file."""
    if sum(math.prod(tile.shape) for tile in array.tiles) < array.size:
        return True
    for tile in array.tiles:
        if not isinstance(tile.chunks, Columns):
            return True  # not known without looking at every cell
        if (tile.chunks.source == ABSENT).any():
            return True
    return False
