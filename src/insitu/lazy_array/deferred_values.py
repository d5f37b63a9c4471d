"""`DeferredValues`: a virtual array, steps to apply after reading, and how to read it.

This is the state of a `LazyArray` without its NumPy and xarray interfaces. Loading, showing and
dispatching need no more, so their modules lie below `array` and never import it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np

from insitu.active.client import Active
from insitu.engines.choose import settings as engine_settings
from insitu.lazy_array.kept_values import KeptKey, Move, Owner, ValueCache
from insitu.lazy_array.steps import Apply, Step
from insitu.lazy_array.windows import TakeWindows
from insitu.model import Axis, Selection, Tile, VirtualArray
from insitu.reading import ChunkCache, ReadContext, ReadStatistics, SourcePool
from insitu.sources.storage_options import options_for

__all__ = ["Access", "DeferredValues", "PendingSelection", "join_access"]


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
    owner: Owner | None = field(default=None, compare=False, repr=False)
    """The dataset for which they are kept."""
    sources: SourcePool | None = field(default=None, compare=False, repr=False)
    """Open sources, within a server; None: they are opened for each read."""
    tally: ReadStatistics | None = field(default=None, compare=False, repr=False)
    """Counts what is read, within a server."""

    def of_variable(self, name: str) -> Access:
        """Return the same for one variable. `dataclasses.replace` takes twice as long, for each variable."""
        return Access(
            self.storage_options,
            name,
            self.active,
            self.cache,
            self.keep_alive,
            self.read_limit,
            self.values,
            self.owner,
            self.sources,
            self.tally,
        )

    @property
    def read_context(self) -> ReadContext:
        """How a reduction reads: without the cache, because it needs every chunk once."""
        return ReadContext(self.name, self.storage_options, engine=self.engine)

    @property
    def engine(self) -> Any:
        """What runs large reductions; None: this process, which alone has sources in memory."""
        return None if self.keep_alive else engine_settings.engine


class PendingSelection:
    """A part of a virtual array that is cut out when that is needed: most parts are read once, and then it is not.

    Parameters
    ----------
    whole
        The array.
    selection
        What is selected of it.
    """

    __slots__ = ("_cut", "selection", "whole")

    def __init__(self, whole: VirtualArray, selection: Selection) -> None:
        self.whole = whole
        self.selection = selection
        self._cut: VirtualArray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension."""
        return self.selection.result_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.whole.dtype

    def cut(self) -> VirtualArray:
        """Return the part as an array of its own, the same one every time."""
        if self._cut is None:
            self._cut = self.whole[self.selection]
        return self._cut


class DeferredValues:
    """A virtual array, steps to apply to each value after reading, and how to read."""

    __slots__ = ("_array", "_chunks", "access", "is_view", "key", "leaf", "parent", "steps")

    def __init__(
        self, array: VirtualArray | PendingSelection, access: Access | None = None, steps: tuple[Step, ...] = ()
    ) -> None:
        self._array = array
        self.access = access or Access()
        self.steps = steps
        self._chunks: tuple[tuple[int, ...], ...] | None = None
        self.leaf: DeferredValues | None = _find_leaf(self)
        """Of an expression: the stored array with the steps before the first operation."""
        self.is_view = False
        """Whether NumPy would show the memory of another array here. Such an array cannot be written to."""
        self.key: KeptKey | None = None
        """Of its values in the cache, once they were kept."""
        self.parent: tuple[DeferredValues, Move] | None = None
        """The array that this was derived from, and how."""

    def __getitem__(self, key: Any) -> Any:
        raise NotImplementedError("only a LazyArray can be indexed")

    @property
    def array(self) -> VirtualArray:
        """The virtual array."""
        return self._array.cut() if isinstance(self._array, PendingSelection) else self._array

    @property
    def identity(self) -> int:
        """The same for arrays that are read from the same place."""
        return id(self._array)

    @property
    def request(self) -> tuple[VirtualArray, Any]:
        """What to read: the array, or the part of the one that it was selected from, which a cache that reads ahead
        follows.
        """
        return (
            (self._array.whole, self._array.selection)
            if isinstance(self._array, PendingSelection)
            else (self._array, ...)
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension."""
        return self._array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        dtype = self._array.dtype
        for step in self.steps:
            dtype = step.dtype(dtype)
        return dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._array.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self._array.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all values, once they are read."""
        return self.size * self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def read_itemsize(self) -> int:
        """Bytes of an element, of the stored array or of the result: what is larger."""
        return max(self.dtype.itemsize, self.array.dtype.itemsize, 1)

    @property
    def uniform_chunks(self) -> tuple[tuple[int, ...], ...]:
        """Uniform chunks near the stored ones; `aligned_chunks` are where chunks really end."""
        if self._chunks is None:
            self._chunks = tuple(_split_evenly(*of) for of in zip(self.shape, self.chunk_sizes, strict=True))
        return self._chunks

    @property
    def chunk_sizes(self) -> list[int]:
        """Length of most chunks along each dimension: of an expression, of those of its arrays that
        have the longest.
        """
        sizes = _typical_chunk_sizes(self.array)
        for step in self.steps:
            for operand in step.operands if isinstance(step, Apply) else ():
                sizes = [
                    max(size, other[0]) if length == whole else size
                    for size, other, length, whole in zip(
                        sizes, operand.uniform_chunks, operand.shape, self.shape, strict=True
                    )
                ]
        return sizes

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
            was = DeferredValues(parent._array, parent.access, parent.steps)
            was.leaf, was.key, was.parent = parent.leaf, cache.key_of(parent), parent.parent
            self.parent = was, move
        return self

    def replace_values(self, carried: VirtualArray) -> None:
        """Take the values of another array of the same shape in place of its own."""
        self._array = replace(carried, dims=self.array.dims)
        self.steps, self._chunks, self.leaf, self.key, self.parent = (), None, None, None, None


def _find_leaf(array: DeferredValues) -> DeferredValues | None:
    first = next((number for number, step in enumerate(array.steps) if isinstance(step, (Apply, TakeWindows))), None)
    return None if first is None else DeferredValues(array._array, array.access, array.steps[:first])


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


ChunkLengths = tuple[tuple[int, ...], ...]
"""For each dimension the lengths of the blocks."""


def uniform_chunks(array: VirtualArray) -> ChunkLengths:
    """Return uniform chunk lengths, of the size that most chunks have."""
    return DeferredValues(array).uniform_chunks


@lru_cache(maxsize=256)
def _split_evenly(length: int, size: int) -> tuple[int, ...]:
    size = max(min(size, length), 1)
    full, rest = divmod(length, size)
    return (size,) * full + ((rest,) if rest or not length else ())


def _typical_chunk_sizes(array: VirtualArray) -> list[int]:
    """Return the chunk size along each dimension that most elements lie in."""
    if not array.tiles:
        return list(array.shape)
    if len(array.tiles) == 1:
        return [_typical_cell(array.tiles[0].axis_of(dimension)) for dimension in range(array.ndim)]
    sizes = []
    for dimension in range(array.ndim):
        found: Counter[int] = Counter()
        for tile in _tiles_that_decide(array.tiles):
            found[_typical_cell(tile.axis_of(dimension))] += math.prod(tile.shape)
        sizes.append(max(found, key=lambda size: (found[size], -size)))
    return sizes


def _typical_cell(axis: Axis) -> int:
    """Return the length of the cells of an axis, of the longest among the first ones if they differ."""
    return axis.size if axis.is_regular else int(axis.show(np.arange(min(axis.count, 1000))).extent.max(initial=1))


def _tiles_that_decide(tiles: Sequence[Tile]) -> Sequence[Tile]:
    """Return the tiles whose chunks matter: uncompressed values can be split anywhere."""
    encoded = [tile for tile in tiles if not all(encoding.raw for encoding in tile.encodings)]
    return encoded or tiles


def stored_chunks(array: VirtualArray) -> ChunkLengths:
    """Return the lengths of the stored chunks.

    Where tiles side by side have different ones, these are those of most tiles.
    """
    return tuple(_chunk_lengths_along(array, dimension) for dimension in range(array.ndim))


def _chunk_lengths_along(array: VirtualArray, dimension: int) -> tuple[int, ...]:
    length = array.shape[dimension]
    if not length:
        return (0,)
    cuts: dict[tuple[int, int], Counter[bytes]] = {}
    telling = {id(tile) for tile in _tiles_that_decide(array.tiles)}
    for tile, origin in zip(array.tiles, array.origins[:, dimension].tolist(), strict=True):
        axis = tile.axis_of(dimension)
        begins = np.asarray(origin + axis.begin(np.arange(axis.count)), np.int64)
        weight = math.prod(tile.shape) if id(tile) in telling else 0
        cuts.setdefault((origin, origin + axis.length), Counter())[begins.tobytes()] += weight
    spans = np.array(sorted(cuts), np.int64).reshape(-1, 2)
    ends = [np.array([0, length], np.int64), spans.reshape(-1)]
    apart = bool((spans[1:, 0] >= spans[:-1, 1]).all())
    for kinds in cuts.values():
        # The borders of all kinds together would leave blocks of nothing: some chunks are better
        # read twice.
        chosen = kinds.most_common(1) if apart else kinds.items()
        ends += [np.frombuffer(begins, np.int64) for begins, _ in chosen]
    borders = np.unique(np.concatenate(ends))
    return tuple(np.diff(borders).tolist())
