"""Where files go whose names, attributes or single values label new dimensions: in a grid of these labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.combining.arrange import FindMembers, Grid, arrange_by_labels, without_missing
from insitu.combining.arrange_boxes import make_grid, rank_files
from insitu.combining.equality import has_equal_values
from insitu.combining.expected_labels import check_expected, choose_spacings, format_label
from insitu.combining.files_table import FilesTable
from insitu.combining.label_boxes import LabelBoxes, ordered_labels, place_boxes
from insitu.errors import CombineError
from insitu.open_options import CombineOptions
from insitu.scanning.member import GridPosition

__all__ = ["NamedDims", "arrange_by_names", "boxes_of_names", "with_inner_grids"]

Labels = npt.NDArray[Any]
NamedDims = Sequence[tuple[str, Any, list[int]]]
"""Dimensions from the names of files: name, labels, and for each file the number of its label."""


def arrange_by_names(names: NamedDims, opened: Collection[int]) -> Grid:
    """Return files arranged as their names say; those of the same names are not arranged yet.

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
    return without_missing(files, places, [(name, labels) for name, labels, _ in names])


def with_inner_grids(grid: Grid, files: FilesTable, find: FindMembers, options: CombineOptions) -> Grid:
    """Return a grid whose positions of several files are arranged by their labels.

    Labels are expected along the dimensions of all files together.

    Raises
    ------
    CombineError
        If files of one position do not go together, or if a label is not among those that are expected.
    """
    inner = replace(options, expect=None, overlap=options.overlap or "error") if options.expect is not None else options
    within = {}
    for place, numbers in grid.files.items():
        if len(numbers) > 1:
            try:
                within[place] = arrange_by_labels(files, numbers, find, inner)
            except CombineError as problem:
                where = {
                    dim: format_label(labels[at]) for at, (dim, labels) in zip(place, _new_dims(grid), strict=True)
                }
                raise problem.with_context(**where) from None
    grid = replace(grid, within=within)
    return grid if options.expect is None else replace(grid, spacings=_choose_spacings(grid, files, options.expect))


def boxes_of_names(grid: Grid, files: FilesTable, options: CombineOptions) -> list[LabelBoxes]:
    """Return the files of such a grid as boxes of their labels, those of the same data variables together: what each
    has and gives. They are not joined by these.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for number in sorted(number for own in grid.files.values() for number in own):
        groups.setdefault(tuple(sorted(files.kind_of(number).data_names())), []).append(number)
    every, new = _labels_of_files(grid, files), dict(_new_dims(grid))
    found = []
    for numbers in groups.values():
        dims = [*new, *_inner_dims(grid, every, numbers), *(dim for dim in grid.spacings if dim not in new)]
        shared = [dim for dim in dict.fromkeys(dims) if all(number in every[dim] for number in numbers)]
        labels = [[every[dim][number] for number in numbers] for dim in shared]
        whole = [new[dim] if dim in new else ordered_labels(own) for dim, own in zip(shared, labels, strict=True)]
        found.append(place_boxes(shared, numbers, labels, whole, rank_files(files, numbers, options.overlap)))
    return found


def _new_dims(grid: Grid) -> list[tuple[str, Labels]]:
    """Return the dimensions of a grid by names, and their labels."""
    return [(dim[0], np.asarray(dim[1])) for dim in grid.dims if isinstance(dim, tuple)]


def _labels_of_files(grid: Grid, files: FilesTable) -> dict[str, dict[int, Labels]]:
    """Return by dimension the labels of each file, by number: that of its name, and those that it has itself."""
    labels: dict[str, dict[int, Labels]] = {}
    for axis, (dim, whole) in enumerate(_new_dims(grid)):
        labels[dim] = {
            number: whole[place[axis] : place[axis] + 1] for place, numbers in grid.files.items() for number in numbers
        }
    for dim, column in files.labels.items():
        if known := {number: index for number in files.opened if (index := column[number]) is not None}:
            labels.setdefault(dim, known)
    return labels


def _inner_dims(grid: Grid, labels: Mapping[str, Mapping[int, Labels]], among: Collection[int]) -> list[str]:
    """Return the dimensions along which some files of one position are joined: their labels differ."""
    among = set(among)
    found: dict[str, None] = {}
    for place in grid.within:
        numbers = [number for number in grid.files[place] if number in among]
        for dim, own in labels.items():
            known = [own[number] for number in numbers if number in own]
            if any(not has_equal_values(known[0], other) for other in known[1:]):
                found[dim] = None
    return list(found)


def _choose_spacings(grid: Grid, files: FilesTable, expect: Any) -> dict[str, Any]:
    """Return the spacing of expected labels along each dimension that has one.

    Raises
    ------
    CombineError
        If there is no such dimension, or if a label of a file is not among them.
    """
    labels = _labels_of_files(grid, files)
    check_expected(expect, labels)
    joined = [*(dim for dim, _ in _new_dims(grid)), *_inner_dims(grid, labels, files.opened)]
    spacings = choose_spacings(expect, joined, {dim: next(iter(own.values())) for dim, own in labels.items()})
    for dim, spacing in spacings.items():
        make_grid(files.urls, list(labels[dim]), dim, list(labels[dim].values()), spacing)  # raises
    return spacings
