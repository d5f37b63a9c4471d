"""Statistics that need all values of an element at once: medians, quantiles, anything of text or
objects.

They are computed in blocks of the result. A block reads all values of its elements, at most
`BLOCK_BYTES`. Its borders are those of chunks if possible, so that a chunk is read once. If chunks
are so long along the kept axes that each would be read more than twice, a warning says how often.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline
from insitu.errors import ModelError, UnsupportedError
from insitu.model import VirtualArray
from insitu.reducing.reductions import ReductionRules
from insitu.reducing.statistics import STATISTICS, Statistic

__all__ = [
    "HasShape",
    "block_shape",
    "box_slices",
    "longest_chunks",
    "reduce_whole_boxes",
]

BLOCK_BYTES = 256 << 20
"""Bytes of values that a block reads; sorting them takes about as much again."""

Function = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
Box = tuple[slice, ...]


class HasShape(Protocol):
    """What is reduced, as far as its values need not be known."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""

    @property
    def ndim(self) -> int:
        """Number of axes."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""


def reduce_whole_boxes(
    array: HasShape,
    chunks: Sequence[int],
    axes: tuple[int, ...],
    method: str,
    rules: ReductionRules,
    read: Callable[[Box], npt.NDArray[Any]],
    block_bytes: int | None = None,
) -> npt.NDArray[Any]:
    """Return a statistic; reduced axes have length 1, several quantiles give a first axis.

    Parameters
    ----------
    array
        What is reduced: its shape and type.
    chunks
        Length of a chunk along each axis.
    axes
        Axes to reduce.
    method
        A name of `STATISTICS`.
    rules
        Options of the statistic.
    read
        Returns the values of a box.
    block_bytes
        Bytes of values that are held at a time; None: `BLOCK_BYTES`.
    """
    function = _block_function(array, axes, method, rules)
    lengths = [1 if axis in axes else length for axis, length in enumerate(array.shape)]
    out: npt.NDArray[Any] | None = None
    most = BLOCK_BYTES if block_bytes is None else block_bytes
    for box in _split_into_boxes(array, chunks, axes, method, most):
        check_deadline()
        answer = function(read(box))
        extra = answer.ndim - array.ndim  # the first axis of several quantiles
        if out is None:
            out = np.empty((*answer.shape[:extra], *lengths), answer.dtype)
        where = tuple(slice(0, 1) if axis in axes else part for axis, part in enumerate(box))
        out[(slice(None),) * extra + where] = answer
    assert out is not None
    return out


def _block_function(array: HasShape, axes: tuple[int, ...], method: str, rules: ReductionRules) -> Function:
    skips = array.dtype.kind in "fcO" if rules.skipna is None else rules.skipna
    statistic = STATISTICS[method]
    statistic.check_options(rules)
    compute = statistic.compute
    if compute is not None and array.dtype.kind in statistic.kinds:
        return _without_warnings(lambda values: compute(values, axes, rules, skips))
    if statistic.is_plain and statistic.xarray is not None and (compute is not None or array.dtype.kind in "OSUVmM"):
        return _xarray_function(array, axes, statistic, rules)
    raise UnsupportedError(f"cannot compute {method} of {array.dtype} values")


def _xarray_function(array: HasShape, axes: tuple[int, ...], statistic: Statistic, rules: ReductionRules) -> Function:
    """Return the statistic as xarray computes it: for text, objects and times."""
    try:
        import xarray
    except ImportError as problem:
        raise UnsupportedError(
            f"{statistic.name} of {array.dtype} values needs the package xarray", hint="pip install xarray"
        ) from problem
    wanted = {name: getattr(rules, name) for name in statistic.options}
    kept_axes = [axis for axis in range(array.ndim) if axis not in axes]

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


def _split_into_boxes(
    array: HasShape, chunks: Sequence[int], axes: tuple[int, ...], method: str, most: int
) -> Iterator[Box]:
    """Split the array into boxes that are whole along the reduced axes."""
    kept_axes = [axis for axis in range(array.ndim) if axis not in axes]
    column = math.prod(array.shape[axis] for axis in axes) * array.dtype.itemsize
    if column > most and not kept_axes:
        raise UnsupportedError(
            f"{method} along all axes needs {column / 2**20:,.0f} MiB of values at once",
            hint="Reduce fewer axes, select less, use tdigest, or load the values and reduce them in memory",
        )
    sizes, passes = block_shape(
        [array.shape[axis] for axis in kept_axes], [chunks[axis] for axis in kept_axes], max(most // max(column, 1), 1)
    )
    if passes > 2:
        warnings.warn(
            f"{method} reads every chunk {passes} times, because chunks are long along the kept "
            "dimensions. Load the data first, or rechunk it",
            stacklevel=2,
        )
    steps = dict(zip(kept_axes, sizes, strict=True))
    counts = [-(-array.shape[axis] // steps[axis]) if axis in steps else 1 for axis in range(array.ndim)]
    for cell in np.ndindex(*(max(count, 1) for count in counts)):
        yield box_slices(cell, steps, array.shape)


def box_slices(cell: Sequence[int], steps: Mapping[int, int], shape: Sequence[int]) -> Box:
    """Return the slices of one box: along an axis with a step, its part of that length; along
    others, all.
    """
    return tuple(
        slice(i * steps[axis], min((i + 1) * steps[axis], length)) if axis in steps else slice(0, length)
        for axis, (i, length) in enumerate(zip(cell, shape, strict=True))
    )


def longest_chunks(array: VirtualArray, kept_axes: Sequence[int]) -> list[int]:
    """Return the length of the longest chunk along each of some axes."""
    cells = []
    for axis in kept_axes:
        longest = 1
        for tile in array.tiles:
            cut = tile.axis_of(axis)
            if cut.count:
                longest = max(longest, int(cut.show(np.arange(cut.count)).extent.max()))
        cells.append(longest)
    return cells


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
    for axis in reversed(range(len(sizes))):  # room for more: as many chunks as fit, fastest axis first
        if passes == 1 and sizes[axis]:
            more = allowed // math.prod(sizes)
            sizes[axis] = min(sizes[axis] * max(more, 1), max(lengths[axis], 1))
    return sizes, passes
