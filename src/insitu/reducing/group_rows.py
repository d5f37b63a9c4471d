"""Partials of the groups of a box of values: its rows along the grouped axis, reduced group by group.

Rows of a group that lie side by side are reduced as they lie. Scattered rows are collected first,
those of all groups with equally many rows in one call. So the cost is that of a plain reduction,
plus a copy of what is scattered, however many groups there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline
from insitu.model.axis import Indices
from insitu.reducing.partial_fields import Partial, merge_into
from insitu.reducing.reductions import Reduction

__all__ = ["GroupPartials", "collapse_rows", "find_runs", "merge_groups", "reduce_rows"]

STEP_BYTES = 2 << 20
"""Values that are reduced in one call, about: they and temporary arrays stay in the cache of a core."""
LONG_RUN, LONG_RUN_BYTES = 8, 256 << 10
"""Rows of one group side by side, and bytes of them, from which on they are reduced as they lie. A call costs 50 µs,
and collecting about as much for 300 KB: 4 million float32 in runs of 8 rows take 11 ms collected and 247 ms as they lie
where a row has 100 of them, 8 and 6 ms where it has 20,000; in runs of 2 such rows 9 and 12 ms.
"""

GroupPartials = tuple[Indices, Partial]
"""Numbers of groups, and their partials along the grouped axis, in this order."""


def reduce_rows(
    values: npt.NDArray[Any], axis: int, codes: Indices, others: tuple[int, ...], reduction: Reduction
) -> Iterator[GroupPartials]:
    """Yield the partials of the groups of a box. A group may come several times.

    Parameters
    ----------
    values
        The values of the box.
    axis, codes
        The grouped axis, and the number of the group of each row along it; -1: none.
    others
        Further axes to reduce; they have length 1 in the partials.
    reduction
        The statistics.
    """
    first, length = find_runs(codes)
    if len(codes) < LONG_RUN * len(first) or values.nbytes < LONG_RUN_BYTES * len(first):
        yield from _reduce_scattered(values, axis, codes, others, reduction)
        return
    most = max(2 * STEP_BYTES // max(values.nbytes // len(codes), 1), LONG_RUN)
    for begin, count in zip(first.tolist(), length.tolist(), strict=True):
        for start in range(begin, begin + count, most):
            rows = slice(start, min(start + most, begin + count))
            part = values[(slice(None),) * axis + (rows,)]
            if codes[begin] >= 0:
                check_deadline()
                yield codes[begin : begin + 1], reduction.step(_native(part, reduction), (axis, *others))


def _reduce_scattered(
    values: npt.NDArray[Any], axis: int, codes: Indices, others: tuple[int, ...], reduction: Reduction
) -> Iterator[GroupPartials]:
    """Yield the same of rows that are collected first: those of groups with equally many in one call."""
    order = np.argsort(codes, kind="stable")
    order = order[np.count_nonzero(codes < 0) :]
    first, length = find_runs(codes[order])
    row_bytes = max(values.nbytes // len(codes), 1)
    # The axis becomes two: the groups, and the rows of each.
    axes = (axis + 1, *(other if other < axis else other + 1 for other in others))
    for count in np.unique(length).tolist():
        begins = first[length == count]
        most = max(STEP_BYTES // (row_bytes * count), 1)
        for some in (begins[start : start + most] for start in range(0, len(begins), most)):
            check_deadline()
            rows = order[some[:, None] + np.arange(count)].reshape(-1)
            shape = (*values.shape[:axis], len(some), count, *values.shape[axis + 1 :])
            part = values.take(rows, axis).reshape(shape)
            partial = reduction.step(_native(part, reduction), axes)
            yield codes[order[some]], {field: found.squeeze(axis + 1) for field, found in partial.items()}


def collapse_rows(partial: Partial, axis: int, codes: Indices, reduction: Reduction) -> Iterator[GroupPartials]:
    """Yield the partials of groups, made of partials of the single rows along an axis."""
    for code in np.unique(codes[codes >= 0]).tolist():
        check_deadline()
        at = np.flatnonzero(codes == code)
        rows = {field: np.moveaxis(found, axis, 0)[at] for field, found in partial.items()}
        merged = reduction.collapse(rows)
        yield np.array([code]), {field: np.expand_dims(found, axis) for field, found in merged.items()}


def merge_groups(
    total: Partial, where: tuple[slice, ...], axis: int, part: GroupPartials, reduction: Reduction
) -> None:
    """Merge partials of groups into those of all values.

    Parameters
    ----------
    total
        Partials of all groups, along the grouped axis.
    where
        The box of it that they belong to; that of the grouped axis does not count.
    axis
        The grouped axis.
    part
        What to merge.
    reduction
        The statistics.
    """
    codes, partial = part
    along: Any = slice(int(codes[0]), int(codes[0]) + 1) if len(codes) == 1 else codes
    place = (*where[:axis], along, *where[axis + 1 :])
    merge_into(total, place, partial, reduction.merge)


def find_runs(rows: Indices) -> tuple[Indices, Indices]:
    """Return where runs of equal neighbours begin, of numbers or of rows of a table, and their lengths."""
    changes = rows[1:] != rows[:-1]
    first = np.flatnonzero(np.append(True, changes if rows.ndim == 1 else changes.any(axis=1))[: len(rows)])
    return first, np.diff(first, append=len(rows))


def _native(values: npt.NDArray[Any], reduction: Reduction) -> npt.NDArray[Any]:
    return values if values.dtype == reduction.dtype else values.astype(reduction.dtype)
