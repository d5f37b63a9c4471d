"""Block sizes of Dask arrays: as many whole stored chunks as make a good task.

A task of Dask costs about a millisecond, more than to decode a small chunk, and a graph of a million
tasks takes minutes to make. So a block has about `array.chunk-size` bytes (a setting of Dask, 128
MiB), and it ends where a stored chunk ends, so that no chunk is decoded twice. Where a user asks for
blocks that cut stored chunks, whole chunks are read, and Dask makes the blocks of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.engines.dask import import_dask
from insitu.expressions.boxes import extend_lengths, is_uncompressed
from insitu.expressions.chunk_grid import ChunkLengths, split_evenly, stored_chunks
from insitu.expressions.nodes import Expression
from insitu.process_options import options
from insitu.reducing.portions import cut_at_borders

__all__ = ["choose_blocks", "choose_blocks_together", "choose_reads"]

SMALL_BYTES = 1 << 20
"""Arrays up to this size are cut as larger ones are, whatever their own chunks."""


def choose_blocks(array: Expression, given: Mapping[int, Any] | None = None) -> ChunkLengths:
    """Return the lengths of blocks along each dimension: whole stored chunks, about 128 MiB.

    Parameters
    ----------
    array
        The array.
    given
        By dimension, blocks that are given: a length, -1 for the whole dimension, or all lengths.
    """
    fixed = {axis: _lengths(array.shape[axis], wanted) for axis, wanted in (given or {}).items()}
    stored = stored_chunks(array)
    cells = [max(fixed.get(axis, cut), default=1) or 1 for axis, cut in enumerate(stored)]
    room = block_bytes() // max(array.dtype.itemsize, 1)
    free = [axis for axis in range(array.ndim) if axis not in fixed]
    sizes = extend_lengths(cells, array.shape, free, range(array.ndim), room)
    return tuple(
        fixed[axis] if axis in fixed else _join_chunks(cut, size)
        for axis, (cut, size) in enumerate(zip(stored, sizes, strict=True))
    )


def choose_blocks_together(
    arrays: Mapping[Any, tuple[Sequence[Any], Expression]], given: Mapping[Any, Any]
) -> dict[Any, ChunkLengths]:
    """Return the blocks of several arrays by name, the same along a common dimension where that cuts no
    chunk.

    Parameters
    ----------
    arrays
        By name, the names of their dimensions and the arrays.
    given
        Blocks by name of a dimension, as for `choose_blocks`.
    """
    chosen: dict[Any, ChunkLengths] = {}
    common: dict[Any, tuple[int, ...]] = {}
    for name, (dims, array) in sorted(arrays.items(), key=lambda item: -item[1][1].nbytes):
        requested = {axis: given[dim] for axis, dim in enumerate(dims) if dim in given}
        followed = {
            axis: common[dim]
            for axis, dim in enumerate(dims)
            if axis not in requested and dim in common and _can_follow(array, axis, common[dim])
        }
        chosen[name] = choose_blocks(array, {**followed, **requested})
        if followed and math.prod(map(max, chosen[name])) * array.dtype.itemsize > block_bytes():
            chosen[name] = choose_blocks(array, requested)  # its chunks are long where those of others are short
        for dim, lengths in zip(dims, chosen[name], strict=True):
            common.setdefault(dim, lengths)
    return chosen


def choose_reads(array: Expression, blocks: ChunkLengths) -> ChunkLengths:
    """Return what to read at a time, so that chunks that lie in several blocks are decoded once for these.

    Blocks side by side that cut the same chunks, together up to `options.read_limit`, are made of the same reads:
    that is what Dask holds at a time. Beyond, chunks are decoded again.

    Parameters
    ----------
    array
        The array.
    blocks
        Lengths of the blocks that are wanted.
    """
    stored = stored_chunks(array)
    cut = [axis for axis, lengths in enumerate(blocks) if not _is_subset(np.cumsum(lengths), np.cumsum(stored[axis]))]
    if not cut or array.nbytes <= SMALL_BYTES or is_uncompressed(array):
        return blocks
    every = range(array.ndim)
    longest = [max(lengths) for lengths in blocks]
    cells = [max(lengths) for lengths in stored]
    itemsize = max(array.dtype.itemsize, 1)
    read_lengths = extend_lengths(longest, array.shape, cut, every, options.read_limit // itemsize)
    parts = [_join_chunks(lengths, size) for lengths, size in zip(blocks, read_lengths, strict=True)]
    cells = [min(cell, size) for cell, size in zip(cells, read_lengths, strict=True)]
    most = [max(cells[axis], longest[axis]) if axis in cut else read_lengths[axis] for axis in every]
    sizes = extend_lengths(cells, most, every, every, block_bytes() // itemsize)
    return tuple(_cut_parts(*along) for along in zip(parts, stored, sizes, strict=True))


def _cut_parts(parts: Sequence[int], stored: Sequence[int], size: int) -> tuple[int, ...]:
    """Return lengths of at most a size, of whole chunks but at the ends of parts."""
    ends = np.concatenate([[0], np.cumsum(parts)])
    borders = np.union1d(ends, np.cumsum(stored))
    cuts = (
        first + np.array(cut_at_borders(borders[(borders >= first) & (borders <= last)] - first, size))
        for first, last in pairwise(ends)
    )
    return tuple(np.concatenate([np.diff(inside) for inside in cuts]).tolist())


def block_bytes() -> int:
    """Return the bytes of a block that Dask is set to."""
    dask = import_dask("dask", "chunks=")
    return int(dask.utils.parse_bytes(dask.config.get("array.chunk-size", "128MiB")))


def _lengths(length: int, wanted: Any) -> tuple[int, ...]:
    """Return the lengths of blocks of a dimension that were given in one of Dask's forms."""
    if isinstance(wanted, (tuple, list)):
        return tuple(int(n) for n in wanted)
    size = length if wanted is None or wanted == -1 else int(wanted)
    if size < 1 and length:
        raise ValueError(f"a block has a positive length, or -1 for the whole dimension, not {wanted}")
    return split_evenly(length, size)


def _join_chunks(lengths: Sequence[int], size: int) -> tuple[int, ...]:
    """Return lengths of blocks of at most a size, each of whole chunks."""
    if math.fsum(lengths) <= size:
        return (int(math.fsum(lengths)),)
    borders = np.concatenate([[0], np.cumsum(lengths)])
    return tuple(np.diff(cut_at_borders(borders, size)).tolist())


def _can_follow(array: Expression, axis: int, lengths: Sequence[int]) -> bool:
    """Return whether blocks end where chunks of the array end, or it is small."""
    if sum(lengths) != array.shape[axis]:
        return False
    return array.nbytes <= SMALL_BYTES or _is_subset(np.cumsum(lengths), np.cumsum(stored_chunks(array)[axis]))


def _is_subset(borders: npt.NDArray[np.int64], of: npt.NDArray[np.int64]) -> bool:
    return bool(np.isin(borders, of).all())
