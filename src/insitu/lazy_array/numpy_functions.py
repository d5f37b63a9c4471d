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

from insitu.expressions.element_operations import fill_null, find_null_tested, find_operand, mask
from insitu.expressions.join_expressions import join_expressions
from insitu.expressions.nodes import without_moves
from insitu.expressions.padding import convert_fill, take_with_fill
from insitu.lazy_array.at_once import Postponed, call_at_once
from insitu.lazy_array.dispatch import implements, own_result, to_computable
from insitu.lazy_array.duck_array import LazyArray
from insitu.lazy_array.numpy_operations import combine
from insitu.lazy_array.numpy_reductions import report_not_on_server
from insitu.lazy_array.windowing import slide_windows, split_dimensions
from insitu.model import Inline, VirtualArray, normalise_axes
from insitu.model.elementwise import result_type
from insitu.scanning.member import in_memory

__all__: list[str] = []

REPEATING_MODES = ("edge", "wrap", "reflect", "symmetric")
"""Modes of `np.pad` that repeat elements of the array."""

# Joining.


@implements(np.concatenate)
def _concatenate(arrays: Sequence[Any], axis: int | None = 0, out: Any = None, **kwargs: Any) -> Any:
    if axis is None or out is not None or kwargs:
        return NotImplemented
    lazy = _as_lazy_arrays(arrays)
    if lazy is None or not lazy[0].ndim:
        return NotImplemented
    (along,) = normalise_axes(axis, lazy[0].ndim)
    if len({array.ndim for array in lazy}) > 1:
        raise ValueError(f"arrays of shapes {', '.join(str(array.shape) for array in lazy)} cannot be concatenated")
    shape = (*lazy[0].shape[:along], sum(array.shape[along] for array in lazy), *lazy[0].shape[along + 1 :])

    def join_values(*values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.concatenate(values, along)

    def join_nodes(*parts: LazyArray) -> Any:
        dtype = np.result_type(*(part.dtype for part in parts))
        joined = join_expressions([part.node for part in parts], along)
        return NotImplemented if joined is None else LazyArray(joined).astype(dtype)

    found = call_at_once(join_values, join_nodes, lazy, shape)
    joined = join_nodes(*lazy) if found is None else found
    return LazyArray.carry(join_values(*map(to_computable, lazy))) if joined is NotImplemented else joined


@implements(np.stack)
def _stack(arrays: Sequence[Any], axis: int = 0, out: Any = None, **kwargs: Any) -> Any:
    if out is not None or kwargs:
        return NotImplemented
    lazy = _as_lazy_arrays(arrays)
    if lazy is None:
        return NotImplemented
    (at,) = normalise_axes(axis, lazy[0].ndim + 1)
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
    from_, to = normalise_axes(source, a.ndim), normalise_axes(destination, a.ndim)
    if len(from_) != len(to):
        raise ValueError(f"{len(from_)} axes cannot be moved to {len(to)} places")
    axes = [i for i in range(a.ndim) if i not in from_]
    for target, origin in sorted(zip(to, from_, strict=True)):
        axes.insert(target, origin)
    return a.transpose(axes)


def _as_tuple(axis: Any) -> tuple[Any, ...]:
    return tuple(axis) if np.iterable(axis) else (axis,)


@implements(np.swapaxes)
def _swapaxes(a: LazyArray, axis1: int, axis2: int) -> Any:
    axes = list(range(a.ndim))
    (one,), (other,) = normalise_axes(axis1, a.ndim), normalise_axes(axis2, a.ndim)
    axes[one], axes[other] = other, one
    return a.transpose(axes)


@implements(np.expand_dims)
def _expand_dims(a: LazyArray, axis: Any) -> Any:
    places = _as_tuple(axis)
    for place in sorted(normalise_axes(places, a.ndim + len(places))):
        a = a.expand_dims(place)
    return a


@implements(np.squeeze)
def _squeeze(a: LazyArray, axis: Any = None) -> Any:
    if isinstance(axis, list) or (axis is not None and not a.ndim):
        return NotImplemented  # NumPy has rules of its own for these
    removed = [i for i, n in enumerate(a.shape) if n == 1] if axis is None else normalise_axes(axis, a.ndim)
    if any(a.shape[i] != 1 for i in removed):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    for place in sorted(removed, reverse=True):
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
    turned = normalise_axes(axis, m.ndim)
    return m[tuple(slice(None, None, -1) if i in turned else slice(None) for i in range(m.ndim))]


@implements(np.take)
def _take(a: LazyArray, indices: Any, axis: int | None = None, out: Any = None, mode: Any = "raise") -> Any:
    if axis is None or np.iterable(axis) or out is not None or not a.ndim:
        return NotImplemented
    (along,) = normalise_axes(axis, a.ndim)
    index = np.take(np.arange(a.shape[along]), indices, mode=mode)
    found = a[(slice(None),) * along + (index,)]
    return found.copy() if isinstance(found, LazyArray) else found


@implements(np.repeat)
def _repeat(a: LazyArray, repeats: Any, axis: int | None = None) -> Any:
    if axis is None or not a.ndim:
        return NotImplemented
    (along,) = normalise_axes(axis, a.ndim)
    return a[(slice(None),) * along + (np.repeat(np.arange(a.shape[along]), repeats),)]


@implements(np.roll)
def _roll(a: LazyArray, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        return NotImplemented
    pairs = np.broadcast(shift, [along for one in _as_tuple(axis) for along in normalise_axes(one, a.ndim)])
    if pairs.ndim > 1:
        raise ValueError("'shift' and 'axis' should be scalars or 1D sequences")
    key: list[Any] = [slice(None)] * a.ndim
    for by, along in pairs:
        key[along] = np.roll(np.arange(a.shape[along])[key[along]], by)
    return a.oindex[tuple(key)].copy()


@implements(np.reshape)
def _reshape(a: LazyArray, shape: Any = None, order: Any = "C", **kwargs: Any) -> Any:
    """Return the array in another shape: virtual where only lengths of 1 come or go."""
    wanted = np.reshape(np.broadcast_to(np.int8(0), a.shape), shape).shape  # spells out -1, checks the size
    if [n for n in wanted if n != 1] != [n for n in a.shape if n != 1] or 0 in wanted:
        report_not_on_server(a, "other shapes (as in coarsen and stack)")
        split = split_dimensions(a, wanted) if order == "C" and a.dtype.kind in "biufcmM" else None
        if split is not None:
            return split
        values = to_computable(a)
        how = {} if order == "C" else {"order": order}  # Dask's has no order
        return own_result(np.reshape(values, wanted, **how), (values,))
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
    given = range(x.ndim) if axis is None else _as_tuple(axis)
    axes = [along for one in given for along in normalise_axes(one, x.ndim)]
    is_usual = len(lengths) == len(set(axes)) == len(axes) and min(lengths, default=0) > 0
    if not is_usual or x.dtype.kind not in "biufcmM" or writeable:
        return NotImplemented
    return slide_windows(x, lengths, axes)


@implements(np.pad)
def _pad(array: LazyArray, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    if isinstance(pad_width, dict) or kwargs.get("reflect_type", "even") != "even" or not array.ndim:
        return NotImplemented
    given = np.asarray(pad_width)
    if given.dtype.kind not in "iu":
        raise TypeError("`pad_width` must be of integral type")
    if (given < 0).any():
        raise ValueError("`pad_width` cannot contain negative values")
    widths = np.broadcast_to(given, (array.ndim, 2)).tolist()
    if mode in REPEATING_MODES and 0 not in array.shape:
        places = zip(array.shape, widths, strict=True)
        return array.oindex[tuple(np.pad(np.arange(n), width, mode, **kwargs) for n, width in places)]
    if mode != "constant" or set(kwargs) - {"constant_values"} or np.ndim(kwargs.get("constant_values", 0)):
        return NotImplemented
    fill = kwargs.get("constant_values", 0)

    def pad_values(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.pad(values, widths, constant_values=convert_fill(fill, values.dtype))

    def pad_nodes(whole: LazyArray) -> Any:
        indices = [
            np.concatenate([np.full(before, -1), np.arange(n), np.full(after, -1)]) if before or after else None
            for n, (before, after) in zip(whole.shape, widths, strict=True)
        ]
        return _take_with_fill(whole, indices, fill)

    shape = tuple(before + n + after for n, (before, after) in zip(array.shape, widths, strict=True))
    found = call_at_once(pad_values, pad_nodes, [array], shape)
    return pad_nodes(array) if found is None else found


def _take_with_fill(array: LazyArray, indices: Sequence[npt.NDArray[Any] | None], fill: Any) -> Any:
    """Return these elements along each dimension (None: all), and `fill` where an index is -1.

    Where there is nothing to take from, it carries its values.
    """
    if not array.size:  # then nothing is taken: all is filled, or there are no elements
        shape = [n if index is None else len(index) for n, index in zip(array.shape, indices, strict=True)]
        return LazyArray.carry(np.full(shape, convert_fill(fill, array.dtype), array.dtype))
    return LazyArray(take_with_fill(array.node, indices, fill))


# Choosing.


@implements(np.where)
def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None or y is None:
        return NotImplemented
    found = call_at_once(np.where, _where_nodes, (condition, x, y))
    return _where_nodes(condition, x, y) if found is None else found


def _where_nodes(condition: Any, x: Any, y: Any) -> Any:
    special = _where_special(condition, x, y)
    return combine("where", condition, x, y) if special is NotImplemented else special


def _where_special(condition: Any, x: Any, y: Any) -> Any:
    """Return a choice that is no expression: of missing values, or by a mask in memory."""
    if isinstance(condition, LazyArray):
        return _where_null(condition, x, y)
    keep = np.asarray(condition, bool)
    if _constant(x) is not None:
        x, y, keep = y, x, ~keep
    other = _constant(y)
    if other is None or not isinstance(x, LazyArray):
        return NotImplemented
    dtype = result_type("where", (keep.dtype, x.dtype, _type_of(y)))
    shape = np.broadcast_shapes(keep.shape, x.shape, np.shape(y))
    return _mask(x.broadcast_to(shape).astype(dtype), keep, other)


def _constant(value: Any) -> npt.NDArray[Any] | None:
    """Return the one value of an array that is the same everywhere by construction."""
    if isinstance(value, LazyArray):
        return _repeated_value(value.array) if value.is_stored else None
    array = np.asarray(value)
    if array.ndim == 0:
        return array
    if not any(array.strides) and array.size:
        return np.asarray(array[(0,) * array.ndim])
    return None


def _repeated_value(array: VirtualArray) -> npt.NDArray[Any] | None:
    """Return the one value that an array of `np.full_like` shows everywhere."""
    if len(array.tiles) != 1 or not array.size:
        return None
    (tile,) = array.tiles
    cells = [axis.cells for axis in tile.axes]
    if any(one is None or one.step.any() for one in cells) or not tile.encodings[0].raw:
        return None
    state = tile.chunks[(0,) * len(tile.axes)]
    stored = tile.encodings[0].dtype
    if not isinstance(state, Inline) or len(state.data) != stored.itemsize:
        return None
    return np.frombuffer(state.data, stored).astype(array.dtype).reshape(())


def _type_of(value: Any) -> Any:
    """Return the type of an argument; a number of Python stands for itself: it is weak."""
    if isinstance(value, (bool, int, float, complex)):
        return value
    return value.dtype if isinstance(value, LazyArray) else np.asarray(value).dtype


def _where_null(condition: LazyArray, x: Any, y: Any) -> Any:
    """Return `where(isnan(a), value, a)`, or its negation, as one operation with a scalar.

    xarray asks for it before a sum.
    """
    negated = find_operand(condition.node, "logical_not", "invert")
    if negated is not None and negated.dtype == bool:
        return _where_null(LazyArray(negated), y, x)
    value, array, tested = _constant(x), y, find_null_tested(condition.node)
    if value is None or not isinstance(array, LazyArray) or tested is None:
        return NotImplemented
    if without_moves(tested) is not without_moves(array.node):
        return NotImplemented
    dtype = result_type("where", (condition.dtype, _type_of(x), array.dtype))
    filled = LazyArray(fill_null(array.node, value.astype(dtype)[()], dtype))
    shape = np.broadcast_shapes(filled.shape, np.shape(x))
    return filled if shape == filled.shape else filled.broadcast_to(shape).copy()


def _mask(array: LazyArray, keep: npt.NDArray[np.bool_], other: npt.NDArray[Any]) -> Any:
    """Return an array where a mask holds, which broadcasts to its shape, and another value elsewhere."""
    shape = array.shape
    if keep.all():
        return array
    shown = np.reshape(keep, (1,) * (len(shape) - keep.ndim) + keep.shape)
    marks = [shown.any(axis=tuple(i for i in range(len(shape)) if i != d)) for d in range(len(shape))]
    if math.prod(int(m.sum()) for m in marks) == int(shown.sum()):
        # What is kept is a grid: along each dimension some indices are, some are not.
        indices = [
            None if mark.all() else np.where(np.broadcast_to(mark, (n,)), np.arange(n), -1)
            for mark, n in zip(marks, shape, strict=True)
        ]
        return _take_with_fill(array, indices, other[()])
    return LazyArray(mask(array.node, np.broadcast_to(shown, shape), other[()], array.dtype))


# Made like it.


@implements(np.zeros_like)
def _zeros_like(a: LazyArray, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None) -> Any:
    return _full_like(a, np.zeros((), a.dtype if dtype is None else dtype), dtype, shape=shape)


@implements(np.ones_like)
def _ones_like(a: LazyArray, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None) -> Any:
    return _full_like(a, 1, dtype, shape=shape)


@implements(np.empty_like)
def _empty_like(
    prototype: LazyArray, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None
) -> Any:
    return np.empty(prototype.shape if shape is None else shape, prototype.dtype if dtype is None else dtype)


@implements(np.full_like)
def _full_like(
    a: LazyArray, fill_value: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None
) -> Any:
    """Return one value everywhere: stored once, for xarray makes such arrays of the full shape to choose from them."""
    value = np.full(
        np.shape(fill_value), fill_value, a.dtype if dtype is None else dtype
    )  # cast as NumPy does, NaN to integers, too
    wanted = a.shape if shape is None else np.empty(shape, "V0").shape
    if value.dtype.hasobject or not value.dtype.itemsize:
        return np.full(wanted, value)

    def repeat_node(like: LazyArray) -> LazyArray:
        return LazyArray(VirtualArray.from_values(value)).broadcast_to(wanted).copy()

    return LazyArray.of_values(Postponed(repeat_node, [a]), np.broadcast_to(value, wanted))


# Asked about it.


@implements(np.shape)
def _shape(a: LazyArray) -> Any:
    return a.shape


@implements(np.ndim)
def _ndim(a: LazyArray) -> Any:
    return a.ndim


@implements(np.size)
def _size(a: LazyArray, axis: int | None = None) -> Any:
    return a.size if axis is None else math.prod(a.shape[along] for along in normalise_axes(axis, a.ndim))


@implements(np.copy)
def _copy(a: LazyArray, order: str = "K", subok: bool = False) -> Any:
    return a.copy(order)


@implements(np.astype)
def _astype(x: LazyArray, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    return x.astype(dtype, copy=copy)


@implements(np.round, np.around)
def _round(a: LazyArray, decimals: int = 0, out: Any = None) -> Any:
    if out is not None or a.dtype.kind not in "fciu":
        return NotImplemented
    return a.copy() if a.dtype.kind in "iu" and decimals >= 0 else combine("round", a, decimals)


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
