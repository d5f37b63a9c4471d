"""How does a virtual array become one of xarray's own lazy arrays, and how is it found behind one again?

The engine gives such arrays, and so are coordinates that label no dimension: xarray compares and copies those at every turn, and a coordinate
that is read once and then stays is what everybody expects. (It also may stand beside Dask arrays, which a virtual array may not.)
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy.typing as npt
import xarray
from xarray.backends import BackendArray
from xarray.core import indexing

from insitu.lazy_array.array import LazyArray

__all__ = ["InsituArray", "behind", "cached", "dataset_name", "ordinary", "stored_name"]

NO_NAME = "__values__"
"""The name that xarray's engines give in a file to a variable that has none."""


def dataset_name(stored: str) -> Any:
    """Return the name that a variable of a file has in a dataset: None for the one that xarray wrote without a name."""
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
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._get)

    def _get(self, key: tuple[Any, ...]) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = self.lazy.oindex[key].read()
        return values


def cached(array: LazyArray) -> Any:
    """An ordinary lazy array that keeps its values once they are read."""
    wrapped: Any = indexing
    return wrapped.MemoryCachedArray(wrapped.CopyOnWriteArray(wrapped.LazilyIndexedArray(InsituArray(array))))


def ordinary(dataset: xarray.Dataset) -> xarray.Dataset:
    """With xarray's own lazy arrays in place of ours."""
    for variable in dataset.variables.values():
        if isinstance(variable._data, LazyArray):
            variable.data = indexing.LazilyIndexedArray(InsituArray(variable._data))
    return dataset


def behind(variable: xarray.Variable) -> LazyArray | None:
    """The virtual array of a variable, if it has not been read yet; what was selected from it is selected."""
    data: Any = variable._data
    while isinstance(data, (indexing.MemoryCachedArray, indexing.CopyOnWriteArray)):
        data = data.array
    if isinstance(data, LazyArray):
        return data
    if isinstance(data, indexing.LazilyIndexedArray) and isinstance(data.array, InsituArray):
        selected: LazyArray = data.array.lazy.oindex[data.key.tuple]
        return selected
    return None
