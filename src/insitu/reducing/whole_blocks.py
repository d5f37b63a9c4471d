"""Statistics that need all values of an element at once: medians, quantiles, anything of text or
objects.

They are computed in blocks of the result. A block reads all values of its elements, at most
`BLOCK_BYTES`. Its borders are those of chunks if possible, so that a chunk is read once. If chunks
are so long along the kept axes that each would be read more than twice, a warning says how often.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline
from insitu.errors import ModelError, UnsupportedError
from insitu.expressions.boxes import Box, cut_boxes, extend_lengths
from insitu.reducing.block_facts import reduced_shape
from insitu.reducing.expression_values import ExpressionValues
from insitu.reducing.reductions import ReductionRules
from insitu.reducing.statistic import Statistic
from insitu.reducing.statistics import STATISTICS

__all__ = ["block_shape", "cut_blocks", "reduce_whole_boxes"]

BLOCK_BYTES = 256 << 20
"""Bytes of values that a block reads; sorting them takes about as much again."""

Function = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


def reduce_whole_boxes(
    values: ExpressionValues,
    axes: tuple[int, ...],
    method: str,
    rules: ReductionRules,
    read: Callable[[Box], npt.NDArray[Any]],
) -> npt.NDArray[Any]:
    """Return a statistic; reduced axes have length 1, several quantiles give a first axis.

    Parameters
    ----------
    values
        What is reduced; `values.memory.block` bytes of it are held at a time, by default `BLOCK_BYTES`.
    axes
        Axes to reduce.
    method
        A name of `STATISTICS`.
    rules
        Options of the statistic.
    read
        Returns the values of a box.
    """
    function = _block_function(values, axes, method, rules)
    lengths = reduced_shape(values.shape, axes)
    out: npt.NDArray[Any] | None = None
    for box in _split_into_boxes(values, axes, method):
        check_deadline()
        answer = function(read(box))
        extra = answer.ndim - values.ndim  # the first axis of several quantiles
        if out is None:
            out = np.empty((*answer.shape[:extra], *lengths), answer.dtype)
        where = tuple(slice(0, 1) if axis in axes else part for axis, part in enumerate(box))
        out[(slice(None),) * extra + where] = answer
    assert out is not None
    return out


def _block_function(values: ExpressionValues, axes: tuple[int, ...], method: str, rules: ReductionRules) -> Function:
    skips = values.dtype.kind in "fcO" if rules.skipna is None else rules.skipna
    statistic = STATISTICS[method]
    statistic.check_options(rules)
    compute = statistic.compute
    kind = values.dtype.kind
    if compute is not None and kind in statistic.kinds:
        return _without_warnings(lambda block: compute(block, axes, rules, skips))
    if statistic.is_plain and statistic.xarray is not None and (compute is not None or kind in "OSUVmM"):
        return _xarray_function(values, axes, statistic, rules)
    raise UnsupportedError(f"cannot compute {method} of {values.dtype} values")


def _xarray_function(
    whole: ExpressionValues, axes: tuple[int, ...], statistic: Statistic, rules: ReductionRules
) -> Function:
    """Return the statistic as xarray computes it: for text, objects and times."""
    try:
        import xarray
    except ImportError as problem:
        raise UnsupportedError(
            f"{statistic.name} of {whole.dtype} values needs the package xarray", hint="pip install xarray"
        ) from problem
    wanted = {name: getattr(rules, name) for name in statistic.options}
    kept_axes = [axis for axis in range(whole.ndim) if axis not in axes]

    def function(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        lengths = [values.shape[axis] for axis in kept_axes]
        # The reduced axes as one axis, so that positions count the last one fastest.
        flat = values.transpose(*kept_axes, *axes).reshape(*lengths, math.prod(values.shape[axis] for axis in axes))
        variable: Any = xarray.Variable([*(f"axis{axis}" for axis in kept_axes), "flat"], flat)
        try:
            found = getattr(variable, str(statistic.xarray))("flat", **wanted)
        except TypeError as problem:
            raise UnsupportedError(f"cannot compute {statistic.name} of {values.dtype} values: {problem}") from problem
        return np.expand_dims(np.asarray(found.values), tuple(sorted(axes)))

    return function


def _without_warnings(function: Function) -> Function:
    """Return a function without NumPy's warnings about empty or all-NaN slices."""

    def quiet(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
            warnings.filterwarnings("ignore", "All-NaN slice encountered", RuntimeWarning)
            warnings.filterwarnings("ignore", "Mean of empty slice", RuntimeWarning)
            try:
                return np.asarray(function(values))
            except ValueError as problem:
                if values.size:
                    raise
                raise ModelError(f"cannot reduce an empty selection: {problem}") from None

    return quiet


def _split_into_boxes(values: ExpressionValues, axes: tuple[int, ...], method: str) -> Iterator[Box]:
    """Split the values into boxes that are whole along the reduced axes."""
    shape, most = values.shape, BLOCK_BYTES if values.memory.block is None else values.memory.block
    # Of nothing, too, there is one box: the statistic says what its result is, or that there is none.
    if math.prod(shape) * values.dtype.itemsize <= most:
        yield tuple([slice(0, length) for length in shape])
        return
    kept_axes = [axis for axis in range(values.ndim) if axis not in axes]
    column = math.prod(shape[axis] for axis in axes) * values.dtype.itemsize
    if column > most and not kept_axes:
        raise UnsupportedError(
            f"{method} along all axes needs {column / 2**20:,.0f} MiB of values at once",
            hint="Reduce fewer axes, select less, use tdigest, or load the values and reduce them in memory",
        )
    sizes, passes = block_shape(
        [shape[axis] for axis in kept_axes], values.chunk_lengths(kept_axes), max(most // max(column, 1), 1)
    )
    if passes > 2:
        warnings.warn(
            f"{method} reads every chunk {passes} times, because chunks are long along the kept "
            "dimensions. Load the data first, or rechunk it",
            stacklevel=2,
        )
    yield from cut_blocks(shape, kept_axes, sizes)


def cut_blocks(shape: Sequence[int], kept_axes: Sequence[int], sizes: Sequence[int]) -> Iterator[Box]:
    """Yield the boxes that have these lengths along some axes, and are whole along the others."""
    lengths = dict(zip(kept_axes, sizes, strict=True))
    return cut_boxes(shape, [lengths.get(axis, max(length, 1)) for axis, length in enumerate(shape)])


def block_shape(lengths: Sequence[int], cells: Sequence[int], allowed: int) -> tuple[list[int], int]:
    """Return the lengths of a block of at most `allowed` elements, and how often each chunk is
    read.

    Parameters
    ----------
    lengths
        Lengths of the kept axes.
    cells
        Lengths of chunks along them.
    allowed
        Largest number of elements of the result in a block.
    """
    sizes = [max(min(cell, length), 1) for cell, length in zip(cells, lengths, strict=True)]
    passes = 1
    for axis in range(len(sizes)):  # too much even for one chunk: cut it, slowest axis first
        others = math.prod(sizes[:axis]) * math.prod(sizes[axis + 1 :])
        if others * sizes[axis] > allowed:
            whole = sizes[axis]
            sizes[axis] = max(allowed // others, 1)
            passes *= -(-whole // sizes[axis])
    every = range(len(sizes))  # else there is room for more, perhaps: as many chunks as fit
    return (extend_lengths(sizes, lengths, every, every, allowed) if passes == 1 else sizes), passes
