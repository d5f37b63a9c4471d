"""Axes of a reduction: by name, and those that it leaves out of its results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import SelectionError
from insitu.model import Selection, VirtualArray, normalise_axes
from insitu.reducing.query import ReductionQuery
from insitu.reducing.statistics import STATISTICS

__all__ = ["axes_of_dims", "squeeze_axes", "unchanged_statistics"]


def unchanged_statistics(query: ReductionQuery, ndim: int) -> list[str]:
    """Return the statistics of a query that leave the values as they are, as it reduces no axis."""
    if query.axes is None or normalise_axes(query.axes, ndim):
        return []
    return [name for name in query.methods if name in STATISTICS and STATISTICS[name].keeps_values_without_axes]


def squeeze_axes(values: npt.NDArray[Any], axes: tuple[int, ...], ndim: int) -> npt.NDArray[Any]:
    """Return an array without its reduced axes, counted from behind:
    there may be other axes in front.
    """
    return values.squeeze(tuple(values.ndim - ndim + axis for axis in axes)) if axes else values


def axes_of_dims(
    array: VirtualArray, selection: Any, dim: str | Sequence[str] | None, axes: int | Sequence[int] | None
) -> int | Sequence[int] | None:
    """Return the axes of a selection's shape for dimensions by name."""
    if dim is None:
        return axes
    if axes is not None:
        raise SelectionError("give either dim or axes, not both")
    chosen = Selection.of(selection, array.shape) if not isinstance(selection, Selection) else selection
    left = [
        name for name, one in zip(array.dims, chosen.selectors, strict=True) if not isinstance(one, (int, np.integer))
    ]
    names = [dim] if isinstance(dim, str) else list(dim)
    unknown = [name for name in names if name not in left]
    if unknown:
        raise SelectionError(
            f"no dimension {', '.join(map(repr, unknown))}", hint=f"There are: {', '.join(left) or 'none'}"
        )
    return [left.index(name) for name in names]
