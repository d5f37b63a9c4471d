"""Partials of the boxes that a portion of values consists of, for weighted and grouped statistics.

An axis with weights or labels is kept while chunks are reduced, so that each of its elements has
its own partial. Boxes end at chunk borders, and their partials take about `BOX_BYTES` at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from insitu.cancellation import check_deadline
from insitu.reducing.foldable_values import Box, Foldable
from insitu.reducing.partial_fields import Partial
from insitu.reducing.reductions import Reduction
from insitu.reducing.whole_blocks import block_shape, box_slices

__all__ = ["BOX_BYTES", "partials_by_box", "shift_box"]

BOX_BYTES = 64 << 20
"""Bytes of partials, or of values, that are held before they are contracted."""


def partials_by_box(
    values: Foldable, inner: tuple[int, ...], reduction: Reduction, within: Box
) -> Iterator[tuple[Box, Partial]]:
    """Yield partials of the boxes that a portion of some values consists of, reduced along the
    `inner` axes, where their box is `slice(0, 1)`.
    """
    kept = [axis for axis in range(values.ndim) if axis not in inner]
    allowed = max(BOX_BYTES // (8 * len(reduction.fields)), 1)
    shape = [part.stop - part.start for part in within]
    lengths, cells = [shape[axis] for axis in kept], values.chunk_lengths(kept)
    # Boxes of whole chunks if possible:
    # a chunk that lies in several boxes is decoded for each of them.
    sizes, _ = block_shape(lengths, cells, max(allowed, min(math.prod(cells), 4 * allowed)))
    steps = dict(zip(kept, sizes, strict=True))
    counts = [-(-shape[axis] // steps[axis]) if axis in steps else 1 for axis in range(values.ndim)]
    for cell in np.ndindex(*counts):
        check_deadline()
        key = shift_box(box_slices(cell, steps, shape), within)
        partial = values.fold_box(key, inner, reduction)
        yield tuple(part if axis in steps else slice(0, 1) for axis, part in enumerate(key)), partial


def shift_box(inside: Box, within: Box) -> Box:
    """Return a box of a portion as a box of the whole array."""
    return tuple(
        slice(part.start + whole.start, part.stop + whole.start) for part, whole in zip(inside, within, strict=True)
    )
