"""`DeferredValues`: a virtual array, steps to apply after reading, and how to read it.

This is the state of a `LazyArray` without its NumPy and xarray interfaces. Loading, showing and
dispatching need no more, so their modules lie below `array` and never import it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from insitu.active.client import Active
from insitu.lazy_array.chunk_shapes import stored_chunks, uniform_chunks
from insitu.lazy_array.kept_values import KeptKey, Move, ValueCache
from insitu.lazy_array.steps import Step
from insitu.model import VirtualArray
from insitu.reading import ChunkCache, ReadContext
from insitu.sources.storage_options import options_for

__all__ = ["Access", "DeferredValues", "join_access"]


@dataclass(frozen=True, slots=True)
class Access:
    """How the values behind an array are reached: options, cache, server.

    It travels with the array. `load_values` reads with it, `numpy_reductions` reduces with it.
    """

    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    name: str | None = None
    """Name of the variable, for messages."""
    active: Active | None = None
    """The server that reduces next to the data."""
    cache: ChunkCache | None = field(default=None, compare=False)
    """Keeps decoded chunks for the next reads."""
    keep_alive: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    """Sources in memory that the array needs: a registry holds them weakly, by name, so somebody
    must keep them alive.
    """
    read_limit: int | None = field(default=None, compare=False, repr=False)
    """Bytes that arithmetic may read at once; None: `options.read_limit`."""
    values: ValueCache | None = field(default=None, compare=False, repr=False)
    """Keeps values that were read for the next use."""
    owner: object = field(default=None, compare=False, repr=False)
    """The dataset for which they are kept."""

    @property
    def read_context(self) -> ReadContext:
        """How a reduction reads: without the cache, because it needs every chunk once."""
        return ReadContext(self.name, self.storage_options)


class DeferredValues:
    """A virtual array, steps to apply to each value after reading, and how to read."""

    __slots__ = ("_chunks", "access", "array", "key", "origin", "parent", "steps")

    def __init__(self, array: VirtualArray, access: Access | None = None, steps: tuple[Step, ...] = ()) -> None:
        self.array = array
        self.access = access or Access()
        self.steps = steps
        self._chunks: tuple[tuple[int, ...], ...] | None = None
        self.key: KeptKey | None = None
        """Of its values in the cache, once they were kept."""
        self.parent: tuple[DeferredValues, Move] | None = None
        """The array that this was derived from, and how."""
        self.origin: tuple[VirtualArray, tuple[Any, ...]] | None = None
        """The array that this was selected from, and the selection: for a cache that reads ahead.
        """

    def __getitem__(self, key: Any) -> Any:
        raise NotImplementedError("only a LazyArray can be indexed")

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        dtype = self.array.dtype
        for step in self.steps:
            dtype = step.dtype(dtype)
        return dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.array.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.array.size

    @property
    def nbytes(self) -> int:
        """Bytes of all values, once they are read."""
        return self.size * self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        """Uniform chunks near the stored ones.

        xarray plans writing with them. `aligned_chunks` are where chunks really end.
        """
        if self._chunks is None:
            self._chunks = uniform_chunks(self.array)
        return self._chunks

    @property
    def aligned_chunks(self) -> tuple[tuple[int, ...], ...]:
        """Lengths of the stored chunks along each dimension."""
        return stored_chunks(self.array)

    def derived_from(self, parent: DeferredValues, move: Move) -> Self:
        """Note what the array was derived from: kept values of that are used for this one, too.

        The parent is noted as it is now: it may be written to later.
        """
        cache = parent.access.values
        if cache is not None:
            was = DeferredValues(parent.array, parent.access, parent.steps)
            was.key, was.parent = cache.key_of(parent), parent.parent
            self.parent = was, move
        return self

    def replace_values(self, carried: VirtualArray) -> None:
        """Take the values of another array of the same shape in place of its own."""
        self.array = replace(carried, dims=self.array.dims)
        self.steps, self.origin, self._chunks, self.key, self.parent = (), None, None, None, None


def join_access(arrays: Sequence[DeferredValues]) -> Access:
    """Return how to reach the values of several arrays that became one."""
    first = arrays[0].access
    if all(array.access == first and array.access.keep_alive == first.keep_alive for array in arrays):
        return first
    kept = tuple({id(part): part for array in arrays for part in array.access.keep_alive}.values())
    if all(array.access.storage_options == first.storage_options for array in arrays):
        return replace(first, keep_alive=kept)
    how: dict[str, Any] = {}
    for array in arrays:
        for source in array.array.sources:
            how[source.url] = options_for(source.url, array.access.storage_options)
    return replace(first, storage_options=how, keep_alive=kept)
