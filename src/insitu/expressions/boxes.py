"""Iteration over an array in boxes of bounded size, whose borders lie on those of chunks where they can."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from insitu.expressions.chunk_grid import chunk_sizes, find_main, read_itemsize, uniform_chunks
from insitu.expressions.nodes import Expression, Stored, is_stored, iterate_nodes
from insitu.expressions.window_reach import MOST_BYTES, find_reach, fit_windows

__all__ = [
    "CHUNK_BYTES",
    "MOST_ROOMS",
    "Box",
    "BoxMemory",
    "cut_boxes",
    "extend_lengths",
    "is_uncompressed",
    "iterate_boxes",
]

Box = tuple[slice, ...]
MOST_ROOMS = 4
"""A box of whole chunks of an expression has at most so many times the bytes that were asked for."""

CHUNK_BYTES = 256 << 20
"""Decoded chunks that are kept from one box to the next."""


@dataclass(frozen=True, slots=True)
class BoxMemory:
    """Bytes that an evaluation in boxes may hold."""

    box: int
    """Values of a box, about; a box of whole chunks may be `MOST_ROOMS` times as large."""
    chunks: int = CHUNK_BYTES
    """Decoded chunks that are kept from one box to the next, where the chunks of the operands do not
    end together.
    """
    block: int | None = None
    """Values that a median needs at a time; None: the usual."""
    cuts_chunks: bool = False
    """Whether also a single chunk that is larger is cut; it is then decoded several times, unless it
    is kept.
    """
    part: int | None = None
    """Bytes of values that are evaluated at a time, about: a box of more than `MOST_ROOMS` times as
    many is put together of parts. None: every box is evaluated whole.
    """
    at_once: int | None = None
    """How many boxes may be in memory at a time; None: one for each thread."""


def iterate_boxes(
    array: Expression, memory: BoxMemory, wanted: Sequence[int] | None = None, starts: Sequence[int] | None = None
) -> Iterator[Box]:
    """Iterate over an expression in boxes of bounded size.

    Parameters
    ----------
    array
        What to go through.
    memory
        What may be held at a time.
    wanted
        Lengths of which a box should have a multiple: the chunks of a target. If not given, those
        of the array's own chunks.
    starts
        Where in the target the array begins, along each dimension; None: at the border of a chunk.
    """
    if not array.shape:
        yield ()
        return
    own = [cut[0] if cut else 1 for cut in uniform_chunks(array)]
    size = [max(min(length, n), 1) for length, n in zip(array.shape, own if wanted is None else wanted, strict=True)]
    itemsize = read_itemsize(array)
    room = max(memory.box // itemsize, 1)
    # A chunk that is encoded is decoded whole, so less than one is never asked for; of plain bytes
    # any part can be.
    least = [1] * array.ndim if is_uncompressed(array) else [min(o, s) for o, s in zip(own, size, strict=True)]
    most = max(MOST_ROOMS * room, 0 if memory.cuts_chunks else _largest_chunk(array))
    if not is_stored(array) and math.prod(least) > most:
        # Of operands whose chunks are long along different dimensions, a box of whole chunks might be
        # the whole array. Chunks that lie in several boxes are kept from one to the next.
        least = [1] * array.ndim
    for axis in range(array.ndim):
        others = math.prod(size) // size[axis]
        if others * size[axis] > room:
            size[axis] = max(room // max(others, 1), least[axis], 1)
    # As many chunks as fit: what is read together lies together, and is decoded once.
    size = extend_lengths(size, array.shape, range(array.ndim), range(array.ndim), room)
    if reach := find_reach(array):
        most = max(MOST_BYTES // itemsize, room)
        size = fit_windows(size, reach, array.shape, least, max(room // 4, 1), most)
    yield from cut_boxes(array.shape, size, starts)


def extend_lengths(
    sizes: Sequence[int], shape: Sequence[int], along: Sequence[int], counted: Sequence[int], room: int
) -> list[int]:
    """Return lengths extended along some axes, the last first, to multiples that have at most `room`
    elements along the counted axes, if one does.
    """
    longer = list(sizes)
    for axis in reversed(along):
        more = room // max(math.prod(longer[other] for other in counted), 1)
        longer[axis] = min(longer[axis] * max(more, 1), max(shape[axis], 1))
    return longer


def cut_boxes(shape: Sequence[int], size: Sequence[int], starts: Sequence[int] | None = None) -> Iterator[Box]:
    """Yield the boxes of a size that a shape is cut into, in C order.

    Parameters
    ----------
    shape, size
        Of the whole, and of a box; those at the ends may be smaller.
    starts
        Where it begins along each axis in what the borders of the boxes are counted in; None: at a border.
    """
    skips = [0] * len(shape) if starts is None else [start % n for start, n in zip(starts, size, strict=True)]
    steps = [range(-skip, length, n) for skip, length, n in zip(skips, shape, size, strict=True)]
    for corner in itertools.product(*steps):
        yield tuple(slice(max(c, 0), min(c + s, n)) for c, s, n in zip(corner, size, shape, strict=True))


def _largest_chunk(array: Expression) -> int:
    """Return the elements of the largest chunk of all arrays of an expression, about."""
    return max(
        (
            math.prod(min(size, n) for size, n in zip(chunk_sizes(part), part.shape, strict=True))
            for part in iterate_nodes([array])
            if isinstance(part, Stored)
        ),
        default=0,
    )


def is_uncompressed(array: Expression) -> bool:
    """Return whether the chunks of the largest array of an expression can be read in parts."""
    main = find_main(array)
    return main is None or all(encoding.raw for tile in main.array.tiles[:16] for encoding in tile.encodings)
