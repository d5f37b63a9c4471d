"""Padding, reindexing and masking of an expression.

An index of -1 is an element that no file covers, with a given fill value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.expressions.element_operations import mask
from insitu.expressions.moves import SelectEach
from insitu.expressions.nodes import Expression, Moved, Stored, without_moves
from insitu.model import ABSENT, Columns, VirtualArray

__all__ = ["convert_fill", "has_absent_elements", "is_same_fill", "take_with_fill"]


def take_with_fill(expression: Expression, indices: Sequence[npt.NDArray[Any] | None], fill: Any) -> Expression:
    """Return these elements along each dimension (None: all), and `fill` where an index is -1.

    Parameters
    ----------
    expression
        What to take from; it has elements.
    indices
        By dimension.
    fill
        A value that can be one of its type.
    """
    value = convert_fill(fill, expression.dtype)
    stored = without_moves(expression)
    if isinstance(stored, Stored) and expression.dtype.kind in "biufcmMSU":
        array = stored.array
        if is_same_fill(_effective_fill_value(array), value) or not has_absent_elements(array):
            move = TakeWithFill(indices, value)
            return Moved.remember(expression, move, move.of_stored(stored))
    # Absent elements are masked afterwards: the element beside stands there first, which is read anyway.
    keep = np.ones((), bool)
    keys: list[Any] = [slice(None)] * expression.ndim
    for dimension, index in enumerate(indices):
        if index is not None:
            keys[dimension] = _fill_forward(index)
            keep = keep & (index >= 0).reshape([-1 if d == dimension else 1 for d in range(expression.ndim)])
    moved = SelectEach(expression.shape, tuple(keys)).apply(expression)
    return mask(moved, keep, value, expression.dtype)


class TakeWithFill:
    """Elements along each dimension, and a fill value where an index is -1.

    Parameters
    ----------
    indices
        By dimension; None: all.
    fill
        The value.
    """

    def __init__(self, indices: Sequence[npt.NDArray[Any] | None], fill: Any) -> None:
        self.indices = indices
        self.fill = fill

    def of_stored(self, stored: Stored) -> Stored:
        """Return a stored array after the operation."""
        virtual = replace(stored.array, fill_value=self.fill)
        for dimension, index in enumerate(self.indices):
            if index is not None:
                virtual = virtual.take(dimension, index)
        return Stored(virtual, stored.context)

    def of_values(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values after the operation."""
        for dimension, index in enumerate(self.indices):
            if index is not None:
                values = values.take(index, dimension)
                values[(slice(None),) * dimension + (index < 0,)] = self.fill
        return values


def _fill_forward(index: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an index with the one before in place of each -1; at the beginning, with the first that there is."""
    present = np.flatnonzero(index >= 0)
    if not present.size:
        return np.zeros_like(index)
    before = np.searchsorted(present, np.arange(len(index)), "right") - 1
    return index[present[np.maximum(before, 0)]]


def convert_fill(fill: Any, dtype: np.dtype[Any]) -> Any:
    """Return a fill value as NumPy's padding has it once it is assigned: durations take floats, too."""
    if dtype.kind == "O":
        return fill
    element = np.empty((), dtype)
    element[()] = np.asarray(fill)[()]
    return element[()]


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
