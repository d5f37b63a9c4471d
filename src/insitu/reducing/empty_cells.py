"""The contribution of cells without stored bytes (never written, or absent) to a reduction.

Each such cell shows one value many times. How often it occurs, and where first, is counted for all
cells of a tile at once; the value itself is measured once. Nothing is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cf.unpack import unpack
from insitu.model import ABSENT, UNWRITTEN, ChunkLocations, VirtualArray
from insitu.reading.scatter import put
from insitu.reading.select_cells import Picker
from insitu.reducing.extremes import NO_POSITION
from insitu.reducing.partial_fields import Partial
from insitu.reducing.reductions import Reduction
from insitu.reducing.result_layout import TileProjection, get_region

__all__ = ["add_constants"]


def add_constants(
    array: VirtualArray,
    projection: TileProjection,
    located: ChunkLocations,
    rows: npt.NDArray[np.int64],
    reduction: Reduction,
    windows: Partial,
) -> None:
    """Merge the cells without stored bytes into a result.

    Parameters
    ----------
    array
        The array that is reduced.
    projection, located
        One of its tiles, and the locations of its cells.
    rows
        The cells without stored bytes.
    reduction
        The statistics.
    windows
        The partial result so far, as views with the axes of the tile.
    """
    for value, these in _constant_values(array, projection, located, rows):
        mask = np.zeros(projection.touched.grid, bool)
        mask.reshape(-1)[these] = True
        times, first = _count_elements(projection, mask)
        region, spread = _whole_region(projection)
        partial = reduction.step(
            value.reshape((1,) * len(mask.shape)), projection.reduced, [np.zeros(1, np.int64)] * len(projection.reduced)
        )
        added = reduction.repeat(partial, spread(times), spread(first))
        before = {name: get_region(window, region) for name, window in windows.items()}
        for name, merged in reduction.merge(before, added).items():
            put(windows[name], region, merged)


def _constant_values(
    array: VirtualArray, projection: TileProjection, located: ChunkLocations, rows: npt.NDArray[np.int64]
) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.int64]]]:
    """Yield each value with the cells that show it."""
    dtype = array.dtype.newbyteorder("=")
    source = np.asarray(located.source)[rows]
    absent = rows[source == ABSENT]
    if len(absent):
        yield np.asarray(array.absent_value(), dtype), absent
    unwritten = rows[source == UNWRITTEN]
    if not len(unwritten):
        return
    tile = projection.touched.tile
    encoding, packing = np.asarray(located.encoding)[unwritten], np.asarray(located.packing)[unwritten]
    kinds, inverse = np.unique(np.stack([encoding, packing]), axis=1, return_inverse=True)
    for number, (which, how) in enumerate(kinds.T.tolist()):
        value = np.asarray(tile.encodings[which].fill_value())
        row = tile.packings[how]
        if not row.identity:
            value = unpack(value, row)
        yield np.asarray(value).astype(dtype), unwritten[inverse.reshape(-1) == number]


def _count_elements(
    projection: TileProjection, mask: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return, for each cell of the kept axes, how many elements the masked cells stand for,
    and the first position.
    """
    times = mask.astype(np.int64)
    first = np.zeros(mask.shape, np.int64)
    for axis, stride in zip(projection.reduced, projection.strides, strict=True):
        along = tuple(-1 if i == axis else 1 for i in range(mask.ndim))
        times *= np.array(projection.shown[axis], np.int64).reshape(along)
        begins = [int(p[0]) if isinstance(p, np.ndarray) else p.start for p in projection.outside[axis]]
        first += (np.array(begins, np.int64) * stride).reshape(along)
    first[~mask] = NO_POSITION
    if not projection.reduced:
        return times, first
    return times.sum(axis=projection.reduced, keepdims=True), first.min(axis=projection.reduced, keepdims=True)


def _whole_region(projection: TileProjection) -> tuple[tuple[Picker, ...], Any]:
    """Return the region of all cells,
    and a function that expands numbers per cell of the kept axes to it.
    """
    region: list[Picker] = [slice(0, 1)] * len(projection.outside)
    for axis in projection.kept_axes:
        pickers = projection.outside[axis]
        region[axis] = np.concatenate([p if isinstance(p, np.ndarray) else np.arange(p.start, p.stop) for p in pickers])

    def spread(cells: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        for axis in projection.kept_axes:
            cells = np.repeat(cells, projection.shown[axis], axis)
        return cells

    return tuple(region), spread
