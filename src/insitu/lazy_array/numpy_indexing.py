"""Indexing of a virtual array by NumPy's rules: `array[0, :, [0, 1]]`, booleans, `None`, `...`.

Integers and slices, one index array, and several that broadcast against each other (points) stay
virtual; masks of several dimensions are applied to the values. xarray has rules of its own, `oindex`
and `vindex`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from insitu.errors import SelectionError
from insitu.lazy_array.deferred_values import DeferredValues
from insitu.lazy_array.load_values import values_or_dask
from insitu.model import Stride

__all__ = ["select"]


def select(array: Any, key: Any) -> Any:
    """Return what NumPy selects from a `LazyArray` by a key."""
    parts = _expand(key, array.shape)
    if any(_is_mask(part) and part.ndim > 1 for part in parts):
        return values_or_dask(array)[tuple(parts)]
    parts = [np.flatnonzero(part) if _is_mask(part) and part.ndim else part for part in parts]
    if any(isinstance(part, np.ndarray) for part in parts):
        return _select_points(array, parts)
    selected = array.oindex[_keys_of_dimensions(parts)]
    return _add_dimensions(selected, [part for part in parts if isinstance(part, slice) or part is None])


def _expand(key: Any, shape: tuple[int, ...]) -> list[Any]:
    """Return what a key consists of: integers, slices and arrays for all dimensions, and None.

    An Ellipsis stays where it stands for no dimension: arrays on both sides of it are apart.
    """
    parts = [_interpret(part) for part in (key if isinstance(key, tuple) else (key,))]
    places = [number for number, part in enumerate(parts) if part is Ellipsis]
    if len(places) > 1:
        raise SelectionError("an index can have only one ellipsis (...)")
    given = sum(map(_count_dimensions, parts))
    if given > len(shape):
        raise SelectionError(f"too many indices: {given} for an array of {len(shape)} dimensions")
    rest = [slice(None)] * (len(shape) - given)
    at = places[0] if places else len(parts)
    expanded = [*parts[:at], *(rest or parts[at : at + 1]), *parts[at + 1 :]]
    axis = 0
    for part in expanded:
        covered = _count_dimensions(part)
        if _is_mask(part) and part.shape != shape[axis : axis + covered]:
            raise SelectionError(
                f"a mask of shape {part.shape} does not fit the dimensions of lengths {shape[axis : axis + covered]}"
            )
        if isinstance(part, slice):
            Stride.of(part, shape[axis])  # wrong ones raise, whatever else is selected
        if isinstance(part, int) and not -shape[axis] <= part < shape[axis]:
            raise SelectionError(f"index {part} is out of bounds for axis {axis} with size {shape[axis]}")
        axis += covered
    return expanded


def _interpret(part: Any) -> Any:
    """Return a part of a key as an integer, a slice, None, an Ellipsis, or an array of integers or booleans."""
    if part is None or part is Ellipsis or isinstance(part, slice):
        return part
    if not isinstance(part, (bool, np.ndarray, DeferredValues)) and hasattr(part, "__index__"):
        return operator.index(part)
    array = np.asarray(part)
    if isinstance(part, (list, tuple)) and not array.size:
        array = array.astype(np.int64)
    if array.dtype.kind not in "biu":
        raise SelectionError(
            "only integers, slices (:), an ellipsis (...), None and arrays of integers or booleans are indices, "
            f"not {part!r}"
        )
    if array.dtype == bool:
        return array
    return array.astype(np.int64) if array.ndim else int(array)


def _is_mask(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype == bool


def _count_dimensions(part: Any) -> int:
    """Return how many dimensions of the array a part of a key is for."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if _is_mask(part) else 1


def _keys_of_dimensions(parts: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(part for part in parts if _count_dimensions(part))


def _count_slices(parts: Sequence[Any]) -> int:
    return sum(isinstance(part, slice) for part in parts)


def _select_points(array: Any, parts: Sequence[Any]) -> Any:
    """Index with arrays, masks without dimension (True, False), and integers, which count as arrays then.

    The dimensions of the points stand where the arrays do, or first if something is between these.
    """
    where = [number for number, part in enumerate(parts) if isinstance(part, (int, np.ndarray))]
    index = [np.asarray(parts[number]) for number in where if _count_dimensions(parts[number])]
    masks = [parts[number] for number in where if _is_mask(parts[number])]
    try:
        points = np.broadcast_shapes(*(part.shape for part in index), *((int(mask),) for mask in masks))
    except ValueError:
        shapes = ", ".join(str(part.shape) for part in index)
        raise SelectionError(f"index arrays of the shapes {shapes} cannot be broadcast together") from None
    begin = where[0] if where[-1] - where[0] + 1 == len(where) else 0
    sides = [
        [part for part in some if isinstance(part, slice) or part is None] for some in (parts[:begin], parts[begin:])
    ]
    layout = [*sides[0], *[slice(None)] * len(points), *sides[1]]
    to = _count_slices(sides[0])
    keys = _keys_of_dimensions(parts)
    arrays = [axis for axis, key in enumerate(keys) if isinstance(key, np.ndarray)]
    if not index:
        selected = array.oindex[keys].expand_dims(to)
        selected = selected[(slice(None),) * to + (slice(*points),)]
    elif len(arrays) == 1 and keys[arrays[0]].shape == points and len(points) == 1:
        selected = np.moveaxis(array.oindex[keys], _count_slices(keys[: arrays[0]]), to)
    else:
        index[0] = np.broadcast_to(index[0], points)
        given = iter(index)
        selected = array.vindex[tuple(key if isinstance(key, slice) else next(given) for key in keys)]
        selected = np.moveaxis(selected, list(range(len(points))), list(range(to, to + len(points))))
    selected = _add_dimensions(selected, layout)
    return selected if isinstance(selected, np.ndarray) else selected.copy()  # no view, as in NumPy


def _add_dimensions(selected: Any, layout: Sequence[Any]) -> Any:
    """Return an array with a new dimension wherever None stands in its layout."""
    for axis, part in enumerate(layout):
        if part is None:
            selected = np.expand_dims(selected, axis)
    return selected
