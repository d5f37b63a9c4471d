"""Conversion of a `LazyArray` to xarray's own lazily indexed arrays, and back.

The engine returns such arrays. So do coordinates that label no dimension: xarray compares and
copies those often, so they are read once and kept.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy.typing as npt
import xarray
from xarray.backends import BackendArray

# xarray has no public name for its lazily indexed arrays. Its guide "How to add a new backend"
# takes them, and the adapter of indexers, from here.
from xarray.core import indexing

from insitu.lazy_array.duck_array import LazyArray
from insitu.reading.await_read import await_read

__all__ = [
    "InsituArray",
    "dataset_name",
    "duck_array",
    "find_lazy_array",
    "stored_name",
    "to_cached_array",
    "to_xarray_lazy",
]

NO_NAME = "__values__"
"""The name that xarray's engines give in a file to a variable that has none."""


def dataset_name(stored: str) -> Any:
    """Return the name that a variable of a file has in a dataset.

    None for the one that xarray wrote without a name.
    """
    return None if stored == NO_NAME else stored


def stored_name(name: Hashable) -> str:
    """Return the name that a variable of a dataset has in a file."""
    return NO_NAME if name is None else str(name)


class InsituArray(BackendArray):
    """A virtual array as xarray's backends have them."""

    __slots__ = ("dtype", "lazy", "shape")

    def __init__(self, lazy: LazyArray) -> None:
        self.lazy = lazy
        self.shape = lazy.shape
        self.dtype = lazy.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        if not isinstance(key, indexing.VectorizedIndexer):
            return self._get(key.tuple)  # xarray's adapter fails for empty selections that go backwards
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._get)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Return the values of a selection: xarray asks for them in `load_async`."""
        return await await_read(self.__getitem__, key)

    def _get(self, key: tuple[Any, ...]) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = self.lazy.oindex[key].read()
        return values


def to_cached_array(array: LazyArray) -> Any:
    """Return a lazily indexed array of xarray that keeps its values once they are read."""
    wrapped: Any = indexing
    return wrapped.MemoryCachedArray(wrapped.CopyOnWriteArray(wrapped.LazilyIndexedArray(InsituArray(array))))


def to_xarray_lazy(dataset: xarray.Dataset) -> xarray.Dataset:
    """Replace the virtual arrays of a dataset by xarray's own lazy arrays."""
    for variable in dataset.variables.values():
        if (array := duck_array(variable)) is not None:
            variable.data = indexing.LazilyIndexedArray(InsituArray(array))
    return dataset


def duck_array(variable: xarray.Variable) -> LazyArray | None:
    """Return the virtual array that a variable holds as it is; None if it holds anything else.

    Reads nothing.
    """
    data: Any = variable._data  # `Variable.data` would read what is cached or lazily indexed
    return data if isinstance(data, LazyArray) else None


def find_lazy_array(variable: xarray.Variable) -> LazyArray | None:
    """Return the virtual array behind a variable, with selections applied; None if it was read.

    Reads nothing.
    """
    # `Variable.data` would read what is cached or lazily indexed; xarray has no public way around.
    data: Any = variable._data
    while isinstance(data, (indexing.MemoryCachedArray, indexing.CopyOnWriteArray)):
        data = data.array
    if isinstance(data, LazyArray):
        return data
    if isinstance(data, indexing.LazilyIndexedArray) and isinstance(data.array, InsituArray):
        selected: LazyArray = data.array.lazy.oindex[data.key.tuple]
        return selected
    return None
