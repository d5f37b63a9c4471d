"""Where the parts of a tile belong in the result of a reduction.

Pure computation, no I/O. The result has the selection's shape with length 1 for each reduced axis;
seen through a tile, it has one axis for each axis of the tile. All tables are made once for a plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.model import Selection
from insitu.reading.select_cells import ListedSelection, Picker, TileSelection
from insitu.reading.tile_plan import Position

__all__ = ["TileProjection", "get_region"]


class TileProjection:
    """Projection of one tile of a plan onto the result.

    Parameters
    ----------
    touched
        The selected cells of the tile.
    selection
        The whole selection.
    axes
        Axes of the selection's shape to reduce, in the order in which they count for positions.
    """

    __slots__ = (
        "has_unique_places",
        "inside",
        "is_listed",
        "kept_axes",
        "outside",
        "reduced",
        "selection",
        "shown",
        "strides",
        "taken",
        "touched",
    )  # fmt: skip

    def __init__(self, touched: TileSelection, selection: Selection, axes: Sequence[int]) -> None:
        self.touched = touched
        self.selection = selection
        lengths = selection.result_shape
        dimensions = [d for d, selector in enumerate(selection.selectors) if not isinstance(selector, int)]
        self.reduced = tuple(touched.place.index(dimensions[axis]) for axis in axes)
        """Axes of the tile that are reduced, in the order given."""
        self.strides = tuple(math.prod(lengths[a] for a in axes[i + 1 :]) for i in range(len(axes)))
        """What a step along each reduced axis adds to a position."""
        self.kept_axes = tuple(axis for axis in range(len(touched.parts)) if axis not in self.reduced)
        self.inside = [part.inside for part in touched.parts]
        self.outside = [part.outside for part in touched.parts]
        self.taken = [part.count_elements().tolist() for part in touched.parts]
        """For each axis and cell, how many elements of its chunk it takes."""
        self.shown = [part.count_places().tolist() for part in touched.parts]
        """For each axis and cell, how many elements of the selection it fills:
        more than it takes if values repeat.
        """

        self.is_listed = isinstance(touched, ListedSelection)
        """Whether its cells are listed one by one: then each has a key of its own, also where their
        places in the result overlap.
        """
        self.has_unique_places = not self.is_listed and all(len(self.outside[axis]) == 1 for axis in self.reduced)
        """Whether every cell has its own place in the result."""

    def key(self, position: Position) -> Position:
        """Return the place of a cell in the result; cells with the same key are merged."""
        return tuple([position[axis] for axis in self.kept_axes])

    def corners(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return where boxes at these places of the selection begin in the result: a row for each,
        one number per axis of the tile.
        """
        corners = places.copy()
        corners[:, list(self.reduced)] = 0
        return corners

    def begins(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the flat positions, along the reduced axes, of the first elements at these places."""
        return places[:, list(self.reduced)] @ np.array(self.strides, np.int64)

    def times(self, position: Position) -> int:
        """Return how often each value that a cell takes occurs in the selection."""
        times = 1
        for axis in self.reduced:
            row = position[axis]
            times *= self.shown[axis][row] // self.taken[axis][row]
        return times

    def positions(self, position: Position) -> list[npt.NDArray[np.int64]]:
        """Return, for each reduced axis,
        what the elements of a cell add to a position in the selection.
        """
        found = []
        for axis, stride in zip(self.reduced, self.strides, strict=True):
            picker, taken = self.outside[axis][position[axis]], self.taken[axis][position[axis]]
            index = picker if isinstance(picker, np.ndarray) else np.arange(picker.start, picker.stop)
            found.append(index[:taken] * stride)  # of repeated values, the first
        return found

    def windows(self, answer: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Return views of arrays of the result's shape, with one axis for each axis of the tile."""
        return {name: self.touched.window(array, self.selection) for name, array in answer.items()}

    def region(self, key: Position) -> tuple[Picker, ...]:
        """Return the region of a window that belongs to a key."""
        region: list[Picker] = [slice(0, 1)] * len(self.outside)
        for axis, row in zip(self.kept_axes, key, strict=True):
            region[axis] = self.outside[axis][row]
        return tuple(region)


def get_region(window: npt.NDArray[Any], region: tuple[Picker, ...]) -> npt.NDArray[Any]:
    """Return a region of a window, as a view if possible."""
    if sum(isinstance(picker, np.ndarray) for picker in region) <= 1:
        return window[region]
    return window[np.ix_(*(p if isinstance(p, np.ndarray) else np.arange(p.start, p.stop) for p in region))]
