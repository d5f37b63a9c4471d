"""Cutting of a large reduction into portions: boxes of some hundred MB, along files and chunks.

A portion is one task of a cluster, and streams within. Where portions end depends on the array and
on what is reduced, never on who computes: so the result is the same to the bit on one thread and on
a thousand workers. Pure computation, no I/O.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from insitu.expressions.boxes import Box, extend_lengths
from insitu.reducing.expression_values import ExpressionValues

__all__ = [
    "MOST_PORTIONS",
    "PORTION_BYTES",
    "PORTION_CHUNKS",
    "STATE_BYTES",
    "Region",
    "cut_at_borders",
    "cut_portions",
    "is_one_portion",
]

PORTION_BYTES = 256 << 20
"""Bytes of values of a portion: a second of work, beside which a task of a cluster costs nothing."""
PORTION_CHUNKS = 200_000
"""Chunks of a portion, about: a server gets a table of them, of 1 MB."""
STATE_BYTES = 64 << 20
"""Bytes of the partial of a portion, about: it is sent between workers."""
MOST_PORTIONS = 10_000
"""Portions of an archive, at most: those of a larger one have more bytes."""


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the result, and the boxes of values that it is computed from."""

    place: Box
    """Where it lies in a result that keeps reduced axes with length 1."""
    boxes: tuple[Box, ...]
    """In the order in which their partials are merged."""


def is_one_portion(values: ExpressionValues) -> bool:
    """Return whether some values are reduced as a whole."""
    size = math.prod(values.shape)
    # Chunks are counted only where there may be so many: a table may be long.
    return size * values.itemsize <= PORTION_BYTES and (
        size <= PORTION_CHUNKS or values.count_chunks() <= PORTION_CHUNKS
    )


def cut_portions(
    values: ExpressionValues, axes: Sequence[int], state_bytes: int, longest: tuple[int, int] | None = None
) -> list[Region]:
    """Return the regions of the result of a reduction, each with its portions.

    Parameters
    ----------
    values
        What is reduced.
    axes
        Axes that are reduced.
    state_bytes
        Bytes of a partial for each element of the result.
    longest
        An axis, and how many of its elements a portion may have, unless one chunk has more: of a
        grouped axis, whose groups are in the partial.
    """
    shape = values.shape
    if is_one_portion(values):
        sizes = list(shape)
    else:
        sizes = _portion_sizes(values, axes, state_bytes, longest)
    borders = [
        cut_at_borders(values.chunk_borders(axis), size) if size < length else [0, length]
        for axis, (size, length) in enumerate(zip(sizes, shape, strict=True))
    ]
    parts = [[slice(begin, end) for begin, end in itertools.pairwise(cuts)] for cuts in borders]
    kept_axes = [[slice(0, 1)] if axis in axes else own for axis, own in enumerate(parts)]
    return [
        Region(
            place,
            tuple(itertools.product(*(parts[axis] if axis in axes else [place[axis]] for axis in range(len(shape))))),
        )
        for place in itertools.product(*kept_axes)
    ]


def _portion_sizes(
    values: ExpressionValues, axes: Sequence[int], state_bytes: int, longest: tuple[int, int] | None
) -> list[int]:
    """Return the lengths of a portion: whole chunks, the fastest axes first, as files hold them."""
    shape, itemsize = values.shape, max(values.itemsize, 1)
    cells = [
        max(min(cell, length), 1) for cell, length in zip(values.chunk_lengths(range(len(shape))), shape, strict=True)
    ]
    room = max(PORTION_BYTES, math.prod(shape) * itemsize // MOST_PORTIONS) // itemsize
    room = min(room, PORTION_CHUNKS * math.prod(cells))
    every = range(len(shape))
    sizes = extend_lengths(cells, shape, every, every, room)
    kept_axes = [axis for axis in every if axis not in axes]
    most = max(STATE_BYTES // max(state_bytes, 1), 1)
    if math.prod(sizes[axis] for axis in kept_axes) > most:
        # A large map: a part of it, but for longer, or the partials would be larger than the values.
        sizes = extend_lengths(
            extend_lengths(cells, shape, kept_axes, kept_axes, most), shape, sorted(axes), every, room
        )
    if longest is not None:
        axis, many = longest
        sizes[axis] = min(sizes[axis], max(many // cells[axis], 1) * cells[axis])
    return sizes


def cut_at_borders(borders: npt.NDArray[np.int64], size: int) -> list[int]:
    """Return borders of parts of at most a length, at borders of chunks; a longer chunk is a part."""
    cuts = [0]
    while cuts[-1] < borders[-1]:
        last = int(np.searchsorted(borders, cuts[-1] + size, side="right")) - 1
        if borders[last] <= cuts[-1]:
            last += 1
        cuts.append(int(borders[last]))
    return cuts
