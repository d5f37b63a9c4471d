"""The cell that holds one position of a virtual array: its grid, its state, which part of the chunk it shows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from insitu.errors import SelectionError
from insitu.model.array import VirtualArray
from insitu.model.chunks import WHOLE, Absent, ChunkState, Inline, Stored, Unwritten
from insitu.model.encoding import Encoding
from insitu.model.packing import Packing
from insitu.model.tile import Tile
from insitu.pictures.cell_grid import is_computed_object

__all__ = ["CellDetails", "ShownRange", "find_cell"]


@dataclass(frozen=True, slots=True)
class ShownRange:
    """What a cell shows of its chunk along one axis of its grid."""

    dim: str | None
    """None: the axis has one element, and no dimension of the array names it."""
    skip: int
    step: int
    extent: int
    stored: int
    """As in `Axis`."""


@dataclass(frozen=True, slots=True)
class CellDetails:
    """One cell of an array."""

    tile_number: int
    tile: Tile
    cell: tuple[int, ...]
    """The cell, one number for each axis of the tile."""
    bounds: Mapping[str, tuple[int, int]]
    """Elements of the array that it shows: first and end along each dimension."""
    state: ChunkState
    numbers: tuple[int, int]
    """Its encoding and its packing, by their numbers in the tile."""
    shows: tuple[ShownRange, ...]
    """One for each axis of the tile."""

    @property
    def state_name(self) -> str:
        """Name of the state, as in pictures."""
        if isinstance(self.state, Stored):
            computed = self.state.length == WHOLE and is_computed_object(self.tile.chunks)
            return "computed" if computed else "stored"
        return {Inline: "inline", Unwritten: "unwritten", Absent: "absent"}[type(self.state)]

    @property
    def encoding(self) -> Encoding:
        """How its bytes are decoded."""
        return self.tile.encodings[self.numbers[0]]

    @property
    def packing(self) -> Packing:
        """How its stored values are decoded."""
        return self.tile.packings[self.numbers[1]]

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Shape of the decoded chunk, without axes that it does not have."""
        return tuple(shown.stored for shown in self.shows if shown.stored)

    @property
    def decoded_bytes(self) -> int | None:
        """Bytes of the decoded chunk; None if its elements have no fixed size."""
        dtype = self.encoding.dtype
        return None if dtype.hasobject else math.prod(self.chunk_shape) * dtype.itemsize


def find_cell(array: VirtualArray, index: Mapping[str, int]) -> CellDetails | None:
    """Return the cell that holds a position; None if no tile covers it.

    Parameters
    ----------
    array
        The array.
    index
        Position along every dimension.

    Raises
    ------
    SelectionError
        If a dimension is missing or unknown, or the position lies outside the array.
    """
    if set(index) != set(array.dims):
        wanted = ", ".join(array.dims) or "no dimension"
        raise SelectionError(f"a chunk is found by a position along {wanted}, not along {', '.join(index) or 'none'}")
    position = np.array([index[dim] for dim in array.dims], np.int64)
    if ((position < 0) | (position >= np.array(array.shape, np.int64))).any():
        raise SelectionError(f"position {position.tolist()} is outside an array of shape {array.shape}")
    inside = ((array.origins <= position) & (array.upper_corners() > position)).all(axis=1)
    if not inside.any():
        return None
    number = int(np.flatnonzero(inside)[0])
    tile, local = array.tiles[number], position - array.origins[number]
    dims: list[str | None] = [None] * len(tile.axes)
    cell = [int(axis.find(np.zeros(1, np.int64))[0]) for axis in tile.axes]
    bounds = {}
    for dimension, (dim, axis_number) in enumerate(zip(array.dims, tile.dimensions, strict=True)):
        axis = tile.axes[axis_number]
        at = axis.find(local[dimension : dimension + 1])
        dims[axis_number], cell[axis_number] = dim, int(at[0])
        begin = int(axis.begin(at)[0] + array.origins[number, dimension])
        bounds[dim] = (begin, begin + int(axis.show(at).extent[0]))
    shows = []
    for name, axis, at_cell in zip(dims, tile.axes, cell, strict=True):
        extent, skip, step, stored = (int(column[0]) for column in axis.show(np.array([at_cell])))
        shows.append(ShownRange(name, skip, step, extent, stored))
    row = tile.chunks.locate([np.array([at_cell]) for at_cell in cell])
    numbers = (int(row.encoding[0]), int(row.packing[0]))
    return CellDetails(number, tile, tuple(cell), bounds, tile.chunks[tuple(cell)], numbers, tuple(shows))
