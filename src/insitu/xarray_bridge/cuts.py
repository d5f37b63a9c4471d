"""Into which blocks does a virtual array fall? As it is stored, or evenly, near to that."""

from __future__ import annotations

import numpy as np

from insitu.model import VirtualArray

__all__ = ["Cuts", "stored_cuts", "uniform_cuts"]

Cuts = tuple[tuple[int, ...], ...]
"""For each dimension the lengths of the blocks."""


def uniform_cuts(array: VirtualArray) -> Cuts:
    """Even blocks, of the size that most chunks have."""
    return tuple(_even(length, size) for length, size in zip(array.shape, _sizes(array), strict=True))


def _even(length: int, size: int) -> tuple[int, ...]:
    size = max(min(size, length), 1)
    full, rest = divmod(length, size)
    return (size,) * full + ((rest,) if rest or not length else ())


def _sizes(array: VirtualArray) -> list[int]:
    """The chunk size along each dimension, of the first tile."""
    if not array.tiles:
        return list(array.shape)
    sizes = []
    for dimension in range(array.ndim):
        axis = array.tiles[0].axis_of(dimension)
        if axis.is_regular:
            sizes.append(axis.size)
        else:
            extents = axis.show(np.arange(min(axis.count, 1000))).extent
            sizes.append(int(extents.max(initial=1)))
    return sizes


def stored_cuts(array: VirtualArray) -> Cuts:
    """Where the stored chunks end, of whichever tile."""
    return tuple(_between_borders(array, dimension) for dimension in range(array.ndim))


def _between_borders(array: VirtualArray, dimension: int) -> tuple[int, ...]:
    length = array.shape[dimension]
    ends = [np.array([0, length], np.int64)]
    for tile, origin in zip(array.tiles, array.origins[:, dimension].tolist(), strict=True):
        axis = tile.axis_of(dimension)
        ends.append(origin + axis.begin(np.arange(axis.count)))
        ends.append(np.array([origin + axis.length], np.int64))
    borders = np.unique(np.concatenate(ends))
    return tuple(np.diff(borders).tolist()) if length else (0,)
