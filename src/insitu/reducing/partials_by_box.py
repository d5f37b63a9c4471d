"""Partials of the boxes that the values of a portion consist of, for weighted and grouped statistics.

An axis with weights or labels is kept while chunks are reduced, so that each of its elements has
its own partial. Boxes end at chunk borders, and their partials take about `BOX_BYTES` at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from insitu.cancellation import check_deadline
from insitu.expressions.boxes import Box
from insitu.reducing.expression_values import ExpressionValues
from insitu.reducing.partial_fields import Partial
from insitu.reducing.reductions import Reduction
from insitu.reducing.whole_blocks import block_shape, cut_blocks

__all__ = ["BOX_BYTES", "partials_by_box"]

BOX_BYTES = 64 << 20
"""Bytes of partials, or of values, that are held before they are contracted."""


def partials_by_box(
    values: ExpressionValues, inner: tuple[int, ...], reduction: Reduction
) -> Iterator[tuple[Box, Partial]]:
    """Yield partials of the boxes that some values consist of, reduced along the `inner` axes, where
    their box is `slice(0, 1)`.
    """
    kept_axes = [axis for axis in range(values.ndim) if axis not in inner]
    allowed = max(BOX_BYTES // (8 * len(reduction.fields)), 1)
    shape = values.shape
    lengths, cells = [shape[axis] for axis in kept_axes], values.chunk_lengths(kept_axes)
    # Boxes of whole chunks if possible:
    # a chunk that lies in several boxes is decoded for each of them.
    sizes, _ = block_shape(lengths, cells, max(allowed, min(math.prod(cells), 4 * allowed)))
    for box in cut_blocks(shape, kept_axes, sizes):
        check_deadline()
        partial = values.select_box(box).fold_all(inner, reduction)
        yield tuple(slice(0, 1) if axis in inner else part for axis, part in enumerate(box)), partial
