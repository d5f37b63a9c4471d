"""Reductions of a `LazyArray` by boxes of bounded size.

Steps after reading (`steps`) are
applied to each box, so a reduction of masked or filled values needs no more memory than one of
stored values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.lazy_array.boxes import Box, BoxMemory
from insitu.lazy_array.deferred_values import DeferredValues
from insitu.lazy_array.evaluate import box_reader, evaluate_boxes, read_all
from insitu.lazy_array.options import options
from insitu.lazy_array.structural_moves import SelectEach
from insitu.reducing import Reduction
from insitu.reducing.partial_fields import Partial
from insitu.reducing.reductions import ReductionRules
from insitu.reducing.whole_blocks import reduce_whole_boxes

__all__ = ["NEEDS_ALL_VALUES", "ExpressionValues", "fold_boxes", "reduce_by_boxes"]

NEEDS_ALL_VALUES = ("median", "quantile")
"""Taken by blocks of the answer: every value that an answer depends on has to be there at once."""
REDUCED_BYTES = 16 << 20
"""Bytes of a box: several are in memory at a time."""


def reduce_by_boxes(
    array: DeferredValues,
    methods: Sequence[str],
    axes: tuple[int, ...],
    rules: ReductionRules,
    memory: BoxMemory | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Return several statistics of an array, steps and all, in one pass.

    Reduced axes have length 1.

    Parameters
    ----------
    array
        What to reduce.
    methods
        Names out of `insitu.reducing.METHODS`, `median` or `quantile`.
    axes
        Which to reduce, in the order in which positions count.
    rules
        What counts.
    memory
        What may be held at a time.
    """
    memory = memory or BoxMemory(min(REDUCED_BYTES, options.block_bytes))
    read = box_reader(array, memory)
    found = {
        method: reduce_whole_boxes(array, array.chunk_sizes, axes, method, rules, read, memory.block)
        for method in methods
        if method in NEEDS_ALL_VALUES
    }
    rest = tuple(method for method in methods if method not in found)
    if not rest:
        return found
    reduction = Reduction(rest, array.dtype, rules)
    partial = fold_boxes(array, axes, reduction, memory)
    return {**found, **reduction.finalise(partial, math.prod(array.shape[axis] for axis in axes))}


def fold_boxes(array: DeferredValues, axes: tuple[int, ...], reduction: Reduction, memory: BoxMemory) -> Partial:
    """Return the partial of an array, steps and all, with length 1 along each reduced axis."""
    partial = reduction.nothing([1 if axis in axes else length for axis, length in enumerate(array.shape)])
    strides = [math.prod(array.shape[later] for later in axes[number + 1 :]) for number in range(len(axes))]

    def reduce_box(box: Box, values: npt.NDArray[Any]) -> Partial:
        positions = [
            np.arange(box[axis].start, box[axis].stop) * stride for axis, stride in zip(axes, strides, strict=True)
        ]
        return reduction.step(values, axes, positions)

    for box, found in evaluate_boxes(array, memory, reduce_box):
        region = tuple(slice(0, 1) if axis in axes else part for axis, part in enumerate(box))
        before = {name: values[region] for name, values in partial.items()}
        for name, merged in reduction.merge(before, found).items():
            partial[name][region] = merged
    return dict(partial)


@dataclass(frozen=True, slots=True)
class ExpressionValues:
    """The values of an expression, folded box by box: a `Foldable` for weights and groups."""

    array: DeferredValues
    memory: BoxMemory

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return self.array.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.array.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.array.dtype

    def chunk_lengths(self, axes: Sequence[int]) -> list[int]:
        """Return the length of most chunks along each of some axes."""
        sizes = self.array.chunk_sizes
        return [sizes[axis] for axis in axes]

    def fold_box(self, box: Box, axes: tuple[int, ...], reduction: Reduction) -> Partial:
        """Return the partial of a box, with length 1 along each reduced axis."""
        return fold_boxes(SelectEach(self.shape, box).whole(self.array), axes, reduction, self.memory)

    def read_box(self, box: Box, room: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values of a box."""
        return read_all([SelectEach(self.shape, box).whole(self.array)], once=True)[0]
