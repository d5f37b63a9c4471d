"""NumPy functions that work on a virtual array without reading it, registered with `dispatch`.

These are what xarray calls for concat, stack, transpose, broadcast, pad, reindex and where.
Reductions are in `reductions`, `einsum` in `einsum`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.combining.member import in_memory
from insitu.lazy_array.dispatch import implements, to_computable
from insitu.lazy_array.duck_array import LazyArray
from insitu.lazy_array.expressions import combine
from insitu.lazy_array.join_expressions import join_lazy_arrays
from insitu.lazy_array.numpy_reductions import report_not_on_server
from insitu.lazy_array.padding import take_with_fill
from insitu.lazy_array.steps import FillNull, IsNull, Not, Round, Where
from insitu.lazy_array.windowing import slide_windows, split_dimensions

__all__: list[str] = []

REPEATING_MODES = ("edge", "wrap", "reflect", "symmetric")
"""Modes of `np.pad` that repeat elements of the array."""

# Joining.


@implements(np.concatenate)
def _concatenate(arrays: Sequence[Any], axis: int | None = 0, out: Any = None, **kwargs: Any) -> Any:
    if axis is None or out is not None or kwargs:
        return NotImplemented
    lazy = _as_lazy_arrays(arrays)
    if lazy is None:
        return NotImplemented
    dtype = np.result_type(*(array.dtype for array in lazy))
    joined = join_lazy_arrays(lazy, axis % lazy[0].ndim)
    return NotImplemented if joined is None else joined.astype(dtype)


@implements(np.stack)
def _stack(arrays: Sequence[Any], axis: int = 0, out: Any = None, **kwargs: Any) -> Any:
    if out is not None or kwargs:
        return NotImplemented
    lazy = _as_lazy_arrays(arrays)
    if lazy is None:
        return NotImplemented
    at = axis % (lazy[0].ndim + 1)
    return _concatenate([array.expand_dims(at) for array in lazy], at)


def _as_lazy_arrays(arrays: Sequence[Any]) -> list[LazyArray] | None:
    """Return all of them as virtual arrays of types that fit together; None if that is not possible."""
    lazy = []
    for array in arrays:
        if not isinstance(array, LazyArray):
            carried = in_memory(np.asarray(array))
            if carried is None:
                return None
            array = LazyArray(carried)
        lazy.append(array)
    kinds = {array.dtype.kind for array in lazy}
    if len({array.dtype for array in lazy}) > 1 and not kinds <= set("biufc") and len(kinds) > 1:
        return None
    return lazy


# Moving.


@implements(np.transpose)
def _transpose(a: LazyArray, axes: Any = None) -> Any:
    return a.transpose(axes)


@implements(np.moveaxis)
def _moveaxis(a: LazyArray, source: Any, destination: Any) -> Any:
    order = np.moveaxis(np.empty((1,) * a.ndim), source, destination)  # checks its arguments
    del order
    from_ = [int(i) % a.ndim for i in np.atleast_1d(source)]
    to = [int(i) % a.ndim for i in np.atleast_1d(destination)]
    axes = [i for i in range(a.ndim) if i not in from_]
    for target, origin in sorted(zip(to, from_, strict=True)):
        axes.insert(target, origin)
    return a.transpose(axes)


@implements(np.swapaxes)
def _swapaxes(a: LazyArray, axis1: int, axis2: int) -> Any:
    axes = list(range(a.ndim))
    axes[axis1], axes[axis2] = axes[axis2], axes[axis1]
    return a.transpose(axes)


@implements(np.expand_dims)
def _expand_dims(a: LazyArray, axis: Any) -> Any:
    ndim = a.ndim + len(np.atleast_1d(axis))
    for place in sorted(int(i) % ndim for i in np.atleast_1d(axis)):
        a = a.expand_dims(place)
    return a


@implements(np.squeeze)
def _squeeze(a: LazyArray, axis: Any = None) -> Any:
    gone = (
        [i for i, n in enumerate(a.shape) if n == 1] if axis is None else [int(i) % a.ndim for i in np.atleast_1d(axis)]
    )
    if any(a.shape[i] != 1 for i in gone):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    for place in sorted(gone, reverse=True):
        a = a.drop(place)
    return a


@implements(np.broadcast_to)
def _broadcast_to(array: LazyArray, shape: Any, subok: bool = False) -> Any:
    return array.broadcast_to((shape,) if isinstance(shape, int) else shape)


@implements(np.broadcast_arrays)
def _broadcast_arrays(*arrays: Any, subok: bool = False) -> Any:
    shape = np.broadcast_shapes(*(np.shape(array) for array in arrays))
    return tuple(np.broadcast_to(array, shape) for array in arrays)


@implements(np.flip)
def _flip(m: LazyArray, axis: Any = None) -> Any:
    turned = range(m.ndim) if axis is None else [int(i) % m.ndim for i in np.atleast_1d(axis)]
    return m[tuple(slice(None, None, -1) if i in turned else slice(None) for i in range(m.ndim))]


@implements(np.take)
def _take(a: LazyArray, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Any:
    if axis is None or out is not None or mode != "raise" or np.ndim(indices) > 1:
        return NotImplemented
    return a[(slice(None),) * (axis % a.ndim) + (indices,)]


@implements(np.repeat)
def _repeat(a: LazyArray, repeats: Any, axis: int | None = None) -> Any:
    if axis is None:
        return NotImplemented
    axis = axis % a.ndim
    return a[(slice(None),) * axis + (np.repeat(np.arange(a.shape[axis]), repeats),)]


@implements(np.roll)
def _roll(a: LazyArray, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        return NotImplemented
    key: list[Any] = [slice(None)] * a.ndim
    for by, where in zip(np.atleast_1d(shift), np.atleast_1d(axis), strict=True):
        key[int(where) % a.ndim] = np.roll(np.arange(a.shape[int(where)]), int(by))
    return a.oindex[tuple(key)]


@implements(np.reshape)
def _reshape(a: LazyArray, shape: Any = None, order: Any = "C", **kwargs: Any) -> Any:
    """Return the array in another shape: virtual where only lengths of 1 come or go."""
    wanted = np.reshape(np.broadcast_to(np.int8(0), a.shape), shape).shape  # spells out -1, checks the size
    if [n for n in wanted if n != 1] != [n for n in a.shape if n != 1] or 0 in wanted:
        report_not_on_server(a, "other shapes (as in coarsen and stack)")
        split = split_dimensions(a, wanted) if order == "C" and a.dtype.kind in "biufcmM" else None
        if split is not None:
            return split
        values = to_computable(a)  # Dask's has no order
        return np.reshape(values, wanted) if order == "C" else np.reshape(values, wanted, order=order)
    bare = _squeeze(a)
    for place, length in enumerate(wanted):
        if length == 1:
            bare = bare.expand_dims(place)
    return bare


@implements(np.lib.stride_tricks.sliding_window_view)
def _sliding_window_view(
    x: LazyArray, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Any:
    lengths = [int(length) for length in np.atleast_1d(window_shape)]
    axes = list(range(x.ndim)) if axis is None else [int(i) % x.ndim for i in np.atleast_1d(axis)]
    if len(lengths) != len(axes) or len(set(axes)) < len(axes) or x.dtype.kind not in "biufcmM" or writeable:
        return NotImplemented
    return slide_windows(x, lengths, axes)


@implements(np.pad)
def _pad(array: LazyArray, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    widths = np.broadcast_to(np.asarray(pad_width, int), (array.ndim, 2)).tolist()
    if mode in REPEATING_MODES and 0 not in array.shape:
        places = zip(array.shape, widths, strict=True)
        return array.oindex[tuple(np.pad(np.arange(n), width, mode, **kwargs) for n, width in places)]
    if mode != "constant" or set(kwargs) - {"constant_values"} or np.ndim(kwargs.get("constant_values", 0)):
        return NotImplemented
    indices = [
        np.concatenate([np.full(before, -1), np.arange(n), np.full(after, -1)]) if before or after else None
        for n, (before, after) in zip(array.shape, widths, strict=True)
    ]
    return take_with_fill(array, indices, kwargs.get("constant_values", 0))


# Choosing.


@implements(np.where)
def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None or y is None:
        return NotImplemented
    special = _where_special(condition, x, y)
    return combine("where", condition, x, y) if special is NotImplemented else special


def _where_special(condition: Any, x: Any, y: Any) -> Any:
    """Return a choice that is no expression: of missing values, or by a mask in memory."""
    if isinstance(condition, LazyArray):
        return _where_null(condition, x, y)
    if isinstance(x, LazyArray) and (other := _constant(y, x)) is not None:
        return _mask(x, np.asarray(condition, bool), other)
    if isinstance(y, LazyArray) and (other := _constant(x, y)) is not None:
        return _mask(y, ~np.asarray(condition, bool), other)
    return NotImplemented


def _constant(value: Any, beside: Any) -> npt.NDArray[Any] | None:
    """Return the one value of an array that is the same everywhere by construction.

    A number of Python takes the type of the array beside it, as far as it fits.
    """
    if isinstance(value, LazyArray):
        return None
    if isinstance(value, (int, float, complex)) and isinstance(beside, LazyArray) and beside.dtype.kind in "biufc":
        return np.asarray(value, np.result_type(beside.dtype, value))
    array = np.asarray(value)
    if array.ndim == 0:
        return array
    if not any(array.strides) and array.size:
        return np.asarray(array[(0,) * array.ndim])
    return None


def _where_null(condition: LazyArray, x: Any, y: Any) -> Any:
    """Return `where(isnan(a), value, a)`, or its negation, as a step.

    xarray asks for it before a sum.
    """
    if condition.steps and condition.steps[-1] == Not():
        inner = LazyArray(condition._array, condition.access, condition.steps[:-1])
        return _where_null(inner, y, x)
    value, array = _constant(x, y), y
    if value is None or not isinstance(array, LazyArray) or condition.steps != (*array.steps, IsNull()):
        return NotImplemented
    if condition.array is not array.array:
        return NotImplemented
    return array.then(FillNull(value[()], np.result_type(array.dtype, value)))


def _mask(array: LazyArray, keep: npt.NDArray[np.bool_], other: npt.NDArray[Any]) -> Any:
    shape = np.broadcast_shapes(array.shape, keep.shape)
    array = array.broadcast_to(shape)
    dtype = np.result_type(array.dtype, other.dtype) if other.dtype.kind != "O" else other.dtype
    if keep.all():
        return array.astype(dtype)
    array = array.astype(dtype)
    shown = np.reshape(keep, (1,) * (len(shape) - keep.ndim) + keep.shape)
    marks = [shown.any(axis=tuple(i for i in range(len(shape)) if i != d)) for d in range(len(shape))]
    if math.prod(int(m.sum()) for m in marks) == int(shown.sum()):
        # What is kept is a grid: along each dimension some indices are, some are not.
        indices = [
            None if mark.all() else np.where(np.broadcast_to(mark, (n,)), np.arange(n), -1)
            for mark, n in zip(marks, shape, strict=True)
        ]
        return take_with_fill(array, indices, other[()])
    return array.then(Where(np.broadcast_to(shown, shape), other[()], dtype))


# Made like it.


@implements(np.zeros_like)
def _zeros_like(a: LazyArray, dtype: Any = None, **kwargs: Any) -> Any:
    return _full_view_like(a, 0, dtype, kwargs)


@implements(np.ones_like)
def _ones_like(a: LazyArray, dtype: Any = None, **kwargs: Any) -> Any:
    return _full_view_like(a, 1, dtype, kwargs)


@implements(np.empty_like)
def _empty_like(prototype: LazyArray, dtype: Any = None, **kwargs: Any) -> Any:
    return np.empty(kwargs.get("shape") or prototype.shape, dtype or prototype.dtype)


@implements(np.full_like)
def _full_like(a: LazyArray, fill_value: Any, dtype: Any = None, **kwargs: Any) -> Any:
    return _full_view_like(a, fill_value, dtype, kwargs)


def _full_view_like(a: LazyArray, value: Any, dtype: Any, kwargs: dict[str, Any]) -> Any:
    # One element shown everywhere: xarray makes such arrays of the full shape only to choose from
    # them.
    shape = kwargs.get("shape")
    return np.broadcast_to(np.asarray(value, dtype or a.dtype), a.shape if shape is None else shape)


# Asked about it.


@implements(np.shape)
def _shape(a: LazyArray) -> Any:
    return a.shape


@implements(np.ndim)
def _ndim(a: LazyArray) -> Any:
    return a.ndim


@implements(np.size)
def _size(a: LazyArray, axis: int | None = None) -> Any:
    return a.size if axis is None else a.shape[axis]


@implements(np.copy)
def _copy(a: LazyArray, order: str = "K", subok: bool = False) -> Any:
    return a.copy()


@implements(np.astype)
def _astype(x: LazyArray, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    return x.astype(dtype, copy=copy)


@implements(np.round, np.around)
def _round(a: LazyArray, decimals: int = 0, out: Any = None) -> Any:
    if out is not None or a.dtype.kind not in "fciu":
        return NotImplemented
    return a.copy() if a.dtype.kind in "iu" and decimals >= 0 else a.then(Round(decimals))


@implements(np.result_type)
def _result_type(*arrays: Any) -> Any:
    return np.result_type(*(array.dtype if isinstance(array, LazyArray) else array for array in arrays))


@implements(np.can_cast)
def _can_cast(from_: Any, to: Any, casting: Any = "safe") -> Any:
    return np.can_cast(from_.dtype if isinstance(from_, LazyArray) else from_, to, casting)


@implements(np.iscomplexobj)
def _iscomplexobj(x: LazyArray) -> Any:
    return x.dtype.kind == "c"


@implements(np.may_share_memory, np.shares_memory)
def _shares_memory(a: Any, b: Any, max_work: Any = None) -> Any:
    return a is b
