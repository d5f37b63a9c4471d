"""Order of files in a grid, by their nesting in lists or by the labels of their dimensions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas

from insitu.combining.equality import has_equal_values
from insitu.combining.file_differences import suggest_join
from insitu.errors import CombineError
from insitu.scanning.member import GridPosition, Member

__all__ = ["check_grid", "is_monotonic", "mixed_dates_error", "order_by_labels"]


def check_grid(places: Sequence[GridPosition]) -> None:
    """Raise if positions do not fill a grid: all lists must be equally deep and long."""
    depths = {len(place) for place in places}
    if len(depths) > 1:
        raise CombineError(
            "The supplied objects do not form a hypercube because sub-lists do not have consistent depths"
        )
    for axis in range(depths.pop() if depths else 0):
        if len(set(Counter(place[axis] for place in places).values())) > 1:
            raise CombineError(
                "The supplied objects do not form a hypercube because sub-lists do not have consistent "
                f"lengths along dimension {axis}"
            )


def order_by_labels(members: Sequence[Member]) -> tuple[list[GridPosition], list[str]]:
    """Return the position of each member, and the dimensions whose labels differ."""
    dims: list[str] = []
    columns: list[npt.NDArray[np.int64]] = []
    first = members[0]
    for dim in first.order or first.sizes:
        if dim not in first.variables:
            continue
        labels = []
        for member in members:
            index = member.index(dim)
            if index is None:
                raise CombineError(
                    "Every dimension requires a corresponding 1D coordinate and index for inferring "
                    f"concatenation order but the coordinate {dim!r} has no corresponding index{_source_note(member)}"
                )
            labels.append(index)
        if all(index is labels[0] or has_equal_values(labels[0], index) for index in labels[1:]):
            continue
        columns.append(_rank_beginnings(labels, dim, members))
        dims.append(dim)
    if len(members) > 1 and not dims:
        difference, hint = suggest_join(members)
        raise CombineError(
            "Could not find any dimension coordinates to use to order the Dataset objects for concatenation: "
            f"{difference}",
            hint=hint,
        )
    if not dims:
        return [()] * len(members), []
    return [tuple(row) for row in np.stack(columns, 1).tolist()], dims


def _rank_beginnings(labels: Sequence[npt.NDArray[Any]], dim: str, members: Sequence[Member]) -> npt.NDArray[np.int64]:
    """Return the rank of each member by its first label, in ascending (or all in descending) order."""
    for index, member in zip(labels, members, strict=True):
        if not len(index):
            raise CombineError(f"Cannot handle size zero dimensions: {dim!r}{_source_note(member)}")
    if all(is_monotonic(index, 1) for index in labels):
        ascending = True
    elif all(is_monotonic(index, -1) for index in labels):
        ascending = False
    else:
        raise CombineError(
            f"Coordinate variable {dim} is neither monotonically increasing nor monotonically "
            "decreasing on all datasets"
        )
    beginnings = pandas.Index([index[0] for index in labels]).to_series()
    if beginnings.dtype == object and len(kinds := set(map(type, beginnings))) > 1:
        raise mixed_dates_error(dim, kinds)
    ranks = beginnings.rank(method="dense", ascending=ascending, numeric_only=False)
    return np.asarray(ranks.to_numpy(), np.int64) - 1


def mixed_dates_error(dim: str, kinds: Collection[type]) -> CombineError:
    """Return the error for labels of several types, such as dates of two calendars."""
    names = sorted(kind.__name__ for kind in kinds)
    if "DatetimeGregorian" in names and not any(
        name.startswith("Datetime") for name in names if name != "DatetimeGregorian"
    ):
        hint = "decode_times=xr.coders.CFDatetimeCoder(use_cftime=True) gives all files the same kind of dates"
    else:
        align = ', align_on="date"' if "Datetime360Day" in names else ""
        hint = (
            "Convert them to one calendar, without the dates that it does not have: "
            f'preprocess=lambda ds: ds.convert_calendar("standard", use_cftime=True{align})'
        )
    return CombineError(
        f"Cannot combine along dimension {dim!r} with mixed types. Found: {', '.join(names)}.", hint=hint
    )


def is_monotonic(values: npt.NDArray[Any], direction: int) -> bool:
    """Return whether labels are monotonic: increasing with direction 1, decreasing with -1."""
    if len(values) < 2:
        return True
    if values.dtype.hasobject or values.dtype.kind in "SU":
        index = pandas.Index(values)
        return bool(index.is_monotonic_increasing if direction > 0 else index.is_monotonic_decreasing)
    ahead, behind = (values[1:], values[:-1]) if direction > 0 else (values[:-1], values[1:])
    return bool((ahead >= behind).all())


def _source_note(member: Member) -> str:
    return f" ({member.source})" if member.source else ""
