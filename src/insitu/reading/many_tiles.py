"""Tiles that are planned together: groups that are cut in the same way, and lists of cells of the others.

A tile is planned as a product of its axes, which costs some hundred microseconds however small it is,
and an archive of thousands of files has thousands of tiles if the files are not all cut in the same way.
Files that alternate between a few chunk shapes give a few groups, each planned as if it were one tile:
their tables are appended, and each cell has its own place in the array. Where nearly every file is cut
in a way of its own, the touched cells of all tiles are computed at once, as one table with a row for
each cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline
from insitu.model import (
    IDENTITY,
    INLINE,
    Axis,
    ChunkLocations,
    Columns,
    Encoding,
    Packings,
    Selection,
    Source,
    Stride,
    Tile,
    VirtualArray,
)
from insitu.model.axis import AxisCut, CellColumns, Indices, cut_cells, steps_within
from insitu.model.chunks import COLUMN_NAMES, JointlyLocated
from insitu.model.derived_tables import InterleavedSources
from insitu.model.join import fuse, merge_pools
from insitu.model.tile import SPLIT_BYTES

__all__ = ["ListedTiles", "TileGroup", "fuse_group", "group_tiles", "list_tiles"]

MAX_CELLS = 256
"""Tiles of which more cells are touched are planned one by one: a product of axes takes less memory."""

TileGroup = tuple[int, list[int]]
"""The dimension along which the tiles of a group follow each other, and their numbers."""


def group_tiles(
    array: VirtualArray, selection: Selection, numbers: Sequence[int], least: int, much: bool
) -> tuple[list[TileGroup], list[int]]:
    """Return groups of tiles that are cut in the same way, and the tiles that belong to no group.

    Parameters
    ----------
    array, selection
        The array, and what to read of it.
    numbers
        Numbers of the touched tiles.
    least
        Smallest number of tiles that are grouped.
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
            much and tile.encodings[0].raw and _largest_cell_bytes(tile) > SPLIT_BYTES
        ):
            rest.append(number)
            continue
        joined = tile.dimensions[along]
        axes = [_axis_key(axis) for i, axis in enumerate(tile.axes) if i != joined]
        found.setdefault((*corner, tile.layout, _has_stored_axis(tile.axes[joined]), *axes), []).append(number)
    chosen = []
    for members in found.values():
        if len(members) < least:
            rest += members
        else:
            chosen.append((along, members))
    return chosen, rest


def _axis_key(axis: Axis) -> Any:
    """Return a key that is equal for axes with the same cuts.

    An irregular axis is equal only to itself: comparing columns would cost more than is saved.
    """
    return (axis.length, axis.size, axis.padded) if axis.cells is None else id(axis)


def _largest_cell_bytes(tile: Tile) -> int:
    """Return the bytes of the largest uncompressed cell."""
    return tile.encodings[0].dtype.itemsize * math.prod([axis.longest_chunk for axis in tile.axes])


def _has_stored_axis(axis: Axis) -> bool:
    """Return whether the chunks have this axis."""
    return axis.cells is None or bool(axis.cells.stored[0])


def fuse_group(array: VirtualArray, group: TileGroup, stride: Stride) -> tuple[Tile, AxisCut]:
    """Return the tiles of a group as one tile, and what a slice takes of its cells along the
    group's dimension.
    """
    along, numbers = group
    tiles = [array.tiles[number] for number in numbers]
    tile = fuse(tiles, along)
    axes = [part.axis_of(along) for part in tiles]
    lengths = np.array([axis.length for axis in axes], np.int64)
    # There may be gaps between the tiles: each cell begins where its own tile lies in the array.
    shift = array.origins[numbers, along] - (np.cumsum(lengths) - lengths)
    axis = tile.axis_of(along)
    cells: Indices = np.arange(axis.count)
    begin = axis.begin(cells) + np.repeat(shift, [part.count for part in axes])
    cut = cut_cells(cells, begin, axis.show(cells), stride)
    return tile, cut.take(np.flatnonzero(cut.extent > 0))


@dataclass(frozen=True, slots=True, eq=False)
class ListedTiles:
    """The touched cells of tiles with the same layout: a row for each, tile after tile."""

    tiles: tuple[Tile, ...]
    starts: Indices
    """The first row of each tile, and the end."""
    cuts: tuple[AxisCut, ...]
    """For each axis of the tiles, what is taken of the chunk of each row."""
    stored: tuple[Indices, ...]
    """For each axis, the number of elements of each chunk."""
    encodings: tuple[Encoding, ...]
    packings: Packings
    sources: Sequence[Source]
    maps: tuple[list[Indices], list[Indices], list[int]]
    """For each tile, the new numbers of its encodings and of its packings, and its pool of sources."""

    def locate(self) -> ChunkLocations:
        """Return where the chunks of all rows lie."""
        found, inline = self._gather_columns(), b""
        if found is None:
            found = self._locate_together()
        if found is None:
            found, inline = self._locate_each()
        encoding_maps, packing_maps, pools = self.maps
        counts = np.diff(self.starts)
        for name, maps in (("encoding", encoding_maps), ("packing", packing_maps)):
            begins = np.cumsum([0, *(len(numbers) for numbers in maps[:-1])])
            found[name] = np.concatenate(maps)[np.repeat(begins, counts) + found[name]]
        if isinstance(self.sources, InterleavedSources):
            source = found["source"]
            many = len(self.sources.pools)
            found["source"] = np.where(source < 0, source, source * many + np.repeat(np.array(pools), counts))
        return ChunkLocations(**found, inline=inline)

    def _gather_columns(self) -> dict[str, Indices] | None:
        """Return the columns of all rows, if the tables are in memory and have no inline bytes: nothing
        is called for a tile.
        """
        tables = [tile.chunks for tile in self.tiles]
        if not all(isinstance(table, Columns) and not table.inline for table in tables):
            return None
        counts = np.diff(self.starts)
        shapes = np.array([table.shape for table in tables], np.int64)
        row = np.zeros(int(self.starts[-1]), np.int64)  # number of the cell in its table
        for cut, length in zip(self.cuts, shapes.T, strict=True):
            row = row * np.repeat(length, counts) + cut.cell
        found = {}
        for name in COLUMN_NAMES:
            columns = [getattr(table, name) for table in tables]
            sizes = np.array([column.size for column in columns])
            whole = sizes == shapes.prod(axis=1)
            if not (whole | (sizes == 1)).all():
                return None  # constant along some axes
            begins = np.cumsum(sizes) - sizes
            at = np.repeat(begins, counts) + np.where(np.repeat(whole, counts), row, 0)
            found[name] = np.concatenate([column.reshape(-1) for column in columns])[at].astype(np.int64, copy=False)
        return found

    def _locate_together(self) -> dict[str, Indices] | None:
        """Return the columns of all rows, if the tables can be read at once."""
        tables = [tile.chunks for tile in self.tiles]
        if not isinstance(tables[0], JointlyLocated):
            return None
        rows = tables[0].locate_together(tables, [cut.cell for cut in self.cuts], self.starts)
        return None if rows is None else {name: getattr(rows, name) for name in COLUMN_NAMES}

    def _locate_each(self) -> tuple[dict[str, Indices], bytes]:
        """Return the columns of all rows, tile by tile, and their inline bytes."""
        columns: dict[str, list[npt.NDArray[np.int64]]] = {name: [] for name in COLUMN_NAMES}
        inline = bytearray()
        bounds = self.starts.tolist()
        for tile, begin, end in zip(self.tiles, bounds, bounds[1:], strict=False):
            check_deadline()
            rows = tile.chunks.locate([cut.cell[begin:end] for cut in self.cuts])
            offset = rows.offset
            if rows.inline:
                offset = np.where(np.asarray(rows.source) == INLINE, offset.astype(np.int64) + len(inline), offset)
                inline += rows.inline
            for name in COLUMN_NAMES:
                columns[name].append(offset if name == "offset" else getattr(rows, name))
        found = {name: np.concatenate(parts).astype(np.int64, copy=False) for name, parts in columns.items()}
        return found, bytes(inline)


def list_tiles(
    array: VirtualArray, selection: Selection, numbers: Sequence[int]
) -> tuple[list[ListedTiles], list[int]]:
    """Return the touched cells of tiles that can be listed, and the numbers of the other tiles.

    Tiles are listed if their cuts are regular, their chunks are encoded (of plain bytes only the
    wanted ones are fetched), and the selection is made of integers and slices.

    Parameters
    ----------
    array, selection
        The array, and what to read of it.
    numbers
        Numbers of the touched tiles.
    """
    slices = [selector for selector in selection.selectors if isinstance(selector, int | Stride)]
    if len(slices) < array.ndim:
        return [], list(numbers)
    strides = [Stride(selector, 1, 1) if isinstance(selector, int) else selector for selector in slices]
    kinds: dict[tuple[int, ...], list[int]] = {}
    rest: list[int] = []
    for number in numbers:
        tile = array.tiles[number]
        if any(axis.cells is not None for axis in tile.axes) or any(encoding.raw for encoding in tile.encodings):
            rest.append(number)
        else:
            kinds.setdefault((len(tile.axes), *tile.dimensions), []).append(number)
    listed = []
    for members in kinds.values():
        axes = _tiled_axes(array, strides, members)
        grids = np.stack([axis.count_cells() for axis in axes])
        few = np.prod(grids, axis=0, dtype=np.float64) <= MAX_CELLS
        rest += [number for number, is_small in zip(members, few.tolist(), strict=True) if not is_small]
        if few.any():
            these = [number for number, is_small in zip(members, few.tolist(), strict=True) if is_small]
            listed.append(
                _list_cells([array.tiles[n] for n in these], [axis.take(few) for axis in axes], grids[:, few])
            )
    return [tiles for tiles in listed if tiles.tiles], rest


def _tiled_axes(array: VirtualArray, strides: Sequence[Stride], numbers: Sequence[int]) -> list[_TiledAxis]:
    tiles, origins = [array.tiles[number] for number in numbers], array.origins[numbers]
    layout = tiles[0].dimensions
    axes = []
    for axis in range(len(tiles[0].axes)):
        columns = np.array([(t.axes[axis].length, t.axes[axis].size, t.axes[axis].padded) for t in tiles], np.int64)
        if axis in layout:
            dimension = layout.index(axis)
            axes.append(_TiledAxis(strides[dimension], origins[:, dimension], *columns.T))
        else:
            axes.append(_TiledAxis(Stride(0, 1, 1), np.zeros(len(tiles), np.int64), *columns.T))
    return axes


def _list_cells(tiles: Sequence[Tile], axes: Sequence[_TiledAxis], grids: npt.NDArray[np.int64]) -> ListedTiles:
    """Return the cells of tiles of which a slice touches so many along each axis."""
    count = np.prod(grids, axis=0)
    tile = np.repeat(np.arange(len(tiles)), count)
    inner = np.arange(len(tile)) - np.repeat(np.cumsum(count) - count, count)
    cells: list[Indices] = []
    for axis, grid in zip(reversed(axes), grids[::-1], strict=True):
        cells.insert(0, axis.bounds()[0][tile] + inner % grid[tile])
        inner = inner // grid[tile]
    found = [axis.cut(tile, cell) for axis, cell in zip(axes, cells, strict=True)]
    # A wide step passes over cells.
    keep = np.flatnonzero(np.logical_and.reduce([cut.extent > 0 for cut, _ in found]))
    cuts = tuple(cut.take(keep) for cut, _ in found)
    touched = np.unique(tile[keep])
    tiles = [tiles[number] for number in touched.tolist()]
    starts = np.append(np.searchsorted(tile[keep], touched), len(tile[keep]))
    encodings, encoding_maps = merge_pools([tile.encodings for tile in tiles])
    packings, packing_maps = Packings.pool([tile.packings for tile in tiles]) if tiles else (IDENTITY, [])
    pools = {id(tile.chunks.sources): tile.chunks.sources for tile in tiles}
    places = {key: place for place, key in enumerate(pools)}
    return ListedTiles(
        tuple(tiles),
        starts,
        cuts,
        tuple(stored[keep] for _, stored in found),
        encodings,
        packings,
        next(iter(pools.values())) if len(pools) == 1 else InterleavedSources(list(pools.values())),
        (encoding_maps, packing_maps, [places[id(tile.chunks.sources)] for tile in tiles]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _TiledAxis:
    """One regular axis of many tiles, and what a slice of the array's dimension takes of it, in columns."""

    stride: Stride
    origin: Indices
    """Where each tile begins in the array."""
    length: Indices
    size: Indices
    padded: Indices

    def bounds(self) -> tuple[Indices, Indices]:
        """Return the first and the last cell that is touched of each tile; the last is less if none is."""
        step, count = steps_within(self.origin, self.length, self.stride)
        low, pace, _ = self.stride.ascending
        first = (low + step * pace - self.origin) // self.size
        last = (low + (step + count - 1) * pace - self.origin) // self.size
        return first, np.where(count > 0, last, first - 1)

    def count_cells(self) -> Indices:
        """Return the number of touched cells of each tile."""
        first, last = self.bounds()
        return np.asarray(np.maximum(last - first + 1, 0))

    def take(self, which: npt.NDArray[np.bool_]) -> _TiledAxis:
        """Return the axis of some of the tiles."""
        columns = (self.origin, self.length, self.size, self.padded)
        return _TiledAxis(self.stride, *(column[which] for column in columns))

    def cut(self, tile: Indices, cell: Indices) -> tuple[AxisCut, Indices]:
        """Return what is taken of cells of tiles, and the number of elements of their chunks."""
        size = self.size[tile]
        inside = cell * size
        extent = np.minimum(self.length[tile] - inside, size)
        stored = np.where(self.padded[tile], size, extent)
        shown = CellColumns(extent, np.zeros_like(cell), np.ones_like(cell), stored)
        return cut_cells(cell, inside + self.origin[tile], shown, self.stride), stored
