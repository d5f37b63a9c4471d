"""Where each file goes in a grid of files: by lists, by the files' names, or by labels.

Decisions only: nothing is joined, and no values are read. A file that could not be opened leaves
its place in a list of files, as if it had never been there: what follows moves up. In a grid of
several dimensions that would shift an axis, so there its place is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas

from insitu.combining.equality import has_equal_values
from insitu.combining.file_differences import suggest_join
from insitu.errors import CombineError
from insitu.scanning.member import ConcatDim, GridPosition, Member

__all__ = [
    "Arrangement",
    "NamedDims",
    "arrange_by_lists",
    "arrange_by_names",
    "check_grid",
    "is_ordered",
    "mixed_dates_error",
    "order_by_labels",
]

NamedDims = Sequence[tuple[str, Any, list[int]]]
"""Dimensions from the names of files: name, labels, and for each file the number of its label."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A grid of files, and what it is joined along."""

    files: Mapping[GridPosition, tuple[int, ...]]
    """Position: the numbers of the files there. Several are combined by their labels first."""
    missing: tuple[GridPosition, ...]
    """Positions of which no file could be opened."""
    dims: tuple[ConcatDim, ...]
    """One for each level of the grid."""


def arrange_by_lists(places: Sequence[GridPosition], dims: Sequence[ConcatDim], opened: Collection[int]) -> Arrangement:
    """Return files arranged as the caller's nested lists say.

    Parameters
    ----------
    places, dims
        The position of each file, and along what each level of nesting is joined.
    opened
        The numbers of the files that could be opened.
    """
    files = {place: (number,) for number, place in enumerate(places) if number in opened}
    return _without_missing(files, places, dims)


def arrange_by_names(names: NamedDims, opened: Collection[int]) -> Arrangement:
    """Return files arranged as their names say.

    Parameters
    ----------
    names
        The dimensions, and where each file is along them.
    opened
        The numbers of the files that could be opened.
    """
    names = names[::-1]  # what is joined last comes first
    files: dict[GridPosition, tuple[int, ...]] = {}
    for number in sorted(opened):
        place = tuple(numbers[number] for _, _, numbers in names)
        files[place] = (*files.get(place, ()), number)
    places = [tuple(place) for place in np.ndindex(*(len(labels) for _, labels, _ in names))]
    return _without_missing(files, places, [(name, labels) for name, labels, _ in names])


def _without_missing(
    files: Mapping[GridPosition, tuple[int, ...]], places: Sequence[GridPosition], dims: Sequence[ConcatDim]
) -> Arrangement:
    """Return the arrangement of the files at some of these positions."""
    missing = [place for place in places if place not in files]
    if not missing or len(places[0]) != 1:
        return Arrangement(files, tuple(missing), tuple(dims))
    moved_up: dict[GridPosition, tuple[int, ...]] = {
        (number,): there for number, (_, there) in enumerate(sorted(files.items()))
    }
    numbers = [place[0] for place in missing]
    return Arrangement(moved_up, (), tuple(_labels_without(dim, numbers, len(places)) for dim in dims))


def _labels_without(dim: ConcatDim, missing: Sequence[int], count: int) -> ConcatDim:
    """Return a new dimension without the labels of the positions that are left out."""
    if isinstance(dim, tuple) and len(dim[1]) == count:
        return dim[0], np.delete(np.asarray(dim[1]), list(missing))
    return dim


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
    if all(_is_monotonic(index, 1) for index in labels):
        ascending = True
    elif all(_is_monotonic(index, -1) for index in labels):
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


def is_ordered(labels: npt.NDArray[Any]) -> bool:
    """Return whether labels run on or run back, as those of all files together must."""
    return _is_monotonic(labels, 1) or _is_monotonic(labels, -1)


def _is_monotonic(values: npt.NDArray[Any], direction: int) -> bool:
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
