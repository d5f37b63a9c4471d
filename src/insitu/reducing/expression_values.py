"""The values of an expression as what is reduced: to partials, or read, as a whole or in pieces.

A stored array is the simplest expression: its chunks are reduced as they are decoded (`insitu.reducing.stream`). What
is computed is reduced box by box, in bounded memory. Which values are added together depends on the expression alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.expressions.boxes import Box, BoxMemory
from insitu.expressions.chunk_grid import chunk_borders, chunk_sizes, longest_chunks, read_itemsize, tile_borders
from insitu.expressions.evaluate import evaluate_boxes, read_all
from insitu.expressions.formula_text import formula
from insitu.expressions.moves import SelectEach
from insitu.expressions.nodes import Expression, Stored, stored_arrays, without_moves
from insitu.model import Selection, VirtualArray
from insitu.model.gaps import fill_gaps_with_absent
from insitu.model.selection import Stride
from insitu.reading import ReadContext, read_array
from insitu.reading.request_cost import has_remote_sources
from insitu.reducing.partial_fields import Partial, merge_into
from insitu.reducing.reductions import Reduction
from insitu.reducing.stream import fold_chunks

__all__ = ["REDUCED_BYTES", "ExpressionValues", "reduction_memory"]

REDUCED_BYTES = 16 << 20
"""Bytes of a box: several are in memory at a time. No option changes it: sums are grouped by boxes, and their last bits
must not depend on one.
"""

TABLE_CHUNKS = 16
"""A table counts as so many chunks at least: what else is said about its tile is as long."""


def reduction_memory() -> BoxMemory:
    """Return what a reduction in boxes may hold at a time."""
    return BoxMemory(REDUCED_BYTES)


@dataclass(frozen=True, slots=True)
class ExpressionValues:
    """The values of an expression."""

    expression: Expression
    memory: BoxMemory = field(default_factory=reduction_memory)
    """What may be held at a time."""
    engine: Any = None
    """What runs large reductions: see `insitu.engines`; None: this process."""
    known: npt.NDArray[Any] | None = None
    """The values, if they were kept from an earlier use: then nothing is read, and the results are the same to the last
    bit.
    """
    opened: ReadContext | None = None
    """How a stored array is read: its open sources, and counters."""
    array: VirtualArray | None = field(init=False)
    """The stored array that the expression is; None if something is computed."""

    def __post_init__(self) -> None:
        node = without_moves(self.expression)
        object.__setattr__(self, "array", fill_gaps_with_absent(node.array) if isinstance(node, Stored) else None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return self.expression.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.expression.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.expression.dtype

    @property
    def itemsize(self) -> int:
        """Bytes of an element, stored or computed: what is larger."""
        return read_itemsize(self.expression)

    @property
    def is_remote(self) -> bool:
        """Whether a request to the storage of an array takes long."""
        return any(has_remote_sources(stored.array.sources) for stored in stored_arrays(self.expression))

    @property
    def name(self) -> str:
        """What they are called in messages and in the names of tasks: the variable, or the formula."""
        return formula(self.expression) if self.array is None else self.expression.context.name or "values"

    def chunk_lengths(self, axes: Sequence[int]) -> list[int]:
        """Return the length of the longest chunk along each of some axes; of a formula, of most chunks."""
        if self.array is not None:
            return longest_chunks(self.array, axes)
        sizes = chunk_sizes(self.expression)
        return [sizes[axis] for axis in axes]

    def chunk_borders(self, axis: int) -> npt.NDArray[np.int64]:
        """Return where chunks begin along an axis, and its end, in ascending order; of a formula, those of the array
        with the longest.
        """
        return chunk_borders(self.expression, axis) if self.array is None else tile_borders(self.array, axis)

    def count_chunks(self) -> int:
        """Return how many chunks there are, as far as a table of them has to list them."""
        tables = (tile.chunks for stored in stored_arrays(self.expression) for tile in stored.array.tiles)
        return sum(max(math.prod(table.shape), TABLE_CHUNKS) for table in tables)

    def select(self, piece: Selection) -> ExpressionValues:
        """Return a piece of the values."""
        if piece.is_whole:
            return self
        keys = tuple(key.as_slice if isinstance(key, Stride) else key for key in piece.selectors)
        move = SelectEach(self.shape, keys)
        known = None if self.known is None else move.of_values(self.known)
        return ExpressionValues(move.apply(self.expression), self.memory, self.engine, known, self.opened)

    def select_box(self, box: Box) -> ExpressionValues:
        """Return the values of a box."""
        return self.select(Selection.of(box, self.shape))

    def for_workers(self) -> ExpressionValues:
        """Return the same values without what cannot leave this process: open sources, counters."""
        return replace(self, engine=None, opened=None)

    def fold_all(self, axes: tuple[int, ...], reduction: Reduction) -> Partial:
        """Return the partial of all values, with length 1 along each reduced axis."""
        if self.array is None:
            return self._fold_boxes(axes, reduction)
        with self._how_to_read().open_sources() as opened:
            return fold_chunks(self.array, axes, reduction, opened, self.known)

    def read(self, room: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Return all values, in `room` or elsewhere."""
        if self.known is not None:
            return self.known
        if self.array is None:
            return read_all([self.expression], once=True)[0]
        return read_array(self.array, ..., self._how_to_read(), out=room)

    def _how_to_read(self) -> ReadContext:
        if self.opened is not None:
            return self.opened
        how = self.expression.context
        return ReadContext(how.name, how.storage_options)

    def _fold_boxes(self, axes: tuple[int, ...], reduction: Reduction) -> Partial:
        partial = reduction.empty_partial(self.shape, axes)
        strides = [math.prod(self.shape[later] for later in axes[number + 1 :]) for number in range(len(axes))]

        def reduce_box(box: Box, values: npt.NDArray[Any]) -> Partial:
            positions = [
                np.arange(box[axis].start, box[axis].stop) * stride for axis, stride in zip(axes, strides, strict=True)
            ]
            # In C order: sums depend on the order in memory.
            return reduction.step(np.require(values, reduction.dtype, ("C", "A")), axes, positions)

        for box, found in evaluate_boxes(self.expression, self.memory, reduce_box, self.known):
            region = tuple(slice(0, 1) if axis in axes else part for axis, part in enumerate(box))
            merge_into(partial, region, found, reduction.merge)
        return partial
