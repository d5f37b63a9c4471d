"""Structural operations: selecting, transposing, adding and dropping dimensions, broadcasting.

Each is done to every array of an expression, so that a selection reads the selected part of every operand.
Operands have as many dimensions as the result, with length 1 where they are broadcast; there a selection leaves
the one element. What is shared between operands stays shared.
"""

from __future__ import annotations

import hashlib
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.expressions.nodes import (
    Broadcast,
    Constant,
    Expression,
    Moved,
    Operation,
    Stored,
    WindowsOf,
    iterate_nodes,
    make_operation,
    without_moves,
)
from insitu.expressions.windows import NEW, select_windows
from insitu.lru import LruCache
from insitu.model import Selection, Stride

__all__ = [
    "AddDimension",
    "DropDimension",
    "SelectEach",
    "StructuralMove",
    "Transpose",
    "add_dimensions",
    "broadcast",
    "select_box",
    "select_elements",
]

Values = npt.NDArray[Any]
Shape = tuple[int, ...]


class StructuralMove(ABC):
    """One structural operation on an expression of a certain shape."""

    def __init__(self) -> None:
        self._moved: dict[int, tuple[Expression, Expression]] = {}
        """By identity, nodes and what became of them: what expressions share stays shared. What is left of a move must
        not refer to nodes that refer to it: they would wait for the garbage collector.
        """

    @property
    def makes_view(self) -> bool:
        """Whether NumPy does it without copying values."""
        return True

    @abstractmethod
    def of_shape(self, shape: Shape) -> Shape:
        """Return the shape after the operation."""

    @abstractmethod
    def of_stored(self, stored: Stored) -> Stored:
        """Return a stored array after the operation; along some dimensions it may be broadcast."""

    @abstractmethod
    def of_values(self, values: Values) -> Values:
        """Return values after the operation; along some dimensions they may be broadcast."""

    @abstractmethod
    def of_windows(self, windows: WindowsOf) -> WindowsOf:
        """Return windows after the operation."""

    def apply(self, expression: Expression) -> Expression:
        """Return an expression after the operation."""
        try:
            return self._apply(expression)
        finally:
            self.forget()

    def _apply(self, expression: Expression) -> Expression:
        """Return an expression after the operation, which shares parts with those before."""
        return Moved.remember(expression, self, self.apply_directly(expression))

    def forget(self) -> None:
        """Forget nodes that were moved."""
        self._moved.clear()

    def apply_directly(self, expression: Expression) -> Expression:
        """Return an expression after the operation, which is done to each of its arrays."""
        found = without_moves(expression)
        for node in iterate_nodes([found], self._moved, into_windows=False):  # they choose themselves what they need
            self._moved[id(node)] = node, self._of_node(node)
        return without_moves(self._moved[id(found)][1])

    def _of_node(self, node: Expression) -> Expression:
        match node:
            case Stored():
                return Moved.remember(node, self, self.of_stored(node))
            case Constant(values):
                return Constant(self.of_values(values), node.context)
            case Moved(_, _, direct):
                return Moved.remember(node, self, without_moves(self._moved[id(direct)][1]))
            case Broadcast(of, shape):
                return broadcast(self._moved[id(of)][1], self.of_shape(shape))
            case WindowsOf():
                return broadcast(self.of_windows(node), self.of_shape(node.shape))
            case Operation():
                given = [self._moved[id(part)][1] if isinstance(part, Expression) else part for part in node.given]
                return make_operation(node.function, given, node.dtype, node.errors)
        raise AssertionError(f"unknown node {type(node)}")


_selected: LruCache[Any, tuple[weakref.ref[Expression], weakref.ref[Expression]]] = LruCache(32)
"""Nodes of which parts were selected by indices last, and these parts: xarray pads an array, and what it makes of it,
several times in a row, and what is the same object is computed once.
"""


def _digest(keys: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return keys in a form that can be compared."""
    return tuple(
        hashlib.blake2b(np.ascontiguousarray(key).tobytes(), person=key.dtype.str.encode()[:16]).digest()
        if isinstance(key, np.ndarray)
        else repr(key)
        for key in keys
    )


class SelectEach(StructuralMove):
    """Selection of each dimension on its own.

    Parameters
    ----------
    shape
        Of the expression.
    keys
        For each dimension an integer, a slice, or an array of indices.
    """

    def __init__(self, shape: Sequence[int], keys: tuple[Any, ...]) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.keys = keys
        self._inside: dict[Any, SelectEach] = {}
        """Of what windows lie in: windows that need the same part share it."""
        self._digest = () if self.makes_view else _digest(keys)

    @property
    def makes_view(self) -> bool:
        """Whether NumPy does it without copying values."""
        return not any(isinstance(key, np.ndarray) for key in self.keys)

    def _of_node(self, node: Expression) -> Expression:
        if self.makes_view:
            return super()._of_node(node)
        about = id(node), self._digest
        known = _selected.get(about)
        found = None if known is None or known[0]() is not node else known[1]()
        if found is None:
            found = super()._of_node(node)
            _selected.put(about, (weakref.ref(node), weakref.ref(found)))
        return found

    def forget(self) -> None:
        """Forget nodes that were moved."""
        super().forget()
        for inside in self._inside.values():
            inside.forget()
        self._inside.clear()

    def of_shape(self, shape: Shape) -> Shape:
        """Return the shape after the operation."""
        return Selection.of(self._keys_for(shape), shape).result_shape

    def of_stored(self, stored: Stored) -> Stored:
        """Return a stored array after the operation."""
        array = stored.array
        return Stored(array, stored.context, Selection.of(self._keys_for(array.shape), array.shape))

    def of_values(self, values: Values) -> Values:
        """Return values after the operation."""
        keys = self._keys_for(values.shape)
        for axis in reversed(range(len(keys))):
            values = values[(slice(None),) * axis + (keys[axis], ...)]  # never a scalar: that forgets its width
        return values

    def of_windows(self, windows: WindowsOf) -> WindowsOf:
        """Return windows after the operation."""
        return select_windows(windows, self._keys_for(windows.shape), self._select_inside)

    def _select_inside(self, inner: Expression, keys: tuple[Any, ...]) -> Expression:
        """Return the part of an expression that windows need."""
        about = inner.shape, _digest(keys)
        if about not in self._inside:
            self._inside[about] = SelectEach(inner.shape, keys)
        return self._inside[about]._apply(inner)

    def _keys_for(self, shape: Sequence[int]) -> tuple[Any, ...]:
        return tuple(
            key if length == whole else 0 if isinstance(key, (int, np.integer)) else slice(None)
            for key, length, whole in zip(self.keys, shape, self.shape, strict=True)
        )


def select_box(expression: Expression, box: Sequence[slice]) -> Expression:
    """Return a box of an expression."""
    if all(part == slice(0, length) for part, length in zip(box, expression.shape, strict=True)):
        return expression
    if isinstance(expression, Stored) and expression.selection is not None and not expression.is_cut:
        return Stored(expression.whole, expression.context, expression.selection.select_box(box))
    return SelectEach(expression.shape, tuple(box)).apply(expression)


def select_elements(expression: Expression, selection: Selection) -> Expression:
    """Return what is selected of an expression, each dimension on its own."""
    keys = tuple(_stride_slice(key) if isinstance(key, Stride) else key for key in selection.selectors)
    return SelectEach(expression.shape, keys).apply(expression)


def _stride_slice(stride: Stride) -> slice:
    start, step, length = stride
    stop = start + step * length
    return slice(start, None if stop < 0 else stop, step) if length else slice(0, 0)


class Transpose(StructuralMove):
    """Another order of the dimensions."""

    def __init__(self, order: tuple[int, ...]) -> None:
        super().__init__()
        self.order = order

    def of_shape(self, shape: Shape) -> Shape:
        """Return the shape after the operation."""
        return tuple(shape[axis] for axis in self.order)

    def of_stored(self, stored: Stored) -> Stored:
        """Return a stored array after the operation."""
        return Stored(stored.array.transpose(*self.order), stored.context)

    def of_values(self, values: Values) -> Values:
        """Return values after the operation."""
        return values.transpose(self.order)

    def of_windows(self, windows: WindowsOf) -> WindowsOf:
        """Return windows after the operation."""
        return replace(windows, layout=tuple(windows.layout[axis] for axis in self.order))


class AddDimension(StructuralMove):
    """A new dimension of length 1."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def of_shape(self, shape: Shape) -> Shape:
        """Return the shape after the operation."""
        return (*shape[: self.axis], 1, *shape[self.axis :])

    def of_stored(self, stored: Stored) -> Stored:
        """Return a stored array after the operation."""
        return Stored(stored.array.expand_dims(self.axis, f"new_{stored.ndim}"), stored.context)

    def of_values(self, values: Values) -> Values:
        """Return values after the operation."""
        return np.expand_dims(values, self.axis)

    def of_windows(self, windows: WindowsOf) -> WindowsOf:
        """Return windows after the operation."""
        at = self.axis
        return replace(windows, layout=(*windows.layout[:at], (NEW, 0), *windows.layout[at:]))


class DropDimension(StructuralMove):
    """A dimension of length 1 less."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def of_shape(self, shape: Shape) -> Shape:
        """Return the shape after the operation."""
        return (*shape[: self.axis], *shape[self.axis + 1 :])

    def of_stored(self, stored: Stored) -> Stored:
        """Return a stored array after the operation."""
        return Stored(stored.array.drop(self.axis), stored.context)

    def of_values(self, values: Values) -> Values:
        """Return values after the operation."""
        return np.squeeze(values, self.axis)

    def of_windows(self, windows: WindowsOf) -> WindowsOf:
        """Return windows after the operation."""
        at = self.axis
        return replace(windows, layout=(*windows.layout[:at], *windows.layout[at + 1 :]))


class Repeat(StructuralMove):
    """A larger shape, as NumPy broadcasts."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape

    def of_shape(self, shape: Shape) -> Shape:
        """Return the shape after the operation."""
        return self.shape

    def of_stored(self, stored: Stored) -> Stored:
        """Return a stored array after the operation."""
        return Stored(stored.array.broadcast_to(self.shape), stored.context)

    def of_values(self, values: Values) -> Values:
        """Return values after the operation."""
        return np.broadcast_to(values, self.shape)

    def of_windows(self, windows: WindowsOf) -> WindowsOf:
        """Windows are repeated once they are taken."""
        raise AssertionError("windows are not broadcast")

    def apply_directly(self, expression: Expression) -> Expression:
        """Return an expression after the operation: what is computed is repeated afterwards."""
        found = without_moves(expression)
        match found:
            case Stored():
                return self.of_stored(found)
            case Constant(values):
                return Constant(self.of_values(values), found.context)
        np.broadcast_to(np.broadcast_to(np.int8(0), found.shape), self.shape)  # raises what NumPy raises
        of = found.of if isinstance(found, Broadcast) else found
        return Broadcast(add_dimensions(of, len(self.shape)), self.shape)


def broadcast(expression: Expression, shape: Shape) -> Expression:
    """Return an expression broadcast to a shape, as NumPy does."""
    return expression if expression.shape == shape else Repeat(shape).apply(expression)


def add_dimensions(expression: Expression, ndim: int) -> Expression:
    """Return an expression with so many dimensions: new ones come first, with length 1."""
    for _ in range(ndim - expression.ndim):
        expression = AddDimension(0).apply(expression)
    return expression
