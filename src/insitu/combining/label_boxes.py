"""Files as boxes of labels: which file gives each cell of a grid of labels, and in which order they are joined.

A file has some labels along one or several dimensions: a box. Boxes may overlap, may lie between the
labels of another one, and may leave cells empty. `place_boxes` gives each cell of the grid to the box
that counts for most (`LabelBoxes`), and `plan_join` says how files are joined to it: along the first
dimension all files of a row are put one behind the other as they are, then the elements that count
are taken, in order, and -1 where no file has one (Absent). Rows of equal make are joined along the
next dimension in the same way. A file is cut only where a row needs a part of it along another
dimension. Nothing is read, and nothing is done for each label in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.combining.align import pandas_index
from insitu.combining.expected_labels import format_label
from insitu.errors import CombineError

__all__ = ["Cut", "LabelBoxes", "Row", "iter_rows", "ordered_labels", "place_boxes", "plan_join"]

Labels = npt.NDArray[Any]
Places = npt.NDArray[np.int64]
"""Positions of labels in the grid, or of elements in a file."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A file, or a part of it."""

    number: int
    steps: Mapping[str, Places] = field(default_factory=dict)
    """Dimension: the elements that are taken along it; all along the others."""


@dataclass(frozen=True, slots=True)
class Row:
    """Files, or rows, that are joined along one dimension."""

    dim: str
    parts: tuple[Cut | Row, ...]
    labels: Labels
    """Along the dimension, of the result."""
    order: Places | None = None
    """Which elements of all parts, one behind the other, the result has; -1: none. None: all, as they are."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelBoxes:
    """Boxes in a grid of labels."""

    dims: tuple[str, ...]
    labels: tuple[Labels, ...]
    """Of the grid, along each dimension."""
    numbers: tuple[int, ...]
    """The file of each box."""
    places: tuple[tuple[Places, ...], ...]
    """For each dimension and box: where its labels are in those of the grid."""
    owner: npt.NDArray[np.int32]
    """For each cell the box that gives it; -1: none."""
    covered: int
    """Cells of all boxes: more than the grid has if boxes overlap."""
    as_listed: bool = False
    """Of one dimension: whether steps stay in the order of the files, instead of that of their labels."""
    is_alone: bool = False
    """Whether it is one file, which stays as it is, and not several of which one may give everything."""
    names: frozenset[str] | None = None
    """The data variables that are placed, where others of these files are in boxes of their own; None: all."""

    @property
    def has_overlaps(self) -> bool:
        """Whether several boxes have a cell."""
        return self.covered > int((self.owner >= 0).sum())

    def count_given(self) -> npt.NDArray[np.int64]:
        """Return how many cells each box gives."""
        return np.bincount(self.owner[self.owner >= 0], minlength=len(self.numbers))

    def first_giver(self) -> int:
        """Return the box that gives the first cell, from which comes what is not joined.

        That is the first one in the order in which boxes are joined; with `as_listed` the first of the
        list that gives any.
        """
        if self.as_listed:
            return int(self.owner[self.owner >= 0].min(initial=0))
        cells = self.owner.transpose()  # the last dimension is joined last
        given = cells[cells >= 0]
        return int(given[0]) if len(given) else 0

    def sizes(self) -> npt.NDArray[np.int64]:
        """Return how many cells each box has."""
        lengths = [np.array([len(own) for own in places], np.int64) for places in self.places]
        return np.asarray(np.prod(lengths, axis=0), np.int64)

    def holes(self) -> npt.NDArray[np.bool_]:
        """Return a mask of the cells that no box has, though boxes have all their labels."""
        empty = self.owner < 0
        for axis in range(empty.ndim):
            others = tuple(other for other in range(empty.ndim) if other != axis)
            missing = empty.all(axis=others, keepdims=True) if others else empty
            empty = empty & ~missing
        return empty

    def missing(self, axis: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the labels along a dimension that no box has."""
        has = np.zeros(len(self.labels[axis]), bool)
        for own in self.places[axis]:
            has[own] = True
        return ~has

    def first_overlap(self) -> tuple[int, int, tuple[int, ...]]:
        """Return two boxes that have a cell in common, the later one first, and the cell."""
        seen = np.full(self.owner.shape, -1, np.int32)
        for box in range(len(self.numbers)):
            cells = np.ix_(*(places[box] for places in self.places))
            taken = np.argwhere(seen[cells] >= 0)
            if len(taken):
                cell = tuple(int(places[box][at]) for places, at in zip(self.places, taken[0], strict=True))
                return box, int(seen[cell]), cell
            seen[cells] = box
        raise ValueError("no boxes overlap")


def ordered_labels(labels: Sequence[Labels], *, descending: bool = False) -> Labels:
    """Return the labels of all files along a dimension, each once, in order and in the type that they share."""
    different = list({id(own): own for own in labels}.values())
    whole = np.concatenate(different) if len(different) > 1 else different[0]
    if whole.dtype == object:
        unique = np.empty(len(found := sorted(set(whole.tolist()))), object)
        unique[:] = found
    else:
        unique = np.unique(whole)
    return unique[::-1] if descending else unique


def place_boxes(
    dims: Sequence[str],
    numbers: Sequence[int],
    labels: Sequence[Sequence[Labels]],
    grid: Sequence[Labels],
    rank: npt.NDArray[Any] | None = None,
    urls: Sequence[str] | None = None,
    *,
    as_listed: bool = False,
) -> LabelBoxes:
    """Return which box gives each cell of a grid of labels.

    Parameters
    ----------
    dims, grid
        The dimensions, and the labels of the grid along each.
    numbers, labels
        The file of each box, and its labels along each dimension (dimension first).
    rank
        Of several boxes that have a cell the one of the highest rank gives it, of equal ones the last;
        by default the last.
    urls
        The files by their numbers, for messages.
    as_listed
        See `LabelBoxes`.

    Raises
    ------
    CombineError
        If a file has a label twice, or one that the grid does not have.
    """
    places = tuple(
        _find_places(dim, own, whole, numbers, urls) for dim, own, whole in zip(dims, labels, grid, strict=True)
    )
    owner = np.full([len(whole) for whole in grid], -1, np.int32)
    order = np.arange(len(numbers)) if rank is None else np.argsort(rank, kind="stable")
    lengths = np.array([[len(own) for own in each] for each in places], np.int64)
    if len(dims) == 1:  # of repeated places the last assignment counts
        flat = np.concatenate([places[0][box] for box in order.tolist()])
        owner[flat] = np.repeat(order, lengths[0][order])
    elif (lengths == 1).all():  # fields of forecasts: 166,440 boxes of a cell each, in one assignment
        at = tuple(np.concatenate(each)[order] for each in places)
        owner[at] = order
    else:
        for box in order.tolist():
            owner[np.ix_(*(each[box] for each in places))] = box
    covered = int(np.prod(lengths, axis=0).sum())
    is_alone = len(numbers) == 1
    return LabelBoxes(tuple(dims), tuple(grid), tuple(numbers), places, owner, covered, as_listed, is_alone)


def _find_places(
    dim: str, labels: Sequence[Labels], grid: Labels, numbers: Sequence[int], urls: Sequence[str] | None
) -> tuple[Places, ...]:
    """Return where the labels of each box are in those of the grid."""
    different = {id(own): own for own in labels}  # files of one kind share them: looked up once
    starts = np.concatenate([[0], np.cumsum([len(own) for own in different.values()])]).astype(np.int64)
    whole = np.concatenate(list(different.values()))
    found = np.asarray(pandas_index(grid, dim).get_indexer(pandas_index(whole, dim)), np.int64)
    of_file = np.repeat(np.arange(len(different)), np.diff(starts))

    def fail(at: int, what: str, hint: str) -> CombineError:
        key = list(different)[int(of_file[at])]
        box = next(box for box, own in enumerate(labels) if id(own) == key)
        url = None if urls is None else urls[numbers[box]] or None
        return CombineError(f"the label {format_label(whole[at])} of {dim!r} {what}", url=url, hint=hint)

    if (found < 0).any():
        raise fail(int(np.argmax(found < 0)), "is not among those that are expected", "Expect other labels")
    keys = of_file * len(grid) + found
    _, firsts, counts = np.unique(keys, return_index=True, return_counts=True)
    if (counts > 1).any():
        at = int(firsts[np.argmax(counts > 1)])
        raise fail(
            at, "is in the file more than once", f'Drop one of them: preprocess=lambda ds: ds.drop_duplicates("{dim}")'
        )
    parts = dict(zip(different, np.split(found, starts[1:-1]), strict=True))
    return tuple(parts[id(own)] for own in labels)


def plan_join(boxes: LabelBoxes) -> Row:
    """Return how files are joined to a grid: along its first dimension first."""
    return _plan_row(boxes, boxes.owner, len(boxes.dims) - 1, {})


def _plan_row(boxes: LabelBoxes, owner: npt.NDArray[np.int32], axis: int, within: Mapping[int, Places]) -> Row:
    """Return how the cells of some labels along the later dimensions (`within`) are joined along one."""
    if not axis:
        return _plan_first_row(boxes, owner, within)
    dim, whole = boxes.dims[axis], boxes.labels[axis]
    slabs = np.ascontiguousarray(np.moveaxis(owner, axis, 0)).reshape(len(whole), -1)
    # Labels whose cells come from the same files are one row: otherwise each label of a regular table would be joined
    # for itself.
    by_slab: dict[bytes, list[int]] = {}
    for at in np.flatnonzero((slabs >= 0).any(axis=1)).tolist():
        by_slab.setdefault(slabs[at].tobytes(), []).append(at)
    groups = [np.array(group, np.int64) for group in by_slab.values()]
    parts = tuple(
        _plan_row(boxes, np.asarray(owner.take(int(group[0]), axis)), axis - 1, {**within, axis: group})
        for group in groups
    )
    order = np.full(len(whole), -1, np.int64)
    behind = np.concatenate(groups)
    order[behind] = np.arange(len(behind))
    return Row(dim, parts, whole, _unless_trivial(order, len(behind)))


def _plan_first_row(boxes: LabelBoxes, owner: npt.NDArray[np.int32], within: Mapping[int, Places]) -> Row:
    places, whole = boxes.places[0], boxes.labels[0]
    files = np.unique(owner[owner >= 0])
    if not boxes.as_listed:  # by the first label that each gives: what follows each other is not taken apart
        files = files[np.argsort(np.unique(owner[owner >= 0], return_index=True)[1])]
    chosen = files.tolist() or [0]  # of files that are all empty one, for what it has beside labels
    behind = np.concatenate([places[box] for box in chosen])
    counts = owner[behind] == np.repeat(chosen, [len(places[box]) for box in chosen])
    if boxes.as_listed:
        order = np.flatnonzero(counts)
        whole = whole[behind[order]]
    else:
        order = np.full(len(whole), -1, np.int64)
        order[behind[counts]] = np.flatnonzero(counts)
    parts = tuple(Cut(boxes.numbers[box], _cut_across(boxes, box, within)) for box in chosen)
    return Row(boxes.dims[0], parts, whole, _unless_trivial(order, len(behind)))


def _cut_across(boxes: LabelBoxes, box: int, within: Mapping[int, Places]) -> dict[str, Places]:
    """Return which elements of a file have some labels along the later dimensions, where it has others, too."""
    steps: dict[str, Places] = {}
    for axis, wanted in within.items():
        own = boxes.places[axis][box]
        if not np.array_equal(own, wanted):
            order = np.argsort(own)
            steps[boxes.dims[axis]] = order[np.searchsorted(own, wanted, sorter=order)]
    return steps


def _unless_trivial(order: Places, count: int) -> Places | None:
    """Return an order, or None if it takes all that there is, as it is."""
    return None if len(order) == count and (order == np.arange(count)).all() else order


def iter_rows(row: Row) -> Iterator[tuple[str, list[int]]]:
    """Yield the files that are joined with each other first, as they are, and along what."""
    if all(isinstance(part, Cut) and not part.steps for part in row.parts):
        yield row.dim, [part.number for part in row.parts if isinstance(part, Cut)]
    else:
        for part in row.parts:
            if isinstance(part, Row):
                yield from iter_rows(part)
