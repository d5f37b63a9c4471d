"""The cells of one tile along two dimensions, as a grid of columns; and cells of many tiles as a flat list.

A table in memory is sliced. A table that is paged in or computed is looked up once, block by block,
and kept in the narrowest types: about 6 bytes a cell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline
from insitu.model.axis import Axis, Indices
from insitu.model.chunks import ABSENT, INLINE, UNWRITTEN, WHOLE, ChunkTable, Columns, narrow_column
from insitu.model.tile import Tile

__all__ = [
    "MAX_KEPT_CELLS",
    "STATES",
    "CellGrid",
    "FlatCells",
    "GridWindow",
    "flatten_cells",
    "is_computed_object",
    "make_grid",
]

STATES = ("stored", "inline", "unwritten", "absent", "computed")
"""Names of the states of cells, by the number that pictures use."""
STORED_STATE, INLINE_STATE, UNWRITTEN_STATE, ABSENT_STATE, COMPUTED_STATE = range(5)
MAX_KEPT_CELLS = 32 << 20
"""Cells of one grid that are looked up and kept; of a larger grid only what a picture shows is
looked up.
"""
_BLOCK = 1 << 20
"""Cells that are looked up together."""


class CellColumns2D(NamedTuple):
    """Columns of some rows and columns of a grid; each broadcasts to their number."""

    source: npt.NDArray[Any]
    length: npt.NDArray[Any]
    encoding: npt.NDArray[Any]
    packing: npt.NDArray[Any]


class FlatCells(NamedTuple):
    """Cells as columns of equal length: rectangles in elements of the array, and what they hold."""

    y0: Indices
    y1: Indices
    x0: Indices
    x1: Indices
    state: npt.NDArray[np.uint8]
    file: Indices
    """Number of the file, and below of the encoding and the packing; -1 where nothing is stored."""
    codec: Indices
    packing: Indices
    length: Indices
    """Stored bytes; -1 where they are not known or there are none."""
    decoded: npt.NDArray[np.float64]
    """Bytes of the whole chunk once decoded; NaN where they are not known or nothing is stored."""

    def take(self, which: Any) -> FlatCells:
        """Return some of the cells."""
        return FlatCells(*(column[which] for column in self))


@dataclass(frozen=True, slots=True, eq=False)
class CellGrid:
    """The cells of one tile in the plane: a grid of rows and columns."""

    y: Axis
    x: Axis
    origin: tuple[int, int]
    """First element of the grid along both dimensions of the plane."""
    columns: CellColumns2D | None
    """The whole grid's columns; None: they are looked up when they are needed."""
    table: ChunkTable
    place: tuple[Indices | None, ...]
    """For each axis of the table its fixed cell; None: an axis of the plane."""
    plane_axes: tuple[int | None, int | None]
    """The axes of the table that are rows and columns."""
    chunk_bytes: npt.NDArray[np.float64]
    """For each encoding, the decoded bytes of a chunk of one row and one column of elements."""
    numbers: tuple[Indices | int, Indices, Indices]
    """As in `Numbering.tiles`."""
    is_computed: bool
    """Whether the objects of the cells are named by a rule, and may not exist."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.y.count, self.x.count

    @property
    def nbytes(self) -> int:
        """Memory of the columns that are not a part of the array's own table."""
        if self.columns is None or isinstance(self.table, Columns):
            return 1000
        return 1000 + sum(column.nbytes for column in self.columns)

    def look_up(self, rows: Indices | slice, columns: Indices | slice) -> CellColumns2D:
        """Return the columns of some rows and columns of the grid."""
        if self.columns is not None:
            return CellColumns2D(*(_take_2d(column, rows, columns) for column in self.columns))
        index = [_to_indices(chosen, count) for chosen, count in zip((rows, columns), self.shape, strict=True)]
        shape = (len(index[0]), len(index[1]))
        found = self.table.locate(self._table_index(index[0][:, None], index[1][None, :]))
        named = (found.source, found.length, found.encoding, found.packing)
        return CellColumns2D(*(np.broadcast_to(column, math.prod(shape)).reshape(shape) for column in named))

    def _table_index(self, rows: Indices, columns: Indices) -> list[Indices]:
        zero = np.zeros(np.broadcast_shapes(rows.shape, columns.shape), np.int64)
        index = [zero if fixed is None else fixed + zero for fixed in self.place]
        for axis, cells in zip(self.plane_axes, (rows, columns), strict=True):
            if axis is not None:
                index[axis] = cells + zero
        return index

    def category(self, name: str, found: CellColumns2D) -> npt.NDArray[Any]:
        """Return the numbers of the files, encodings (`codec`) or packings of cells that are
        stored; those of other cells are arbitrary.
        """
        if name == "file":
            numbers = self.numbers[0]
            if isinstance(numbers, int):
                return found.source + np.int64(numbers) if numbers else found.source
            return numbers[np.maximum(found.source, 0)] if len(numbers) else np.zeros((1, 1), np.int64)
        numbers, column = (self.numbers[1], found.encoding) if name == "codec" else (self.numbers[2], found.packing)
        chosen: npt.NDArray[Any] = numbers[column]
        return chosen

    def decoded_bytes(self, rows: Indices, columns: Indices, encoding: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the bytes of the chunks of some rows and columns once they are decoded."""
        height = np.maximum(self.y.stored_lengths(rows), 1)[:, None]
        width = np.maximum(self.x.stored_lengths(columns), 1)[None, :]
        whole: npt.NDArray[np.float64] = self.chunk_bytes[encoding] * height * width
        return whole


class GridWindow(NamedTuple):
    """A grid, and some of its rows and columns."""

    grid: CellGrid
    rows: range
    columns: range

    @property
    def slices(self) -> tuple[slice, slice]:
        """The rows and the columns."""
        return slice(self.rows.start, self.rows.stop), slice(self.columns.start, self.columns.stop)


def flatten_cells(windows: Sequence[GridWindow]) -> FlatCells:
    """Return the cells of windows as one list, in C order of each.

    For each window only its columns are collected. All else is computed for all windows at once,
    so that ten thousand of them take half a second.
    """
    raw = [np.zeros((4, 0), np.int64)]
    edges: tuple[list[Indices], list[Indices]] = ([np.zeros((3, 0), np.int64)], [np.zeros((3, 0), np.int64)])
    for grid, rows, columns in windows:
        found = np.empty((4, len(rows), len(columns)), np.int64)
        for target, column in zip(found, grid.look_up(*GridWindow(grid, rows, columns).slices), strict=True):
            target[...] = column
        raw.append(found.reshape(4, -1))
        for side, axis, origin, cells in zip(edges, (grid.y, grid.x), grid.origin, (rows, columns), strict=True):
            number = np.arange(cells.start, cells.stop)
            begin = axis.begin(number) + origin
            side.append(np.stack([begin, begin + axis.show(number).extent, axis.stored_lengths(number)]))
    source, length, encoding, packing = np.concatenate(raw, axis=1)
    high = np.array([len(window.rows) for window in windows], np.int64)
    wide = np.array([len(window.columns) for window in windows], np.int64)
    many = high * wide
    part = np.repeat(np.arange(len(windows)), many)
    within = np.arange(len(part)) - (np.cumsum(many) - many)[part]
    row = (np.cumsum(high) - high)[part] + within // wide[part]
    column = (np.cumsum(wide) - wide)[part] + within % wide[part]
    y0, y1, stored_rows = np.concatenate(edges[0], axis=1)[:, row]
    x0, x1, stored_columns = np.concatenate(edges[1], axis=1)[:, column]
    in_file = source >= 0
    known = in_file | (source == INLINE)
    length = np.where(known, length, -1)
    state = np.select(
        [source == UNWRITTEN, source == ABSENT, source == INLINE],
        [UNWRITTEN_STATE, ABSENT_STATE, INLINE_STATE],
        STORED_STATE,
    ).astype(np.uint8)
    computed = np.array([window.grid.is_computed for window in windows], bool)
    state[in_file & (length == WHOLE) & computed[part]] = COMPUTED_STATE
    files = [window.grid.numbers[0] for window in windows]
    added = np.array([numbers if isinstance(numbers, int) else 0 for numbers in files], np.int64)
    listed = [np.zeros(0, np.int64) if isinstance(numbers, int) else numbers for numbers in files]
    has_list = np.array([not isinstance(numbers, int) for numbers in files], bool)
    file = source + added[part]
    named = in_file & has_list[part]
    file[named] = _look_up_in_parts(listed, part[named], source[named])
    chunk_bytes = _look_up_in_parts([window.grid.chunk_bytes for window in windows], part, encoding)
    codec = _look_up_in_parts([window.grid.numbers[1] for window in windows], part, encoding)
    row_of_packing = _look_up_in_parts([window.grid.numbers[2] for window in windows], part, packing)
    decoded = chunk_bytes * np.maximum(stored_rows, 1) * np.maximum(stored_columns, 1)
    return FlatCells(
        y0, y1, x0, x1, state, np.where(in_file, file, -1), np.where(known, codec, -1),
        np.where(known, row_of_packing, -1), length, np.where(known, decoded, np.nan),
    )  # fmt: skip


def _look_up_in_parts(tables: Sequence[npt.NDArray[Any]], part: Indices, number: Indices) -> npt.NDArray[Any]:
    """Return `tables[part][number]` for each row."""
    if not len(part):
        return np.zeros(0, tables[0].dtype if tables else np.int64)
    sizes = np.array([len(table) for table in tables], np.int64)
    found: npt.NDArray[Any] = np.concatenate(tables)[(np.cumsum(sizes) - sizes)[part] + number]
    return found


def is_computed_object(table: ChunkTable) -> bool:
    """Return whether the objects of a table's cells are named by a rule, and need not exist."""
    pool = table.sources
    return not isinstance(pool, (tuple, list)) and len(pool) > 0 and pool[0].optional


_ONE_CELL = Axis.regular(1, 1)


def make_grid(
    tile: Tile,
    plane: tuple[int | None, ...],
    local: Mapping[int, int],
    corner: tuple[int, ...],
    numbers: tuple[Indices | int, Indices, Indices],
) -> CellGrid:
    """Return the cells of a tile along two dimensions.

    Parameters
    ----------
    tile
        The tile.
    plane
        The dimensions of rows and columns, by number.
    local
        Position in the tile along each other dimension.
    corner
        First element of the tile along both dimensions of the plane.
    numbers
        As in `Numbering.tiles`.
    """
    y, x = (None if dimension is None else tile.dimensions[dimension] for dimension in plane)
    place: list[Indices | None] = [
        None if axis in (y, x) else tile.axes[axis].find(np.zeros(1, np.int64)) for axis in range(len(tile.axes))
    ]
    for dimension, position in local.items():
        axis = tile.dimensions[dimension]
        place[axis] = tile.axes[axis].find(np.array([position]))
    fixed_elements = math.prod(
        max(int(tile.axes[axis].stored_lengths(cell)[0]), 1) for axis, cell in enumerate(place) if cell is not None
    )
    sizes = [math.nan if encoding.dtype.hasobject else encoding.dtype.itemsize for encoding in tile.encodings]
    axes = [_ONE_CELL if axis is None else tile.axes[axis] for axis in (y, x)]
    grid = CellGrid(
        axes[0], axes[1], (corner[0], corner[1]), _slice_columns(tile.chunks, place, y, x), tile.chunks, tuple(place),
        (y, x), np.array(sizes, float) * fixed_elements, numbers, is_computed_object(tile.chunks),
    )  # fmt: skip
    if grid.columns is None and math.prod(grid.shape) <= MAX_KEPT_CELLS:
        object.__setattr__(grid, "columns", _keep_columns(grid))
    return grid


def _slice_columns(
    table: ChunkTable, place: Sequence[Indices | None], y: int | None, x: int | None
) -> CellColumns2D | None:
    """Return views of the columns of a table in memory; None for any other table."""
    if not isinstance(table, Columns):
        return None
    found = []
    for name in CellColumns2D._fields:
        column = getattr(table, name)
        index = tuple(
            slice(None) if cell is None else int(cell[0]) if have > 1 else 0
            for cell, have in zip(place, column.shape, strict=True)
        )
        part = column[index]
        if y is not None and x is not None:
            part = part if y < x else part.T
        else:
            part = part.reshape((-1, 1) if y is not None else (1, -1))
        found.append(part)
    return CellColumns2D(*found)


def _keep_columns(grid: CellGrid) -> CellColumns2D:
    """Look up all cells of a grid, block by block, and return them in the narrowest types."""
    rows, columns = grid.shape
    high = max(min(_BLOCK // max(columns, 1), rows), 1)
    wide = max(min(_BLOCK // high, columns), 1)
    parts: list[list[list[npt.NDArray[Any]]]] = [[] for _ in CellColumns2D._fields]
    for top in range(0, rows, high):
        strips: list[list[npt.NDArray[Any]]] = [[] for _ in parts]
        for left in range(0, columns, wide):
            check_deadline()
            block = grid.look_up(slice(top, min(top + high, rows)), slice(left, min(left + wide, columns)))
            for strip, column in zip(strips, block, strict=True):
                narrow = narrow_column(column, 2)
                strip.append(narrow if narrow.shape == column.shape else np.broadcast_to(narrow, column.shape))
        for part, strip in zip(parts, strips, strict=True):
            part.append(strip)
    return CellColumns2D(*(_join_blocks(part) for part in parts))


def _join_blocks(blocks: list[list[npt.NDArray[Any]]]) -> npt.NDArray[Any]:
    """Return the blocks as one column; as one element if all are the same number."""
    if all(block.strides == (0, 0) or block.size == 1 for strip in blocks for block in strip):
        values = {int(block.flat[0]) for strip in blocks for block in strip if block.size}
        if len(values) <= 1:
            return narrow_column(values.pop() if values else 0, 2)
    return np.block(blocks)


def _take_2d(column: npt.NDArray[Any], rows: Indices | slice, columns: Indices | slice) -> npt.NDArray[Any]:
    """Return rows and columns of a column that may have one element along an axis."""
    if column.shape[0] > 1:
        column = column[rows]
    return column[:, columns] if column.shape[1] > 1 else column


def _to_indices(chosen: Indices | slice, count: int) -> Indices:
    return np.arange(*chosen.indices(count)) if isinstance(chosen, slice) else chosen
