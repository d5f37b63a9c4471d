"""Windows over an expression (`rolling`, `coarsen`): what they are after a selection, and their values.

What is read for a part of the result is that part of the expression and what its windows reach beyond, once;
`window_statistics` reduces it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.expressions.nodes import Expression, Place, WindowsOf
from insitu.expressions.window_statistics import Slices, Window, reduce_slices

__all__ = ["KEPT", "NEW", "SHOWN", "compute_windows", "hide_elements", "select_windows", "shown_dimensions"]

Values = npt.NDArray[Any]
KEPT, SHOWN, NEW = "kept", "shown", "new"
"""What a dimension of windows is: `(KEPT, d)` for dimension d of the expression, `(SHOWN, d)` for the elements of
windows along it, `(NEW, 0)` for one of length 1 that the expression does not have.
"""


def shown_dimensions(windows: WindowsOf) -> tuple[int, ...]:
    """Return the dimensions of the result that are elements of windows."""
    return tuple(number for number, (kind, _) in enumerate(windows.layout) if kind == SHOWN)


def hide_elements(layout: Sequence[Place]) -> tuple[Place, ...]:
    """Return the layout of a result that has one value for each window."""
    return tuple(place for place in layout if place[0] != SHOWN)


def select_windows(
    windows: WindowsOf, keys: Sequence[Any], take: Callable[[Expression, tuple[Any, ...]], Expression]
) -> WindowsOf:
    """Return windows after a selection of each dimension of the result on its own.

    Parameters
    ----------
    windows
        The windows.
    keys
        For each dimension an integer, a slice, or an array of indices.
    take
        Selects from the expression that the windows lie in: given that and slices or arrays.
    """
    along = dict(windows.along)
    inside: list[Any] = [slice(None)] * windows.of.ndim
    for (kind, axis), key in zip(windows.layout, keys, strict=True):
        several = slice(int(key), int(key) + 1 or None) if isinstance(key, (int, np.integer)) else key
        if kind == SHOWN:
            along[axis] = replace(along[axis], offsets=along[axis].offsets[several])
        elif kind != NEW and axis in along:
            along[axis] = replace(along[axis], starts=along[axis].starts[several])
        elif kind != NEW:
            inside[axis] = several
    for axis, window in along.items():
        first, last = window.reach
        inside[axis] = slice(first, last)
        along[axis] = window.shift(-first)
    whole = all(isinstance(key, slice) and _is_whole(key, n) for key, n in zip(inside, windows.of.shape, strict=True))
    layout = tuple(
        place for place, key in zip(windows.layout, keys, strict=True) if not isinstance(key, (int, np.integer))
    )
    of = windows.of if whole else take(windows.of, tuple(inside))
    return replace(windows, of=of, along=along, layout=layout)


def compute_windows(windows: WindowsOf, values: Values) -> Values:
    """Return windows, or their statistic.

    Parameters
    ----------
    windows
        The windows.
    values
        Of the expression that they lie in.
    """
    places = [(KEPT, axis) for axis in range(values.ndim)]
    if windows.method is None:
        found = _gather(values, windows.along)
        places += [(SHOWN, axis) for axis in windows.along]
    else:
        with np.errstate(**dict(windows.errors)):  # type: ignore[arg-type]
            found = reduce_slices(windows.method, Slices(values, windows.along), windows.ddof, windows.least)
    return _lay_out(np.asarray(found, windows.dtype), places, windows.layout)


def _is_whole(key: slice, length: int) -> bool:
    return key.indices(length) == (0, length, 1)


def _lay_out(values: Values, places: list[Place], layout: Sequence[Place]) -> Values:
    """Return values with the dimensions of the result, given what each of theirs is."""
    removed = [number for number, place in enumerate(places) if place not in layout]
    rest = [place for number, place in enumerate(places) if number not in removed]
    order = [rest.index(place) for place in layout if place[0] != NEW]
    turned = values.squeeze(tuple(removed)).transpose(order)
    return np.expand_dims(turned, tuple(number for number, place in enumerate(layout) if place[0] == NEW))


def _gather(values: Values, along: dict[int, Window]) -> Values:
    """Return the elements of all windows; the dimensions of the elements come last."""
    for axis, window in along.items():
        index = window.starts[:, None] + window.offsets[None]
        values = np.moveaxis(np.take(values, index, axis), axis + 1, -1)
    return values
