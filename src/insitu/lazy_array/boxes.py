"""Iteration over an array in boxes of bounded size, whose borders lie on those of chunks where they can."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from insitu.lazy_array.deferred_values import DeferredValues
from insitu.lazy_array.options import options
from insitu.lazy_array.window_reach import MOST_BYTES, find_reach, fit_windows
from insitu.lazy_array.windows import each_part

__all__ = ["CHUNK_BYTES", "MOST_ROOMS", "Box", "BoxMemory", "is_uncompressed", "iterate_boxes"]

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


def iterate_boxes(
    array: DeferredValues,
    wanted: Sequence[int] | None = None,
    memory: BoxMemory | None = None,
    starts: Sequence[int] | None = None,
) -> Iterator[Box]:
    """Iterate over an array in boxes of bounded size.

    Parameters
    ----------
    array
        What to go through.
    wanted
        Lengths of which a box should have a multiple: the chunks of a target. If not given, those
        of the array's own chunks.
    memory
        What may be held at a time; by default boxes of `options.block_bytes`.
    starts
        Where in the target the array begins, along each dimension; None: at the border of a chunk.
    """
    memory = memory or BoxMemory(options.block_bytes)
    if not array.shape:
        yield ()
        return
    own = [cut[0] if cut else 1 for cut in array.uniform_chunks]
    size = [max(min(length, n), 1) for length, n in zip(array.shape, own if wanted is None else wanted, strict=True)]
    room = max(memory.box // array.read_itemsize, 1)
    # A chunk that is encoded is decoded whole, so less than one is never asked for; of plain bytes
    # any part can be.
    least = [1] * array.ndim if is_uncompressed(array) else [min(o, s) for o, s in zip(own, size, strict=True)]
    most = max(MOST_ROOMS * room, 0 if memory.cuts_chunks else _largest_chunk(array))
    if array.steps and math.prod(least) > most:
        # Of operands whose chunks are long along different dimensions, a box of whole chunks might be
        # the whole array. Chunks that lie in several boxes are kept from one to the next.
        least = [1] * array.ndim
    for axis in range(array.ndim):
        others = math.prod(size) // size[axis]
        if others * size[axis] > room:
            size[axis] = max(room // max(others, 1), least[axis], 1)
    # From the last dimension on, as many chunks as fit: what is read together lies together, and is
    # decoded once.
    for axis in reversed(range(array.ndim)):
        size[axis] = min(size[axis] * max(room // max(math.prod(size), 1), 1), max(array.shape[axis], 1))
    if reach := find_reach(array):
        most = max(MOST_BYTES // array.read_itemsize, room)
        size = fit_windows(size, reach, array.shape, least, max(room // 4, 1), most)
    skips = [0] * array.ndim if starts is None else [start % n for start, n in zip(starts, size, strict=True)]
    steps = [range(-skip, length, n) for skip, length, n in zip(skips, array.shape, size, strict=True)]
    for corner in itertools.product(*steps):
        yield tuple(slice(max(c, 0), min(c + s, n)) for c, s, n in zip(corner, size, array.shape, strict=True))


def _largest_chunk(array: DeferredValues) -> int:
    """Return the elements of the largest chunk of all arrays of an expression, about."""
    return max(
        math.prod(min(size, n) for size, n in zip(DeferredValues(part.array).chunk_sizes, part.shape, strict=True))
        for part in each_part(array)
    )


def is_uncompressed(array: DeferredValues) -> bool:
    """Return whether the chunks of an array can be read in parts."""
    return all(encoding.raw for tile in array.array.tiles[:16] for encoding in tile.encodings)
