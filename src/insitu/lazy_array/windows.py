"""Windows over an array (`rolling`, `coarsen`), shown as new dimensions or reduced, as a step of a virtual array.

The step has the array that the windows lie in as its operand. What is read for a part of the result
is that part of the array and what its windows reach beyond, once; `window_statistics` reduces it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.lazy_array.window_statistics import METHODS, Slices, Window

__all__ = ["NEW", "SHOWN", "Place", "TakeWindows", "Windows", "each_part", "has_windows", "operands_of"]

Values = npt.NDArray[Any]
NEW = "new"
"""A dimension of length 1 that the array does not have."""
SHOWN = "shown"
Place = tuple[str, int]
"""What a dimension of the result is: `("kept", d)`, `(SHOWN, d)` for the elements of windows along
dimension d of the array, or `(NEW, 0)`.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Windows over an array, and how its dimensions and theirs are those of the result.

    Dimensions of the array that the result does not have are of length 1, or have one window.
    """

    inner: Any
    """The virtual array that they lie in."""
    along: dict[int, Window]
    """By dimension of the array."""
    layout: tuple[Place, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result."""
        return tuple(self._length(place) for place in self.layout)

    @property
    def shown_dimensions(self) -> tuple[int, ...]:
        """The dimensions of the result that are elements of windows."""
        return tuple(number for number, (kind, _) in enumerate(self.layout) if kind == SHOWN)

    def _length(self, place: Place) -> int:
        kind, axis = place
        if kind == NEW:
            return 1
        if kind == SHOWN:
            return len(self.along[axis].offsets)
        return len(self.along[axis].starts) if axis in self.along else int(self.inner.shape[axis])

    def select(self, keys: Sequence[Any], take: Callable[[Any, tuple[Any, ...]], Any]) -> Windows:
        """Return the windows after a selection of each dimension of the result on its own.

        Parameters
        ----------
        keys
            For each an integer, a slice, or an array of indices.
        take
            Selects from the array that the windows lie in: given that and slices or arrays.
        """
        along = dict(self.along)
        inside: list[Any] = [slice(None)] * self.inner.ndim
        for (kind, axis), key in zip(self.layout, keys, strict=True):
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
        whole = all(
            isinstance(key, slice) and _is_whole(key, n) for key, n in zip(inside, self.inner.shape, strict=True)
        )
        layout = tuple(
            place for place, key in zip(self.layout, keys, strict=True) if not isinstance(key, (int, np.integer))
        )
        return Windows(self.inner if whole else take(self.inner, tuple(inside)), along, layout)

    def without_shown(self) -> Windows:
        """Return the windows of a result that has one value for each of them."""
        return replace(self, layout=tuple(place for place in self.layout if place[0] != SHOWN))


@dataclass(frozen=True, slots=True, eq=False)
class TakeWindows:
    """The windows of another array, or a statistic of each; what the array itself is does not matter.

    The array that has this step gives the shape, the chunks and the names.
    """

    windows: Windows
    to: np.dtype[Any]
    method: str | None = None
    """Of `window_statistics.METHODS`; None: the elements are shown."""
    ddof: int = 0
    errors: tuple[tuple[str, str], ...] = ()
    """How NumPy was to treat floating-point errors when the reduction was asked for."""

    @property
    def operands(self) -> tuple[Any, ...]:
        """The virtual arrays that are needed."""
        return (self.windows.inner,)

    def dtype(self, before: np.dtype[Any]) -> np.dtype[Any]:
        """Type of the result."""
        return self.to

    def apply(self, values: Values) -> Values:
        """Return the windows of values, or their statistic.

        Parameters
        ----------
        values
            Of the array that they lie in.
        """
        windows = self.windows
        if self.method is None:
            found = _gather(values, windows)
            places = [("kept", axis) for axis in range(values.ndim)] + [(SHOWN, axis) for axis in windows.along]
        else:
            with np.errstate(**dict(self.errors)):  # type: ignore[arg-type]
                found = METHODS[self.method](Slices(values, windows.along), self.ddof)
            places = [("kept", axis) for axis in range(values.ndim)]
        return _lay_out(np.asarray(found, self.to), places, windows.layout)

    def with_operands(self, change: Callable[[Any], Any]) -> TakeWindows:
        """Return the step with its virtual array changed."""
        return replace(self, windows=replace(self.windows, inner=change(self.windows.inner)))

    def after_move(self, move: Any) -> TakeWindows:
        """Return the step after a structural operation on the array."""
        return replace(self, windows=move.windows(self.windows))


def has_windows(steps: Sequence[Any]) -> int | None:
    """Return the number of the last step that takes windows: what was before it is not needed."""
    return max((number for number, step in enumerate(steps) if isinstance(step, TakeWindows)), default=None)


def operands_of(step: Any) -> tuple[Any, ...]:
    """Return the virtual arrays that a step needs beside its own."""
    found: tuple[Any, ...] = getattr(step, "operands", ())
    return found


def each_part(array: Any) -> Iterator[Any]:
    """Yield an array and all virtual arrays that its steps need, those of a step that several share once.

    A formula of n operations may use its parts 2^n times.
    """
    seen: set[int] = set()
    waiting = [array]
    while waiting:
        part = waiting.pop()
        yield part
        new = [step for step in part.steps[has_windows(part.steps) or 0 :] if id(step) not in seen]
        seen.update(map(id, new))
        waiting.extend(reversed([operand for step in new for operand in operands_of(step)]))


def _is_whole(key: slice, length: int) -> bool:
    return key.indices(length) == (0, length, 1)


def _lay_out(values: Values, places: list[Place], layout: Sequence[Place]) -> Values:
    """Return values with the dimensions of the result, given what each of theirs is."""
    gone = [number for number, place in enumerate(places) if place not in layout]
    rest = [place for number, place in enumerate(places) if number not in gone]
    order = [rest.index(place) for place in layout if place[0] != NEW]
    turned = values.squeeze(tuple(gone)).transpose(order)
    return np.expand_dims(turned, tuple(number for number, place in enumerate(layout) if place[0] == NEW))


def _gather(values: Values, windows: Windows) -> Values:
    """Return the elements of all windows; the dimensions of the elements come last."""
    for axis, window in windows.along.items():
        index = window.starts[:, None] + window.offsets[None]
        values = np.moveaxis(np.take(values, index, axis), axis + 1, -1)
    return values
