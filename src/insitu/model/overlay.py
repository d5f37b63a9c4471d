"""Lay boxes of one virtual array over another: what lies below them is cut away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from insitu.model.array import VirtualArray
from insitu.model.selection import Stride
from insitu.model.tile import Tile

__all__ = ["Bounds", "cut_tile", "overlay", "without_box"]

Bounds = Sequence[tuple[int, int]]
"""Begin and end along each dimension."""


def overlay(below: VirtualArray, above: VirtualArray) -> VirtualArray:
    """Return an array of the same shape that shows the tiles of `above`, and `below` where they leave gaps.

    Name, attributes, encoding and type are those of `below`. Reads nothing.
    """
    found = below
    for tile, origin in zip(above.tiles, above.origins.tolist(), strict=True):
        found = without_box(found, [(at, at + length) for at, length in zip(origin, tile.shape, strict=True)])
    origins = np.concatenate([found.origins, above.origins])
    return replace(found, tiles=(*found.tiles, *above.tiles), origins=origins)


def without_box(array: VirtualArray, box: Bounds) -> VirtualArray:
    """Return an array with a gap in the place of a box.

    Examples
    --------
    >>> array = VirtualArray.from_values(np.zeros((4, 6)))
    >>> [tile.shape for tile in without_box(array, [(1, 3), (0, 2)]).tiles]
    [(1, 6), (1, 6), (2, 4)]
    """
    touched = set(array.touched_tiles([Stride(begin, 1, end - begin) for begin, end in box]).tolist())
    tiles: list[Tile] = []
    origins: list[list[int]] = []
    for number, (tile, origin) in enumerate(zip(array.tiles, array.origins.tolist(), strict=True)):
        if number not in touched:
            tiles.append(tile)
            origins.append(origin)
            continue
        inner = [
            (min(max(begin - at, 0), length), min(max(end - at, 0), length))
            for (begin, end), at, length in zip(box, origin, tile.shape, strict=True)
        ]
        for rest in _boxes_around(tile.shape, inner):
            tiles.append(cut_tile(tile, rest))
            origins.append([at + begin for at, (begin, _) in zip(origin, rest, strict=True)])
    table = np.array(origins, np.int64).reshape(len(tiles), array.ndim)
    return replace(array, tiles=tuple(tiles), origins=table)


def cut_tile(tile: Tile, box: Bounds) -> Tile:
    """Return the part of a tile that lies in a box."""
    for dimension, (begin, end) in enumerate(box):
        tile = tile.cut(dimension, Stride(begin, 1, end - begin))
    return tile


def _boxes_around(shape: Sequence[int], inner: Bounds) -> Iterator[list[tuple[int, int]]]:
    """Yield boxes that cover a shape without an inner box, as few and as large as possible in C order."""
    whole = [(0, length) for length in shape]
    if any(begin >= end for begin, end in inner):  # only touched by its bounding box
        yield whole
        return
    for dimension, (begin, end) in enumerate(inner):
        for first, last in ((0, begin), (end, shape[dimension])):
            if first < last:
                yield [*inner[:dimension], (first, last), *whole[dimension + 1 :]]
