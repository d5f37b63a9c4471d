"""Selections: NumPy keys (integers, slices, orthogonal index arrays), normalised against a shape.

After normalisation there are three cases for each axis: an integer (the axis is dropped), a
`Stride`, or an array of non-negative indices.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from insitu.errors import SelectionError

__all__ = ["Selection", "Selector", "Stride", "normalise_axes", "selector_bounds"]


class AxisError(SelectionError, np.exceptions.AxisError):
    """The array has no such axis, or an axis is given twice; NumPy has its own error for it."""


class SliceTypeError(SelectionError, TypeError):
    """The bounds of a slice are no integers; NumPy has a TypeError for it."""


class SliceStepError(SelectionError, ValueError):
    """The step of a slice is zero; NumPy has a ValueError for it."""


class Stride(NamedTuple):
    """A resolved slice: `length` positions `start, start + step, …`."""

    start: int
    step: int
    length: int

    @classmethod
    def of(cls, key: slice, length: int) -> Stride:
        """Resolve a slice against an axis of a length."""
        try:
            start, stop, step = key.indices(length)
        except TypeError as problem:
            raise SliceTypeError(f"{key} is not a slice of integers: {problem}") from None
        except ValueError as problem:
            raise SliceStepError(f"{key} is not a slice of integers: {problem}") from None
        # A step beyond the axis selects the same as one of its length, which cannot overflow 64
        # bits.
        step = max(min(step, length + 1), -length - 1)
        return cls(start, step, len(range(start, stop, step)))

    @property
    def as_slice(self) -> slice:
        """The same positions as a slice."""
        start, step, length = self
        stop = start + step * length
        return slice(start, None if stop < 0 else stop, step) if length else slice(0, 0)

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """The positions one by one."""
        return self.start + self.step * np.arange(self.length)

    @property
    def ascending(self) -> Stride:
        """The same positions, from the lowest upwards."""
        start, step, length = self
        return self if step > 0 else Stride(start + (length - 1) * step, -step, length)


Selector = int | Stride | npt.NDArray[np.int64]


def selector_bounds(selector: Selector) -> tuple[int, int]:
    """Return the lowest and the highest position that a selector takes; (0, -1) if none."""
    if isinstance(selector, int):
        return selector, selector
    if isinstance(selector, Stride):
        if not selector.length:
            return 0, -1
        low, step, length = selector.ascending
        return low, low + step * (length - 1)
    return (int(selector.min()), int(selector.max())) if len(selector) else (0, -1)


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """A selection, normalised against the shape that it selects from."""

    shape: tuple[int, ...]
    """Shape of the array that is selected from."""
    selectors: tuple[Selector, ...]
    """One selector for each axis."""

    @classmethod
    def of(cls, key: Any, shape: Sequence[int]) -> Selection:
        """Normalise a key of integers, slices, Ellipsis, 1-D index or boolean arrays (each axis on
        its own: orthogonal).
        """
        if isinstance(key, Selection):
            if key.shape != tuple(shape):
                raise SelectionError(f"the selection was made from shape {key.shape}, but the array has {tuple(shape)}")
            return key
        if key is Ellipsis:  # as nearly always
            return cls(tuple(shape), tuple([Stride(0, 1, length) for length in shape]))
        keys = _expand_ellipsis(key if isinstance(key, tuple) else (key,), len(shape))
        selectors = tuple(
            _normalise_key(part, length, axis) for axis, (part, length) in enumerate(zip(keys, shape, strict=True))
        )
        return cls(tuple(shape), selectors)

    @classmethod
    def box(cls, start: Sequence[int], count: Sequence[int], shape: Sequence[int]) -> Selection:
        """Return the selection of a hyperslab by its corner and its extent, as in the netCDF
        library.
        """
        if not len(start) == len(count) == len(shape):
            raise SelectionError(f"start {list(start)} and count {list(count)} must have {len(shape)} numbers each")
        for axis, (first, many, length) in enumerate(zip(start, count, shape, strict=True)):
            if first < 0 or many < 0 or first + many > length:
                raise SelectionError(f"start {first} and count {many} leave axis {axis} of length {length}")
        return cls(tuple(shape), tuple(Stride(int(s), 1, int(c)) for s, c in zip(start, count, strict=True)))

    @property
    def result_shape(self) -> tuple[int, ...]:
        """Shape of what is selected."""
        return tuple(s.length if isinstance(s, Stride) else len(s) for s in self.selectors if not isinstance(s, int))

    @property
    def is_whole(self) -> bool:
        """Whether it selects everything, in order."""
        every = zip(self.selectors, self.shape, strict=True)
        return all(isinstance(s, Stride) and s == (0, 1, length) for s, length in every)

    def select_box(self, box: Sequence[slice]) -> Selection:
        """Return the selection of a box of what is selected.

        Examples
        --------
        >>> Selection.of((slice(2, 20, 3), 1), (30, 5)).select_box((slice(1, 3),)).selectors
        (Stride(start=5, step=3, length=2), 1)
        """
        parts = iter(box)
        return Selection(self.shape, tuple(s if isinstance(s, int) else _part(s, next(parts)) for s in self.selectors))

    def spans(self, chunk_shape: Sequence[int] | None = None) -> Iterator[tuple[int, int]]:
        """Yield the runs of consecutive elements, `(first, count)`, that the selection takes of a
        C-ordered chunk.

        Parameters
        ----------
        chunk_shape
            Shape of the chunk; the shape that the selection was made for if not given.

        Examples
        --------
        >>> list(Selection.of((slice(1, 3), slice(0, 2)), (4, 5)).spans())
        [(5, 2), (10, 2)]
        """
        shape = self.shape if chunk_shape is None else tuple(chunk_shape)
        if len(shape) != len(self.selectors):
            raise SelectionError(f"the chunk has {len(shape)} axes, but the selection {len(self.selectors)}")
        first, many = flat_runs(self, shape)
        yield from zip(first.tolist(), many.tolist(), strict=True)


def _part(selector: Stride | npt.NDArray[np.int64], part: slice) -> Selector:
    """Return a slice, of step 1, of what is selected along an axis."""
    if isinstance(selector, np.ndarray):
        return selector[part]
    return Stride(selector.start + selector.step * part.start, selector.step, part.stop - part.start)


def normalise_axes(axes: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Return axes as non-negative numbers, in the order given; all axes if None.

    Raises
    ------
    AxisError
        If an axis does not exist, or is given twice.

    Examples
    --------
    >>> normalise_axes((-1, 0), 3)
    (2, 0)
    """
    if axes is None:
        return tuple(range(ndim))
    if type(axes) is tuple and len(axes) == 1 and type(axes[0]) is int and 0 <= axes[0] < ndim:  # as nearly always
        return axes
    given = [operator.index(axis) for axis in (axes if np.iterable(axes) else (axes,))]
    for axis in given:
        if not -ndim <= axis < ndim:
            raise AxisError(f"axis {axis} is out of bounds for an array of {ndim} dimensions")
    along = tuple(axis % ndim for axis in given)
    if len(set(along)) != len(along):
        raise AxisError(f"an axis is given twice: {tuple(given)}")
    return along


def flat_runs(selection: Selection, shape: Sequence[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the runs of consecutive elements of a C-ordered array, in the order of the selection:
    first elements, counts.
    """
    starts = np.zeros(1, np.int64)
    run = 1  # elements that lie together from each start, while all faster axes are whole
    whole = True
    stride = 1
    for selector, length in zip(reversed(selection.selectors), reversed(shape), strict=True):
        if isinstance(selector, int):
            index = np.array([selector])
        elif isinstance(selector, Stride):
            index = selector.positions
        else:
            index = selector
        if len(index) and (index.min() < 0 or index.max() >= length):
            raise SelectionError(f"the selection exceeds the chunk of shape {tuple(shape)}")
        if whole and len(index) and (np.diff(index) == 1).all():
            starts = starts + index[0] * stride
            run *= len(index)
            whole = len(index) == length
        else:
            starts = (index[:, None] * stride + starts[None, :]).reshape(-1)
            whole = False
        stride *= length
    if not len(starts):
        return starts, starts
    # Neighbouring runs may still touch, e.g. an index array that happens to be consecutive.
    breaks = np.flatnonzero(np.diff(starts) != run) + 1
    first = np.concatenate([starts[:1], starts[breaks]])
    many = np.diff(np.concatenate([[0], breaks, [len(starts)]])) * run
    return first, many


def _expand_ellipsis(keys: tuple[Any, ...], ndim: int) -> list[Any]:
    """Return one key for each axis: the Ellipsis replaced by slices, missing keys added."""
    gaps = [i for i, key in enumerate(keys) if key is Ellipsis]
    if len(gaps) > 1:
        raise SelectionError("a selection can have only one Ellipsis (...)")
    given = len(keys) - len(gaps)
    if given > ndim:
        raise SelectionError(f"too many indices: {given} for {ndim} dimensions")
    at = gaps[0] if gaps else len(keys)
    return [*keys[:at], *[slice(None)] * (ndim - given), *keys[at + 1 :]]


def _normalise_key(key: Any, length: int, axis: int) -> Selector:
    if isinstance(key, slice):
        return Stride.of(key, length)
    if key is None:
        raise SelectionError("a selection cannot add axes (None): use expand_dims")
    if isinstance(key, (bool, np.bool_)):
        raise SelectionError(f"axis {axis}: a single boolean is not an index; use an array of {length} booleans")
    if isinstance(key, (int, np.integer)):
        number = int(key)
        if not -length <= number < length:
            raise SelectionError(f"index {number} is out of bounds for axis {axis} with size {length}")
        return number % length
    array = np.asarray(key)
    if array.ndim == 0 and array.dtype.kind in "iu":
        return _normalise_key(int(array), length, axis)
    if array.ndim != 1:
        raise SelectionError(f"axis {axis}: an index array must have one dimension, not {array.ndim}")
    if array.dtype.kind == "b":
        if len(array) != length:
            raise SelectionError(f"axis {axis}: the boolean array has {len(array)} elements, the axis {length}")
        return np.flatnonzero(array).astype(np.int64)
    if not len(array):
        return np.zeros(0, np.int64)
    if array.dtype.kind not in "iu":
        raise SelectionError(f"axis {axis}: an index must be an integer or a boolean, not {array.dtype}")
    index = array.astype(np.int64)
    if index.min() < -length or index.max() >= length:
        wrong = index[(index < -length) | (index >= length)][0]
        raise SelectionError(f"index {wrong} is out of bounds for axis {axis} with size {length}")
    return np.where(index < 0, index + length, index)
