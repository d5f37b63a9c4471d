"""Joining of expressions: the same operations on joined operands.

Files of one archive are preprocessed by the same formula. Joined they are that formula of the joined
arrays, so nothing is read. Expressions of different operations do not join.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from insitu.lazy_array.deferred_values import join_access
from insitu.lazy_array.duck_array import LazyArray
from insitu.lazy_array.steps import ITSELF, Apply, Step, Where
from insitu.model import concatenate

__all__ = ["join_lazy_arrays"]


class _DifferentError(Exception):
    """The expressions are not of the same operations."""


def join_lazy_arrays(arrays: Sequence[LazyArray], axis: int) -> LazyArray | None:
    """Return virtual arrays joined along an axis, steps and all; None if their steps differ."""
    try:
        return _join(arrays, axis)
    except _DifferentError:
        return None


def _join(arrays: Sequence[LazyArray], axis: int) -> LazyArray:
    if len({len(array.steps) for array in arrays}) > 1:
        raise _DifferentError
    lengths = [array.shape[axis] for array in arrays]
    steps = zip(*(array.steps for array in arrays), strict=True)
    joined = concatenate([array.array for array in arrays], axis)
    return LazyArray(joined, join_access(arrays), tuple(_join_steps(alike, axis, lengths) for alike in steps))


def _join_steps(steps: Sequence[Step], axis: int, lengths: Sequence[int]) -> Step:
    first = steps[0]
    if all(step == first for step in steps):
        return first
    if all(isinstance(step, Where) and _same((step.other, step.to), (first.other, first.to)) for step in steps):  # type: ignore[union-attr]
        conditions = _join_arguments([step.condition for step in steps], axis, lengths)  # type: ignore[union-attr]
        return Where(conditions, first.other, first.to)  # type: ignore[union-attr]
    if not isinstance(first, Apply):
        raise _DifferentError
    about = first.operation, first.to, first.errors, len(first.arguments)
    for step in steps:
        if not isinstance(step, Apply) or (step.operation, step.to, step.errors, len(step.arguments)) != about:
            raise _DifferentError
    arguments = zip(*(step.arguments for step in steps if isinstance(step, Apply)), strict=True)
    joined = tuple(_join_arguments(alike, axis, lengths) for alike in arguments)
    return Apply(first.operation, joined, first.to, first.errors)


def _join_arguments(arguments: Sequence[Any], axis: int, lengths: Sequence[int]) -> Any:
    first = arguments[0]
    if first is ITSELF and all(argument is ITSELF for argument in arguments):
        return first
    if all(isinstance(argument, LazyArray) for argument in arguments):
        if first.shape[axis] == 1 and all(argument is first for argument in arguments):
            return first
        return _join([_lengthen(argument, axis, n) for argument, n in zip(arguments, lengths, strict=True)], axis)
    if all(isinstance(argument, np.ndarray) and argument.ndim for argument in arguments):
        if first.shape[axis] == 1 and all(_same(argument, first) for argument in arguments):
            return first
        shape = np.broadcast_shapes(*((*a.shape[:axis], 1, *a.shape[axis + 1 :]) for a in arguments))
        shapes = [(*shape[:axis], n, *shape[axis + 1 :]) for n in lengths]
        return np.concatenate([np.broadcast_to(a, own) for a, own in zip(arguments, shapes, strict=True)], axis)
    if all(_same(argument, first) for argument in arguments):
        return first
    raise _DifferentError


def _lengthen(argument: Any, axis: int, length: int) -> Any:
    """Return an argument that is not broadcast along an axis."""
    if argument.shape[axis] == length:
        return argument
    return np.broadcast_to(argument, (*argument.shape[:axis], length, *argument.shape[axis + 1 :]))


def _same(one: Any, other: Any) -> bool:
    """Return whether two constants are the same, type and all."""
    if isinstance(one, tuple):
        return len(one) == len(other) and all(_same(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, (np.ndarray, np.generic)):
        return (
            type(one) is type(other)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and one.tobytes() == other.tobytes()
        )
    return one is other or (type(one) is type(other) and isinstance(one, (bool, int, float, complex)) and one == other)
