"""Pointwise reading: paired index arrays, as for stations on a grid.

Points that fall into one chunk form a group: the chunk is fetched and decoded once for all of them.
Points of large uncompressed chunks are fetched one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cf.unpack import unpack
from insitu.errors import SelectionError
from insitu.model import Packing, Selection, Stride, Tile, VirtualArray
from insitu.model.axis import Indices
from insitu.reading.chunk_sink import ChunkSink
from insitu.reading.fetch_and_decode import PlanExecution, run_executions
from insitu.reading.plan import plan_tiles
from insitu.reading.read import allocate_output
from insitu.reading.read_context import ReadContext
from insitu.reading.read_statistics import ReadStatistics
from insitu.reading.select_cells import AxisSelection, TileSelection, select_on_axis
from insitu.reading.tile_plan import Position, TilePlan
from insitu.reading.trim_ranges import trim_to_wanted_bytes

__all__ = ["read_points"]

SMALL_CHUNK = 1 << 16
"""Uncompressed chunks up to this size are fetched whole, which is cheaper for several points."""
REQUEST_BYTES = 1 << 14


def read_points(
    array: VirtualArray,
    keys: Sequence[Any],
    context: ReadContext | None = None,
) -> npt.NDArray[Any]:
    """Read single points, or lines and planes through them.

    Parameters
    ----------
    array
        The array to read from.
    keys
        For each dimension an integer array (they broadcast against each other and are paired) or a
        slice. Missing keys select the whole dimension.
    context
        How to read. Of a large uncompressed chunk its cache keeps only the part that was fetched.

    Returns
    -------
    ndarray
        The points' dimensions first, then the sliced ones.
    """
    keys = (*keys, *[slice(None)] * (array.ndim - len(keys)))
    if len(keys) > array.ndim:
        raise SelectionError(f"too many indices: {len(keys)} for {array.ndim} dimensions")
    paired = [d for d, key in enumerate(keys) if not isinstance(key, slice)]
    index = _pair_indices([np.asarray(keys[d]) for d in paired], [array.shape[d] for d in paired], paired)
    strides = {d: Stride.of(key, array.shape[d]) for d, key in enumerate(keys) if isinstance(key, slice)}
    shape = (*(index[0].shape if index else ()), *(stride.length for stride in strides.values()))
    out = allocate_output(shape, array, None if context is None else context.name)
    if not out.size:
        return out
    flat = [i.reshape(-1) for i in index]
    # One axis for all points, then the sliced dimensions.
    table = out.reshape(math.prod(shape[: len(shape) - len(strides)]), *(stride.length for stride in strides.values()))
    groups = list(_group_by_tile(array, dict(zip(paired, flat, strict=True)), strides))
    plan = plan_tiles(array, Selection.of(..., array.shape), [group.touched for group in groups])
    if _has_gaps(array):
        table[...] = array.absent_value()
    with (context or ReadContext()).open_sources() as opened:
        tally = ReadStatistics() if opened.tally is None else opened.tally
        sink = _PointSink(groups, plan.tile_plans, table)
        run_executions([PlanExecution(plan, sink, opened.pool, opened.name, tally, opened.cache)])
    return out


def _has_gaps(array: VirtualArray) -> bool:
    """Return whether some places of the array are not covered by tiles."""
    return sum(math.prod(tile.shape) for tile in array.tiles) < array.size


def _pair_indices(
    arrays: Sequence[npt.NDArray[Any]], lengths: Sequence[int], dimensions: Sequence[int]
) -> list[Indices]:
    """Return index arrays broadcast to one shape, non-negative, within bounds."""
    try:
        full = np.broadcast_arrays(*arrays)
    except ValueError:
        raise SelectionError(
            f"index arrays of shapes {[a.shape for a in arrays]} cannot be paired: they do not broadcast"
        ) from None
    result = []
    for values, length, dimension in zip(full, lengths, dimensions, strict=True):
        if values.dtype.kind not in "iu":
            raise SelectionError(f"axis {dimension}: indices must be integers, not {values.dtype}")
        index = values.astype(np.int64)
        if index.size and (index.min() < -length or index.max() >= length):
            raise SelectionError(f"the index of a point is out of bounds for axis {dimension} with size {length}")
        result.append(np.where(index < 0, index + length, index))
    return result


class _PointGroup:
    """Points of one tile that lie in one chunk along the paired axes."""

    __slots__ = ("inner", "paired", "points", "sliced", "touched")

    def __init__(
        self, touched: TileSelection, points: Indices, inner: list[Indices], paired: list[int], sliced: list[int]
    ) -> None:
        self.touched = touched
        self.points = points
        """Rows of the output for the points."""
        self.inner = inner
        """For each paired axis, the positions in the (fetched part of the) chunk."""
        self.paired = paired
        """Axes of the tile that are paired."""
        self.sliced = sliced
        """Axes of the tile that are sliced, in the order of the output.

        All others have one element.
        """


def _group_by_tile(
    array: VirtualArray, index: Mapping[int, Indices], strides: Mapping[int, Stride]
) -> Iterator[_PointGroup]:
    far, near = array.upper_corners(), array.origins
    count = len(next(iter(index.values()))) if index else 1
    selectors = [index[d] if d in index else strides[d] for d in range(array.ndim)]
    for number in array.touched_tiles(selectors).tolist():
        tile = array.tiles[number]
        inside = np.ones(count, bool)
        for dimension, positions in index.items():
            inside &= (positions >= near[number, dimension]) & (positions < far[number, dimension])
        points = np.flatnonzero(inside)
        if not len(points):
            continue
        axis_of = tile.dimensions
        parts: dict[int, AxisSelection] = {}
        for dimension, stride in strides.items():
            parts[axis_of[dimension]] = select_on_axis(
                tile.axes[axis_of[dimension]], stride, int(near[number, dimension])
            )
        for i, axis in enumerate(tile.axes):
            if i not in axis_of:
                parts[i] = select_on_axis(axis, 0, 0)
        if not all(len(part.cell) for part in parts.values()):
            continue
        place = tuple(axis_of.index(i) if i in axis_of else None for i in range(len(tile.axes)))
        paired, sliced = [axis_of[d] for d in index], [axis_of[d] for d in strides]
        local = [positions[points] - near[number, dimension] for dimension, positions in index.items()]
        yield from _group_by_chunk(tile, place, parts, points, paired, sliced, local)


def _group_by_chunk(
    tile: Tile,
    place: tuple[int | None, ...],
    parts: dict[int, AxisSelection],
    points: Indices,
    paired: list[int],
    sliced: list[int],
    local: list[Indices],
) -> Iterator[_PointGroup]:
    """Yield groups of a tile's points by the chunk that they lie in."""
    cells = [tile.axes[axis].find(positions) for axis, positions in zip(paired, local, strict=True)]
    group = np.zeros(len(points), np.int64)
    for axis, cell in zip(paired, cells, strict=True):
        group = group * tile.axes[axis].count + cell
    if _needs_cutting(tile):
        group = np.arange(len(points))
    order = np.argsort(group, kind="stable")
    for mine in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        here, inner = dict(parts), []
        for axis, cell, positions in zip(paired, cells, local, strict=True):
            one = cell[mine[:1]]
            shown = tile.axes[axis].show(one)
            inside = shown.skip + shown.step * (positions[mine] - tile.axes[axis].begin(one))
            stored = int(max(shown.stored[0], 1))
            whole = slice(0, stored) if len(mine) > 1 else slice(int(inside[0]), int(inside[0]) + 1)
            here[axis] = AxisSelection(
                cell=one,
                inside=(whole,),
                outside=(slice(0, 1),),
                stored=np.array([stored]),
                exists=bool(shown.stored[0]),
                whole=np.zeros(1, bool),
                wanted=np.array([whole.stop - whole.start]),
                first=np.zeros(1, np.int64),
            )
            inner.append(inside)
        touched = TileSelection(tile, tuple(here[i] for i in range(len(tile.axes))), place)
        cut = trim_to_wanted_bytes(touched, REQUEST_BYTES) if len(mine) == 1 else touched
        inner = [inside - cut.parts[axis].first[0] for inside, axis in zip(inner, paired, strict=True)]
        yield _PointGroup(cut, points[mine], inner, paired, sliced)


def _needs_cutting(tile: Tile) -> bool:
    """Return whether the chunks are uncompressed and too large to fetch whole for a point."""
    if not all(encoding.raw for encoding in tile.encodings):
        return False
    itemsize = max(encoding.dtype.itemsize for encoding in tile.encodings)
    sizes = [int(axis.show(np.zeros(1, np.int64)).stored[0]) or 1 for axis in tile.axes if axis.count]
    return math.prod(sizes) * itemsize > SMALL_CHUNK


class _PointSink(ChunkSink):
    """Sink that copies points to the output."""

    def __init__(self, groups: Sequence[_PointGroup], grids: Sequence[TilePlan], table: npt.NDArray[Any]) -> None:
        super().__init__(grids)
        self.groups = groups
        self.table = table

    def _place(self, grid: int, position: Position) -> tuple[Any, ...]:
        group, here = self.groups[grid], self.grids[grid]
        return (group.points, *(here.outside[axis][position[axis]] for axis in group.sliced))

    def fill(self, grid: int, position: Position, value: Any, packing: Packing | None) -> None:
        """Fill the points of a cell that has no bytes."""
        self.table[self._place(grid, position)] = value if packing is None else unpack(np.asarray(value), packing)

    def chunk(self, grid: int, position: Position, chunk: npt.NDArray[Any], packing: Packing | None) -> None:
        """Copy the points of a decoded chunk to their rows."""
        group, here = self.groups[grid], self.grids[grid]
        others = [axis for axis in range(chunk.ndim) if axis not in group.paired and axis not in group.sliced]
        turned = chunk.transpose(*others, *group.paired, *group.sliced)
        pickers = (here.inside[axis][position[axis]] for axis in others)
        single = tuple(picker.start for picker in pickers if isinstance(picker, slice))
        slices = tuple(here.inside[axis][position[axis]] for axis in group.sliced)
        values = turned[single][(*group.inner, *slices)]
        self.table[self._place(grid, position)] = values if packing is None else unpack(values, packing)
