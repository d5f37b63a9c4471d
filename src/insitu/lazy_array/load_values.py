"""Loading of `LazyArray` values: at once, or as a Dask array above `options.read_limit`."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
from xarray.core import indexing  # no public name: see duck_array

from insitu.combining.member import in_memory
from insitu.errors import InsituError, UnsupportedError
from insitu.lazy_array.deferred_values import Access, DeferredValues
from insitu.lazy_array.kept_values import MAX_DEPTH, ValueCache
from insitu.lazy_array.options import options
from insitu.model import VirtualArray
from insitu.reading import PartialChunkCache, read_arrays

__all__ = [
    "TooLargeError",
    "find_values",
    "fingerprint",
    "read_all",
    "read_and_keep",
    "to_dask",
    "values_or_dask",
    "write_values",
]


ROOT_BYTES = 64 << 20
"""Arrays up to this size are read whole and kept, where something that was derived from one is used."""


def read_all(arrays: Sequence[DeferredValues], *, once: bool = False) -> list[npt.NDArray[Any]]:
    """Return the values of several arrays, in one batch of reads; the caller may write to them.

    Parameters
    ----------
    arrays
        The arrays.
    once
        Whether they are read in one pass over many, of which nothing is to be kept.
    """
    found = [find_values(array) for array in arrays]
    missing = [number for number, values in enumerate(found) if values is None]
    for number, values in zip(missing, _read_arrays([arrays[number] for number in missing], once), strict=True):
        found[number] = values
    return [np.array(values) if number not in missing else values for number, values in enumerate(found)]  # type: ignore[misc]


def find_values(array: DeferredValues) -> npt.NDArray[Any] | None:
    """Return the values of an array if they were kept, read-only; None if they must be read."""
    return None if array.access.values is None else array.access.values.find(array)


def read_and_keep(array: DeferredValues) -> npt.NDArray[Any]:
    """Return the values of an array for a computation that does not write to them.

    They are kept for the next one, if there is room.
    """
    found = find_values(array)
    if found is not None:
        return found
    cache = array.access.values
    if cache is None:
        return _read_arrays([array])[0]
    root = _root_of(array)
    if root is not array and _is_worth_reading_whole(root, array.nbytes, cache):
        cache.keep(root, _read_arrays([root])[0], root.access.owner)
        found = cache.find(array)
        if found is not None:
            return found
    values = _read_arrays([array])[0]
    return cache.keep(array, values, array.access.owner) if cache.can_keep(array.nbytes) else values


def _is_worth_reading_whole(root: DeferredValues, nbytes: int, cache: ValueCache) -> bool:
    """Return whether a small array is to be read whole, of which a part is used.

    What was derived is often gone after its use (the windows of a rolling mean, one step after the
    other), but the array that it was derived from is used again. So it is read whole once its parts
    had a quarter of its bytes: that costs at most four times of what they did.
    """
    if root.nbytes > ROOT_BYTES or not cache.can_keep(root.nbytes):
        return False
    key = cache.key_of(root)
    key.bytes_read += nbytes
    return root.nbytes <= 4 * key.bytes_read


def _root_of(array: DeferredValues) -> DeferredValues:
    """Return the array that another one was derived from in the end."""
    for _ in range(MAX_DEPTH):
        if array.parent is None:
            break
        array = array.parent[0]
    return array


def _read_arrays(arrays: Sequence[DeferredValues], once: bool = False) -> list[npt.NDArray[Any]]:
    groups: list[tuple[Access, list[int]]] = []
    for number, array in enumerate(arrays):
        how = array.access
        for like, members in groups:
            if how.cache is like.cache and how.storage_options == like.storage_options:
                members.append(number)
                break
        else:
            groups.append((how, [number]))
    values: list[Any] = [None] * len(arrays)
    for how, members in groups:
        requests = [_request(arrays[number]) for number in members]
        names = [arrays[number].access.name or "" for number in members]
        cache = None if once and isinstance(how.cache, PartialChunkCache) else how.cache
        read = read_arrays(requests, names=names, storage_options=how.storage_options, cache=cache)
        for number, found in zip(members, read, strict=True):
            for step in arrays[number].steps:
                found = step.apply(found)
            values[number] = found
    return values


def _request(array: DeferredValues) -> tuple[VirtualArray, Any]:
    """Return what to read: the array, or the part of the one that it was selected from."""
    return (array.array, ...) if array.origin is None else (array.origin.whole, array.origin.selection)


def values_or_dask(array: DeferredValues) -> Any:
    """Return the values, or a Dask array where they exceed `read_limit`."""
    limit = array.access.read_limit
    if array.nbytes <= (options.read_limit if limit is None else limit):
        return read_and_keep(array)
    if find_spec("dask") is None:
        if array.nbytes <= options.read_limit:
            return read_and_keep(array)
        raise TooLargeError(
            f"this would read {array.nbytes / 2**30:.1f} GiB at once, more than insitu.options.read_limit",
            hint="Select less, call load() to read it anyway, raise the limit, or install Dask (then it "
            "becomes a Dask array)",
        )
    return to_dask(array)


def write_values(array: DeferredValues, key: Any, value: Any) -> None:
    """Write to an array: it reads its values, changes them, and carries them from then on.

    Raises
    ------
    TooLargeError
        If there are more values than may be read at once.
    """
    limit = options.read_limit if array.access.read_limit is None else array.access.read_limit
    if array.nbytes > limit:
        raise TooLargeError(
            f"writing to this variable would read {array.nbytes / 2**30:.1f} GiB, more than insitu.options.read_limit",
            hint="Select what you need first, use where(), or call load() to read it anyway",
        )
    values = np.array(read_all([array])[0])
    if isinstance(key, indexing.ExplicitIndexer):
        inside: Any = indexing
        inside.set_with_indexer(inside.NumpyIndexingAdapter(values), key, value)
    else:
        values[key] = value
    carried = in_memory(values)
    if carried is None:
        raise TypeError(f"values of {values.dtype} cannot be written to in place: load() the variable first")
    array.replace_values(carried)


class TooLargeError(InsituError, MemoryError):
    """An operation would read more than the limit, and Dask is not installed to split it."""


def to_dask(array: DeferredValues, chunks: Any = None, *, inline_array: bool = False) -> Any:
    """Return the values as a Dask array whose chunks are the stored ones, or `chunks`."""
    try:
        dask_array: Any = import_module("dask.array")
    except ModuleNotFoundError as problem:
        raise UnsupportedError(
            "chunks= needs Dask, which is not installed", hint="pip install 'insitu[dask]'"
        ) from problem
    aligned = array.aligned_chunks
    if chunks == "auto" and array.dtype.hasobject:
        chunks = None  # Dask does not guess the size of objects
    if chunks is not None:
        aligned = dask_array.core.normalize_chunks(
            chunks, shape=array.shape, dtype=array.dtype, previous_chunks=array.chunks
        )
    name = f"insitu-{fingerprint(array)}"
    meta = np.empty((0,) * array.ndim, array.dtype)
    return dask_array.from_array(_BlockReader(array), chunks=aligned, name=name, meta=meta, inline_array=inline_array)


@dataclass(frozen=True, slots=True)
class _BlockReader:
    """Source of a Dask array's blocks.

    A selection gives values (Dask would pass a virtual array on unread).
    """

    array: DeferredValues

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        block = self.array[key]
        return (
            read_all([block], once=True)[0] if isinstance(block, DeferredValues) else block
        )  # Dask keeps what it needs


def fingerprint(array: DeferredValues) -> str:
    """Return a hash of an array's chunks and steps: the same for equal arrays only."""
    return hashlib.blake2b(pickle.dumps((array.array, array.steps)), digest_size=16).hexdigest()
