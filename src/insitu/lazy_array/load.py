"""When are values needed, how are they got? All at once, or through Dask where they are too many to hold."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
from xarray.core import indexing

from insitu.errors import InsituError, UnsupportedError
from insitu.lazy_array.array import Access, LazyArray
from insitu.lazy_array.options import options
from insitu.model import Axis, Columns, Encoding, Tile, VirtualArray
from insitu.reading import read_arrays
from insitu.sources.storage_options import options_for

__all__ = ["computable", "fingerprint", "inlined", "joined_access", "read_all", "to_dask"]


def read_all(arrays: Sequence[LazyArray]) -> list[npt.NDArray[Any]]:
    """The values of several arrays, in one batch of reads."""
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
        requests = [(arrays[number].array, ...) for number in members]
        names = [arrays[number].access.name or "" for number in members]
        steps = [arrays[number].origin or (arrays[number].array, ...) for number in members]
        read = read_arrays(requests, names=names, storage_options=how.storage_options, cache=how.cache, steps=steps)
        for number, found in zip(members, read, strict=True):
            for step in arrays[number].steps:
                found = step.apply(found)
            values[number] = found
    return values


def computable(array: LazyArray) -> Any:
    """Something that NumPy's functions compute with: the values, or a Dask array where there are more than `read_limit`."""
    limit = array.access.read_limit
    if array.nbytes <= (options.read_limit if limit is None else limit):
        return array.read()
    if find_spec("dask") is None:
        if array.nbytes <= options.read_limit:
            return array.read()
        raise TooLargeError(
            f"this would read {array.nbytes / 2**30:.1f} GiB at once, more than insitu.options.read_limit",
            hint="Select less, load() it on purpose, raise the limit, or install Dask (then it becomes a Dask array)",
        )
    return to_dask(array)


def write_values(array: LazyArray, key: Any, value: Any) -> None:
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
            hint="Select what you need first, use where(), or load() it on purpose",
        )
    values = np.array(array.read())
    if isinstance(key, indexing.ExplicitIndexer):
        inside: Any = indexing
        inside.set_with_indexer(inside.NumpyIndexingAdapter(values), key, value)
    else:
        values[key] = value
    carried = inlined(values)
    if carried is None:
        raise TypeError(f"values of {values.dtype} cannot be written to in place: load() the variable first")
    array.replace_values(carried)


class TooLargeError(InsituError, MemoryError):
    """An operation would read more than the limit, and there is no Dask to cut it up."""


def to_dask(array: LazyArray, chunks: Any = None, *, inline_array: bool = False) -> Any:
    """The same as a Dask array, cut where the stored chunks end."""
    try:
        dask_array: Any = import_module("dask.array")
    except ModuleNotFoundError as problem:
        raise UnsupportedError(
            "chunks= makes Dask arrays, and Dask is not here", hint="pip install 'insitu[dask]'"
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
    return dask_array.from_array(_Blocks(array), chunks=aligned, name=name, meta=meta, inline_array=inline_array)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """What Dask takes its blocks from: a selection is values at once (Dask would go on with a virtual array as it is)."""

    array: LazyArray

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
        return block.read() if isinstance(block, LazyArray) else block


def fingerprint(array: LazyArray) -> str:
    """A text that tells it from every other array."""
    return hashlib.blake2b(pickle.dumps((array.array, array.steps)), digest_size=16).hexdigest()


def inlined(values: npt.NDArray[Any]) -> VirtualArray | None:
    """Values in memory as a virtual array that carries them; None if their type cannot be carried so."""
    if values.dtype.hasobject or not values.dtype.itemsize:
        return None
    axes = tuple(Axis.regular(length, max(length, 1)) for length in values.shape)
    grid = tuple(axis.count for axis in axes)
    data = np.ascontiguousarray(values).tobytes()
    chunks = Columns.inlined(grid, data) if 0 not in grid else Columns.absent(grid)
    tile = Tile(axes, (Encoding(values.dtype),), chunks)
    return VirtualArray.of(tile, dims=tuple(f"dim_{i}" for i in range(values.ndim)))


def joined_access(arrays: Sequence[LazyArray]) -> Access:
    """How to reach the values of several arrays that became one."""
    first = arrays[0].access
    if all(array.access == first and array.access.kept == first.kept for array in arrays):
        return first
    kept = tuple({id(part): part for array in arrays for part in array.access.kept}.values())
    if all(array.access.storage_options == first.storage_options for array in arrays):
        return replace(first, kept=kept)
    how: dict[str, Any] = {}
    for array in arrays:
        for source in array.array.sources:
            how[source.url] = options_for(source.url, array.access.storage_options)
    return replace(first, storage_options=how, kept=kept)
