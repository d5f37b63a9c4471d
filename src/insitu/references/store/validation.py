"""Checks of what an insitu store says about where its values lie.

Everything that places a value is checked when a store is opened: the boxes of tiles lie inside their array and do not
overlap, cells show parts of their chunks, every table has rows of its own. A root that was damaged is then an error and
not an array of values in wrong places. The checksum of the root (`root.py`) notices the damage that no such rule can.
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
from insitu.references.store.row_file import GROUP

__all__ = [
    "RowRanges",
    "check_boxes",
    "check_cells",
    "check_constants",
    "check_fields",
    "check_layout",
    "check_starts",
]

_PAIRS = 1 << 22
"""Pairs of boxes that are compared at once."""


def check_fields(row: Mapping[str, Any], names: Iterable[str], what: str, optional: Sequence[str] = ()) -> None:
    """Refuse an object that lacks a field, or has one that the format does not know."""
    known = set(names)
    missing, strange = sorted(known - row.keys()), sorted(row.keys() - known - set(optional))
    if missing:
        raise FormatError(f"{what} has no {missing[0]!r}")
    if strange:
        raise FormatError(f"{what} has an unknown field {strange[0]!r}")


def check_boxes(shape: Sequence[int], origins: Indices, shapes: Indices) -> None:
    """Refuse tiles that reach out of their array, or that overlap.

    Parameters
    ----------
    shape
        Of the array.
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
    pair = _overlapping(origins, ends)
    if pair is not None:
        raise FormatError(f"tiles {pair[0]} and {pair[1]} overlap")


def _overlapping(begin: Indices, end: Indices) -> tuple[int, int] | None:
    """The first two boxes that share a place; None: no two do."""
    numbers = np.flatnonzero((end > begin).all(axis=1))
    if len(numbers) < 2:
        return None
    if not begin.shape[1]:
        return int(numbers[0]), int(numbers[1])
    begin, end = begin[numbers], end[numbers]
    # Boxes in the order in which they begin, along the axis that tells most of them apart: few others begin before one ends.
    axis = max(range(begin.shape[1]), key=lambda d: len(np.unique(begin[:, d])))
    order = np.argsort(begin[:, axis], kind="stable")
    begin, end, numbers = begin[order], end[order], numbers[order]
    until = np.searchsorted(begin[:, axis], end[:, axis], side="left")
    count = until - np.arange(len(until)) - 1
    total = np.cumsum(count)
    cuts = [0, *(np.searchsorted(total, np.arange(_PAIRS, int(total[-1]), _PAIRS)) + 1).tolist(), len(count)]
    for first, last in pairwise(cuts):
        many = count[first:last]
        one = np.repeat(np.arange(first, last), many)
        other = one + 1 + np.arange(len(one)) - np.repeat(np.cumsum(many) - many, many)
        both = ((begin[one] < end[other]) & (begin[other] < end[one])).all(axis=1)
        if both.any():
            at = int(np.flatnonzero(both)[0])
            return int(numbers[one[at]]), int(numbers[other[at]])
    return None


def check_cells(columns: Mapping[str, npt.NDArray[np.int64]]) -> None:
    """Refuse cells of irregular axes that show what their chunk does not have."""
    extent, skip, step, stored = (columns[name] for name in ("extent", "skip", "step", "stored"))
    far = skip + step.astype(np.float64) * (extent - 1.0)
    low, high = np.minimum(skip, far), np.maximum(skip, far)
    inside = (stored == 0) & (skip == 0) & (step == 0) | (stored > 0) & (low >= 0) & (high < stored)
    wrong = np.flatnonzero((extent < 0) | (stored < 0) | (extent > 0) & ~inside)
    if len(wrong):
        row = int(wrong[0])
        raise FormatError(
            f"row {row} of the axes shows {extent[row]} elements from {skip[row]}, every {step[row]}-th, "
            f"of a chunk that has {stored[row]}"
        )
    if float(extent.sum(dtype=np.float64)) >= 2.0**62:
        raise FormatError("the axes are longer than any array")


def check_layout(layout: Sequence[int], lengths: Sequence[int]) -> None:
    """Refuse a layout that names an axis twice or not at all, or that leaves out an axis of several elements."""
    if any(axis >= len(lengths) for axis in layout):
        raise FormatError(f"the layout {list(layout)} names more than {len(lengths)} axes")
    if len(set(layout)) != len(layout):
        raise FormatError(f"the layout {list(layout)} names an axis twice")
    for axis, length in enumerate(lengths):
        if axis not in layout and length != 1:
            raise FormatError(f"axis {axis} has {length} elements, and no dimension names it")


def check_constants(constant: Mapping[str, int], sources: int) -> None:
    """Refuse constant columns that no row can have."""
    strange = sorted(constant.keys() - set(COLUMN_NAMES))
    if strange:
        raise FormatError(f"a table has no column {strange[0]!r}")
    if not INLINE <= constant.get("source", 0) < max(sources, 1):
        raise FormatError(f"source {constant['source']} of {sources}")
    for name, least in (("offset", 0), ("length", WHOLE), ("filter_mask", 0)):
        if constant.get(name, 0) < least:
            raise FormatError(f"{name!r} cannot be {constant[name]}")


def check_starts(starts: Indices, first: int, count: int, cells: int) -> None:
    """Refuse first cells of groups of rows that do not ascend, or that lie outside the grid."""
    groups = (first + count - 1) // GROUP - first // GROUP + 1 if count else 0
    if len(starts) != max(groups, 0) and not (count == 0 and len(starts) <= 1):
        raise FormatError(f"'starts' has {len(starts)} numbers for {groups} groups of rows")
    if len(starts) and (int(starts[0]) < 0 or int(starts[-1]) >= cells or (np.diff(starts) <= 0).any()):
        raise FormatError(f"'starts' does not ascend within a grid of {cells} cells")
    if count > cells:
        raise FormatError(f"{count} rows for a grid of {cells} cells")


class RowRanges:
    """Which rows of which file are in use: no row may belong to two tables or axes."""

    def __init__(self) -> None:
        self._ranges: dict[str, list[tuple[int, int]]] = {}

    def add(self, file: str, first: int, count: int) -> None:
        """Note rows of a file."""
        if count:
            self._ranges.setdefault(file, []).append((first, first + count))

    def check(self, complete: Mapping[str, int]) -> None:
        """Refuse rows that are used twice, and unused ones of the files in `complete` (with their number of rows)."""
        for file, ranges in self._ranges.items():
            ranges.sort()
            for (_, end), (first, _) in pairwise(ranges):
                if first < end:
                    raise FormatError(f"rows {first} to {end} of {file} are used twice")
        for file, rows in complete.items():
            used = sum(end - first for first, end in self._ranges.get(file, ()))
            if used != rows:
                raise FormatError(f"{used} of the {rows} rows of {file} are used")
