"""Groups of similar tiles, which are planned together as if they were one tile.

Files that alternate between a few chunk shapes stay side by side: thousands of tiles of a few
kinds. The tiles of one kind are treated as one: their tables are appended, and each cell has its
own place in the array. So planning costs little for each tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from insitu.model import Axis, Columns, Selection, Stride, Tile, VirtualArray
from insitu.model.axis import AxisCut, Indices
from insitu.model.join import fuse
from insitu.model.tile import SPLIT_BYTES

__all__ = ["MIN_GROUP_SIZE", "fuse_tile_group", "group_similar_tiles"]

MIN_GROUP_SIZE = 8
"""Smallest number of tiles that are grouped: for fewer, grouping costs more than it saves."""

TileGroup = tuple[int, list[int]]
"""The dimension along which the tiles of a group follow each other, and their numbers."""


def group_similar_tiles(
    array: VirtualArray, selection: Selection, numbers: Sequence[int], much: bool
) -> tuple[list[TileGroup], list[int]]:
    """Return groups of similar tiles, and the tiles that belong to no group.

    Parameters
    ----------
    array, selection
        The array, and what to read of it.
    numbers
        Numbers of the touched tiles.
    much
        Whether the selection is so large that large uncompressed cells are split; tiles of such
        cells are not grouped.
    """
    near = array.origins[numbers]
    distinct = [len(np.unique(near[:, dimension])) for dimension in range(array.ndim)]
    along = int(np.argmax(distinct)) if distinct else 0
    if not distinct or not isinstance(selection.selectors[along], (int, Stride)):
        return [], list(numbers)
    across = np.delete(near, along, axis=1).tolist()
    found: dict[Any, list[int]] = {}
    rest: list[int] = []
    for number, corner in zip(numbers, across, strict=True):
        tile = array.tiles[number]
        if not isinstance(tile.chunks, Columns) or (
            much and tile.encodings[0].raw and _largest_cell(tile) > SPLIT_BYTES
        ):
            rest.append(number)
            continue
        joined = tile.dimensions[along]
        axes = [_axis_key(axis) for i, axis in enumerate(tile.axes) if i != joined]
        found.setdefault((*corner, tile.layout, _has_stored_axis(tile.axes[joined]), *axes), []).append(number)
    chosen = []
    for members in found.values():
        if len(members) < MIN_GROUP_SIZE:
            rest += members
        else:
            chosen.append((along, members))
    return chosen, rest


def _axis_key(axis: Axis) -> Any:
    """Return a key that is equal for axes that are cut alike.

    An irregular axis is equal only to itself.
    """
    return (axis.length, axis.size, axis.padded) if axis.cells is None else id(axis)


def _largest_cell(tile: Tile) -> int:
    """Return the bytes of the largest uncompressed cell."""
    size = tile.encodings[0].dtype.itemsize
    for axis in tile.axes:
        size *= axis.size if axis.cells is None else max(int(axis.cells.stored.max(initial=1)), 1)
    return size


def _has_stored_axis(axis: Axis) -> bool:
    """Return whether the chunks have this axis."""
    return axis.cells is None or bool(axis.cells.stored[0])


def fuse_tile_group(array: VirtualArray, kind: TileGroup, stride: Stride) -> tuple[Tile, AxisCut]:
    """Return the tiles of a group as one tile, and what a slice takes of its cells along the
    group's dimension.
    """
    along, numbers = kind
    tiles = [array.tiles[number] for number in numbers]
    tile = fuse(tiles, along)
    axes = [part.axis_of(along) for part in tiles]
    lengths = np.array([axis.length for axis in axes], np.int64)
    shift = array.origins[numbers, along] - (np.cumsum(lengths) - lengths)
    axis = tile.axis_of(along)
    cells: Indices = np.arange(axis.count)
    # As `Axis.cut`, but each cell begins where its own tile lies in the array.
    begin = axis.begin(cells) + np.repeat(shift, [part.count for part in axes])
    start, step, count = stride
    low, pace = (start, step) if step > 0 else (start + (count - 1) * step, -step)
    shown = axis.show(cells)
    first = np.maximum(-(-(begin - low) // pace), 0)
    extent = np.minimum(-(-(begin + shown.extent - low) // pace), count) - first
    keep = np.flatnonzero(extent > 0)
    cells, begin, first, extent = cells[keep], begin[keep], first[keep], extent[keep]
    skip = shown.skip[keep] + shown.step[keep] * (low + first * pace - begin)
    paced = shown.step[keep] * pace
    if step > 0:
        return tile, AxisCut(cells, extent, skip, paced, first)
    return tile, AxisCut(cells, extent, skip + paced * (extent - 1), -paced, count - (first + extent))
