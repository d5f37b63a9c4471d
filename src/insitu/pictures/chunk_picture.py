"""Picture of the chunks of a virtual array: rectangles to scale, or a raster where there are too many.

`draw_chunks` draws a box of a `ChunkPlane`, coloured by file, codec, packing, stored bytes or ratio.
Each pixel of a raster summarises all cells that it touches, so that one unwritten cell among
millions stays visible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import SelectionError
from insitu.model.axis import Axis
from insitu.pictures.cell_grid import STATES, CellGrid, FlatCells, GridWindow, flatten_cells
from insitu.pictures.chunk_plane import ChunkPlane
from insitu.pictures.chunk_raster import PlaneBox, boxes_meet, draw_raster

__all__ = ["COLOURS", "ChunkPicture", "draw_chunks"]

COLOURS = ("file", "codec", "packing", "bytes", "ratio")
"""What a picture can be coloured by: three categories, two numbers."""
MAX_RECTANGLES = 40_000
"""Cells that are drawn one by one."""
PIXELS_PER_CELL = 9
"""Pixels that a cell has on average at least, if cells are drawn one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkPicture:
    """What to draw: rectangles or a raster, as arrays."""

    box: PlaneBox
    """First row, end, first column, end, in elements of the array."""
    colour: str
    cells: int
    """Cells of grids within the box."""
    tiles: int
    """Grids within the box."""
    share: float
    """Part of the cells that was looked at."""
    counts: dict[str, int]
    """Cells by state, of those that were looked at."""
    arrays: dict[str, npt.NDArray[Any]]
    """Cells: `y0`, `y1`, `x0`, `x1`, `state`, and `category` or `value`, with one row for each cell.
    A raster: `stored`, `unwritten`, `absent` (shares), and `category` and `mixed`, or `value`.
    """
    aggregated: bool
    """Whether it is a raster."""


def draw_chunks(
    plane: ChunkPlane,
    colour: str = "file",
    box: PlaneBox | None = None,
    rows: int = 400,
    columns: int = 600,
) -> ChunkPicture:
    """Draw the chunks of a plane.

    Parameters
    ----------
    plane
        The cells.
    colour
        One of `COLOURS`.
    box
        First row, end, first column, end, in elements; by default everything.
    rows, columns
        Largest number of pixels.

    Raises
    ------
    SelectionError
        If the colour is unknown, or the box is empty or outside the array.
    """
    if colour not in COLOURS:
        raise SelectionError(f"chunks cannot be coloured by {colour!r}: choose one of {', '.join(COLOURS)}")
    window = _check_box(plane, box)
    if min(rows, columns) < 1:
        raise SelectionError(f"a picture of {rows} × {columns} pixels is empty")
    windows = [GridWindow(grid, *_cells_within(grid, window)) for grid in plane.grids]
    windows = [part for part in windows if len(part.rows) and len(part.columns)]
    flat = plane.flat.take(_meets(plane.flat, window))
    cells = len(flat.state) + sum(len(part.rows) * len(part.columns) for part in windows)
    tiles = int(np.count_nonzero(boxes_meet(plane.tile_boxes, window)))
    if cells <= min(MAX_RECTANGLES, max(rows * columns // PIXELS_PER_CELL, 1)):
        pairs = zip(flat, flatten_cells(windows), strict=True)
        shown = FlatCells(*(np.concatenate([few, many]) for few, many in pairs))
        shown = shown.take(_meets(shown, window))
        counts = np.bincount(shown.state, minlength=len(STATES))
        arrays, looked_up, aggregated = _rectangles(shown, window, colour), cells, False
    else:
        arrays, counts, looked_up = draw_raster(windows, flat, plane.tile_boxes, window, (rows, columns), colour)
        aggregated = True
    share = looked_up / cells if cells else 1.0
    states = dict(zip(STATES, counts.tolist(), strict=True))
    return ChunkPicture(window, colour, cells, tiles, share, states, arrays, aggregated)


def _check_box(plane: ChunkPlane, box: PlaneBox | None) -> PlaneBox:
    height, width = plane.shape
    if box is None:
        return 0, height, 0, width
    y0, y1, x0, x1 = box
    if not (0 <= y0 < y1 <= height and 0 <= x0 < x1 <= width):
        raise SelectionError(
            f"the box {[*box]} is empty or outside the array, which has {height:,} × {width:,} elements there"
        )
    return box


def _cells_within(grid: CellGrid, box: PlaneBox) -> tuple[range, range]:
    """Return the rows and columns of a grid that a box touches."""
    return (
        _range_within(grid.y, box[0] - grid.origin[0], box[1] - grid.origin[0]),
        _range_within(grid.x, box[2] - grid.origin[1], box[3] - grid.origin[1]),
    )


def _range_within(axis: Axis, begin: int, end: int) -> range:
    begin, end = max(begin, 0), min(end, axis.length)
    if begin >= end:
        return range(0)
    first, last = axis.find(np.array([begin, end - 1])).tolist()
    return range(first, last + 1)


def _meets(cells: FlatCells, box: PlaneBox) -> npt.NDArray[np.bool_]:
    """Return which cells a box touches; empty ones never."""
    some = (cells.y0 < cells.y1) & (cells.x0 < cells.x1)
    return some & boxes_meet(np.stack(cells[:4], axis=1), box)


def _rectangles(cells: FlatCells, box: PlaneBox, colour: str) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of cells that are drawn one by one, clipped to the box."""
    arrays: dict[str, npt.NDArray[Any]] = {
        "y0": np.maximum(cells.y0, box[0]),
        "y1": np.minimum(cells.y1, box[1]),
        "x0": np.maximum(cells.x0, box[2]),
        "x1": np.minimum(cells.x1, box[3]),
        "state": cells.state,
    }
    if colour in ("bytes", "ratio"):
        arrays["value"] = _cell_values(cells, colour)
    else:
        arrays["category"] = getattr(cells, colour)
    return arrays


def _cell_values(cells: FlatCells, colour: str) -> npt.NDArray[np.float64]:
    length = np.where(cells.length >= 0, cells.length, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(length > 0, cells.decoded / length, np.nan)
    return length if colour == "bytes" else ratio
