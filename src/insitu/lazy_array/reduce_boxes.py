"""Reductions of a `LazyArray` by boxes of bounded size.

Steps after reading (`steps`) are
applied to each box, so a reduction of masked or filled values needs no more memory than one of
stored values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.engines.choose import settings
from insitu.lazy_array.boxes import Box, BoxMemory
from insitu.lazy_array.deferred_values import DeferredValues
from insitu.lazy_array.evaluate import box_reader, evaluate_boxes, read_all
from insitu.lazy_array.formula_text import formula, stored_arrays
from insitu.lazy_array.structural_moves import SelectEach
from insitu.reading.request_cost import is_far
from insitu.reducing import Reduction
from insitu.reducing.fold_portions import fold_values
from insitu.reducing.foldable_values import tile_borders
from insitu.reducing.partial_fields import Partial
from insitu.reducing.reductions import ReductionRules
from insitu.reducing.whole_blocks import reduce_whole_boxes

__all__ = [
    "NEEDS_ALL_VALUES",
    "ExpressionValues",
    "engine_of",
    "fold_boxes",
    "reduce_by_boxes",
    "reduction_memory",
]

NEEDS_ALL_VALUES = ("median", "quantile")
"""Taken by blocks of the answer: every value that an answer depends on has to be there at once."""
REDUCED_BYTES = 16 << 20
"""Bytes of a box: several are in memory at a time. No option changes it: sums are grouped by boxes, and their last bits
must not depend on one.
"""


def reduction_memory() -> BoxMemory:
    """Return what a reduction in boxes may hold at a time."""
    return BoxMemory(REDUCED_BYTES)


def reduce_by_boxes(
    array: DeferredValues,
    methods: Sequence[str],
    axes: tuple[int, ...],
    rules: ReductionRules,
    memory: BoxMemory | None = None,
    engine: Any = None,
    known: npt.NDArray[Any] | None = None,
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
    engine
        What runs the portions of a large reduction; None: this process.
    known
        The values, if they were kept from an earlier use: then nothing is read, and the results are the same to the
        last bit.
    """
    memory = memory or reduction_memory()
    read = box_reader(array, memory, known)
    found = {
        method: reduce_whole_boxes(array, array.chunk_sizes, axes, method, rules, read, memory.block)
        for method in methods
        if method in NEEDS_ALL_VALUES
    }
    rest = tuple(method for method in methods if method not in found)
    if not rest:
        return found
    reduction = Reduction(rest, array.dtype, rules)
    partial = fold_values(ExpressionValues(array, memory, engine, known), axes, reduction)
    return {**found, **reduction.finalise(partial, math.prod(array.shape[axis] for axis in axes))}


def engine_of(array: DeferredValues) -> Any:
    """Return what runs large reductions of an expression; None: this process, which alone has sources in memory."""
    return None if any(stored.access.engine is None for stored in stored_arrays(array)) else settings.engine


def fold_boxes(
    array: DeferredValues,
    axes: tuple[int, ...],
    reduction: Reduction,
    memory: BoxMemory,
    known: npt.NDArray[Any] | None = None,
) -> Partial:
    """Return the partial of an array, steps and all, with length 1 along each reduced axis."""
    partial = reduction.nothing([1 if axis in axes else length for axis, length in enumerate(array.shape)])
    strides = [math.prod(array.shape[later] for later in axes[number + 1 :]) for number in range(len(axes))]

    def reduce_box(box: Box, values: npt.NDArray[Any]) -> Partial:
        positions = [
            np.arange(box[axis].start, box[axis].stop) * stride for axis, stride in zip(axes, strides, strict=True)
        ]
        # In C order: sums depend on the order in memory.
        return reduction.step(np.require(values, reduction.dtype, ("C", "A")), axes, positions)

    for box, found in evaluate_boxes(array, memory, reduce_box, known):
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
    engine: Any = None
    """What runs large reductions; None: this process."""
    known: npt.NDArray[Any] | None = None
    """The values, if they were kept from an earlier use."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element, stored or computed: what is larger."""
        return self.array.read_itemsize

    @property
    def is_far(self) -> bool:
        """Whether a request to the storage of an array takes long."""
        return any(is_far(stored.array.sources) for stored in stored_arrays(self.array))

    @property
    def name(self) -> str:
        """The expression."""
        return formula(self.array)

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

    def chunk_borders(self, axis: int) -> npt.NDArray[np.int64]:
        """Return where chunks begin along an axis, and its end: those of the array with the longest."""
        size = self.array.chunk_sizes[axis]
        arrays = [array for array in stored_arrays(self.array) if array.shape == self.shape]
        for array in arrays:
            if DeferredValues(array.array).chunk_sizes[axis] >= size:
                return tile_borders(array.array, axis)
        return np.append(np.arange(0, self.shape[axis], size), self.shape[axis])

    def for_workers(self) -> ExpressionValues:
        """Return the same values: an expression travels as it is."""
        return replace(self, engine=None)

    def fold_box(self, box: Box, axes: tuple[int, ...], reduction: Reduction) -> Partial:
        """Return the partial of a box, with length 1 along each reduced axis."""
        whole = all(part == slice(0, length) for part, length in zip(box, self.shape, strict=True))
        array = self.array if whole else SelectEach(self.shape, box).whole(self.array)
        return fold_boxes(array, axes, reduction, self.memory, None if self.known is None else self.known[box])

    def read_box(self, box: Box, room: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values of a box."""
        return read_all([SelectEach(self.shape, box).whole(self.array)], once=True)[0]
