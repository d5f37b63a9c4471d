"""Splitting of a reduction into requests of bounded size, and merging of their partial results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from insitu.model import Selection, VirtualArray
from insitu.model.selection import Stride
from insitu.reducing.partial_fields import Partial
from insitu.reducing.reductions import Reduction

__all__ = ["chunk_borders", "count_requests", "cut_axis", "merge_pieces", "split_for_requests"]

CELLS = 200_000
"""Largest number of chunks in a request: about 1 MB of table."""
DECODED = 16 << 30
"""Decoded bytes of a request: some ten seconds of a server's time."""


def merge_pieces(
    found: Sequence[Partial],
    begins: Sequence[int],
    shapes: Sequence[Sequence[int]],
    whole: Sequence[int],
    along: tuple[int, ...],
    cut: int,
    reduction: Reduction,
) -> Partial:
    """Return the partial of a whole array, from those of its pieces.

    Parameters
    ----------
    found, begins, shapes
        Of each piece its partial, where it begins along the axis that was cut, and its shape.
    whole, along, cut
        The shape of the array, the axes that are reduced, the axis that was cut.
    reduction
        What merges.
    """
    if cut not in along:
        return {name: np.concatenate([partial[name] for partial in found], axis=cut) for name in found[0]}
    total: Partial | None = None
    for begin, shape, partial in zip(begins, shapes, found, strict=True):
        moved = _renumber_positions(partial, shape, whole, along, cut, begin)
        total = moved if total is None else reduction.merge(total, moved)
    assert total is not None
    return total


def cut_axis(array: VirtualArray) -> int:
    """Return the dimension along which an array is split for several requests:
    the one with most chunks.
    """
    counts = [max((tile.axis_of(d).count for tile in array.tiles), default=1) for d in range(array.ndim)]
    return int(np.argmax(counts))


def count_requests(arrays: Sequence[VirtualArray]) -> int:
    """Return into how many requests a reduction of some arrays is split."""
    cells = sum(math.prod(tile.chunks.shape) for array in arrays for tile in array.tiles)
    return max(-(-cells // CELLS), -(-sum(array.nbytes for array in arrays) // DECODED), 1)


def split_for_requests(array: VirtualArray) -> list[tuple[int, VirtualArray]]:
    """Split an array into parts for one request each,
    with the start of each along the split dimension.
    """
    many = count_requests([array])
    if many == 1 or not array.ndim:
        return [(0, array)]
    cut = cut_axis(array)
    borders = chunk_borders(array, cut, many)
    pieces = []
    for begin, end in pairwise(borders):
        selectors = [Stride(0, 1, length) for length in array.shape]
        selectors[cut] = Stride(begin, 1, end - begin)
        pieces.append((begin, array[Selection(array.shape, tuple(selectors))]))
    return pieces


def chunk_borders(array: VirtualArray, cut: int, many: int) -> list[int]:
    """Return the borders of about so many equal parts, each at the border of a chunk."""
    length = array.shape[cut]
    ends = np.unique(
        np.concatenate(
            [
                tile.axis_of(cut).begin(np.arange(tile.axis_of(cut).count)) + origin
                for tile, origin in zip(array.tiles, array.origins[:, cut].tolist(), strict=True)
            ]
            or [np.zeros(1, np.int64)]
        )
    )
    wanted = [length * i // many for i in range(1, many)]
    nearest = [int(ends[min(int(np.searchsorted(ends, border)), len(ends) - 1)]) for border in wanted]
    return sorted({0, *(border for border in nearest if 0 < border < length), length})


def _renumber_positions(
    partial: Partial, inside: Sequence[int], whole: Sequence[int], along: tuple[int, ...], cut: int, begin: int
) -> Partial:
    """Return a partial with positions of extremes in the whole array instead of in a part of it."""
    moved = dict(partial)
    for name in ("argmin", "argmax"):
        if name in partial:
            lengths = [inside[axis] for axis in along]
            size = math.prod(lengths)
            index = list(np.unravel_index(np.minimum(partial[name], size - 1), lengths))
            index[along.index(cut)] = index[along.index(cut)] + begin
            place = np.ravel_multi_index(tuple(index), [whole[axis] for axis in along])
            moved[name] = np.where(partial[name] < size, place, partial[name])  # larger positions: no value was there
    return moved
