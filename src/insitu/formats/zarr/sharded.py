"""Chunk table of a sharded Zarr array: where inner chunks lie in their shards.

A shard's index says so. It is read when a cell of that shard is first asked for, many shards at a
time, and kept in a cache that is bounded by bytes. Shards in shards take one more round. Only the
inner chunks that are wanted are fetched.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.codecs.chain import decode
from insitu.errors import FormatError, NotFoundError, TruncatedError, UnsupportedError, error_context
from insitu.lru import LruCache
from insitu.model import UNWRITTEN, Axis, ChunkLocations, ChunkTable, Source
from insitu.model.axis import Indices
from insitu.model.cell_counts import CellCounts
from insitu.model.chunks import flat_cell_numbers
from insitu.model.derived_tables import ChunkTableBase
from insitu.sources import ByteSource, open_source, read_tail
from insitu.sources.listing import local_path
from insitu.sources.threads import gather
from insitu.zarr_metadata.codec_documents import ShardLevel

__all__ = ["ShardedChunks"]

MAX_COUNTED_SHARDS = 10_000
"""Shards whose indexes are read to count what they hold."""
REMEMBERED = 64 << 20
"""Bytes of indexes kept."""
_NOTHING = np.uint64(2**64 - 1)
Index = npt.NDArray[np.uint64]
_NO_SHARD: Index = np.empty((0, 2), np.uint64)
"""Stands for the index of a shard that was never written."""


def _weight(index: Index) -> int:
    return 128 + index.nbytes


def _index_cache() -> LruCache[tuple[int, ...], Index]:
    return LruCache(REMEMBERED, _weight, min_items=1)


@dataclass(frozen=True, slots=True)
class _ShardLocation:
    """Location of one shard, and its chunks along each axis."""

    key: tuple[int, ...]
    source: Source
    offset: int
    length: int
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ShardedChunks(ChunkTableBase):
    """The table of the innermost chunks of a sharded array."""

    outer: ChunkTable
    """Where the shards lie."""
    objects: tuple[Axis, ...]
    """How the array is cut into shards."""
    levels: tuple[ShardLevel, ...]
    shape: tuple[int, ...]
    """Innermost chunks along each axis of the array."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    indexes: LruCache[tuple[int, ...], Index] = field(default_factory=_index_cache, repr=False)

    @property
    def sources(self) -> Sequence[Source]:
        """The shards."""
        return self.outer.sources

    def count(self) -> CellCounts | None:
        """Return the number of cells as if all were stored, if there are too many shards to read their indexes."""
        cells = math.prod(self.shape)
        return CellCounts(cells, cells) if math.prod(self.outer.shape) > MAX_COUNTED_SHARDS else None

    def locate(self, cells: Sequence[Indices]) -> ChunkLocations:
        """Return where cells lie."""
        full = [c.reshape(-1) for c in np.broadcast_arrays(*cells)]
        if not full:
            full = [np.zeros(1, np.int64)][:0]
        rows = len(full[0]) if full else 1
        innermost = self.levels[-1].inner
        position = [c * size for c, size in zip(full, innermost, strict=True)]
        outer = [axis.find(p) for axis, p in zip(self.objects, position, strict=True)]
        rest = [p - axis.begin(o) for axis, p, o in zip(self.objects, position, outer, strict=True)]
        stored = [axis.show(o).stored for axis, o in zip(self.objects, outer, strict=True)]
        at = self.outer.locate(outer)
        if (np.asarray(at.encoding) != 0).any():
            raise UnsupportedError("a shard in a compressed member of an archive cannot be read in parts")
        source = np.array(at.source, np.int64)
        offset, length = np.array(at.offset, np.int64), np.array(at.length, np.int64)
        number = flat_cell_numbers(outer, self.outer.shape)
        keys = [number]
        for level in self.levels:
            index = [r // size for r, size in zip(rest, level.inner, strict=True)]
            counts = [s // size for s, size in zip(stored, level.inner, strict=True)]
            self._descend(level, keys, counts, index, source, offset, length)
            rest = [r % size for r, size in zip(rest, level.inner, strict=True)]
            stored = [np.full(rows, size) for size in level.inner]
            keys.append(_flat(index, counts))
        zero = np.broadcast_to(np.int64(0), (rows,))
        return ChunkLocations(source, offset, length, zero, zero, zero, b"")

    def _descend(
        self,
        level: ShardLevel,
        keys: Sequence[Indices],
        counts: Sequence[Indices],
        index: Sequence[Indices],
        source: Indices,
        offset: Indices,
        length: Indices,
    ) -> None:
        """Turn the locations of shards, in place, into those of the chunks `index` in them."""
        stacked = np.stack(keys, axis=1)
        unique, first, inverse = np.unique(stacked, axis=0, return_index=True, return_inverse=True)
        inverse = inverse.reshape(-1)
        by_shard = np.argsort(inverse, kind="stable")
        ends = np.cumsum(np.bincount(inverse, minlength=len(unique)))
        places = []
        for key, row in zip(unique.tolist(), first.tolist(), strict=True):
            if source[row] >= 0:
                about = self.sources[int(source[row])]
                size = tuple(int(count[row]) for count in counts)
                places.append(_ShardLocation(tuple(key), about, int(offset[row]), int(length[row]), size))
        found = self._read(level, places)
        begin = 0
        for key, end in zip(unique.tolist(), ends.tolist(), strict=True):
            rows = by_shard[begin:end]
            begin = end
            table = found.get(tuple(key))
            if table is None or not table.size:
                source[rows] = np.where(source[rows] >= 0, UNWRITTEN, source[rows])
                continue
            entry = table[tuple(index[axis][rows] for axis in level.order)]
            written = entry[:, 0] != _NOTHING
            start = entry[:, 0].astype(np.int64)
            source[rows] = np.where(written, source[rows], UNWRITTEN)
            offset[rows] = np.where(written, offset[rows] + start, 0)
            length[rows] = np.where(written, entry[:, 1].astype(np.int64), 0)

    def _read(self, level: ShardLevel, places: Sequence[_ShardLocation]) -> dict[tuple[int, ...], Index]:
        """Return the indexes of these shards."""
        cached = {place.key: self.indexes.get(place.key) for place in places}
        found = {key: index for key, index in cached.items() if index is not None}
        missing = [place for place in places if place.key not in found]
        if not missing:
            return found

        def read(place: _ShardLocation, stop: threading.Event) -> Index:
            return _read_index(level, place, self.storage_options)

        local = local_path(missing[0].source.url) is not None
        for place, index in zip(missing, gather(read, missing, width=1 if local else 32), strict=True):
            found[place.key] = index
            self.indexes.put(place.key, index)
        return found


def _flat(index: Sequence[Indices], counts: Sequence[Indices]) -> Indices:
    number = np.zeros(len(index[0]) if index else 1, np.int64)
    for i, n in zip(index, counts, strict=True):
        number = number * n + i
    return number


def _read_index(level: ShardLevel, place: _ShardLocation, options: Mapping[str, Any] | None) -> Index:
    """Read the index of one shard; return `_NO_SHARD` if there is no such object."""
    counts = tuple(place.counts[axis] for axis in level.order)
    nbytes = 16
    for count in counts:
        nbytes *= count
    nbytes += level.trailer
    try:
        with open_source(place.source.url, options) as source:
            if place.length < 0 and level.at_end:
                data, end = _tail(source, nbytes)
            else:
                # The object's end is known only when it was asked for; a chunk past it fails when
                # it is read.
                end = place.length if place.length >= 0 else 2**63 - 1
                data = (
                    source.read(place.offset + (end - nbytes if level.at_end else 0), nbytes) if end >= nbytes else b""
                )
    except NotFoundError as problem:
        if problem.is_dead_redirect:
            raise
        return _NO_SHARD
    with error_context(url=place.source.url, structure="shard index"):
        if len(data) != nbytes:
            raise TruncatedError(f"the index of a shard has {nbytes} bytes, but only {len(data)} could be read")
        index: Index = np.ascontiguousarray(decode(data, level.index, (*counts, 2)).astype(np.uint64))
        _check_index(index, end)
    return index


def _tail(source: ByteSource, nbytes: int) -> tuple[bytes, int]:
    """Return the last bytes of an object, and its size."""
    data = read_tail(source, nbytes)
    return data, source.size()


def _check_index(index: Index, end: int) -> None:
    """Raise if an index leads out of its shard."""
    start, length = index[..., 0], index[..., 1]
    written = (start != _NOTHING) | (length != _NOTHING)
    limit = np.uint64(end)
    is_invalid = written & ((start > limit) | (length > limit) | (start + length > limit))
    if is_invalid.any():
        first_invalid = np.argwhere(is_invalid)[0]
        raise FormatError(
            f"chunk {tuple(first_invalid.tolist())} of the shard is said to lie at {int(start[tuple(first_invalid)])}, "
            f"{int(length[tuple(first_invalid)])} bytes long, outside of it"
        )
