"""xarray's chunk manager for `LazyArray`: batched computing, and streaming to stores.

xarray hands arrays that have `chunks` to a chunk manager. This one computes all arrays of a dataset
in one batch of reads, and streams them to another store in pieces of bounded size. What needs
parallel blocks (`map_blocks`, `apply_ufunc(dask="parallelized")`) is left to Dask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

# xarray's guide for chunk managers names this module; there is no other.
from xarray.namedarray.parallelcompat import ChunkManagerEntrypoint

from insitu.errors import UnsupportedError
from insitu.lazy_array.boxes import iterate_boxes
from insitu.lazy_array.duck_array import LazyArray
from insitu.lazy_array.evaluate import read_all
from insitu.lazy_array.load_values import own_values_or_dask, to_dask
from insitu.lazy_array.options import options
from insitu.model.elementwise import UFUNCS

__all__ = ["InsituChunkManager"]


class InsituChunkManager(ChunkManagerEntrypoint[LazyArray]):
    """The chunk manager of `LazyArray`; registered under `xarray.chunkmanagers`."""

    array_cls: type[LazyArray]
    available = True

    def __init__(self) -> None:
        self.array_cls = LazyArray

    def is_chunked_array(self, data: Any) -> bool:
        """Return whether an array is one of ours."""
        return isinstance(data, LazyArray)

    def chunks(self, data: LazyArray) -> tuple[tuple[int, ...], ...]:
        """Return the chunks of an array."""
        return data.chunks

    def normalize_chunks(
        self,
        chunks: Any,
        shape: tuple[int, ...] | None = None,
        limit: int | None = None,
        dtype: Any = None,
        previous_chunks: Any = None,
    ) -> Any:
        """Return chunks as a tuple of lengths for each dimension."""
        if shape is None:
            return chunks
        if isinstance(chunks, dict):
            chunks = tuple(chunks.get(axis, -1) for axis in range(len(shape)))
        if isinstance(chunks, (int, str)) or chunks is None:
            chunks = (chunks,) * len(shape)
        return tuple(_chunk_lengths(length, wanted) for length, wanted in zip(shape, chunks, strict=True))

    def from_array(self, data: Any, chunks: Any, **kwargs: Any) -> Any:
        """Return arrays in memory and virtual arrays as they are."""
        if isinstance(data, (np.ndarray, LazyArray)):
            return data
        inner = getattr(data, "array", None)
        if isinstance(inner, LazyArray):
            return inner
        raise UnsupportedError("splitting this array into chunks needs Dask", hint="pip install 'insitu[dask]'")

    def rechunk(self, data: LazyArray, chunks: Any, **kwargs: Any) -> LazyArray:
        """Return the array itself: chunks are where they are stored."""
        return data

    def compute(self, *data: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return the values of all arrays, read in one batch."""
        lazy = [array for array in data if isinstance(array, LazyArray)]
        values = iter(read_all(lazy))
        return tuple(next(values) if isinstance(array, LazyArray) else array for array in data)

    def persist(self, *data: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return the same: there is nowhere but memory to persist to."""
        return self.compute(*data, **kwargs)

    @property
    def array_api(self) -> Any:
        """Where xarray finds `full` for `zeros_like` and its kin."""
        return _ArrayNamespace()

    def reduction(
        self,
        arr: LazyArray,
        func: Callable[..., Any],
        combine_func: Callable[..., Any] | None = None,
        aggregate_func: Callable[..., Any] | None = None,
        axis: Any = None,
        dtype: Any = None,
        keepdims: bool = False,
    ) -> Any:
        """Return a reduction by functions of blocks, on the values."""
        partial = func(np.asarray(arr), axis=axis, keepdims=True)
        return (aggregate_func or combine_func or func)(partial, axis=axis, keepdims=keepdims)

    def apply_gufunc(self, func: Callable[..., Any], signature: str, *args: Any, **kwargs: Any) -> Any:
        """`apply_ufunc(dask="parallelized")`: on the values if they are few, else through Dask.

        A ufunc of which expressions consist stays virtual.
        """
        if isinstance(func, np.ufunc) and func in UFUNCS and set(signature) <= set("()->,"):
            return func(*args)
        args = tuple(own_values_or_dask(arg) if isinstance(arg, LazyArray) else arg for arg in args)
        if any(type(arg).__module__.startswith("dask") for arg in args):
            return _dask_array().apply_gufunc(func, signature, *args, **kwargs)
        for own in ("axes", "axis", "keepdims", "output_dtypes", "output_sizes", "allow_rechunk", "meta"):
            kwargs.pop(own, None)
        if kwargs.pop("vectorize", None):
            func = np.vectorize(func, signature=signature)
        return func(*args, **kwargs)

    def map_blocks(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Map a function over the values: as one block if they are few, else through Dask."""
        args = tuple(own_values_or_dask(arg) if isinstance(arg, LazyArray) else arg for arg in args)
        if any(type(arg).__module__.startswith("dask") for arg in args):
            return _dask_array().map_blocks(func, *args, **kwargs)
        for own in ("dtype", "chunks", "drop_axis", "new_axis", "meta", "name", "token"):
            kwargs.pop(own, None)
        return func(*args, **kwargs)

    def blockwise(self, func: Callable[..., Any], out_ind: Any, *args: Any, **kwargs: Any) -> Any:
        """Apply a function block by block, through Dask."""
        return _dask_array().blockwise(func, out_ind, *(_as_dask(arg) for arg in args), **kwargs)

    def unify_chunks(self, *args: Any, **kwargs: Any) -> Any:
        """Return the arrays as they are: virtual arrays need no common chunks."""
        arrays, index = args[::2], args[1::2]
        cuts: dict[Any, tuple[int, ...]] = {}
        for array, names in zip(arrays, index, strict=True):
            for name, cut in zip(names or (), getattr(array, "chunks", ()), strict=False):
                cuts.setdefault(name, cut)
        return cuts, list(arrays)

    def store(self, sources: Any, targets: Any, **kwargs: Any) -> Any:
        """Write arrays to targets, piece by piece."""
        if not kwargs.get("compute", True):
            raise NotImplementedError("compute=False needs Dask arrays: call .chunk() on the dataset first")
        if isinstance(sources, LazyArray):
            sources, targets = [sources], [targets]
        regions = kwargs.get("regions") or [None] * len(sources)
        for source, target, region in zip(sources, targets, regions, strict=True):
            for piece in iterate_boxes(source, _chunks_of(target, source)):
                target[_target_region(region, piece)] = source[piece].read(once=True)

    def shuffle(self, x: LazyArray, indexer: list[list[int]], axis: int, chunks: Any) -> LazyArray:
        """Return the elements of one dimension in another order."""
        order = np.concatenate([np.asarray(part, int) for part in indexer])
        shuffled: LazyArray = x[(*[slice(None)] * axis, order)]
        return shuffled

    def scan(
        self,
        func: Callable[..., Any],
        binop: Callable[..., Any],
        ident: float,
        arr: LazyArray,
        axis: int | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Return a cumulative function, on the values."""
        return func(np.asarray(arr), axis=axis)

    def get_auto_chunk_size(self) -> int:
        """Return the default size of a block in bytes."""
        return options.block_bytes


class _ArrayNamespace:
    """The functions of an array namespace that xarray calls to make arrays."""

    def full(self, shape: Any, fill_value: Any, dtype: Any = None, chunks: Any = None, **kwargs: Any) -> Any:
        return np.full(shape, fill_value, dtype)

    def full_like(self, array: Any, fill_value: Any, dtype: Any = None, chunks: Any = None, **kwargs: Any) -> Any:
        return np.full(array.shape, fill_value, dtype or array.dtype)


def _dask_array() -> Any:
    return import_module("dask.array")


def _as_dask(arg: Any) -> Any:
    return to_dask(arg) if isinstance(arg, LazyArray) else arg


def _chunk_lengths(length: int, wanted: Any) -> tuple[int, ...]:
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return tuple(wanted)
    size = length if wanted in (-1, None, "auto") else int(wanted)
    size = max(size, 1)
    full, rest = divmod(length, size)
    return (size,) * full + ((rest,) if rest or not length else ())


def _chunks_of(target: Any, source: LazyArray) -> Sequence[int] | None:
    """Return the chunks of what is written to, if it has some."""
    theirs = getattr(target, "chunks", None)
    if isinstance(theirs, tuple) and len(theirs) == source.ndim and all(isinstance(n, int) for n in theirs):
        return theirs
    return None


def _target_region(region: Any, piece: tuple[slice, ...]) -> tuple[Any, ...]:
    """Return where in the target a piece of the source is written, given the target's region."""
    if region is None:
        return piece or (...,)
    out = []
    pieces = iter(piece)
    for part in region:
        if isinstance(part, slice):
            here = next(pieces)
            start, step = part.start or 0, part.step or 1
            out.append(slice(start + here.start * step, start + here.stop * step, step))
        else:
            out.append(part)
    return tuple(out)
