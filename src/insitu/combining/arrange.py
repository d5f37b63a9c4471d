"""Where each file goes: in a grid by lists, by the files' names, or by labels.

Decisions only, of the facts of all files (`FilesTable`): nothing is joined, and no values are read
but labels, which are there. A file that could not be opened leaves its place in a list of files, as
if it had never been there: what follows moves up. In a grid of several dimensions that would shift
an axis, so there its place is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas

from insitu.combining.arrange_boxes import arrange_in_boxes, rank_files
from insitu.combining.equality import has_equal_values
from insitu.combining.expected_labels import check_expected
from insitu.combining.file_differences import suggest_join
from insitu.combining.files_table import FilesTable
from insitu.combining.label_boxes import LabelBoxes, iter_rows, plan_join
from insitu.errors import CombineError
from insitu.open_options import CombineOptions
from insitu.scanning.member import ConcatDim, GridPosition, Member

__all__ = [
    "Arrangement",
    "FindMembers",
    "Grid",
    "Merged",
    "arrange_by_labels",
    "arrange_by_lists",
    "find_shadowed",
    "is_ordered",
    "iter_lines",
    "mixed_dates_error",
    "place_listed_labels",
    "without_missing",
]

FindMembers = Callable[[Sequence[int]], Sequence[Member]]
"""Gives some files by their numbers, to say in an error what tells them apart."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid of files, and what it is joined along."""

    files: Mapping[GridPosition, tuple[int, ...]]
    """Position: the numbers of the files there. Several are combined by their labels first."""
    dims: tuple[ConcatDim, ...]
    """One for each level of the grid; the first is joined first."""
    missing: tuple[GridPosition, ...] = ()
    """Positions of which no file could be opened."""
    by_labels: bool = False
    """Whether labels gave the positions: then those of all files together must be in order."""
    within: Mapping[GridPosition, Merged] = field(default_factory=dict)
    """Positions of several files: how those are arranged."""
    spacings: Mapping[str, Any] = field(default_factory=dict)
    """Dimensions along which labels are expected, from the first of all files to the last: at which spacing."""


@dataclass(frozen=True, slots=True)
class Merged:
    """Grids of files that have different variables: each is joined, then they are merged."""

    grids: tuple[Grid | LabelBoxes, ...]


Arrangement = Grid | LabelBoxes | Merged


def iter_lines(arrangement: Arrangement) -> Iterator[tuple[ConcatDim, list[int]]]:
    """Yield the files that are joined with each other first, in order, and along what.

    Not those of a grid with a hole: what stands for a missing file is made of its neighbours. Nor those whose
    variables go to several places.
    """
    if isinstance(arrangement, Merged):
        for grid in arrangement.grids:
            yield from iter_lines(grid)
        return
    if isinstance(arrangement, LabelBoxes):
        if arrangement.names is None:
            yield from iter_rows(plan_join(arrangement))
        return
    for inner in arrangement.within.values():
        yield from iter_lines(inner)
    if arrangement.within or arrangement.missing or not arrangement.dims:
        return
    lines: dict[GridPosition, list[tuple[int, int]]] = {}
    for place, (number,) in arrangement.files.items():
        lines.setdefault(place[1:], []).append((place[0], number))
    for line in lines.values():
        yield arrangement.dims[0], [number for _, number in sorted(line)]


def find_shadowed(arrangement: Arrangement) -> list[int]:
    """Return the files of which some cells come from others."""
    if isinstance(arrangement, LabelBoxes):
        lost = arrangement.count_given() < arrangement.sizes() if arrangement.has_overlaps else np.zeros(0, bool)
        return [arrangement.numbers[box] for box in np.flatnonzero(lost).tolist()]
    inner = arrangement.grids if isinstance(arrangement, Merged) else ()
    return list(dict.fromkeys(number for each in inner for number in find_shadowed(each)))


def arrange_by_lists(places: Sequence[GridPosition], dims: Sequence[ConcatDim], opened: Collection[int]) -> Grid:
    """Return files arranged as the caller's nested lists say.

    Parameters
    ----------
    places, dims
        The position of each file, and along what each level of nesting is joined.
    opened
        The numbers of the files that could be opened.
    """
    files = {place: (number,) for number, place in enumerate(places) if number in opened}
    grid = without_missing(files, places, dims)
    positions = [*grid.files, *grid.missing]
    _check_grid(positions)
    if len(dims) != len(positions[0]):
        raise CombineError(
            f"concat_dims has length {len(dims)} but the datasets passed are nested in a "
            f"{len(positions[0])}-dimensional structure"
        )
    return grid


def place_listed_labels(
    files: FilesTable, places: Sequence[GridPosition], dims: Sequence[ConcatDim], options: CombineOptions
) -> LabelBoxes:
    """Return the files of nested lists, each label of which comes from one file.

    Those of one list stay in its order, unless labels are expected at some spacing; along several
    dimensions labels are put in order.
    """
    names = [dim[0] if isinstance(dim, tuple) else dim for dim in dims if dim is not None]
    if len(names) < len(dims) or {len(place) for place in places} != {len(dims)}:
        raise CombineError(
            "overlap= and expect= need files in lists that are as deep as there are dimensions, and no merging",
            hint="Leave combine='nested' out, so that files are ordered by their labels",
        )
    numbers = files.opened
    labels: dict[str, list[npt.NDArray[Any]]] = {}
    for axis, name in enumerate(names):
        labels[name] = [_listed_label(files, number, name, dims[axis], places[number][axis]) for number in numbers]
    rank = rank_files(files, numbers, options.overlap)
    as_listed = len(dims) == 1
    return arrange_in_boxes(files.urls, numbers, labels, options, names, rank, as_listed=as_listed)


def _listed_label(files: FilesTable, number: int, name: str, dim: ConcatDim, place: int) -> npt.NDArray[Any]:
    """Return the labels of a file along a dimension of the caller's lists, at its place in them."""
    if isinstance(dim, tuple):
        return np.asarray(dim[1])[place : place + 1]
    scalars = files.scalars.get(name)
    if (index := files.index(number, name)) is not None:
        return index
    if scalars is not None and (value := scalars[number]) is not None:
        return value.reshape(1)
    raise CombineError(
        f"overlap= and expect= need labels along {name!r}, and the file has none", url=files.urls[number]
    )


def without_missing(
    files: Mapping[GridPosition, tuple[int, ...]], places: Sequence[GridPosition], dims: Sequence[ConcatDim]
) -> Grid:
    """Return the grid of the files at some of these positions."""
    missing = [place for place in places if place not in files]
    if not missing or len(places[0]) != 1:
        return Grid(files, tuple(dims), tuple(missing))
    moved_up: dict[GridPosition, tuple[int, ...]] = {
        (place,): numbers for place, (_, numbers) in enumerate(sorted(files.items()))
    }
    left_out = [place for (place,) in missing]
    return Grid(moved_up, tuple(_labels_without(dim, left_out, len(places)) for dim in dims))


def _labels_without(dim: ConcatDim, missing: Sequence[int], count: int) -> ConcatDim:
    """Return a new dimension without the labels of the positions that are left out."""
    if isinstance(dim, tuple) and len(dim[1]) == count:
        return dim[0], np.delete(np.asarray(dim[1]), list(missing))
    return dim


def _check_grid(places: Sequence[GridPosition]) -> None:
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


def arrange_by_labels(files: FilesTable, numbers: Sequence[int], find: FindMembers, options: CombineOptions) -> Merged:
    """Return some files arranged by their labels: those with the same data variables in one grid.

    Files with the same labels take the same position, and the last one keeps it, as in xarray, unless
    options say what becomes of labels that several files have, or none.
    """
    check_expected(
        options.expect,
        {dim for dim, column in files.labels.items() if any(column[number] is not None for number in numbers)},
    )
    groups: dict[tuple[str, ...], list[int]] = {}
    names = [tuple(sorted(kind.data_names())) for kind in files.kinds]
    for number in numbers:
        groups.setdefault(names[files.kind[number]], []).append(number)
    return Merged(tuple(_order_by_labels(files, group, find, options) for group in groups.values()))


def _order_by_labels(
    files: FilesTable, numbers: Sequence[int], find: FindMembers, options: CombineOptions
) -> Grid | LabelBoxes:
    """Return the grid of files by the dimensions whose labels differ."""
    dims: list[str] = []
    columns: list[npt.NDArray[np.int64]] = []
    first = files.kind_of(numbers[0])
    named = first.variables
    every: dict[str, list[npt.NDArray[Any]]] = {}
    for dim in first.order or first.sizes:
        if dim not in named:
            continue
        column = files.labels.get(dim)
        labels = []
        for number in numbers:
            index = None if column is None else column[number]
            if index is None:
                raise CombineError(
                    "Every dimension requires a corresponding 1D coordinate and index for inferring "
                    f"concatenation order but the coordinate {dim!r} has no corresponding index"
                    f"{_source_note(files, number)}"
                )
            labels.append(index)
        every[dim] = labels
        if all(index is labels[0] or has_equal_values(labels[0], index) for index in labels[1:]):
            continue
        if not options.places_labels:
            columns.append(_rank_beginnings(labels, dim, files, numbers))
        dims.append(dim)
    if every and options.places_labels:
        return arrange_in_boxes(files.urls, numbers, every, options, dims, rank_files(files, numbers, options.overlap))
    if len(numbers) > 1 and not dims:
        difference, hint = suggest_join(find(numbers))
        raise CombineError(
            "Could not find any dimension coordinates to use to order the Dataset objects for concatenation: "
            f"{difference}",
            hint=hint,
        )
    places = np.stack(columns, 1).tolist() if dims else [()]
    return Grid(
        {tuple(place): (number,) for place, number in zip(places, numbers, strict=True)}, tuple(dims), by_labels=True
    )


def _rank_beginnings(
    labels: Sequence[npt.NDArray[Any]], dim: str, files: FilesTable, numbers: Sequence[int]
) -> npt.NDArray[np.int64]:
    """Return the rank of each member by its first label, in ascending (or all in descending) order."""
    for index, number in zip(labels, numbers, strict=True):
        if not len(index):
            raise CombineError(f"Cannot handle size zero dimensions: {dim!r}{_source_note(files, number)}")
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


def _source_note(files: FilesTable, number: int) -> str:
    return f" ({files.urls[number]})" if files.urls[number] else ""
