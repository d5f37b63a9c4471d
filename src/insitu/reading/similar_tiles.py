"""What is wanted of many tiles that are cut alike, all at once?

Files that alternate between a few ways to be cut stay side by side, thousands of tiles of a few kinds. The tiles of one kind are looked at as one:
their tables appended, their cells each at its own place in the array. So planning costs little for each tile, however many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from insitu.model import Axis, Columns, Selection, Stride, Tile, VirtualArray
from insitu.model.axis import Cut, Indices
from insitu.model.join import fuse
from insitu.model.tile import SPLIT_BYTES

__all__ = ["FEW", "kinds", "placed"]

FEW = 8
"""Tiles that are looked at one by one: below, gathering them costs more than it saves."""

Kind = tuple[int, list[int]]
"""The dimension along which tiles of a kind follow each other, and which they are."""


def kinds(
    array: VirtualArray, selection: Selection, numbers: Sequence[int], much: bool
) -> tuple[list[Kind], list[int]]:
    """The touched tiles by kind, and those that are of none.

    Parameters
    ----------
    array, selection
        What is wanted.
    numbers
        The tiles that are touched.
    much
        Whether so much is wanted that large uncompressed cells are cut into pieces: tiles of such cells are looked at one by one.
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
        axes = [_key(axis) for i, axis in enumerate(tile.axes) if i != joined]
        found.setdefault((*corner, tile.layout, _has(tile.axes[joined]), *axes), []).append(number)
    chosen = []
    for members in found.values():
        if len(members) < FEW:
            rest += members
        else:
            chosen.append((along, members))
    return chosen, rest


def _key(axis: Axis) -> Any:
    """What tells the cuts of an axis from others; an irregular one is like itself only."""
    return (axis.length, axis.size, axis.padded) if axis.cells is None else id(axis)


def _largest_cell(tile: Tile) -> int:
    """Bytes of an uncompressed cell, at most."""
    size = tile.encodings[0].dtype.itemsize
    for axis in tile.axes:
        size *= axis.size if axis.cells is None else max(int(axis.cells.stored.max(initial=1)), 1)
    return size


def _has(axis: Axis) -> bool:
    """Whether the chunks have this axis."""
    return axis.cells is None or bool(axis.cells.stored[0])


def placed(array: VirtualArray, kind: Kind, stride: Stride) -> tuple[Tile, Cut]:
    """The tiles of a kind as one, and what a slice wants of its cells along the dimension in which the tiles follow each other."""
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
        return tile, Cut(cells, extent, skip, paced, first)
    return tile, Cut(cells, extent, skip + paced * (extent - 1), -paced, count - (first + extent))
