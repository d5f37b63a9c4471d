"""Fast joining of the arrays of many similar files.

`model.concatenate` takes any arrays. Files of one archive are mostly alike: one grid of chunks
each, with the same chunks across the join. That is recognised here, and then all are fused at once;
anything else goes the general way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from insitu.model import Axis, Tile, VirtualArray, concatenate
from insitu.model.join import fuse

__all__ = ["join_arrays", "repeat_arrays"]


def join_arrays(arrays: Sequence[VirtualArray], axis: int) -> VirtualArray:
    """Return the arrays one after another along a dimension; of the first one's type."""
    if len(arrays) == 1:
        return arrays[0]
    if not _is_alike(arrays, axis):
        return concatenate(arrays, axis)
    first = arrays[0]
    tile = fuse([array.tiles[0] for array in arrays], axis)
    return replace(first, shape=tile.shape, tiles=(tile,))


def _is_alike(arrays: Sequence[VirtualArray], axis: int) -> bool:
    """Return whether all are regular grids of one type, with the same chunks across the join."""
    first = arrays[0]
    if len(first.tiles) != 1 or first.tiles[0].shape != first.shape:
        return False
    layout, across = first.tiles[0].layout, _chunks_across(first.tiles[0], axis)
    if across is None:
        return False
    for array in arrays:
        # Which fill value counts for all is decided by `concatenate`.
        if len(array.tiles) != 1 or array.dtype != first.dtype or array.fill_value is not None:
            return False
        tile = array.tiles[0]
        if tile.layout != layout or tile.shape != array.shape or not array.shape[axis]:
            return False
        if _chunks_across(tile, axis) != across:
            return False
    return True


def _chunks_across(tile: Tile, axis: int) -> tuple[tuple[int, int, bool], ...] | None:
    """Return lengths and chunk sizes of all axes but one; None where some are irregular."""
    number = tile.dimensions[axis]
    if not all(a.is_regular for a in tile.axes):
        return None
    return tuple([(a.length, a.size, a.padded) for i, a in enumerate(tile.axes) if i != number])


_SINGLE_AXIS = Axis.broadcast(1)


def repeat_arrays(arrays: Sequence[VirtualArray], lengths: Sequence[int], dim: str) -> VirtualArray | None:
    """Return the arrays along a new first dimension, each repeated to its length.

    None if they are not alike. xarray repeats a variable in this way that lacks the joined
    dimension.
    """
    first = arrays[0]
    if not first.ndim or not _is_alike(arrays, 0) or len({array.shape for array in arrays}) > 1:
        return None
    if any(_first_axis_key(array) != _first_axis_key(first) for array in arrays):
        return None
    tiles = []
    for array in arrays:
        tile = array.tiles[0]
        layout = (len(tile.axes), *tile.dimensions)
        tiles.append(
            Tile((*tile.axes, _SINGLE_AXIS), tile.encodings, tile.chunks.with_new_axis(), tile.packings, layout)
        )
    side_by_side = VirtualArray(
        (len(arrays), *first.shape),
        first.dtype,
        (dim, *first.dims),
        (fuse(tiles, 0),),
        np.zeros((1, first.ndim + 1), np.int64),
    )
    return side_by_side.take(0, np.repeat(np.arange(len(arrays)), lengths))


def _first_axis_key(array: VirtualArray) -> tuple[int, ...]:
    axis = array.tiles[0].axis_of(0)
    return (axis.length, axis.size)
