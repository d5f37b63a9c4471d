"""Iteration over a `LazyArray` in boxes of bounded size, and reductions by such boxes.

The borders of boxes lie on those of chunks where they can. Steps after reading (`steps`) are
applied to each box, so a reduction of masked or filled values needs no more memory than one of
stored values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.lazy_array.duck_array import LazyArray
from insitu.lazy_array.options import options
from insitu.reducing import Reduction
from insitu.reducing.reductions import ReductionRules

__all__ = ["Box", "iterate_boxes", "reduce_by_boxes"]

Box = tuple[slice, ...]


def iterate_boxes(array: LazyArray, wanted: Sequence[int] | None = None) -> Iterator[Box]:
    """Iterate over an array in boxes of about `options.block_bytes`.

    Parameters
    ----------
    array
        What to go through.
    wanted
        Lengths of which a box should have a multiple: the chunks of a target. If not given, those
        of the array's own chunks.
    """
    if not array.shape:
        yield ()
        return
    own = [cut[0] if cut else 1 for cut in array.chunks]
    size = [max(min(length, n), 1) for length, n in zip(array.shape, own if wanted is None else wanted, strict=True)]
    room = max(options.block_bytes // max(array.dtype.itemsize, array.array.dtype.itemsize, 1), 1)
    # A chunk that is encoded is decoded whole, so less than one is never asked for; of plain bytes
    # any part can be.
    least = [1] * array.ndim if _is_uncompressed(array) else [min(o, s) for o, s in zip(own, size, strict=True)]
    for axis in range(array.ndim):
        others = math.prod(size) // size[axis]
        if others * size[axis] > room:
            size[axis] = max(room // max(others, 1), least[axis], 1)
    # From the last dimension on, as many chunks as fit: what is read together lies together, and is
    # decoded once.
    for axis in reversed(range(array.ndim)):
        size[axis] = min(size[axis] * max(room // max(math.prod(size), 1), 1), max(array.shape[axis], 1))
    steps = [range(0, length, n) for length, n in zip(array.shape, size, strict=True)]
    for corner in itertools.product(*steps):
        yield tuple(slice(c, min(c + s, n)) for c, s, n in zip(corner, size, array.shape, strict=True))


def _is_uncompressed(array: LazyArray) -> bool:
    return all(encoding.raw for tile in array.array.tiles[:16] for encoding in tile.encodings)


def reduce_by_boxes(
    array: LazyArray, methods: Sequence[str], axes: tuple[int, ...], rules: ReductionRules
) -> dict[str, npt.NDArray[Any]]:
    """Return several statistics of an array, steps and all, in one pass.

    Reduced axes have length 1.

    Parameters
    ----------
    array
        What to reduce.
    methods
        Names out of `insitu.reducing.METHODS`.
    axes
        Which to reduce, in the order in which positions count.
    rules
        What counts.
    """
    reduction = Reduction(tuple(methods), array.dtype, rules)
    partial = reduction.nothing([1 if axis in axes else length for axis, length in enumerate(array.shape)])
    strides = [math.prod(array.shape[later] for later in axes[number + 1 :]) for number in range(len(axes))]
    for box in iterate_boxes(array):
        positions = [
            np.arange(box[axis].start, box[axis].stop) * stride for axis, stride in zip(axes, strides, strict=True)
        ]
        found = reduction.step(array[box].read(once=True), axes, positions)
        region = tuple(slice(0, 1) if axis in axes else part for axis, part in enumerate(box))
        before = {name: values[region] for name, values in partial.items()}
        for name, merged in reduction.merge(before, found).items():
            partial[name][region] = merged
    return reduction.finalise(partial, math.prod(array.shape[axis] for axis in axes))
