"""Raster of the cells of a chunk plane: each pixel summarises all cells that it touches.

A grid is summed one row of pixels after another, in strips of its columns, so that memory is bounded: 10
million cells take about 0.2 s. Cells of small tiles are spread over the pixels that they touch. Of a window with more
cells than `MAX_LOOKED_UP`, and of a pixel with more than `MAX_PIXEL_CELLS`, an even sample is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline
from insitu.model.axis import Axis, Indices
from insitu.model.chunks import ABSENT, INLINE, UNWRITTEN, WHOLE
from insitu.pictures.cell_grid import ABSENT_STATE, STATES, UNWRITTEN_STATE, CellGrid, FlatCells, GridWindow

__all__ = ["PlaneBox", "Raster", "boxes_meet", "draw_raster"]

PlaneBox = tuple[int, int, int, int]
"""First row, end, first column, end, in elements."""
MAX_LOOKED_UP = 64 << 20
"""Cells of a window that are looked at for one picture; of more than that, an even sample."""
MAX_PAGED = 4 << 20
"""The same for tables that are paged in or computed, and too large to be kept."""
MAX_PIXEL_CELLS = 1 << 20
"""The same for one pixel."""
MAX_STRIP_CELLS = 1 << 20
"""Cells that are looked up together, if pixels have fewer."""
_NO_CATEGORY = np.iinfo(np.int64).max


def boxes_meet(boxes: Indices, box: PlaneBox) -> npt.NDArray[np.bool_]:
    """Return which boxes, an array of (boxes, 4), overlap one box."""
    y0, y1, x0, x1 = box
    meet: npt.NDArray[np.bool_] = (boxes[:, 0] < y1) & (boxes[:, 1] > y0) & (boxes[:, 2] < x1) & (boxes[:, 3] > x0)
    return meet


class _Sums(NamedTuple):
    """Sums over the cells that each pixel touches, as arrays of (rows, columns)."""

    touched: npt.NDArray[np.int64]
    stored: npt.NDArray[np.int64]
    unwritten: npt.NDArray[np.int64]
    low: npt.NDArray[np.int64]
    """Lowest and highest category."""
    high: npt.NDArray[np.int64]
    known: npt.NDArray[np.int64]
    """Cells whose bytes are known."""
    length: npt.NDArray[np.float64]
    """Their stored and decoded bytes."""
    decoded: npt.NDArray[np.float64]

    @classmethod
    def empty(cls, shape: tuple[int, int]) -> _Sums:
        def none() -> npt.NDArray[np.int64]:
            return np.zeros(shape, np.int64)

        low, high = np.full(shape, _NO_CATEGORY, np.int64), np.full(shape, -1, np.int64)
        return cls(none(), none(), none(), low, high, none(), np.zeros(shape), np.zeros(shape))


class Raster(NamedTuple):
    """The arrays of a raster: `stored`, `unwritten` and `absent` (shares of each pixel), and `category`
    and `mixed`, or `value`.
    """

    arrays: dict[str, npt.NDArray[Any]]
    counts: npt.NDArray[np.int64]
    """Cells by state."""
    looked_up: int
    """Number of cells that were looked at."""


def draw_raster(
    windows: Sequence[GridWindow],
    flat: FlatCells,
    tile_boxes: Indices,
    box: PlaneBox,
    pixels: tuple[int, int],
    colour: str,
) -> Raster:
    """Return the raster of a box.

    Parameters
    ----------
    windows, flat
        The cells within the box.
    tile_boxes
        Box of each tile: what lies in none of them is absent.
    box
        What is shown.
    pixels
        Largest number of rows and columns of pixels; a pixel covers at least one element.
    colour
        `file`, `codec`, `packing`, `bytes` or `ratio`.
    """
    shape = (min(pixels[0], box[1] - box[0]), min(pixels[1], box[3] - box[2]))
    edges = tuple(
        low + np.arange(count + 1) * (high - low) // count
        for low, high, count in ((box[0], box[1], shape[0]), (box[2], box[3], shape[1]))
    )
    sums = _Sums.empty(shape)
    counts = np.bincount(flat.state, minlength=len(STATES))
    looked_up = len(flat.state)
    _add_flat(sums, flat, colour, edges)
    for window in windows:
        looked_up += _add_grid(sums, counts, window, colour, edges)
    covered = _covered_share(tile_boxes, edges, shape)
    some = np.maximum(sums.touched, 1)
    stored, unwritten = covered * sums.stored / some, covered * sums.unwritten / some
    arrays: dict[str, npt.NDArray[Any]] = {
        "stored": stored.astype(np.float32),
        "unwritten": unwritten.astype(np.float32),
        "absent": (1 - covered + covered * (sums.touched - sums.stored - sums.unwritten) / some).astype(np.float32),
    }
    if colour in ("bytes", "ratio"):
        amount, by = (sums.length, sums.known) if colour == "bytes" else (sums.decoded, sums.length)
        with np.errstate(divide="ignore", invalid="ignore"):
            arrays["value"] = np.where((sums.known > 0) & (by > 0), amount / by, np.nan).astype(np.float32)
    else:
        arrays["category"] = np.where(sums.high >= 0, sums.low, -1)
        arrays["mixed"] = (sums.high > sums.low).astype(np.uint8)
    return Raster(arrays, counts, looked_up)


def _covered_share(boxes: Indices, edges: tuple[Indices, ...], shape: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Return which part of each pixel lies in tiles, which do not overlap."""
    window = (int(edges[0][0]), int(edges[0][-1]), int(edges[1][0]), int(edges[1][-1]))
    y0, y1, x0, x1 = boxes[boxes_meet(boxes, window)].T
    y0, y1, x0, x1 = (
        np.maximum(y0, window[0]),
        np.minimum(y1, window[1]),
        np.maximum(x0, window[2]),
        np.minimum(x1, window[3]),
    )
    if int(((y1 - y0) * (x1 - x0)).sum()) == (window[1] - window[0]) * (window[3] - window[2]):
        return np.ones(shape)  # the usual case: no gaps
    tile, row, column = _spread(y0, y1, x0, x1, edges)
    height = np.minimum(edges[0][row + 1], y1[tile]) - np.maximum(edges[0][row], y0[tile])
    width = np.minimum(edges[1][column + 1], x1[tile]) - np.maximum(edges[1][column], x0[tile])
    area = np.bincount(row * shape[1] + column, (height * width).astype(float), shape[0] * shape[1]).reshape(shape)
    covered: npt.NDArray[np.float64] = area / (np.diff(edges[0])[:, None] * np.diff(edges[1])[None, :])
    return covered


def _spread(
    y0: Indices, y1: Indices, x0: Indices, x1: Indices, edges: tuple[Indices, ...]
) -> tuple[Indices, Indices, Indices]:
    """Return all pairs of a box and a pixel that it touches: number of the box, row and column of the pixel."""
    top, bottom = _pixels_of(edges[0], y0, y1)
    left, right = _pixels_of(edges[1], x0, x1)
    wide = right - left + 1
    many = (bottom - top + 1) * wide
    box = np.repeat(np.arange(len(many)), many)
    within = np.arange(len(box)) - np.repeat(np.cumsum(many) - many, many)
    return box, top[box] + within // wide[box], left[box] + within % wide[box]


def _pixels_of(edges: Indices, begin: Indices, end: Indices) -> tuple[Indices, Indices]:
    """Return the first and the last pixel that ranges of elements touch."""
    last = len(edges) - 2
    return (
        np.clip(np.searchsorted(edges, begin, side="right") - 1, 0, last),
        np.clip(np.searchsorted(edges, end - 1, side="right") - 1, 0, last),
    )


def _add_flat(sums: _Sums, cells: FlatCells, colour: str, edges: tuple[Indices, ...]) -> None:
    """Add a list of cells to the sums: each to all pixels that it touches."""
    if not len(cells.state):
        return
    cell, row, column = _spread(cells.y0, cells.y1, cells.x0, cells.x1, edges)
    pixel = row * sums.touched.shape[1] + column

    def add(target: npt.NDArray[Any], which: npt.NDArray[np.bool_], amount: npt.NDArray[Any] | None = None) -> None:
        chosen = which[cell]
        weights = None if amount is None else amount[cell][chosen]
        target += np.bincount(pixel[chosen], weights, target.size).reshape(target.shape).astype(target.dtype)

    stored = (cells.state != UNWRITTEN_STATE) & (cells.state != ABSENT_STATE)
    add(sums.touched, np.ones(len(stored), bool))
    add(sums.stored, stored)
    add(sums.unwritten, cells.state == UNWRITTEN_STATE)
    if colour in ("bytes", "ratio"):
        known = _is_known(cells.length, cells.decoded, colour)
        add(sums.known, known)
        add(sums.length, known, cells.length.astype(float))
        add(sums.decoded, known, np.nan_to_num(cells.decoded))
        return
    category = getattr(cells, colour)
    chosen = (category >= 0)[cell]
    np.minimum.at(sums.low.reshape(-1), pixel[chosen], category[cell][chosen])
    np.maximum.at(sums.high.reshape(-1), pixel[chosen], category[cell][chosen])


def _is_known(length: npt.NDArray[Any], decoded: npt.NDArray[np.float64], colour: str) -> npt.NDArray[np.bool_]:
    return length >= 0 if colour == "bytes" else (length > 0) & ~np.isnan(decoded)


class _PixelCells(NamedTuple):
    """Which cells of an axis each of some pixels touches."""

    pixels: range
    first: Indices
    last: Indices
    counted: int = -1
    """The last cell that belongs to pixels before these."""

    @property
    def most(self) -> int:
        """Cells of the pixel that touches most."""
        return int((self.last - self.first).max()) + 1

    def part(self, begin: int, end: int) -> _PixelCells:
        """Return some of the pixels."""
        counted = int(self.last[begin - 1]) if begin else self.counted
        return _PixelCells(self.pixels[begin:end], self.first[begin:end], self.last[begin:end], counted)

    @classmethod
    def of(cls, axis: Axis, origin: int, edges: Indices) -> _PixelCells:
        begin, end = max(int(edges[0]), origin), min(int(edges[-1]), origin + axis.length)
        top, bottom = _pixels_of(edges, np.array([begin]), np.array([end]))
        pixels = range(int(top[0]), int(bottom[0]) + 1)
        low = np.maximum(edges[pixels.start : pixels.stop], origin) - origin
        high = np.minimum(edges[pixels.start + 1 : pixels.stop + 1], origin + axis.length) - origin
        return cls(pixels, axis.find(low), axis.find(high - 1))

    def sample(self, most: int) -> tuple[Indices, Indices]:
        """Return the cells of all pixels one after the other, at most `most` of each, evenly spaced;
        and where those of each pixel begin.
        """
        many = self.last - self.first + 1
        few = np.minimum(many, most)
        begins = np.cumsum(few) - few
        within = np.arange(int(few.sum())) - np.repeat(begins, few)
        return np.repeat(self.first, few) + within * np.repeat(many, few) // np.repeat(few, few), begins


def _add_grid(
    sums: _Sums, counts: npt.NDArray[np.int64], window: GridWindow, colour: str, edges: tuple[Indices, ...]
) -> int:
    """Add a grid to the sums, in strips of its columns; return how many cells were looked at."""
    grid, vertical, horizontal = window
    down, across = _PixelCells.of(grid.y, grid.origin[0], edges[0]), _PixelCells.of(grid.x, grid.origin[1], edges[1])
    budget = MAX_PAGED if grid.columns is None else MAX_LOOKED_UP
    most = _NO_CATEGORY
    if down.most * across.most > MAX_PIXEL_CELLS:
        most = math.isqrt(MAX_PIXEL_CELLS)
    if len(vertical) * len(horizontal) > budget:
        # Of each pixel the same number of cells along both axes, so that all of them fit the budget.
        most = min(most, max(math.isqrt(budget // (len(down.pixels) * len(across.pixels))), 1))
    wide = max(MAX_STRIP_CELLS // max(min(down.most, most) * min(across.most, most), 1), 1)
    looked_up = 0
    for begin in range(0, len(across.pixels), wide):
        looked_up += _add_strip(sums, counts, grid, down, across.part(begin, begin + wide), most, colour)
    return looked_up


def _add_strip(
    sums: _Sums,
    counts: npt.NDArray[np.int64],
    grid: CellGrid,
    down: _PixelCells,
    across: _PixelCells,
    most: int,
    colour: str,
) -> int:
    """Add some columns of a grid to the sums, one row of pixels after another; return how many cells were
    looked at.
    """
    cells, begins = across.sample(most)
    column_numbers = np.unique(cells)
    gapless = int(cells[-1]) - int(cells[0]) + 1 == len(column_numbers)
    columns: Indices | slice = slice(int(cells[0]), int(cells[-1]) + 1) if gapless else column_numbers
    at = np.searchsorted(column_numbers, cells)
    per_pixel = np.diff(np.append(begins, len(cells)))
    place = slice(across.pixels.start, across.pixels.stop)
    new_columns = column_numbers > across.counted  # a column of cells that two strips touch counts once
    counted, looked_up, before, found = -1, 0, None, None
    for pixel, chosen in zip(down.pixels, _rows_of_pixels(down, most), strict=True):
        key = (int(chosen[0]), int(chosen[-1]))
        if key != before or found is None:
            check_deadline()
            before = key
            found = _sum_rows(grid, chosen, columns, column_numbers, colour)
            new = chosen > counted  # and so does a row of cells that two rows of pixels touch
            looked_up += int(np.count_nonzero(new)) * int(np.count_nonzero(new_columns))
            counts += _count_states(grid, found, new, new_columns)
            counted = int(chosen[-1])
        sums.touched[pixel, place] += len(chosen) * per_pixel
        for target, values in zip(sums[1:], found.columns, strict=True):
            if values is None:
                continue
            function = np.minimum if target is sums.low else np.maximum if target is sums.high else np.add
            reduced = function.reduceat(values[at], begins)
            target[pixel, place] = function(target[pixel, place], reduced)
    return looked_up


def _rows_of_pixels(down: _PixelCells, most: int) -> Iterator[Indices]:
    """Yield the rows of cells that each row of pixels touches."""
    cells, begins = down.sample(most)
    ends = np.append(begins[1:], len(cells))
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        yield cells[begin:end]


class _RowSums(NamedTuple):
    """Sums over some rows of cells, for each column of cells."""

    columns: tuple[npt.NDArray[Any] | None, ...]
    """As the fields of `_Sums` after the first; None: not asked for."""
    source: npt.NDArray[Any]
    """Of each cell."""
    length: npt.NDArray[Any]


def _sum_rows(
    grid: CellGrid, rows: Indices, columns: Indices | slice, column_numbers: Indices, colour: str
) -> _RowSums:
    """Sum what some rows of cells hold, along the rows."""
    gapless = int(rows[-1]) - int(rows[0]) + 1 == len(rows)
    found = grid.look_up(slice(int(rows[0]), int(rows[-1]) + 1) if gapless else rows, columns)
    shape = (len(rows), len(column_numbers))
    source, length = np.broadcast_to(found.source, shape), np.broadcast_to(found.length, shape)
    if int(found.source.min()) >= 0:  # the usual case, in half the time: every cell lies in a file
        in_file = stored = np.ones((1, 1), bool)
        everything = True
        number, unwritten = np.full(shape[1], shape[0]), np.zeros(shape[1], np.int64)
    else:
        everything = False
        in_file = source >= 0
        stored = in_file | (source == INLINE)
        number, unwritten = np.count_nonzero(stored, 0), np.count_nonzero(source == UNWRITTEN, 0)
    if colour not in ("bytes", "ratio"):
        has = in_file if colour == "file" else stored
        category = np.broadcast_to(grid.category(colour, found), shape)
        extremes = (
            (category.min(axis=0), category.max(axis=0))
            if everything
            else (np.where(has, category, np.int64(_NO_CATEGORY)).min(axis=0), np.where(has, category, -1).max(axis=0))
        )
        return _RowSums((number, unwritten, *extremes, None, None, None), source, length)
    decoded = np.broadcast_to(grid.decoded_bytes(rows, column_numbers, found.encoding), shape)
    known = stored & _is_known(length, decoded, colour)
    amounts = (np.where(known, values, 0).sum(axis=0, dtype=float) for values in (length, decoded))
    return _RowSums((number, unwritten, None, None, np.count_nonzero(known, 0), *amounts), source, length)


def _count_states(
    grid: CellGrid, found: _RowSums, rows: npt.NDArray[np.bool_], columns: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Return the number of cells in each state, of some of the rows and columns."""
    source, length = found.source, found.length
    if not (rows.all() and columns.all()):
        source, length = source[rows][:, columns], length[rows][:, columns]
    if source.size and int(source.min()) >= 0:
        in_file, others = source.size, [0, 0, 0]
    else:
        in_file = int(np.count_nonzero(source >= 0))
        others = [int(np.count_nonzero(source == state)) for state in (INLINE, UNWRITTEN, ABSENT)]
    computed = int(np.count_nonzero((source >= 0) & (length == WHOLE))) if grid.is_computed else 0
    return np.array([in_file - computed, *others, computed])
