"""Windows over a `LazyArray`: showing them as new dimensions, and reducing those, without reading.

xarray's `rolling` asks for `sliding_window_view`, its `coarsen` for a reshaped array; both then
reduce the new dimensions. The result stays virtual: see `windows`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.lazy_array.duck_array import LazyArray
from insitu.lazy_array.steps import ITSELF, Apply, FillNull, Step, Where, current_errors
from insitu.lazy_array.window_reach import MOST_BYTES
from insitu.lazy_array.window_statistics import METHODS, Window
from insitu.lazy_array.windows import SHOWN, Place, TakeWindows, Windows, has_windows
from insitu.model import VirtualArray, normalise_axes

__all__ = ["reduce_windows", "slide_windows", "split_dimensions"]


def slide_windows(array: LazyArray, lengths: Sequence[int], axes: Sequence[int]) -> LazyArray:
    """Return all windows of some lengths along some dimensions; those of their elements come last."""
    along = {}
    for length, axis in zip(lengths, axes, strict=True):
        if not 0 < length <= array.shape[axis]:
            raise ValueError(f"a window of {length} does not fit into dimension {axis} of length {array.shape[axis]}")
        along[axis] = Window(np.arange(array.shape[axis] - length + 1), np.arange(length))
    kept: list[Place] = [("kept", axis) for axis in range(array.ndim)]
    return _show(array, along, [*kept, *((SHOWN, axis) for axis in axes)])


def split_dimensions(array: LazyArray, shape: Sequence[int]) -> LazyArray | None:
    """Return the array in a shape in which some dimensions are split in two; None if it is another shape."""
    along: dict[int, Window] = {}
    layout: list[Place] = []
    rest = list(shape)
    for axis, length in enumerate(array.shape):
        if not rest:
            return None
        count = rest.pop(0)
        layout.append(("kept", axis))
        if count == length:
            continue
        if not rest or not count or count * rest[0] != length:
            return None
        size = rest.pop(0)
        along[axis] = Window(np.arange(count) * size, np.arange(size))
        layout.append((SHOWN, axis))
    return None if rest or not along else _show(array, along, layout)


def _show(array: LazyArray, along: Mapping[int, Window], layout: Sequence[Place]) -> LazyArray:
    windows = Windows(array, dict(along), tuple(layout))
    main: VirtualArray = array.array[
        tuple(
            slice(int(along[axis].starts[0]), int(along[axis].starts[-1]) + 1, _distance(along[axis]))
            if axis in along
            else slice(None)
            for axis in range(array.ndim)
        )
    ]
    for number, (kind, _) in enumerate(layout):
        if kind == SHOWN:
            main = main.expand_dims(number, f"window_{number}")
    shown = LazyArray(main.broadcast_to(windows.shape), array.access, (TakeWindows(windows, array.dtype),))
    shown.is_view = True
    return shown


def _distance(window: Window) -> int:
    return int(window.starts[1] - window.starts[0]) if len(window.starts) > 1 else 1


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
    number = has_windows(array.steps)
    if number is None or given["axis"] is None or given["keepdims"] or given["dtype"] is not None:
        return None
    step, after = array.steps[number], array.steps[number + 1 :]
    assert isinstance(step, TakeWindows)
    axes = tuple(sorted(normalise_axes(given["axis"], array.ndim)))
    shown = step.windows.shown_dimensions
    if step.method is not None or axes != shown or len(shown) < len(step.windows.along) or not all(map(_moves, after)):
        return None
    inner = step.windows.inner.then(*after)
    if inner.dtype.kind not in "biuf" or not math.prod(array.shape):
        return None
    if _is_long(inner, step.windows):
        return _reduce_each(function, inner, step.windows, given)
    skipna = skipna and inner.dtype.kind == "f"
    if skipna and method in ("sum", "prod"):
        inner, skipna = inner.then(FillNull(int(method == "prod"), inner.dtype)), False
    name = f"nan{method}" if skipna else method
    if name not in METHODS:
        return None
    windows = replace(step.windows, inner=inner).without_shown()
    main = array.array[tuple(0 if axis in shown else slice(None) for axis in range(array.ndim))]
    to = function(np.ones((1, 1), inner.dtype), axis=1).dtype
    return LazyArray(main, array.access, (TakeWindows(windows, to, name, int(given["ddof"]), current_errors()),))


def _is_long(inner: LazyArray, windows: Windows) -> bool:
    """Return whether windows lie side by side, and the chunks that one of them needs are too many to be held."""
    if len(windows.along) != 1 or windows.without_shown().layout != tuple(("kept", n) for n in range(inner.ndim)):
        return False
    ((axis, window),) = windows.along.items()
    length = len(window.offsets)
    apart = len(window.starts) < 2 or int(np.diff(window.starts).min()) >= length
    section = math.prod(size for number, size in enumerate(inner.chunk_sizes) if number != axis) * inner.read_itemsize
    return apart and window.has_all_elements and length * section > MOST_BYTES


def _reduce_each(
    function: Callable[..., Any], inner: LazyArray, windows: Windows, given: Mapping[str, Any]
) -> npt.NDArray[Any]:
    """Return a statistic of each window, streamed one after another."""
    ((axis, window),) = windows.along.items()
    how = {"ddof": given["ddof"]} if function in (np.std, np.nanstd, np.var, np.nanvar) else {}
    first = window.starts + window.offsets[0]
    parts = (inner[(slice(None),) * axis + (slice(n, n + len(window.offsets)),)] for n in first.tolist())
    return np.stack([np.asarray(function(part, axis=axis, **how)) for part in parts], axis)


def _moves(step: Step) -> bool:
    """Return whether a step can be done before windows are taken: it is the same for every element."""
    if isinstance(step, Apply):
        return not any(hasattr(given, "access") or np.ndim(given) for given in step.arguments if given is not ITSELF)
    return not isinstance(step, (Where, TakeWindows))
