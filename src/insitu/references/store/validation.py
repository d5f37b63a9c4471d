"""Validate the tree of an insitu store: tiles, axes and rows must be consistent.

Everything that decides where a value is shown is checked when a store is opened: tiles lie inside
their array and do not overlap, cells show parts of their chunks, every table has rows of its own.
So a damaged root raises an error instead of showing values at wrong positions. The checksum of the
root (`root.py`) finds the damage that no such rule can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError
from insitu.model import INLINE, WHOLE
from insitu.model.axis import Indices
from insitu.model.chunks import COLUMN_NAMES
from insitu.references.store.row_file import ROWS_PER_GROUP

__all__ = [
    "RowRanges",
    "check_boxes",
    "check_cells",
    "check_constants",
    "check_fields",
    "check_layout",
    "check_starts",
]

_PAIRS_AT_ONCE = 1 << 22
"""Pairs of boxes that are compared at once."""


def check_fields(row: Mapping[str, Any], names: Iterable[str], name: str, optional: Sequence[str] = ()) -> None:
    """Raise `FormatError` if an object lacks a field, or has an unknown one."""
    known = set(names)
    missing, unknown = sorted(known - row.keys()), sorted(row.keys() - known - set(optional))
    if missing:
        raise FormatError(f"{name} has no {missing[0]!r}")
    if unknown:
        raise FormatError(f"{name} has an unknown field {unknown[0]!r}")


def check_boxes(shape: Sequence[int], origins: Indices, shapes: Indices) -> None:
    """Raise `FormatError` if a tile reaches out of its array, or if two tiles overlap.

    Parameters
    ----------
    shape
        The shape of the array.
    origins, shapes
        (tiles, dimensions): the corner and the extent of each tile.
    """
    ends = origins + shapes
    outside = np.flatnonzero(((origins < 0) | (ends > np.asarray(shape, np.int64)) | (ends < origins)).any(axis=1))
    if len(outside):
        tile = int(outside[0])
        raise FormatError(
            f"tile {tile} covers {origins[tile].tolist()} to {ends[tile].tolist()} of an array of shape {list(shape)}"
        )
    pair = _find_overlap(origins, ends)
    if pair is not None:
        raise FormatError(f"tiles {pair[0]} and {pair[1]} overlap")


def _find_overlap(begin: Indices, end: Indices) -> tuple[int, int] | None:
    """Return the first two boxes that overlap; None: no two do."""
    numbers = np.flatnonzero((end > begin).all(axis=1))
    if len(numbers) < 2:
        return None
    if not begin.shape[1]:
        return int(numbers[0]), int(numbers[1])
    begin, end = begin[numbers], end[numbers]
    # Sort boxes by their begin along the axis with most different begins: few pairs overlap there.
    axis = max(range(begin.shape[1]), key=lambda d: len(np.unique(begin[:, d])))
    order = np.argsort(begin[:, axis], kind="stable")
    begin, end, numbers = begin[order], end[order], numbers[order]
    until = np.searchsorted(begin[:, axis], end[:, axis], side="left")
    count = until - np.arange(len(until)) - 1
    total = np.cumsum(count)
    cuts = [
        0,
        *(np.searchsorted(total, np.arange(_PAIRS_AT_ONCE, int(total[-1]), _PAIRS_AT_ONCE)) + 1).tolist(),
        len(count),
    ]
    for first, last in pairwise(cuts):
        many = count[first:last]
        one = np.repeat(np.arange(first, last), many)
        other = one + 1 + np.arange(len(one)) - np.repeat(np.cumsum(many) - many, many)
        overlaps = ((begin[one] < end[other]) & (begin[other] < end[one])).all(axis=1)
        if overlaps.any():
            at = int(np.flatnonzero(overlaps)[0])
            return int(numbers[one[at]]), int(numbers[other[at]])
    return None


def check_cells(columns: Mapping[str, npt.NDArray[np.int64]]) -> None:
    """Raise `FormatError` if a cell of an irregular axis shows more than its chunk has."""
    extent, skip, step, stored = (columns[name] for name in ("extent", "skip", "step", "stored"))
    last = skip + step.astype(np.float64) * (extent - 1.0)
    low, high = np.minimum(skip, last), np.maximum(skip, last)
    inside = (stored == 0) & (skip == 0) & (step == 0) | (stored > 0) & (low >= 0) & (high < stored)
    wrong = np.flatnonzero((extent < 0) | (stored < 0) | (extent > 0) & ~inside)
    if len(wrong):
        row = int(wrong[0])
        raise FormatError(
            f"row {row} of the axes shows {extent[row]} elements from {skip[row]}, every {step[row]}-th, "
            f"of a chunk that has {stored[row]}"
        )
    if float(extent.sum(dtype=np.float64)) >= 2.0**62:
        raise FormatError("the axes together have more than 2**62 elements")


def check_layout(layout: Sequence[int], lengths: Sequence[int]) -> None:
    """Raise `FormatError` if a layout repeats an axis, or leaves out one of several elements."""
    if any(axis >= len(lengths) for axis in layout):
        raise FormatError(f"the layout {list(layout)} names more than {len(lengths)} axes")
    if len(set(layout)) != len(layout):
        raise FormatError(f"the layout {list(layout)} names an axis twice")
    for axis, length in enumerate(lengths):
        if axis not in layout and length != 1:
            raise FormatError(f"axis {axis} has {length} elements, but no dimension")


def check_constants(constant: Mapping[str, int], sources: int) -> None:
    """Raise `FormatError` if constant columns have invalid names or values."""
    unknown = sorted(constant.keys() - set(COLUMN_NAMES))
    if unknown:
        raise FormatError(f"unknown constant column {unknown[0]!r}")
    if not INLINE <= constant.get("source", 0) < max(sources, 1):
        raise FormatError(f"a table has source {constant['source']}, but the store has {sources} sources")
    for name, least in (("offset", 0), ("length", WHOLE), ("filter_mask", 0)):
        if constant.get(name, 0) < least:
            raise FormatError(f"{name!r} cannot be {constant[name]}")


def check_starts(starts: Indices, first: int, count: int, cells: int) -> None:
    """Raise `FormatError` if the first cells of groups do not ascend, or lie outside the grid."""
    groups = (first + count - 1) // ROWS_PER_GROUP - first // ROWS_PER_GROUP + 1 if count else 0
    if len(starts) != max(groups, 0) and not (count == 0 and len(starts) <= 1):
        raise FormatError(f"'starts' has {len(starts)} numbers for {groups} groups of rows")
    if len(starts) and (int(starts[0]) < 0 or int(starts[-1]) >= cells or (np.diff(starts) <= 0).any()):
        raise FormatError(f"'starts' does not ascend within a grid of {cells} cells")
    if count > cells:
        raise FormatError(f"a table has {count} rows for a grid of {cells} cells")


class RowRanges:
    """The rows of each file that are in use; no row may belong to two tables or axes."""

    def __init__(self) -> None:
        self._ranges: dict[str, list[tuple[int, int]]] = {}

    def add(self, file: str, first: int, count: int) -> None:
        """Record that rows of a file are used."""
        if count:
            self._ranges.setdefault(file, []).append((first, first + count))

    def check(self, complete: Mapping[str, int]) -> None:
        """Raise `FormatError` if a row is used twice, or if a file in `complete` (name: rows) has
        unused rows.
        """
        for file, ranges in self._ranges.items():
            ranges.sort()
            for (_, end), (first, _) in pairwise(ranges):
                if first < end:
                    raise FormatError(f"rows {first} to {end} of {file} are used twice")
        for file, rows in complete.items():
            used = sum(end - first for first, end in self._ranges.get(file, ()))
            if used != rows:
                raise FormatError(f"only {used} of the {rows} rows of {file} are used")
