"""What lies in the places that no tile covers: tiles of their own, Absent or Unwritten, and the value for Absent.

Reading fills its output with the Absent value first and then writes over it; a reduction has no
output to fill, and must count what is absent like everything else. What one file leaves out (a
virtual dataset of HDF5) is not absent: there the file's own fill value holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline
from insitu.model import Axis, Columns, Encoding, Tile, VirtualArray

__all__ = ["fill_gaps_with_absent", "fill_gaps_with_unwritten", "with_dtype"]

Boxes = npt.NDArray[np.int64]
"""Corners of boxes, as an array of (boxes, dimensions)."""


def fill_gaps_with_absent(array: VirtualArray) -> VirtualArray:
    """Return the array with Absent tiles in all places that no tile covers.

    The array itself if there are none.
    """
    return _cover_gaps(array, Encoding(array.dtype), Columns.of_absent)


def fill_gaps_with_unwritten(array: VirtualArray) -> VirtualArray:
    """Return an array of one file with Unwritten tiles in all places that no tile covers.

    They hold the file's fill value, and are decoded like the rest.
    """
    if array.dtype.hasobject or _is_one_tile(array):
        return array
    fill = None if array.fill_value is None else np.asarray(array.fill_value).astype(array.dtype).tobytes()
    return _cover_gaps(array, Encoding(array.dtype, fill=fill), Columns.of_unwritten)


def with_dtype(array: VirtualArray, dtype: np.dtype[Any]) -> VirtualArray:
    """Return the array in another type.

    Elements that no file covers are NaN, NaT or what that type has for missing.
    """
    if array.dtype == dtype and array.fill_value is None and dtype.kind not in "mM":
        return array
    fill = array.fill_value
    if dtype.kind in "fcO":
        fill = None
    elif dtype.kind in "mM":
        fill = np.array("NaT", dtype)[()]
    return replace(array, dtype=dtype, fill_value=fill)


def _is_one_tile(array: VirtualArray) -> bool:
    return len(array.tiles) == 1 and array.tiles[0].shape == array.shape


def _cover_gaps(array: VirtualArray, encoding: Encoding, cells: Callable[[tuple[int, ...]], Columns]) -> VirtualArray:
    if _is_one_tile(array):
        return array
    shapes = np.array([tile.shape for tile in array.tiles], object).reshape(len(array.tiles), array.ndim)
    if array.size == int(shapes.prod(axis=1).sum()):
        return array
    near, far = np.zeros((1, array.ndim), np.int64), np.array([array.shape], np.int64)
    for low, high in zip(array.origins, array.upper_corners(), strict=True):
        check_deadline()
        near, far = _subtract_box(near, far, low, high)
    tiles = tuple(_make_tile(tuple(extent), encoding, cells) for extent in (far - near).tolist())
    return replace(array, tiles=(*array.tiles, *tiles), origins=np.concatenate([array.origins, near]))


def _make_tile(shape: tuple[int, ...], encoding: Encoding, cells: Callable[[tuple[int, ...]], Columns]) -> Tile:
    axes = tuple(Axis.regular(length, length) for length in shape)
    return Tile(axes, (encoding,), cells((1,) * len(shape)))


def _subtract_box(
    near: Boxes, far: Boxes, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]
) -> tuple[Boxes, Boxes]:
    """Subtract a box from boxes: each box that it meets falls into at most two pieces per
    dimension.
    """
    meets = ((near < high) & (far > low)).all(axis=1)
    begins, ends = [near[~meets]], [far[~meets]]
    begin, end = near[meets], far[meets]
    for dimension in range(len(low)):
        for below in (True, False):
            first, last = begin.copy(), end.copy()
            if below:
                last[:, dimension] = np.minimum(last[:, dimension], low[dimension])
            else:
                first[:, dimension] = np.maximum(first[:, dimension], high[dimension])
            some = first[:, dimension] < last[:, dimension]
            begins.append(first[some])
            ends.append(last[some])
        # The remaining part lies within the box along this dimension.
        begin, end = begin.copy(), end.copy()
        begin[:, dimension] = np.maximum(begin[:, dimension], low[dimension])
        end[:, dimension] = np.minimum(end[:, dimension], high[dimension])
    return np.concatenate(begins), np.concatenate(ends)
