"""Where files of forecasts go: boxes of labels along reference time, lead time and member, with holes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from insitu.combining.arrange import Arrangement, Merged
from insitu.combining.arrange_boxes import arrange_in_boxes, rank_files
from insitu.combining.expected_labels import check_expected
from insitu.combining.files_table import FilesTable
from insitu.combining.label_boxes import LabelBoxes
from insitu.errors import CombineError
from insitu.open_options import CombineOptions
from insitu.scanning.forecast_axes import LEAD, MEMBER, RUN, ForecastAxes

__all__ = ["arrange_forecasts"]


def arrange_forecasts(files: FilesTable, axes: ForecastAxes, options: CombineOptions) -> Arrangement:
    """Return files of forecasts as boxes of labels; cells that no file has are holes.

    Files that share a variable are in one table, also if each lacks some (precipitation at lead time
    0). Those of different variables may have the same labels: they are merged. Where files of one
    table overlap, each variable counts for itself: a correction of one shadows no other.
    """
    dims = [*(axes.name(role) for role in (RUN, LEAD, MEMBER)), *axes.further(options)]
    check_expected(options.expect, dims)
    found: list[LabelBoxes] = []
    for numbers in _files_by_variables(files):
        if len({tuple(files.kind_of(number).data_names()) for number in numbers}) == 1:
            found.append(_place(files, numbers, dims, options))
            continue
        boxes = _place(files, numbers, dims, replace(options, overlap="last"))
        if not boxes.has_overlaps:
            found.append(boxes)
            continue
        for names, own in _variables_by_files(files, numbers):
            found.append(replace(_place(files, own, dims, options), names=names))
    return Merged(tuple(found))


def _place(files: FilesTable, numbers: Sequence[int], dims: Sequence[str], options: CombineOptions) -> LabelBoxes:
    """Return some files as boxes of their labels."""
    labels = {}
    for dim in dims:
        own = [files.index(number, dim) for number in numbers]
        if any(each is None for each in own):
            number = numbers[next(at for at, each in enumerate(own) if each is None)]
            raise CombineError(f"the file has no labels along {dim!r}", url=files.urls[number])
        labels[dim] = [each for each in own if each is not None]
    rank = rank_files(files, numbers, options.overlap)
    return arrange_in_boxes(files.urls, numbers, labels, options, dims, rank, may_have_holes=True)


def _variables_by_files(files: FilesTable, numbers: Sequence[int]) -> list[tuple[frozenset[str], list[int]]]:
    """Return variables that are in the same files, with these."""
    holders: dict[str, list[int]] = {}
    for number in numbers:
        for name in files.kind_of(number).data_names():
            holders.setdefault(name, []).append(number)
    names_by_files: dict[tuple[int, ...], list[str]] = {}
    for name, own in holders.items():
        names_by_files.setdefault(tuple(own), []).append(name)
    return [(frozenset(names), list(own)) for own, names in names_by_files.items()]


def _files_by_variables(files: FilesTable) -> Sequence[list[int]]:
    """Return the numbers of files in groups that have no data variable in common."""
    group_of: dict[str, int] = {}
    for kind in files.kinds:
        names = kind.data_names()
        own = min((group_of[name] for name in names if name in group_of), default=len(group_of))
        merged = {group_of[name] for name in names if name in group_of}
        for name in [*names, *(name for name, group in group_of.items() if group in merged)]:
            group_of[name] = own
    groups: dict[int, list[int]] = {}
    for number in files.opened:
        names = files.kind_of(number).data_names()
        groups.setdefault(group_of[names[0]] if names else -1, []).append(number)
    return list(groups.values())
