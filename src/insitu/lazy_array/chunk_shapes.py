"""Chunk lengths of a virtual array along each dimension: as stored, or uniform and near to that."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from insitu.model import Tile, VirtualArray

__all__ = ["ChunkLengths", "stored_chunks", "uniform_chunks"]

ChunkLengths = tuple[tuple[int, ...], ...]
"""For each dimension the lengths of the blocks."""


def uniform_chunks(array: VirtualArray) -> ChunkLengths:
    """Return uniform chunk lengths, of the size that most chunks have."""
    return tuple(
        _split_evenly(length, size) for length, size in zip(array.shape, _typical_chunk_sizes(array), strict=True)
    )


def _split_evenly(length: int, size: int) -> tuple[int, ...]:
    size = max(min(size, length), 1)
    full, rest = divmod(length, size)
    return (size,) * full + ((rest,) if rest or not length else ())


def _typical_chunk_sizes(array: VirtualArray) -> list[int]:
    """Return the chunk size along each dimension that most elements lie in."""
    if not array.tiles:
        return list(array.shape)
    sizes = []
    for dimension in range(array.ndim):
        found: Counter[int] = Counter()
        for tile in _tiles_that_decide(array.tiles):
            axis = tile.axis_of(dimension)
            size = (
                axis.size if axis.is_regular else int(axis.show(np.arange(min(axis.count, 1000))).extent.max(initial=1))
            )
            found[size] += math.prod(tile.shape)
        sizes.append(max(found, key=lambda size: (found[size], -size)))
    return sizes


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
