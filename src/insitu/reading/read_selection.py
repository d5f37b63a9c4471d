"""Reading of a selection that is given in one of the ways of `insitu.read`: a slice, a box, points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import SelectionError
from insitu.model import Selection, VirtualArray
from insitu.reading.pointwise import read_points
from insitu.reading.read import read_array
from insitu.reading.read_context import ReadContext

__all__ = ["read_selection"]


def read_selection(
    array: VirtualArray,
    selection: Any = ...,
    context: ReadContext | None = None,
    *,
    start: Sequence[int] | None = None,
    count: Sequence[int] | None = None,
    points: Sequence[Any] | None = None,
    out: npt.NDArray[Any] | None = None,
) -> npt.NDArray[Any]:
    """Read a selection of an array, given in one of the ways of `insitu.read`."""
    if start is not None or count is not None:
        if selection is not Ellipsis:
            raise SelectionError("give either a selection, or start and count")
        selection = _box_selection(array, start, count)
    if points is not None:
        if selection is not Ellipsis or out is not None:
            raise SelectionError("points cannot be combined with a selection, start, count or out")
        return read_points(array, points, context)
    return read_array(array, selection, context, out=out)


def _box_selection(array: VirtualArray, start: Sequence[int] | None, count: Sequence[int] | None) -> Selection:
    corner = [0] * array.ndim if start is None else [int(number) for number in np.atleast_1d(start)]
    if len(corner) != array.ndim:
        raise SelectionError(f"start {corner} must have {array.ndim} numbers, one for each dimension")
    extent = (
        [n - s for n, s in zip(array.shape, corner, strict=True)] if count is None else np.atleast_1d(count).tolist()
    )
    return Selection.box(corner, extent, array.shape)
