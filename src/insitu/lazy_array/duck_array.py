"""`LazyArray`: a virtual array as a duck array inside xarray, read when its values are needed.

NumPy's functions and ufuncs come to it through `dispatch`. It is an `ExplicitlyIndexed` of xarray
whose `get_duck_array` is itself, and it has `chunks`, so that xarray asks its chunk manager to
compute it. Structural operations make another one and read nothing; reductions stream; everything
else reads. There is one class only, because xarray compares the types of arrays that it joins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

# xarray has no public name for these two. Its guide for backends uses the module, and no other base
# class makes xarray keep an array as it is instead of loading it.
from xarray.core.indexing import ExplicitIndexer, ExplicitlyIndexed

from insitu.lazy_array.deferred_values import DeferredValues, PendingSelection
from insitu.lazy_array.dispatch import call_function, call_ufunc
from insitu.lazy_array.load_values import fingerprint, read_all, read_and_keep, values_or_dask, write_values
from insitu.lazy_array.methods import Methods
from insitu.lazy_array.options import options
from insitu.lazy_array.representation import format_html, format_line, format_text
from insitu.lazy_array.steps import Cast, Step, apply_steps
from insitu.model import Selection, Tile, VirtualArray, concatenate
from insitu.reading import read_points

__all__ = ["LazyArray"]


class LazyArray(DeferredValues, Methods, NDArrayOperatorsMixin, ExplicitlyIndexed):
    """An array inside xarray that is read when its values are needed."""

    __slots__ = ()
    __array_priority__ = 60  # an operation with a plain array comes to us

    @property
    def T(self) -> LazyArray:  # noqa: N802
        """The dimensions reversed."""
        return self.transpose()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def get_duck_array(self) -> LazyArray:
        """Return itself: it is a duck array already."""
        return self

    async def async_get_duck_array(self) -> LazyArray:
        """Return itself: it is a duck array already."""
        return self

    # Values.

    def read(self, *, once: bool = False) -> npt.NDArray[Any]:
        """Return the values; nothing of them is kept if they are read `once`, as a part of a pass."""
        return read_all([self], once=once)[0]

    def __array__(self, dtype: npt.DTypeLike | None = None, *, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("copy=False is not possible: reading a virtual array makes a copy")
        values = read_and_keep(self)
        if dtype is not None:
            values = values.astype(dtype, copy=False)
        return values if values.flags.writeable else values.copy()

    def __float__(self) -> float:
        return float(self.read())

    def __int__(self) -> int:
        return int(self.read())

    def __bool__(self) -> bool:
        return bool(self.read())

    def __array_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return call_function(func, args, kwargs)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return call_ufunc(ufunc, method, inputs, kwargs)

    # Selecting.

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, ExplicitIndexer):
            return self._select_orthogonal(key.tuple)
        keys = key if isinstance(key, tuple) else (key,)
        advanced = [k for k in keys if not (k is None or k is Ellipsis or isinstance(k, (int, np.integer, slice)))]
        if any(np.ndim(k) > 1 for k in advanced) or len(advanced) > 1:
            return self._select_advanced(keys)
        new = [
            i
            for i, k in enumerate(k for k in _expand_ellipsis(keys, self.ndim) if not isinstance(k, (int, np.integer)))
            if k is None
        ]
        selected = self._select_orthogonal(tuple(k for k in _expand_ellipsis(keys, self.ndim) if k is not None))
        for axis in new:
            selected = selected.expand_dims(axis)
        # One object (a text, a date) is what xarray looks at to find out of which type they are.
        return selected.read().item() if selected.dtype.hasobject and not selected.ndim and self.ndim else selected

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write to the array: its values are read, and it carries them from then on.

        Copies are not affected.
        """
        write_values(self, key, value)

    @property
    def oindex(self) -> IndexingView:
        """Indexing each dimension on its own."""
        return IndexingView(self._select_orthogonal, self.__setitem__)

    @property
    def vindex(self) -> IndexingView:
        """Pointwise indexing: the points' dimensions come first."""
        return IndexingView(self._pointwise, self.__setitem__)

    def _select_orthogonal(self, keys: tuple[Any, ...]) -> LazyArray:
        keys = tuple(np.asarray(k) if not isinstance(k, (int, np.integer, slice)) else k for k in keys)
        keys = (*keys, *[slice(None)] * (self.ndim - len(keys)))

        def move(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            for axis in reversed(range(len(keys))):
                values = values[(slice(None),) * axis + (keys[axis], ...)]  # never a scalar: that forgets its width
            return values

        if self.origin is None:
            return self._with_structure(PendingSelection(self.array, Selection.of(keys, self.shape)), move)
        return self._with_structure(self.array[keys], move)

    def _pointwise(self, keys: tuple[Any, ...]) -> Any:
        keys = tuple(k if isinstance(k, slice) else np.asarray(k) for k in keys)
        found = select_points(self.array, keys)
        if found is None:  # too many points to keep one by one
            if self.steps:
                return _index_pointwise(self.read(), keys)
            return read_points(self.array, keys, replace(self.access.read_context, cache=self.access.cache))
        return self._with_structure(found, lambda values: _index_pointwise(values, keys))

    def _select_advanced(self, keys: tuple[Any, ...]) -> Any:
        """Index with several arrays as NumPy does, on the values."""
        return values_or_dask(self)[keys]

    # Structure.

    def _with_structure(
        self, array: VirtualArray | PendingSelection, move: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
    ) -> LazyArray:
        """Return the array after a structural operation.

        It is given twice: for the virtual array, and for the plain arrays (masks) of steps.
        """
        made = LazyArray(array, self.access, tuple(step.after_move(move) for step in self.steps))
        return made.derived_from(self, move)

    def then(self, *steps: Step) -> LazyArray:
        """Return the array with more steps applied to each value after reading."""
        return LazyArray(self.array, self.access, (*self.steps, *steps)).derived_from(self, partial(apply_steps, steps))

    def transpose(self, *axes: Any) -> LazyArray:
        """Return the dimensions in another order."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], (int, np.integer)) else axes
        if order is None or not len(order):
            order = tuple(reversed(range(self.ndim)))
        order = tuple(int(axis) % max(self.ndim, 1) for axis in order)
        if order == tuple(range(self.ndim)):
            return self
        return self._with_structure(self.array.transpose(*order), lambda values: values.transpose(order))

    def expand_dims(self, axis: int) -> LazyArray:
        """Return the array with a new dimension of length 1."""
        return self._with_structure(
            self.array.expand_dims(axis, f"new_{self.ndim}"), lambda values: np.expand_dims(values, axis)
        )

    def drop(self, axis: int) -> LazyArray:
        """Return the array without a dimension of length 1."""
        return self._with_structure(self.array.drop(axis), lambda values: np.squeeze(values, axis))

    def broadcast_to(self, shape: Sequence[int]) -> LazyArray:
        """Return the array broadcast to a shape, as NumPy does."""
        shape = tuple(int(length) for length in shape)
        if shape == self.shape:
            return self
        return self._with_structure(self.array.broadcast_to(shape), lambda values: np.broadcast_to(values, shape))

    def reshape(self, *shape: Any, order: str = "C") -> Any:
        """Return the array in another shape.

        It stays virtual where only lengths of 1 come or go; else these are the values.
        """
        wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)) else shape
        return call_function(np.reshape, (self, wanted, order), {})

    def astype(
        self, dtype: npt.DTypeLike, order: Any = "K", casting: Any = "unsafe", subok: bool = True, copy: bool = True
    ) -> LazyArray:
        """Return the array in another type, cast as NumPy does."""
        to = np.dtype(dtype)
        if not np.can_cast(self.dtype, to, casting):
            raise TypeError(f"Cannot cast array data from {self.dtype!r} to {to!r} according to the rule {casting!r}")
        if to == self.dtype and to.metadata == self.dtype.metadata:  # xarray writes enumerations by their metadata
            return self.copy() if copy else self
        if not self.steps and np.can_cast(self.dtype, to, "safe") and self.dtype.kind in "biufc" and to.kind in "iufc":
            made = LazyArray(replace(self.array, dtype=to), self.access)  # a place is cast as it is filled
            return made.derived_from(self, lambda values: values.astype(to))
        return self.then(Cast(to))

    def rechunk(self, chunks: Any, **kwargs: Any) -> LazyArray:
        """Return itself: chunks are where they are stored."""
        return self

    def compute(self, *data: Any, **kwargs: Any) -> Any:
        """Return the values."""
        return self.read()

    # Travelling and showing.

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyArray, (self.array, self.access, self.steps)

    def __copy__(self) -> LazyArray:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> LazyArray:
        return self.copy()

    def copy(self, order: str = "C") -> LazyArray:
        """Return an array that can be written to without changing this one; reads nothing."""
        copied = LazyArray(self._array, self.access, self.steps)
        copied.origin = self.origin
        return copied.derived_from(self, lambda values: values)

    def __dask_tokenize__(self) -> Any:
        return fingerprint(self)

    def __repr__(self) -> str:
        return format_text(self)

    def _repr_inline_(self, max_width: int) -> str:
        return format_line(self, max_width)

    def _repr_html_(self) -> str:
        return format_html(self)


@dataclass(frozen=True, slots=True)
class IndexingView:
    """Indexing with square brackets in one way (orthogonal or pointwise)."""

    get: Callable[[tuple[Any, ...]], Any]
    write: Callable[[Any, Any], None]

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, ExplicitIndexer):
            key = key.tuple
        return self.get(key if isinstance(key, tuple) else (key,))

    def __setitem__(self, key: Any, value: Any) -> None:
        self.write(key, value)


def _expand_ellipsis(keys: tuple[Any, ...], ndim: int) -> list[Any]:
    """Return the keys with the Ellipsis spelled out; None stays."""
    given = sum(1 for key in keys if key is not None and key is not Ellipsis)
    at = next((i for i, key in enumerate(keys) if key is Ellipsis), len(keys))
    return [*keys[:at], *[slice(None)] * (ndim - given), *keys[at + 1 :]]


def _index_pointwise(values: npt.NDArray[Any], keys: tuple[Any, ...]) -> npt.NDArray[Any]:
    """Return values indexed pointwise as NumPy does, with the points' dimensions in front."""
    where = [i for i, key in enumerate(keys) if not isinstance(key, slice)]
    turned = np.moveaxis(values, where, range(len(where)))
    points = turned[tuple(keys[i] for i in where)]
    rest = [key for key in keys if isinstance(key, slice)]
    return np.asarray(points[(Ellipsis, *rest)] if rest else points)


def select_points(array: VirtualArray, keys: tuple[Any, ...]) -> VirtualArray | None:
    """Return the array of these points, their dimensions in front of the sliced ones.

    None if there are too many.

    Parameters
    ----------
    array
        What to select from.
    keys
        For each dimension a slice, or an integer array; the arrays broadcast against each other.
    """
    keys = (*keys, *[slice(None)] * (array.ndim - len(keys)))
    where = [i for i, key in enumerate(keys) if not isinstance(key, slice)]
    given = np.broadcast_arrays(*(np.asarray(keys[i]) for i in where))
    index = [np.where(part < 0, part + array.shape[i], part) for part, i in zip(given, where, strict=True)]
    for part, i in zip(index, where, strict=True):
        if part.size and (part.min() < 0 or part.max() >= array.shape[i]):
            raise IndexError(f"a point is out of bounds for axis {i} with size {array.shape[i]}")
    points = index[0].shape
    sliced = array[tuple(key if isinstance(key, slice) else slice(None) for key in keys)]
    turned = sliced.transpose(*where, *(i for i in range(array.ndim) if i not in where))
    names = tuple(f"points_{number}" for number in range(len(points)))
    if len(where) == 1 and points:
        return _select_rows(turned, index[0], names)
    if math.prod(points) > options.point_limit:
        return None
    tiles: list[Tile] = []
    origins = []
    for place in np.ndindex(*points):
        one = turned[tuple(int(part[place]) for part in index)]
        for number in reversed(range(len(points))):
            one = one.expand_dims(0, names[number])
        tiles += one.tiles
        origin = one.origins.copy()
        origin[:, : len(points)] = place
        origins.append(origin)
    rest = turned.shape[len(where) :]
    shape = (*points, *rest)
    table = np.concatenate(origins) if origins else np.zeros((0, len(shape)), np.int64)
    return replace(turned, shape=shape, dims=(*names, *turned.dims[len(where) :]), tiles=tuple(tiles), origins=table)


def _select_rows(
    array: VirtualArray, index: np.ndarray[Any, np.dtype[np.int64]], names: tuple[str, ...]
) -> VirtualArray | None:
    """Return the array with its first dimension indexed by an array of any number of dimensions."""
    if index.ndim == 1:
        return array.take(0, index)
    if index.size // max(index.shape[-1], 1) > options.point_limit:
        return None
    if index.ndim == 2 and len(index):
        rows = [array.take(0, row).expand_dims(0, names[0]) for row in index]
        return concatenate(rows, 0)
    parts = [_select_rows(array, part, names[1:]) for part in index]
    if not parts or any(part is None for part in parts):
        return None
    return concatenate([part.expand_dims(0, names[0]) for part in parts if part is not None], 0)
