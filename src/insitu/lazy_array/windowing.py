"""Windows over a `LazyArray`: showing them as new dimensions, and reducing those, without reading.

xarray's `rolling` asks for `sliding_window_view`, its `coarsen` for a reshaped array; both then
reduce the new dimensions. The result stays virtual: see `insitu.expressions.windows`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.expressions.chunk_grid import chunk_sizes, read_itemsize
from insitu.expressions.element_operations import current_errors, fill_null
from insitu.expressions.nodes import Expression, Moved, Operation, Place, WindowsOf, is_stored, iterate_nodes
from insitu.expressions.padding import take_with_fill
from insitu.expressions.window_reach import MOST_BYTES
from insitu.expressions.window_statistics import METHODS, Slices, Window, reduce_slices
from insitu.expressions.windows import KEPT, SHOWN, hide_elements, shown_dimensions
from insitu.lazy_array.at_once import call_at_once
from insitu.lazy_array.duck_array import LazyArray
from insitu.model import normalise_axes
from insitu.reducing.statistics import STATISTICS

__all__ = ["reduce_windows", "roll_windows", "slide_windows", "split_dimensions"]


def slide_windows(array: LazyArray, lengths: Sequence[int], axes: Sequence[int]) -> LazyArray:
    """Return all windows of some lengths along some dimensions; those of their elements come last."""
    along = {}
    for length, axis in zip(lengths, axes, strict=True):
        if not 0 < length <= array.shape[axis]:
            raise ValueError(f"a window of {length} does not fit into dimension {axis} of length {array.shape[axis]}")
        along[axis] = Window(np.arange(array.shape[axis] - length + 1), np.arange(length))
    places: list[Place] = [(KEPT, axis) for axis in range(array.ndim)]
    return _show(array, along, [*places, *((SHOWN, axis) for axis in axes)])


def roll_windows(
    array: LazyArray, lengths: Mapping[int, int], centered: Container[int], method: str, least: int, ddof: int = 0
) -> LazyArray | None:
    """Return a statistic of the windows that end at each element, as xarray's `rolling` has it; None if it is not one
    for which missing values are left out here.

    Parameters
    ----------
    array
        The array: of floating-point numbers.
    lengths
        Of the windows by dimension. Beyond the array all values are missing.
    centered
        The dimensions along which an element is in the middle of its window.
    method, ddof
        The statistic, and of which values beside the number it is less.
    least
        With fewer values in a window the result is missing.
    """
    name = f"nan{method}"
    if array.dtype.kind != "f" or name not in METHODS or least < 1 or not array.size:
        return None
    before = {axis: length // 2 if axis in centered else length - 1 for axis, length in lengths.items()}
    along = {axis: Window(np.arange(array.shape[axis]), np.arange(length)) for axis, length in lengths.items()}
    layout = tuple((KEPT, axis) for axis in range(array.ndim))
    errors = current_errors()
    dtype = array.dtype.newbyteorder("=")

    def roll_values(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        shape = [n + lengths.get(axis, 1) - 1 for axis, n in enumerate(values.shape)]
        padded = np.full(shape, np.nan, dtype)
        inside = [slice(before.get(axis, 0), before.get(axis, 0) + n) for axis, n in enumerate(values.shape)]
        padded[tuple(inside)] = values
        return reduce_slices(name, Slices(padded, along), ddof, least)

    def roll_node(whole: LazyArray) -> LazyArray:
        indices = [
            np.pad(np.arange(n), (before[axis], lengths[axis] - 1 - before[axis]), constant_values=-1)
            if axis in lengths
            else None
            for axis, n in enumerate(whole.shape)
        ]
        padded = take_with_fill(whole.node, indices, np.nan)
        return LazyArray(WindowsOf(padded, along, layout, dtype, name, ddof, errors, least))

    found = call_at_once(roll_values, roll_node, [array], array.shape)
    return roll_node(array) if found is None else found


def split_dimensions(array: LazyArray, shape: Sequence[int]) -> LazyArray | None:
    """Return the array in a shape in which some dimensions are split in two; None if it is another shape."""
    along: dict[int, Window] = {}
    layout: list[Place] = []
    rest = list(shape)
    for axis, length in enumerate(array.shape):
        if not rest:
            return None
        count = rest.pop(0)
        layout.append((KEPT, axis))
        if count == length:
            continue
        if not rest or not count or count * rest[0] != length:
            return None
        size = rest.pop(0)
        along[axis] = Window(np.arange(count) * size, np.arange(size))
        layout.append((SHOWN, axis))
    return None if rest or not along else _show(array, along, layout)


def _show(array: LazyArray, along: Mapping[int, Window], layout: Sequence[Place]) -> LazyArray:
    shown = LazyArray(WindowsOf(array.node, dict(along), tuple(layout), array.dtype))
    shown.is_view = True
    return shown


def reduce_windows(
    function: Callable[..., Any], method: str, skipna: bool, array: LazyArray, given: Mapping[str, Any]
) -> Any:
    """Return a statistic of windows as a virtual array; None if the reduction is not one of all windows.

    Long windows that do not overlap are reduced at once, one after another: the result is small.

    Parameters
    ----------
    function, method, skipna
        NumPy's function, and what it computes.
    array
        Perhaps one that shows windows.
    given
        The arguments of the function by name.
    """
    windows = _find_windows(array.node)
    if windows is None or given["axis"] is None or given["keepdims"] or given["dtype"] is not None:
        return None
    axes = tuple(sorted(normalise_axes(given["axis"], array.ndim)))
    shown = shown_dimensions(windows)
    if windows.method is not None or axes != shown or len(shown) < len(windows.along):
        return None
    inner = _operate_before(array.node, windows)
    if inner.dtype.kind not in "biuf" or not math.prod(array.shape):
        return None
    if _is_long(inner, windows):
        return _reduce_each(function, LazyArray(inner), windows, given)
    skipna = skipna and inner.dtype.kind == "f"
    neutral = STATISTICS[method].neutral_element
    if skipna and neutral is not None:
        inner, skipna = fill_null(inner, neutral, inner.dtype), False
    name = f"nan{method}" if skipna else method
    if name not in METHODS:
        return None
    to = function(np.ones((1, 1), inner.dtype), axis=1).dtype
    layout = hide_elements(windows.layout)
    return LazyArray(WindowsOf(inner, windows.along, layout, to, name, int(given["ddof"]), current_errors()))


def _find_windows(expression: Expression) -> WindowsOf | None:
    """Return the windows that an expression shows, perhaps after operations that are the same for every element."""
    if is_stored(expression):  # as nearly always
        return None
    nodes = iterate_nodes([expression], into_windows=False)
    leaves = [node for node in nodes if not isinstance(node, (Operation, Moved))]
    return leaves[0] if len(leaves) == 1 and isinstance(leaves[0], WindowsOf) else None


def _operate_before(expression: Expression, windows: WindowsOf) -> Expression:
    """Return what windows lie in after the operations on their elements."""
    made = {id(windows): windows.of}
    for node in iterate_nodes([expression], into_windows=False):
        if isinstance(node, Moved):
            made[id(node)] = made[id(node.direct)]
        elif isinstance(node, Operation):
            made[id(node)] = node.with_operands(made)
    return made[id(expression)]


def _is_long(inner: Expression, windows: WindowsOf) -> bool:
    """Return whether windows lie side by side, and the chunks that one of them needs are too many to be held."""
    if len(windows.along) != 1 or hide_elements(windows.layout) != tuple((KEPT, n) for n in range(inner.ndim)):
        return False
    ((axis, window),) = windows.along.items()
    length = len(window.offsets)
    apart = len(window.starts) < 2 or int(np.diff(window.starts).min()) >= length
    section = math.prod(size for number, size in enumerate(chunk_sizes(inner)) if number != axis)
    return apart and window.has_all_elements and length * section * read_itemsize(inner) > MOST_BYTES


def _reduce_each(
    function: Callable[..., Any], inner: LazyArray, windows: WindowsOf, given: Mapping[str, Any]
) -> npt.NDArray[Any]:
    """Return a statistic of each window, streamed one after another."""
    ((axis, window),) = windows.along.items()
    how = {"ddof": given["ddof"]} if function in (np.std, np.nanstd, np.var, np.nanvar) else {}
    first = window.starts + window.offsets[0]
    parts = (inner[(slice(None),) * axis + (slice(n, n + len(window.offsets)),)] for n in first.tolist())
    return np.stack([np.asarray(function(part, axis=axis, **how)) for part in parts], axis)
