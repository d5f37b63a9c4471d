"""Statistics of a selection of a virtual array: `reduce_array` for one, `statistics` for several."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import SelectionError, UnsupportedError
from insitu.model import Selection, VirtualArray
from insitu.reading import ReadStatistics, SourcePool
from insitu.reducing.reductions import STREAMED, Reduction, ReductionRules
from insitu.reducing.sketches import check_edges
from insitu.reducing.stream import fold_chunks
from insitu.reducing.whole_blocks import read_selection, reduce_by_blocks

__all__ = ["axes_of_dims", "reduce_array", "statistics"]

UNCHANGED_WITHOUT_AXES = ("sum", "mean", "min", "max", "prod", "median")
"""Statistics that leave values and their type unchanged if no axis is reduced, as in xarray."""


def reduce_array(
    array: VirtualArray,
    method: str,
    *,
    axes: int | Sequence[int] | None = None,
    selection: Any = ...,
    skipna: bool | None = None,
    ddof: float = 0,
    min_count: int | None = None,
    q: Any = None,
    edges: Any = None,
    keepdims: bool = False,
    name: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    tally: ReadStatistics | None = None,
) -> npt.NDArray[Any]:
    """Reduce a selection of a virtual array, chunk by chunk, in bounded memory.

    Parameters
    ----------
    array
        The array.
    method
        `sum`, `mean`, `min`, `max`, `std`, `var`, `count`, `any`, `all`, `argmin`, `argmax`,
        `prod`; `median` and `quantile`, which need all values of an element of the result at once;
        `histogram`; `tdigest`, approximate quantiles of any number of values (see
        `insitu.reducing.sketches`).
    axes
        Axes of the selection's shape; all if not given. The result of argmin and argmax is a
        position in these axes, the last one fastest.
    selection
        Integers, slices of any step, Ellipsis, 1-D index or boolean arrays (orthogonal), or a
        `Selection`.
    skipna
        Whether missing values are left out; by default for floating-point and complex values.
    ddof
        For `std` and `var`: the divisor is the number of values minus this.
    min_count
        For `sum` and `prod`: with fewer values the result is missing.
    q
        For `quantile` and `tdigest`: from 0 to 1; several give a first axis.
    edges
        For `histogram`: increasing edges of the bins, which give a first axis.
    keepdims
        Whether reduced axes stay, with length 1.
    name
        The variable, for messages.
    storage_options
        How to open the sources: see `insitu.sources.open_source`.
    tally
        Counter of what was read.

    Returns
    -------
    ndarray
        Of the type that xarray gives. Sums and means of floating-point values are accumulated in
        float64, so they may differ from xarray's in the last digits; they are the more exact ones.

    Examples
    --------
    >>> group = insitu.scan("era5.nc")  # doctest: +SKIP
    >>> reduce_array(group.arrays["t2m"], "mean", axes=0, selection=np.s_[:, ::2, 100:200])  # doctest: +SKIP
    """
    found = statistics(
        array, [method], axes=axes, selection=selection, skipna=skipna, ddof=ddof, min_count=min_count, q=q,
        edges=edges, keepdims=keepdims, name=name, storage_options=storage_options, tally=tally,
    )  # fmt: skip
    return found[method]


def statistics(
    array: VirtualArray,
    methods: Sequence[str],
    *,
    axes: int | Sequence[int] | None = None,
    selection: Any = ...,
    skipna: bool | None = None,
    ddof: float = 0,
    min_count: int | None = None,
    q: Any = None,
    edges: Any = None,
    keepdims: bool = False,
    name: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    tally: ReadStatistics | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Return several statistics of a selection, in one pass over its chunks.

    Parameters
    ----------
    array
        The array.
    methods
        Names as for `reduce_array`.
    axes, selection, skipna, ddof, min_count, q, edges, keepdims, name, storage_options, tally
        As for `reduce_array`.

    Returns
    -------
    dict
        The results, by method.
    """
    rules = ReductionRules(skipna, ddof, min_count, q, None if edges is None else check_edges(edges))
    with SourcePool(storage_options) as opened:
        return compute_statistics(
            array, methods, axes, selection, rules, opened, keepdims=keepdims, name=name, tally=tally
        )


def compute_statistics(
    array: VirtualArray,
    methods: Sequence[str],
    axes: int | Sequence[int] | None,
    selection: Any,
    rules: ReductionRules,
    opened: SourcePool,
    *,
    keepdims: bool = False,
    name: str | None = None,
    tally: ReadStatistics | None = None,
    block_bytes: int | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Return what `statistics` does, with open sources and rules;
    `block_bytes` is that of `reduce_by_blocks`.
    """
    methods = [methods] if isinstance(methods, str) else list(methods)
    chosen = Selection.of(selection, array.shape)
    shape = chosen.result_shape
    along = normalise_axes(axes, len(shape))
    found: dict[str, npt.NDArray[Any]] = {}
    if axes is not None and not along and any(method in UNCHANGED_WITHOUT_AXES for method in methods):
        found = dict.fromkeys(UNCHANGED_WITHOUT_AXES, read_selection(array, chosen, opened, name, tally))
    streamed = tuple(m for m in methods if m not in found and m in STREAMED and array.dtype.kind in STREAMED[m].kinds)
    if streamed:
        reduction = Reduction(streamed, array.dtype, rules)
        partial = fold_chunks(array, chosen, along, reduction, opened, name=name, tally=tally)
        found |= reduction.finalise(partial, math.prod(shape[axis] for axis in along))
    selected: VirtualArray | None = None
    for method in methods:
        if method not in found:
            selected = array[chosen] if selected is None else selected
            found[method] = reduce_by_blocks(
                selected, along, method, rules, opened, name=name, tally=tally, block_bytes=block_bytes
            )
    return {method: found[method] if keepdims else squeeze_axes(found[method], along, len(shape)) for method in methods}


def normalise_axes(axes: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Return axes as non-negative numbers, in the order given; all axes if None."""
    if axes is None:
        return tuple(range(ndim))
    given = [axes] if isinstance(axes, (int, np.integer)) else list(axes)
    for axis in given:
        if not -ndim <= axis < ndim:
            raise SelectionError(f"axis {axis} is out of bounds for {ndim} dimensions")
    along = tuple(int(axis) % ndim for axis in given)
    if len(set(along)) != len(along):
        raise UnsupportedError(f"an axis is given twice: axes={tuple(given)}")
    return along


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
