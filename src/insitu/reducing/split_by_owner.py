"""Splitting of an array, or of an expression of arrays, into parts whose bytes have one owner each.

The files of an archive are spread over servers along a dimension, nearly always: then each server gets
one part, all that it has, however the files alternate. A part that cannot be split that way, because
arrays of different servers are combined in it, has several owners; `most_bytes` chooses one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.model import Selection, Source, VirtualArray, byte_ranges
from insitu.model.selection import Selector, Stride

__all__ = ["OwnedArray", "most_bytes", "split_by_owner"]

Numbers = npt.NDArray[np.int64]
MAX_OWNERS = 62
"""Owners are the bits of a number."""


@dataclass(frozen=True, slots=True)
class OwnedArray:
    """A stored array, and who has the bytes of each of its sources."""

    array: VirtualArray
    owner: Callable[[Source], int]
    """Returns the number of an owner, below `MAX_OWNERS`."""

    def select(self, selectors: Sequence[Selector]) -> OwnedArray:
        """Return what is selected, along the dimensions that are as long as the selectors expect."""
        if len(selectors) != self.array.ndim:
            return self
        return OwnedArray(self.array[Selection(self.array.shape, tuple(selectors))], self.owner)

    def grids(self) -> list[Numbers]:
        """Return for each tile a grid that has of each cell 1 << its owner; 0 without stored bytes."""
        return [self._grid(number) for number in range(len(self.array.tiles))]

    def _grid(self, number: int) -> Numbers:
        table = self.array.tiles[number].chunks
        located = table.locate(np.ix_(*(np.arange(count) for count in table.shape)))
        source = np.asarray(located.source).reshape(table.shape)
        used, at = np.unique(source, return_inverse=True)
        masks = [0 if n < 0 else 1 << self.owner(table.sources[n]) for n in used.tolist()]
        return np.array(masks, np.int64)[at.reshape(table.shape)]


def split_by_owner(shape: Sequence[int], arrays: Sequence[OwnedArray]) -> list[tuple[Selection, int]]:
    """Return parts of what some arrays make together, each with its owners, as bits of a number.

    Parameters
    ----------
    shape
        Of what they make.
    arrays
        The arrays. Dimensions in which one has another length, or all if it has another number of
        them, are not split for its sake.
    """
    return _split(Selection.of(..., shape), arrays)


def most_bytes(arrays: Sequence[OwnedArray]) -> int:
    """Return the owner of most of the stored bytes of some arrays."""
    total = np.zeros(MAX_OWNERS)
    for owned in arrays:
        cells = sum(math.prod(tile.chunks.shape) for tile in owned.array.tiles)
        usual = owned.array.nbytes / max(cells, 1)  # of whole objects, whose sizes are unknown without a request
        sources: dict[Source, int] = {}
        owners: list[int] = []
        for source, _, length in byte_ranges(owned.array, sources):
            owners += map(owned.owner, islice(sources, len(owners), None))
            np.add.at(total, np.array(owners, np.int64)[source], np.where(length < 0, usual, length))
    return int(np.argmax(total))


@dataclass(frozen=True, slots=True)
class _Profile:
    """Who has what along one dimension."""

    borders: Numbers
    """Of the intervals in which that does not change."""
    masks: Numbers
    """For each interval the owners of all its cells."""
    patterns: npt.NDArray[np.uint64]
    """For each interval a number that is the same only where the same cells have the same owners."""

    def refine(self, borders: Numbers) -> _Profile:
        """Return the same with more borders."""
        at = np.searchsorted(self.borders, borders[:-1], side="right") - 1
        return _Profile(borders, self.masks[at], self.patterns[at])

    def groups(self) -> list[tuple[Selector, int]]:
        """Return the positions of each group of intervals that have one owner, or the same several,
        and the owners.
        """
        is_single = (self.masks & (self.masks - 1)) == 0
        labels = np.where(is_single, self.masks.astype(np.uint64), self.patterns | np.uint64(1 << 63))
        known = self.masks != 0
        if not known.all():  # what nobody has goes along with its neighbour
            at = np.maximum.accumulate(np.where(known, np.arange(len(known)), -1))
            labels = labels[np.where(at < 0, int(np.argmax(known)), at)]
        found = []
        kinds, first = np.unique(labels, return_index=True)
        for label in kinds[np.argsort(first)].tolist():
            here = labels == np.uint64(label)
            found.append((self._positions(here), int(np.bitwise_or.reduce(self.masks[here]))))
        return found

    def _positions(self, here: npt.NDArray[np.bool_]) -> Selector:
        intervals = np.flatnonzero(here)
        if len(intervals) == intervals[-1] - intervals[0] + 1:
            begin, end = int(self.borders[intervals[0]]), int(self.borders[intervals[-1] + 1])
            return Stride(begin, 1, end - begin)
        return np.concatenate([np.arange(self.borders[i], self.borders[i + 1]) for i in intervals.tolist()])


def _split(part: Selection, arrays: Sequence[OwnedArray]) -> list[tuple[Selection, int]]:
    """Split a part, which the arrays were selected for."""
    shape, grids = part.result_shape, [owned.grids() for owned in arrays]
    owners = int(np.bitwise_or.reduce([int(np.bitwise_or.reduce(g, axis=None)) for each in grids for g in each] or [0]))
    if not owners & (owners - 1):
        return [(part, owners)]
    candidates = []
    for dimension, length in enumerate(shape):
        profiles = [
            _profile(owned.array, each, dimension, number)
            for number, (owned, each) in enumerate(zip(arrays, grids, strict=True))
            if owned.array.ndim == len(shape) and owned.array.shape[dimension] == length
        ]
        groups = _join(profiles).groups() if profiles else []
        if len(groups) > 1:
            is_mixed = any(mask & (mask - 1) for _, mask in groups)
            candidates.append((is_mixed, len(groups), dimension, groups))
    if not candidates:
        return [(part, owners)]
    # Parts of one owner are done; what is left mixed is split again. Few groups are few portions and few requests.
    _, _, dimension, groups = min(candidates, key=lambda candidate: candidate[:3])
    found = []
    for positions, mask in groups:
        smaller = _compose(part, dimension, positions)
        if not mask & (mask - 1):
            found.append((smaller, mask))
            continue
        keys = [positions if d == dimension else Stride(0, 1, length) for d, length in enumerate(shape)]
        chosen = [
            owned.select([key if n == owned.array.shape[d] else Stride(0, 1, owned.array.shape[d])
                          for d, (key, n) in enumerate(zip(keys, shape, strict=True))])
            if owned.array.ndim == len(shape) else owned
            for owned in arrays
        ]  # fmt: skip
        found += _split(smaller, chosen)
    return found


def _compose(part: Selection, dimension: int, positions: Selector) -> Selection:
    """Return the part of a part that has only some positions along a dimension."""
    before = part.selectors[dimension]
    assert not isinstance(before, int)
    assert not isinstance(positions, int)
    if isinstance(before, np.ndarray):
        chosen: Any = before[slice(positions.start, positions.start + positions.length)
                             if isinstance(positions, Stride) else positions]  # fmt: skip
    elif isinstance(positions, Stride):
        chosen = Stride(before.start + positions.start, 1, positions.length)
    else:
        chosen = before.start + positions
    selectors = (*part.selectors[:dimension], chosen, *part.selectors[dimension + 1 :])
    return Selection(part.shape, selectors)


def _profile(array: VirtualArray, grids: Sequence[Numbers], dimension: int, number: int) -> _Profile:
    """Return the profile of one array along a dimension; patterns of different arrays have different numbers."""
    ends = [_cell_borders(array, tile, dimension) for tile in range(len(array.tiles))]
    borders = np.unique(np.concatenate([np.array([0, array.shape[dimension]], np.int64), *ends]))
    masks, patterns = np.zeros(len(borders) - 1, np.int64), np.zeros(len(borders) - 1, np.uint64)
    for tile, (cells, grid) in enumerate(zip(ends, grids, strict=True)):
        at = np.searchsorted(borders, cells)
        rows = np.moveaxis(grid, array.tiles[tile].dimensions[dimension], 0).reshape(len(cells) - 1, -1)
        kinds, which = np.unique(rows, axis=0, return_inverse=True)
        others = tuple(np.delete(array.origins[tile], dimension).tolist())
        # Added up over the tiles beside each other, in any order: the same sum (of 64 bits) means the same cells of the
        # same owners. To compare the cells themselves would take a table of all files for each interval.
        names = [hash((number, others, int(row[0]) if (row == row[0]).all() else row.tobytes())) for row in kinds]
        times, here = np.diff(at), slice(int(at[0]), int(at[-1]))
        masks[here] |= np.repeat(np.bitwise_or.reduce(rows, axis=1), times)
        patterns[here] += np.repeat(np.array(names, np.int64).astype(np.uint64)[which.reshape(-1)], times)
    return _Profile(borders, masks, patterns)


def _cell_borders(array: VirtualArray, tile: int, dimension: int) -> Numbers:
    axis, origin = array.tiles[tile].axis_of(dimension), int(array.origins[tile, dimension])
    begins = np.asarray(axis.begin(np.arange(axis.count)), np.int64)
    return np.append(begins, axis.length) + origin


def _join(profiles: Sequence[_Profile]) -> _Profile:
    """Return the profile of several arrays together."""
    borders = np.unique(np.concatenate([profile.borders for profile in profiles]))
    fine = [profile.refine(borders) for profile in profiles]
    masks = np.bitwise_or.reduce([profile.masks for profile in fine])
    return _Profile(borders, masks, np.sum([profile.patterns for profile in fine], axis=0, dtype=np.uint64))
