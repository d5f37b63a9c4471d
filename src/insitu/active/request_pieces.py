"""Cutting of a reduction into pieces of bounded size, and merging of their partial results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.model import Selection, VirtualArray
from insitu.model.selection import Selector, Stride
from insitu.reducing.partial_fields import Partial

__all__ = ["MergedPartial", "count_requests", "cut_pieces", "slice_axis"]

CELLS = 200_000
"""Largest number of chunks in a request: about 1 MB of table."""
TILE_CELLS = 16
"""A tile counts as so many chunks at least: its description has some 80 items, and servers accept two million."""
DECODED = 16 << 30
"""Decoded bytes of a request: some ten seconds of a server's time."""


class MergedPartial:
    """The partial of a whole array, to which those of its pieces are added in their order.

    Parameters
    ----------
    shape, along
        Of the array, and its axes that are reduced.
    nothing
        The partial of no data, of the shape of the result.
    merge
        Returns the partial of two partials together.
    """

    def __init__(
        self,
        shape: Sequence[int],
        along: Sequence[int],
        nothing: Partial,
        merge: Callable[[Partial, Partial], Partial],
    ) -> None:
        self.shape, self.along, self.merge = tuple(shape), tuple(along), merge
        self.partial = nothing
        self._touched = np.zeros(next(iter(nothing.values())).shape, bool)
        """Places of the result that have a value: what comes first is taken as it is."""

    def add(self, piece: Selection, place: Selection, partial: Partial) -> None:
        """Merge the partial of a piece.

        Parameters
        ----------
        piece
            What it is the partial of: its positions of extremes count from the start of that.
        place
            Where it lies in the partial of the whole, along the axes that are not reduced.
        partial
            The partial.
        """
        kept: list[Any] = [slice(0, 1) if axis in self.along else key for axis, key in enumerate(place.selectors)]
        partial, where = self._renumber_positions(piece, partial), _open_mesh(kept)
        if self._touched[where].any():
            partial = self.merge({name: values[where] for name, values in self.partial.items()}, partial)
        for name, values in partial.items():
            self.partial[name][where] = values
        self._touched[where] = True

    def _renumber_positions(self, piece: Selection, partial: Partial) -> Partial:
        """Return a partial with positions of extremes in the whole array instead of in a piece of it."""
        moved = dict(partial)
        for name in ("argmin", "argmax"):
            if name in partial:
                positions = [_positions(piece.selectors[axis]) for axis in self.along]
                lengths = [len(along) for along in positions]
                size = math.prod(lengths)
                index = np.unravel_index(np.minimum(partial[name], size - 1), lengths)
                there = tuple(along[i] for along, i in zip(positions, index, strict=True))
                place = np.ravel_multi_index(there, [self.shape[axis] for axis in self.along])
                moved[name] = np.where(partial[name] < size, place, partial[name])  # larger: no value was there
        return moved


def _open_mesh(keys: Sequence[Any]) -> tuple[Any, ...]:
    """Return keys that index each axis of an array on its own."""
    if not any(isinstance(key, np.ndarray) for key in keys):
        return tuple(slice(key.start, key.start + key.length) if isinstance(key, Stride) else key for key in keys)
    return np.ix_(*(np.zeros(1, np.int64) if isinstance(key, slice) else _positions(key) for key in keys))


def _positions(selector: Selector) -> npt.NDArray[np.int64]:
    """Return the positions along an axis that a piece has; pieces keep all axes."""
    assert not isinstance(selector, int)
    return selector if isinstance(selector, np.ndarray) else np.arange(selector.start, selector.start + selector.length)


def count_requests(arrays: Sequence[VirtualArray], cells: int | None = None, decoded: int | None = None) -> int:
    """Return into how many requests a reduction of some arrays is split.

    Parameters
    ----------
    arrays
        What is read for it.
    cells, decoded
        Chunks and decoded bytes of a request at most; by default `CELLS` and `DECODED`.
    """
    many = sum(max(math.prod(tile.chunks.shape), TILE_CELLS) for array in arrays for tile in array.tiles)
    nbytes = sum(array.nbytes for array in arrays)
    return max(
        -(-many // (CELLS if cells is None else cells)), -(-nbytes // (DECODED if decoded is None else decoded)), 1
    )


def cut_pieces(array: VirtualArray, part: Selection, many: int) -> list[Selection]:
    """Return about so many pieces of a part of an array, which end where its chunks end.

    Parameters
    ----------
    array
        The part as an array: its chunks say where to cut, along the dimension that has most.
    part
        Which part of a larger array it is; all pieces are selections of that.
    many
        How many.
    """
    if many == 1 or not array.ndim:
        return [part]
    cut = _cut_axis(array)
    return [slice_axis(part, cut, begin, end) for begin, end in pairwise(_chunk_borders(array, cut, many))]


def _cut_axis(array: VirtualArray) -> int:
    """Return the dimension along which an array is cut into pieces: the one with most chunks."""
    counts = [max((tile.axis_of(d).count for tile in array.tiles), default=1) for d in range(array.ndim)]
    return int(np.argmax(counts))


def slice_axis(selection: Selection, number: int, begin: int, end: int) -> Selection:
    """Return a part of a selection: some of what it selects along one axis of its shape."""
    chosen = selection.selectors[number]
    if isinstance(chosen, Stride):
        part: Any = Stride(chosen.start + chosen.step * begin, chosen.step, end - begin)
    else:
        assert isinstance(chosen, np.ndarray)
        part = chosen[begin:end]
    return Selection(selection.shape, (*selection.selectors[:number], part, *selection.selectors[number + 1 :]))


def _chunk_borders(array: VirtualArray, cut: int, many: int) -> list[int]:
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
