"""What of the pinned parts of an archive still holds after a change of its files.

A pinned part shows what chunks of files held when it was pinned. After an append, a drop or a refresh the same chunks
may lie at other places of the array, which its labels tell, or other chunks may lie there. So the cells below each
pinned part are compared before and after: where they are the same, the part stays; the rest is read from the files.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import InsituWarning
from insitu.model import ABSENT, INLINE, UNWRITTEN, Tile, VirtualArray, VirtualGroup
from insitu.model.description import count_text
from insitu.model.group import nest_groups
from insitu.model.overlay import Bounds
from insitu.scanning.scan_member import make_loader

__all__ = ["APPEND_FILES", "carry_pinned", "nest_pinned", "open_for_update"]

APPEND_FILES = "Add the files that the store was made of, or unpin the variable there first: insitu unpin"

Load = Callable[[list[VirtualArray]], list[Any]]
CELLS_AT_ONCE = 1 << 17
"""Cells of a table that are compared at once."""


def open_for_update(target: str, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Return a saved archive to be changed: see `insitu.references.open_for_update`. What is pinned stays where it
    still holds; an archive with native chunks of other stores is refused.
    """
    from insitu import references  # imports Arrow
    from insitu.maintenance.adopt_chunks import refuse_pinned_elsewhere

    def carry(before: VirtualGroup, after: VirtualGroup, pinned: VirtualGroup) -> VirtualGroup:
        refuse_pinned_elsewhere(after, APPEND_FILES, target)
        return carry_pinned(before, after, pinned, load)

    opened = references.open_for_update(target, storage_options=storage_options)
    load = make_loader(storage_options)
    opened.carry_pinned = carry
    return opened


def carry_pinned(before: VirtualGroup, after: VirtualGroup, pinned: VirtualGroup, load: Load) -> VirtualGroup:
    """Return the pinned parts that hold for a changed tree, at their new places; a warning names those that do not.

    Parameters
    ----------
    before, after
        The tree as the files hold it.
    pinned
        Arrays of the shapes of `before`, with gaps.
    load
        Reads labels.
    """
    found = {}
    there = dict(after.all_arrays())
    for path, parts in pinned.all_arrays():
        old, new = before.array(path), there.get(path)
        moved = None
        if new is not None and (new.dims, new.dtype) == (old.dims, old.dtype):
            moved = _carry_array(old, new, parts, _position_maps(before, after, path, old, new, load))
            found[path] = moved
        lost = _size(parts) - (0 if moved is None else _size(moved))
        if lost:
            warnings.warn(
                f"{path}: {lost:,} of {count_text(_size(parts), 'pinned value')} are no longer pinned: their files or "
                "the variable changed. They are read from the files; pin them again if you need them here",
                InsituWarning,
                stacklevel=2,
            )
    return nest_pinned(found)


def nest_pinned(arrays: Mapping[str, VirtualArray]) -> VirtualGroup:
    """Return the tree of pinned arrays; those without tiles are left out."""
    groups: dict[str, dict[str, VirtualArray]] = {"": {}}
    for path, array in arrays.items():
        if not array.tiles:
            continue
        group, _, name = path.rpartition("/")
        parts = group.split("/") if group else []
        for end in range(1, len(parts) + 1):
            groups.setdefault("/".join(parts[:end]), {})
        groups[group][name] = array
    return nest_groups({path: VirtualGroup(own) for path, own in groups.items()})


def _size(array: VirtualArray) -> int:
    return sum(math.prod(map(int, tile.shape)) for tile in array.tiles)


def _position_maps(
    before: VirtualGroup, after: VirtualGroup, path: str, old: VirtualArray, new: VirtualArray, load: Load
) -> list[npt.NDArray[np.int64]]:
    """Return for each dimension the new position of every old one; -1: it is gone.

    Without labels positions stay. A wrong guess is noticed where cells are compared.
    """
    maps = []
    for dimension, dim in enumerate(old.dims):
        one, other = (
            _labels(tree, path, dim, array.shape[dimension], load) for tree, array in ((before, old), (after, new))
        )
        if one is None or other is None:
            places = np.arange(old.shape[dimension])
            maps.append(np.where(places < new.shape[dimension], places, -1))
            continue
        known: dict[Any, int] = {}
        for number, label in enumerate(other):
            known.setdefault(label, number)
        maps.append(np.array([known.get(label, -1) for label in one], np.int64).reshape(len(one)))
    return maps


def _labels(tree: VirtualGroup, path: str, dim: str, length: int, load: Load) -> list[Any] | None:
    """Return the labels of a dimension, from the group of a variable or one above it; None: it has none."""
    groups = dict(tree.walk())
    group = path.rpartition("/")[0]
    while True:
        array = groups[group].arrays.get(dim) if group in groups else None
        if array is not None and array.dims == (dim,) and array.shape == (length,):
            found: list[Any] = np.asarray(load([array])[0]).tolist()
            return found
        if not group:
            return None
        group = group.rpartition("/")[0]


def _carry_array(
    old: VirtualArray, new: VirtualArray, parts: VirtualArray, maps: Sequence[npt.NDArray[np.int64]]
) -> VirtualArray:
    """Return the pinned parts of an array that hold for a new one."""
    tiles: list[Tile] = []
    origins: list[list[int]] = []
    for tile, origin in zip(parts.tiles, parts.origins.tolist(), strict=True):
        runs = [
            list(_runs(positions[at : at + length], at))
            for positions, at, length in zip(maps, origin, tile.shape, strict=True)
        ]
        for combination in itertools.product(*runs):
            box = [(begin, end) for begin, end, _ in combination]
            shift = [at - begin for begin, _, at in combination]
            for kept in _same_boxes(old, new, box, shift):
                piece = parts[tuple(slice(*span) for span in kept)]
                corner = [begin + by for (begin, _), by in zip(kept, shift, strict=True)]
                tiles += piece.tiles
                origins += (piece.origins + np.array(corner, np.int64)).tolist()
    table = np.array(origins, np.int64).reshape(len(tiles), new.ndim)
    return VirtualArray(new.shape, new.dtype, new.dims, tuple(tiles), table, fill_value=new.fill_value)


def _runs(positions: npt.NDArray[np.int64], first: int) -> Iterator[tuple[int, int, int]]:
    """Yield runs of neighbours that stay neighbours: begin, end and new begin."""
    if not len(positions):
        return
    # -1 and 0 are no neighbours.
    breaks = np.flatnonzero((np.diff(positions) != 1) | (positions[:-1] < 0)) + 1
    for begin, end in itertools.pairwise([0, *breaks.tolist(), len(positions)]):
        if positions[begin] >= 0:
            yield first + begin, first + end, int(positions[begin])


def _same_boxes(old: VirtualArray, new: VirtualArray, box: Bounds, shift: Sequence[int]) -> list[Bounds]:
    """Return the parts of a box below which both arrays have the same cells, as few as possible."""
    one = old[tuple(slice(begin, end) for begin, end in box)]
    other = new[tuple(slice(begin + by, end + by) for (begin, end), by in zip(box, shift, strict=True))]
    cells = sum(math.prod(tile.chunks.shape) for tile in one.tiles)
    longest = max(range(len(box)), key=lambda d: box[d][1] - box[d][0], default=None)
    if cells > CELLS_AT_ONCE and longest is not None and box[longest][1] - box[longest][0] > 1:
        begin, end = box[longest]
        middle = (begin + end) // 2
        halves = [[*box[:longest], span, *box[longest + 1 :]] for span in ((begin, middle), (middle, end))]
        same = [_same_boxes(old, new, half, shift) for half in halves]
        return [box] if same == [[halves[0]], [halves[1]]] else [*same[0], *same[1]]
    numbering = _Numbering()
    left, right = numbering.describe(one), numbering.describe(other)
    if left.shape == right.shape and np.array_equal(left, right):
        return [box]
    changed = _rows_without_equal(left, right)
    if not len(changed) or not box:
        return []
    # Cut across the dimension along which the least is lost: that along which files follow each other.
    choices = []
    for dimension, (begin, end) in enumerate(box):
        is_same = np.ones(end - begin, bool)
        for at, extent in changed[:, [dimension, len(box) + dimension]].tolist():
            is_same[at : at + extent] = False
        choices.append((int(is_same.sum()) / len(is_same), dimension, is_same))
    _, dimension, is_same = max(choices, key=lambda choice: choice[0])
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_same, [False]]).astype(np.int8))).reshape(-1, 2)
    begin = box[dimension][0]
    return [[*box[:dimension], (begin + low, begin + high), *box[dimension + 1 :]] for low, high in edges.tolist()]


def _rows_without_equal(left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the rows of one table that are not in the other, and those of the other that are not in the first."""
    if left.shape[1] != right.shape[1]:
        return left
    rows, count = np.unique(np.concatenate([left, right]), axis=0, return_counts=True)
    found: npt.NDArray[np.int64] = rows[count != 2]
    return found


class _Numbering:
    """Describes the cells of arrays as rows of numbers: equal rows are the same bytes, decoded alike."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def describe(self, array: VirtualArray) -> npt.NDArray[np.int64]:
        """Return a row for each cell, ordered by place: where it begins, how far it reaches, and what it shows."""
        width = max((len(tile.axes) for tile in array.tiles), default=0)
        tables = [self._tile(tile, origin, width) for tile, origin in zip(array.tiles, array.origins, strict=True)]
        columns = 2 * array.ndim + 3 * width + 7
        whole = np.concatenate(tables) if tables else np.zeros((0, columns), np.int64)
        return whole[np.lexsort(whole.T[::-1])]

    def _tile(self, tile: Tile, origin: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
        shape = tile.chunks.shape
        count = math.prod(shape)
        cells = list(np.unravel_index(np.arange(count), shape)) if shape else []
        rows = tile.chunks.locate(cells)
        shown = [axis.show(index) for axis, index in zip(tile.axes, cells, strict=True)]
        dims = tile.dimensions
        columns: list[Any] = [origin[d] + tile.axes[axis].begin(cells[axis]) for d, axis in enumerate(dims)]
        columns += [shown[axis].extent for axis in dims]
        order = [*dims, *(axis for axis in range(len(tile.axes)) if axis not in dims)]
        for axis in order:
            columns += [shown[axis].skip, shown[axis].step, shown[axis].stored]
        columns += [np.zeros(count, np.int64)] * (3 * (width - len(order)))
        source = np.asarray(rows.source, np.int64)
        encodings = np.array([self._number((encoding, tuple(order))) for encoding in tile.encodings])
        packings = np.array([self._number(tile.packings[row].key) for row in range(len(tile.packings))])
        has_bytes = (source >= 0) | (source == INLINE)
        lies_in_file = source >= 0
        # What no file covers, and what was never written, is described by its state.
        places = np.zeros(count, np.int64)
        for number in np.unique(source).tolist():
            here = source == number
            if number in (ABSENT, UNWRITTEN):
                places[here] = self._number(("state", number))
            elif number != INLINE:
                places[here] = self._number(tile.chunks.sources[number])
        for row in np.flatnonzero(source == INLINE).tolist():
            at = int(rows.offset[row])
            places[row] = self._number(rows.inline[at : at + int(rows.length[row])])
        covered = source != ABSENT
        columns += [
            places,
            np.where(lies_in_file, rows.offset, 0),
            np.where(lies_in_file, rows.length, 0),
            np.where(has_bytes, rows.filter_mask, 0),
            np.where(covered, encodings[np.asarray(rows.encoding)], 0),
            np.where(covered, packings[np.asarray(rows.packing)], 0),
            np.full(count, len(order)),
        ]
        table = np.stack([np.broadcast_to(np.asarray(column, np.int64), (count,)) for column in columns], axis=1)
        extents = table[:, len(dims) : 2 * len(dims)]
        kept: npt.NDArray[np.int64] = table[(extents > 0).all(axis=1)]
        return kept

    def _number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))
