"""Structural operations as objects: selecting, transposing, adding and dropping dimensions.

Each is done to an array and to everything that its steps combine it with, so that a selection of an
expression reads the selected part of every operand. Operands have as many dimensions as the array,
with length 1 where they are broadcast; there a selection leaves the one element. What is shared
between operands stays shared.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from insitu.lazy_array.deferred_values import DeferredValues, PendingSelection
from insitu.lazy_array.steps import Step
from insitu.lazy_array.windows import NEW, Windows
from insitu.lru import LruCache
from insitu.model import Selection, VirtualArray

__all__ = ["AddDimension", "Broadcast", "DropDimension", "Move", "SelectEach", "Transpose"]

Values = npt.NDArray[Any]
Deferred = TypeVar("Deferred", bound=DeferredValues)


class Move(ABC):
    """One structural operation on an array of a certain shape."""

    def __init__(self) -> None:
        self._moved: dict[int, tuple[Any, Any]] = {}
        """What was moved already: the object itself keeps its identity taken."""

    @property
    def makes_view(self) -> bool:
        """Whether NumPy does it without copying values."""
        return True

    @abstractmethod
    def virtual(self, array: VirtualArray) -> VirtualArray | PendingSelection:
        """Return a virtual array after the operation."""

    @abstractmethod
    def values(self, values: Values) -> Values:
        """Return values after the operation."""

    @abstractmethod
    def windows(self, windows: Windows) -> Windows:
        """Return windows after the operation; they may stay broadcast."""

    def operand(self, array: VirtualArray) -> VirtualArray | PendingSelection:
        """Return the virtual array of an operand, which may stay broadcast."""
        return self.virtual(array)

    def constant(self, values: Values) -> Values:
        """Return the values of an operand, which may stay broadcast."""
        return self.values(values)

    def steps(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Return the steps of an array after the operation."""
        return tuple(self._once(step, lambda step: step.after_move(self)) for step in steps)

    def argument(self, argument: Any) -> Any:
        """Return an argument of an operation: an array in memory, a virtual one, or a number."""
        if isinstance(argument, DeferredValues):
            return self._once(argument, self._as_deferred)
        return self.constant(argument) if isinstance(argument, np.ndarray) and argument.ndim else argument

    def whole(self, array: Deferred) -> Deferred:
        """Return an array after the operation, with all its operands."""
        return self._rebuild(array, self._once(array.array, self.virtual), self.values)

    def _as_deferred(self, operand: DeferredValues) -> DeferredValues:
        return self._rebuild(operand, self._once(operand.array, self.operand), self.constant)

    def _rebuild(
        self, array: Deferred, moved: VirtualArray | PendingSelection, move: Callable[[Values], Values]
    ) -> Deferred:
        made = type(array)(moved, array.access, self.steps(array.steps)).derived_from(array, move)
        if array.leaf is not None:
            made.leaf = self._rebuild(array.leaf, moved, move)
        return made

    def _once(self, item: Any, move: Any) -> Any:
        if id(item) not in self._moved:
            self._moved[id(item)] = item, move(item)
        return self._moved[id(item)][1]


_selected: LruCache[Any, PendingSelection] = LruCache(8)
"""What was selected by indices last, and from which array: xarray pads an array several times in a
row, and what is the same object is read once.
"""


def _digest(keys: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return keys in a form that can be compared."""
    return tuple(
        hashlib.blake2b(np.ascontiguousarray(key).tobytes(), person=key.dtype.str.encode()[:16]).digest()
        if isinstance(key, np.ndarray)
        else repr(key)
        for key in keys
    )


class SelectEach(Move):
    """Selection of each dimension on its own.

    Parameters
    ----------
    shape
        Of the array.
    keys
        For each dimension an integer, a slice, or an array of indices.
    """

    def __init__(self, shape: Sequence[int], keys: tuple[Any, ...]) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.keys = keys
        self._inside: dict[Any, SelectEach] = {}

    @property
    def makes_view(self) -> bool:
        """Whether NumPy does it without copying values."""
        return not any(isinstance(key, np.ndarray) for key in self.keys)

    def virtual(self, array: VirtualArray) -> PendingSelection:
        """Return a virtual array after the operation."""
        keys = self._keys_for(array.shape)
        if not any(isinstance(key, np.ndarray) for key in keys):
            return PendingSelection(array, Selection.of(keys, array.shape))
        about = id(array), _digest(keys)
        found = _selected.get(about)
        if found is None:
            found = PendingSelection(array, Selection.of(keys, array.shape))
            _selected.put(about, found)
        return found

    def values(self, values: Values) -> Values:
        """Return values after the operation."""
        keys = self._keys_for(values.shape)
        for axis in reversed(range(len(keys))):
            values = values[(slice(None),) * axis + (keys[axis], ...)]  # never a scalar: that forgets its width
        return values

    def windows(self, windows: Windows) -> Windows:
        """Return windows after the operation."""
        return windows.select(self._keys_for(windows.shape), self._select_inside)

    def _select_inside(self, inner: Deferred, keys: tuple[Any, ...]) -> Deferred:
        """Return the part of an array that windows need; windows that need the same share it."""
        about = inner.shape, _digest(keys)
        if about not in self._inside:
            self._inside[about] = SelectEach(inner.shape, keys)
        return self._inside[about].whole(inner)

    def _keys_for(self, shape: Sequence[int]) -> tuple[Any, ...]:
        return tuple(
            key if length == whole else 0 if isinstance(key, (int, np.integer)) else slice(None)
            for key, length, whole in zip(self.keys, shape, self.shape, strict=True)
        )


class Transpose(Move):
    """Another order of the dimensions."""

    def __init__(self, order: tuple[int, ...]) -> None:
        super().__init__()
        self.order = order

    def virtual(self, array: VirtualArray) -> VirtualArray:
        """Return a virtual array after the operation."""
        return array.transpose(*self.order)

    def values(self, values: Values) -> Values:
        """Return values after the operation."""
        return values.transpose(self.order)

    def windows(self, windows: Windows) -> Windows:
        """Return windows after the operation."""
        return replace(windows, layout=tuple(windows.layout[axis] for axis in self.order))


class AddDimension(Move):
    """A new dimension of length 1."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def virtual(self, array: VirtualArray) -> VirtualArray:
        """Return a virtual array after the operation."""
        return array.expand_dims(self.axis, f"new_{array.ndim}")

    def values(self, values: Values) -> Values:
        """Return values after the operation."""
        return np.expand_dims(values, self.axis)

    def windows(self, windows: Windows) -> Windows:
        """Return windows after the operation."""
        at = self.axis
        return replace(windows, layout=(*windows.layout[:at], (NEW, 0), *windows.layout[at:]))


class DropDimension(Move):
    """A dimension of length 1 less."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def virtual(self, array: VirtualArray) -> VirtualArray:
        """Return a virtual array after the operation."""
        return array.drop(self.axis)

    def values(self, values: Values) -> Values:
        """Return values after the operation."""
        return np.squeeze(values, self.axis)

    def windows(self, windows: Windows) -> Windows:
        """Return windows after the operation."""
        at = self.axis
        return replace(windows, layout=(*windows.layout[:at], *windows.layout[at + 1 :]))


class Broadcast(Move):
    """A larger shape, as NumPy broadcasts; operands only get as many dimensions."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def argument(self, argument: Any) -> Any:
        """Return an argument of an operation: as it is, if it has enough dimensions."""
        return argument if np.ndim(argument) == len(self.shape) else super().argument(argument)

    def whole(self, array: Deferred) -> Deferred:
        """Return an array after the operation, with all its operands."""
        # Not remembered: where the same array is an operand, it stays broadcast.
        return self._rebuild(array, self.virtual(array.array), self.values)

    def virtual(self, array: VirtualArray) -> VirtualArray:
        """Return a virtual array after the operation."""
        return array.broadcast_to(self.shape)

    def values(self, values: Values) -> Values:
        """Return values after the operation."""
        return np.broadcast_to(values, self.shape)

    def operand(self, array: VirtualArray) -> VirtualArray:
        """Return the virtual array of an operand, which may stay broadcast."""
        for _ in range(len(self.shape) - array.ndim):
            array = array.expand_dims(0, f"new_{array.ndim}")
        return array

    def constant(self, values: Values) -> Values:
        """Return the values of an operand, which may stay broadcast."""
        return values.reshape((1,) * (len(self.shape) - values.ndim) + values.shape)

    def windows(self, windows: Windows) -> Windows:
        """Return windows after the operation; they stay broadcast."""
        return replace(windows, layout=((NEW, 0),) * (len(self.shape) - len(windows.layout)) + windows.layout)
