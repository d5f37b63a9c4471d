"""Cells of a virtual array along two dimensions, with the other dimensions fixed at one position.

`ChunkPlane.of` collects what a picture of the chunks needs (state, file, codec, packing, bytes) as
columns, never as one object for each cell. Tiles of few cells go into one flat list, so that ten
thousand of them are processed together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from insitu.cancellation import check_deadline
from insitu.errors import SelectionError
from insitu.model.array import VirtualArray
from insitu.model.axis import Indices
from insitu.pictures.cell_grid import CellGrid, FlatCells, GridWindow, flatten_cells, make_grid
from insitu.pictures.chunk_numbering import Numbering

__all__ = ["ChunkPlane"]

_FLAT_CELLS = 1024
"""Cells up to which a tile goes into the flat list: a grid costs about 0.1 ms for each row of
pixels, whatever it holds.
"""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkPlane:
    """The cells of an array along two dimensions."""

    dimensions: tuple[int | None, int | None]
    """Rows and columns, by number; None: the array has no such dimension, and the side has the
    length 1.
    """
    shape: tuple[int, int]
    """Elements along both."""
    grids: tuple[CellGrid, ...]
    flat: FlatCells
    """The cells of tiles that have only a few."""
    tile_boxes: Indices
    """(tiles, 4): first row, end, first column, end of each tile in the plane."""
    numbering: Numbering

    @classmethod
    def of(
        cls,
        array: VirtualArray,
        dimensions: tuple[int | None, int | None] | None = None,
        index: Mapping[int, int] | None = None,
        numbering: Numbering | None = None,
    ) -> ChunkPlane:
        """Return the cells of an array along two dimensions.

        Parameters
        ----------
        array
            The array.
        dimensions
            Rows and columns, by number; by default the last two. None for a side that the array
            does not have.
        index
            Position along each other dimension, by its number; 0 where it is not given.
        numbering
            That of the array, if it is known already.

        Raises
        ------
        SelectionError
            If the array has no such dimension, or no such position.
        """
        plane = _last_two(array.ndim) if dimensions is None else dimensions
        fixed = _check_position(array, plane, index or {})
        numbers = Numbering.of(array) if numbering is None else numbering
        near, far = array.origins, array.upper_corners()
        touched = np.ones(len(array.tiles), bool)
        for dimension, position in fixed.items():
            touched &= (near[:, dimension] <= position) & (far[:, dimension] > position)
        for side in plane:
            if side is not None:
                touched &= far[:, side] > near[:, side]
        grids, flat, boxes = [], [], []
        for number in np.flatnonzero(touched).tolist():
            check_deadline()
            tile, origin = array.tiles[number], near[number]
            local = {dimension: position - int(origin[dimension]) for dimension, position in fixed.items()}
            corner = tuple(0 if dimension is None else int(origin[dimension]) for dimension in plane)
            grid = make_grid(tile, plane, local, corner, numbers.tiles[number])
            boxes.append((corner[0], corner[0] + grid.y.length, corner[1], corner[1] + grid.x.length))
            if math.prod(grid.shape) <= _FLAT_CELLS:
                flat.append(GridWindow(grid, range(grid.y.count), range(grid.x.count)))
            else:
                grids.append(grid)
        return cls(
            plane,
            tuple(1 if dimension is None else array.shape[dimension] for dimension in plane),  # type: ignore[arg-type]
            tuple(grids),
            flatten_cells(flat),
            np.array(boxes, np.int64).reshape(-1, 4),
            numbers,
        )

    @property
    def nbytes(self) -> int:
        """Approximate memory, without that of the array."""
        return sum(grid.nbytes for grid in self.grids) + sum(column.nbytes for column in self.flat) + 1000


def _last_two(ndim: int) -> tuple[int | None, int | None]:
    return ndim - 2 if ndim > 1 else None, ndim - 1 if ndim else None


def _check_position(
    array: VirtualArray, plane: tuple[int | None, int | None], index: Mapping[int, int]
) -> dict[int, int]:
    """Return the position along each dimension that is not in the plane."""
    for dimension in (*plane, *index):
        if dimension is not None and not 0 <= dimension < array.ndim:
            raise SelectionError(f"the array has no dimension {dimension}: it has {array.ndim}")
    if plane[0] is not None and plane[0] == plane[1]:
        raise SelectionError(f"rows and columns need two dimensions: both are {array.dims[plane[0]]!r}")
    fixed = {}
    for dimension, size in enumerate(array.shape):
        if dimension in plane:
            continue
        position = int(index.get(dimension, 0))
        if not 0 <= position < max(size, 1):
            raise SelectionError(
                f"position {position} is outside dimension {array.dims[dimension]!r}, which has {size:,} elements"
            )
        fixed[dimension] = position
    return fixed
