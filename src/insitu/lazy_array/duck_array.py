"""`LazyArray`: a virtual array as a duck array inside xarray, read when its values are needed.

NumPy's functions and ufuncs come to it through `dispatch`. It is an `ExplicitlyIndexed` of xarray
whose `get_duck_array` is itself: `Variable.data` stays virtual, and `insitu.xarray_bridge.xarray_hooks`
lets `load` read it. It has no attribute `chunks`, by which xarray would take it for a Dask array, with
the restrictions of those. Structural operations and arithmetic make another one and read nothing;
reductions stream; everything else reads. There is one class only, because xarray compares the types of
arrays that it joins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

# xarray has no public name for these. Its guide for backends uses the module, and no other base
# class makes xarray keep an array as it is instead of loading it.
from xarray.core.indexing import ExplicitIndexer, ExplicitlyIndexed, OuterIndexer, VectorizedIndexer

from insitu.errors import SelectionError
from insitu.expressions.element_operations import cast, current_errors, is_incomplete
from insitu.expressions.evaluate import read_all, read_and_keep
from insitu.expressions.moves import AddDimension, DropDimension, Repeat, SelectEach, StructuralMove, Transpose
from insitu.expressions.nodes import Moved, Stored, without_moves
from insitu.expressions.point_selection import SelectPoints, TooManyPointsError, index_pointwise
from insitu.forking import import_before_fork
from insitu.lazy_array.at_once import call_at_once, move_at_once
from insitu.lazy_array.deferred_values import DeferredValues
from insitu.lazy_array.dispatch import call_function, call_ufunc, compute_in_place
from insitu.lazy_array.load_values import fingerprint, values_or_dask, write_values
from insitu.lazy_array.methods import Methods
from insitu.lazy_array.numpy_indexing import select
from insitu.model import normalise_axes
from insitu.process_options import options
from insitu.reading import read_points
from insitu.reading.await_read import await_read
from insitu.scanning.member import in_memory

__all__ = ["LazyArray"]


POWERS = {
    (float, 0.5, "f"): np.sqrt,
    (float, 0.5, "c"): np.sqrt,
    (int, 2, "c"): np.square,
    (int, 2, "b"): np.square,
    (int, -1, "c"): np.reciprocal,
}
"""What NumPy's operator calls instead of `np.power`, by exponent and kind of dtype, where values or types differ."""


def _in_place(ufunc: np.ufunc) -> Callable[[Any, Any], Any]:
    """Return the method of an operator that assigns its result."""

    def compute(self: LazyArray, other: Any) -> Any:
        return compute_in_place(ufunc, self, other)

    return compute


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

    async def async_get_duck_array(self) -> npt.NDArray[Any]:
        """Return the values: xarray asks for them in `load_async` only."""
        return await await_read(self.read)

    # Values.

    @classmethod
    def carry(cls, values: Any) -> Any:
        """Return values as a virtual array that carries them: what is computed of them has the same bits, whether they
        were read now or earlier. Objects and Dask arrays stay as they are.
        """
        carried = in_memory(values) if isinstance(values, np.ndarray) else None
        return values if carried is None else cls(carried)

    def read(self, *, once: bool = False) -> npt.NDArray[Any]:
        """Return the values; nothing of them is kept if they are read `once`, as a part of a pass."""
        at_hand = self.find_at_hand()
        return read_all([self.node], once=once)[0] if at_hand is None else np.array(at_hand)

    def __array__(self, dtype: npt.DTypeLike | None = None, *, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("copy=False is not possible: reading a virtual array makes a copy")
        at_hand = self.find_at_hand()
        values = read_and_keep(self.node) if at_hand is None else at_hand
        if dtype is not None:
            values = values.astype(dtype, copy=False)
        return values if values.flags.writeable else values.copy("K" if at_hand is not None else "C")

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

    def __pow__(self, other: Any) -> Any:
        shortcut = self._find_power(other)
        return super().__pow__(other) if shortcut is None else shortcut(self)

    def _find_power(self, other: Any) -> np.ufunc | None:
        """Return what NumPy's operator calls: infinities and complex numbers differ from those of np.power."""
        return POWERS.get((type(other), other, self.dtype.kind)) if type(other) in (int, float) else None

    # In place: the name that the operator assigns to gets a new array, as with Dask.

    __iadd__ = _in_place(np.add)
    __isub__ = _in_place(np.subtract)
    __imul__ = _in_place(np.multiply)
    __imatmul__ = _in_place(np.matmul)
    __itruediv__ = _in_place(np.true_divide)
    __ifloordiv__ = _in_place(np.floor_divide)
    __imod__ = _in_place(np.remainder)
    __ilshift__ = _in_place(np.left_shift)
    __irshift__ = _in_place(np.right_shift)
    __iand__ = _in_place(np.bitwise_and)
    __ixor__ = _in_place(np.bitwise_xor)
    __ior__ = _in_place(np.bitwise_or)

    def __ipow__(self, other: Any) -> Any:
        shortcut = self._find_power(other) if self.dtype.kind != "b" else None  # a square of those is of another type
        return compute_in_place(np.power, self, other) if shortcut is None else shortcut(self)

    # NumPy's operators, unlike its ufuncs, know that values of types that cannot be compared differ.

    def __eq__(self, other: object) -> Any:
        try:
            return super().__eq__(other)
        except TypeError:
            return values_or_dask(self) == (values_or_dask(other) if isinstance(other, LazyArray) else other)

    def __ne__(self, other: object) -> Any:
        try:
            return super().__ne__(other)
        except TypeError:
            return values_or_dask(self) != (values_or_dask(other) if isinstance(other, LazyArray) else other)

    __hash__ = None  # type: ignore[assignment]

    # Selecting.

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, ExplicitIndexer):
            return self._select_orthogonal(key.tuple)
        selected = select(self, key)
        # One object (a text, a date) is what xarray looks at to find out of which type they are.
        is_object = isinstance(selected, LazyArray) and selected.dtype.hasobject and not selected.ndim and self.ndim
        return selected.read().item() if is_object else selected

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write to the array: its values are read, and it carries them from then on.

        Copies are not affected. What would be a view in NumPy cannot be written to: the array that it was
        selected from would not change.
        """
        write_values(self, key, value)

    @property
    def oindex(self) -> IndexingView:
        """Indexing each dimension on its own."""
        return IndexingView(self._select_orthogonal, self.__setitem__, OuterIndexer)

    @property
    def vindex(self) -> IndexingView:
        """Pointwise indexing: the points' dimensions come first."""
        return IndexingView(self._pointwise, self.__setitem__, VectorizedIndexer)

    def _select_orthogonal(self, keys: tuple[Any, ...]) -> LazyArray:
        keys = tuple(np.asarray(k) if not isinstance(k, (int, np.integer, slice)) else k for k in self._complete(keys))
        return self._after(SelectEach(self.shape, keys))

    def _complete(self, keys: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return one key for each dimension."""
        if len(keys) > self.ndim:
            raise SelectionError(f"too many indices: {len(keys)} for an array of {self.ndim} dimensions")
        return (*keys, *[slice(None)] * (self.ndim - len(keys)))

    def _pointwise(self, keys: tuple[Any, ...]) -> Any:
        keys = tuple(k if isinstance(k, slice) else np.asarray(k) for k in self._complete(keys))
        try:
            return self._after(SelectPoints(self.shape, keys, options.point_limit))
        except TooManyPointsError:
            is_read = self.is_stored
            return self.carry(read_points(self.array, keys, self.context) if is_read else self._read_points(keys))

    def _read_points(self, keys: tuple[Any, ...]) -> npt.NDArray[Any]:
        """Return points, read as the indices that they have along each dimension."""
        among: list[Any] = [slice(None)] * self.ndim
        inside: list[Any] = [slice(None)] * self.ndim
        for axis, key in enumerate(keys):
            if not isinstance(key, slice):
                wanted = np.where(key < 0, key + self.shape[axis], key)
                among[axis], inverse = np.unique(wanted, return_inverse=True)
                inside[axis] = inverse.reshape(np.shape(key))
            else:
                among[axis] = key
        return index_pointwise(self._select_orthogonal(tuple(among)).read(), tuple(inside))

    # Structure.

    def _after(self, move: StructuralMove) -> LazyArray:
        """Return the array after a structural operation, which is done to all arrays of its expression."""

        def move_node(array: LazyArray) -> LazyArray:
            made = LazyArray(move.apply(array.node))
            made.is_view = move.makes_view
            return made

        found = move_at_once(move, move_node, self)
        return move_node(self) if found is None else found

    def transpose(self, *axes: Any) -> LazyArray:
        """Return the dimensions in another order."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], (int, np.integer)) else axes
        if order is None or not axes:
            order = tuple(reversed(range(self.ndim)))
        order = normalise_axes(tuple(order), self.ndim)
        if len(order) != self.ndim:
            raise ValueError(f"{order} is not an order of {self.ndim} dimensions")
        if order == tuple(range(self.ndim)):
            return self
        return self._after(Transpose(order))

    def expand_dims(self, axis: int) -> LazyArray:
        """Return the array with a new dimension of length 1."""
        return self._after(AddDimension(*normalise_axes(axis, self.ndim + 1)))

    def drop(self, axis: int) -> LazyArray:
        """Return the array without a dimension of length 1."""
        return self._after(DropDimension(*normalise_axes(axis, self.ndim)))

    def broadcast_to(self, shape: Sequence[int]) -> LazyArray:
        """Return the array broadcast to a shape, as NumPy does."""
        shape = tuple(int(length) for length in shape)
        if shape == self.shape:
            return self
        return self._after(Repeat(shape))

    def reshape(self, *shape: Any, order: str = "C") -> Any:
        """Return the array in another shape.

        It stays virtual where only lengths of 1 come or go; else these are the values.
        """
        wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)) else shape
        return call_function(np.reshape, (self, wanted, order), {})

    def astype(
        self, dtype: npt.DTypeLike, order: Any = "K", casting: Any = "unsafe", subok: bool = True, copy: bool = True
    ) -> Any:
        """Return the array in another type, cast as NumPy does.

        It is virtual, unless the type depends on the values: objects as texts.
        """
        to = np.dtype(dtype)
        if not np.can_cast(self.dtype, to, casting):
            raise TypeError(f"Cannot cast array data from {self.dtype!r} to {to!r} according to the rule {casting!r}")
        if is_incomplete(to):
            if self.dtype.kind == "O" or (self.dtype.kind in "SU" and to.kind in "mM"):
                return np.asarray(self).astype(to, order)
            to = np.empty(0, self.dtype).astype(to).dtype
        laid_out = order in ("C", "F")  # how the values are to lie in memory once they are read
        if to == self.dtype and to.metadata == self.dtype.metadata and not laid_out:  # xarray writes enumerations by it
            return self.copy() if copy else self

        def cast_node(array: LazyArray) -> LazyArray:
            stored = without_moves(array.node)
            is_lossless = np.can_cast(self.dtype, to, "safe") and self.dtype.kind in "biufc" and to.kind in "iufc"
            if isinstance(stored, Stored) and is_lossless and not laid_out:
                filled = Stored(replace(stored.array, dtype=to), stored.context)  # a place is cast as it is filled
                return LazyArray(Moved.remember(array.node, CastValues(to), filled))
            return LazyArray(cast(array.node, to, current_errors(), order))

        found = call_at_once(lambda values: values.astype(to, order), cast_node, [self])
        return cast_node(self) if found is None else found

    # Travelling and showing.

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyArray, (self.node,)

    def __copy__(self) -> LazyArray:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> LazyArray:
        return self.copy()

    def copy(self, order: str = "C") -> LazyArray:
        """Return an array that can be written to without changing this one; reads nothing."""
        if order == "F":
            return LazyArray(cast(self.node, self.dtype, (), order))
        return LazyArray(self.node) if self._at_hand is None else self.of_values(self.source, self._at_hand)

    def __dask_tokenize__(self) -> Any:
        return fingerprint(self.node)

    def __repr__(self) -> str:
        return str(_representation().format_text(self))

    def __format__(self, spec: str) -> str:
        return format(self.read(), spec) if spec and not self.ndim else super().__format__(spec)

    def _repr_inline_(self, max_width: int) -> str:
        return str(_representation().format_line(self, max_width))

    def _repr_html_(self) -> str:
        return str(_representation().format_html(self))


def _representation() -> Any:
    """Return what shows arrays, which draws pictures: it is imported for the first that is shown."""
    return import_before_fork("insitu.lazy_array.representation")


@dataclass(frozen=True, slots=True)
class CastValues:
    """A cast without loss, of values that were kept."""

    to: np.dtype[Any]

    def of_values(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values in the type."""
        return values.astype(self.to)


@dataclass(frozen=True, slots=True)
class IndexingView:
    """Indexing with square brackets in one way (orthogonal or pointwise)."""

    get: Callable[[tuple[Any, ...]], Any]
    write: Callable[[Any, Any], None]
    indexer: Callable[[tuple[Any, ...]], ExplicitIndexer]

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, ExplicitIndexer):
            key = key.tuple
        return self.get(key if isinstance(key, tuple) else (key,))

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, ExplicitIndexer):
            key = self.indexer(tuple(k if isinstance(k, (int, slice)) else np.asarray(k) for k in key))
        self.write(key, value)
