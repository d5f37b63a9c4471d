"""Where do the parts of a tile fall in an answer?

Pure. A reduction's answer has the selection's shape with a length of 1 for each reduced axis; seen through a tile it has one axis for
each of the tile. What is asked about a cell is answered axis by axis, in lists made once for a plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.model import Selection
from insitu.reading.scatter import put
from insitu.reading.select_cells import Picker, Touched
from insitu.reading.tile_plan import Position

__all__ = ["Shadow", "answer_shape"]


def answer_shape(selection: Selection, axes: Sequence[int]) -> tuple[int, ...]:
    """Shape of an answer: a length of 1 for each reduced axis."""
    return tuple(1 if axis in axes else length for axis, length in enumerate(selection.result_shape))


class Shadow:
    """What one tile of a plan throws on the answer.

    Parameters
    ----------
    touched
        What is wanted of the tile.
    selection
        The whole of what is reduced.
    axes
        The axes of the selection's shape to reduce, in the order in which positions count.
    """

    __slots__ = (
        "has_unique_places",
        "inside",
        "kept",
        "outside",
        "reduced",
        "row_at",
        "selection",
        "shown",
        "strides",
        "taken",
        "touched",
    )  # fmt: skip

    def __init__(self, touched: Touched, selection: Selection, axes: Sequence[int]) -> None:
        self.touched = touched
        self.selection = selection
        lengths = selection.result_shape
        dimensions = [d for d, selector in enumerate(selection.selectors) if not isinstance(selector, int)]
        self.reduced = tuple(touched.place.index(dimensions[axis]) for axis in axes)
        """The tile's axes that are reduced, in the order given."""
        self.strides = tuple(math.prod(lengths[a] for a in axes[i + 1 :]) for i in range(len(axes)))
        """What a step along each of them adds to a position."""
        self.kept = tuple(axis for axis in range(len(touched.parts)) if axis not in self.reduced)
        self.inside = [part.inside for part in touched.parts]
        self.outside = [part.outside for part in touched.parts]
        self.taken = [
            [_length(picker, stored) for picker, stored in zip(part.inside, part.stored.tolist(), strict=True)]
            for part in touched.parts
        ]
        """How many elements of its chunk each row takes."""
        self.shown = [[_length(picker, 0) for picker in part.outside] for part in touched.parts]
        """How many elements of the selection it stands for: more than it takes where a value repeats."""

        self.has_unique_places = all(len(self.outside[axis]) == 1 for axis in self.reduced)
        """Whether no two rows fall on the same place."""
        self.row_at = {
            axis: {picker.start: row for row, picker in enumerate(self.outside[axis]) if isinstance(picker, slice)}
            for axis in self.kept
        }
        """For each kept axis the row that begins at a place of the selection."""

    def key(self, position: Position) -> Position:
        """Rows with the same key fall on the same place."""
        return tuple([position[axis] for axis in self.kept])

    def key_at(self, place: Position) -> Position:
        """The key of the row whose elements begin at a place of the selection, one number for each axis of the tile."""
        return tuple([self.row_at[axis][place[axis]] for axis in self.kept])

    def begin_at(self, place: Position) -> int:
        """The position of the first element there."""
        return sum([place[axis] * stride for axis, stride in zip(self.reduced, self.strides, strict=True)])

    def times(self, position: Position) -> int:
        """How often each value that a row takes is there."""
        times = 1
        for axis in self.reduced:
            row = position[axis]
            times *= self.shown[axis][row] // self.taken[axis][row]
        return times

    def positions(self, position: Position) -> list[npt.NDArray[np.int64]]:
        """For each reduced axis what the elements that a row takes add to a position in the selection."""
        found = []
        for axis, stride in zip(self.reduced, self.strides, strict=True):
            picker, taken = self.outside[axis][position[axis]], self.taken[axis][position[axis]]
            index = picker if isinstance(picker, np.ndarray) else np.arange(picker.start, picker.stop)
            found.append(index[:taken] * stride)  # of a value that repeats, the first
        return found

    def windows(self, answer: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Arrays of the answer's shape as views with one axis for each of the tile."""
        return {name: self.touched.window(array, self.selection) for name, array in answer.items()}

    def region(self, key: Position) -> tuple[Picker, ...]:
        """Where rows of a key fall in a window."""
        region: list[Picker] = [slice(0, 1)] * len(self.outside)
        for axis, row in zip(self.kept, key, strict=True):
            region[axis] = self.outside[axis][row]
        return tuple(region)


def _length(picker: Picker, stored: int) -> int:
    if isinstance(picker, np.ndarray):
        return len(picker)
    if picker.step is None:
        return int(picker.stop) - int(picker.start)
    return len(range(*picker.indices(stored)))


def look(window: npt.NDArray[Any], region: tuple[Picker, ...]) -> npt.NDArray[Any]:
    """A region of a window: a view where it can be."""
    if sum(isinstance(picker, np.ndarray) for picker in region) <= 1:
        return window[region]
    return window[np.ix_(*(p if isinstance(p, np.ndarray) else np.arange(p.start, p.stop) for p in region))]


__all__ += ["look", "put"]
