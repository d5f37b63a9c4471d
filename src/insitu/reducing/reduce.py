"""Statistics of a selection of a virtual array on this machine, several in one pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import SelectionError
from insitu.model import Selection, VirtualArray, normalise_axes
from insitu.model.gaps import fill_gaps_with_absent
from insitu.reading import ReadContext
from insitu.reducing.fold_portions import fold_values
from insitu.reducing.foldable_values import StoredValues
from insitu.reducing.portions import is_one_portion
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reductions import STREAMED, Reduction
from insitu.reducing.stream import fold_chunks
from insitu.reducing.whole_blocks import read_values, reduce_by_blocks

__all__ = ["UNCHANGED_WITHOUT_AXES", "axes_of_dims", "compute_statistics", "squeeze_axes"]

UNCHANGED_WITHOUT_AXES = ("sum", "mean", "min", "max", "prod", "median")
"""Statistics that leave values and their type unchanged if no axis is reduced, as in xarray."""


def compute_statistics(
    array: VirtualArray,
    query: ReductionQuery,
    context: ReadContext | None = None,
    known: npt.NDArray[Any] | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Return statistics of a virtual array by name, computed chunk by chunk, in bounded memory.

    Parameters
    ----------
    array
        The array.
    query
        Which statistics, of which selection, along which axes.
    context
        How to read the values: storage options, open sources, counters.
    known
        The values of the selection, if they were kept from an earlier use: then nothing is read, and the results are
        the same to the last bit.

    Returns
    -------
    dict of ndarray
        Of the types that xarray gives. Sums and means of floating-point values are accumulated in
        float64, so they may differ from xarray's in the last digits; they are the more exact ones.

    Examples
    --------
    >>> group = insitu.scan("era5.nc")  # doctest: +SKIP
    >>> query = ReductionQuery.of(["mean", "max"], axes=0, selection=np.s_[:, ::2, 100:200])  # doctest: +SKIP
    >>> compute_statistics(group.arrays["t2m"], query)["mean"]  # doctest: +SKIP
    """
    methods, axes, rules = query.methods, query.axes, query.rules
    chosen = Selection.of(query.selection, array.shape)
    shape = chosen.result_shape
    along = normalise_axes(axes, len(shape))
    found: dict[str, npt.NDArray[Any]] = {}
    with (context or ReadContext()).open_sources() as opened:
        if axes is not None and not along and any(method in UNCHANGED_WITHOUT_AXES for method in methods):
            values = read_values(array, chosen, opened) if known is None else known.copy()
            found = dict.fromkeys(UNCHANGED_WITHOUT_AXES, values)
        selected: VirtualArray | None = None
        streamed = tuple(
            m for m in methods if m not in found and m in STREAMED and array.dtype.kind in STREAMED[m].kinds
        )
        if streamed:
            reduction = Reduction(streamed, array.dtype, rules)
            if is_one_portion(shape, array.dtype.itemsize):
                partial = fold_chunks(array, chosen, along, reduction, opened, known)
            else:
                selected = array[chosen]
                partial = fold_values(StoredValues(fill_gaps_with_absent(selected), opened, known), along, reduction)
            found |= reduction.finalise(partial, math.prod(shape[axis] for axis in along))
        for method in methods:
            if method not in found:
                selected = array[chosen] if selected is None else selected
                found[method] = reduce_by_blocks(selected, along, method, rules, opened, known)
    if query.keepdims:
        return {method: found[method] for method in methods}
    return {method: squeeze_axes(found[method], along, len(shape)) for method in methods}


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
