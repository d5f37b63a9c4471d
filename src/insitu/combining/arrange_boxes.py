"""Where files go whose labels overlap, or leave gaps among those that are expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.combining.expected_labels import OffGridError, choose_spacings, expected_labels, format_label
from insitu.combining.file_times import choose_times
from insitu.combining.files_table import FilesTable
from insitu.combining.label_boxes import LabelBoxes, ordered_labels, place_boxes
from insitu.errors import CombineError
from insitu.open_options import CombineOptions

__all__ = ["CHOOSE_OVERLAP", "arrange_in_boxes", "choose_file_times", "make_grid", "rank_files"]

Labels = npt.NDArray[Any]
CHOOSE_OVERLAP = 'Say which file gives them: overlap="first" or "last" (in the order given), or "newest" (written last)'


def arrange_in_boxes(
    urls: Sequence[str],
    numbers: Sequence[int],
    labels: Mapping[str, Sequence[Labels]],
    options: CombineOptions,
    joined: Sequence[str],
    rank: npt.NDArray[Any] | None,
    *,
    may_have_holes: bool = False,
    as_listed: bool = False,
) -> LabelBoxes:
    """Return some files as boxes of their labels.

    Parameters
    ----------
    urls, numbers
        The names of all files, and the numbers of those that are placed.
    labels
        Dimension: the labels of each of these files.
    options
        Of these `overlap` and `expect`.
    joined
        The dimensions that files are joined along, the first one first.
    rank
        How much each of these files counts where they overlap: see `rank_files`.
    may_have_holes
        Whether cells may be empty though files have all their labels. Labels that no file has may
        always be.
    as_listed
        Of one dimension: whether steps stay in the order of the files.

    Raises
    ------
    CombineError
        If files overlap and nothing says which one counts, if a label is not among the expected
        ones, or if cells are empty that may not be.
    """
    spacings = choose_spacings(options.expect, joined, {dim: own[0] for dim, own in labels.items()})
    dims = [*joined, *(dim for dim in spacings if dim not in joined)]
    if not dims:  # all files have all labels: one of them gives everything
        dims = sorted(labels, key=lambda dim: labels[dim][0].dtype.kind not in "MO")[:1]
    grid = [make_grid(urls, numbers, dim, labels[dim], spacings.get(dim)) for dim in dims]
    boxes = place_boxes(
        dims, numbers, [labels[dim] for dim in dims], grid, rank, urls, as_listed=as_listed and not spacings
    )
    if options.overlap in (None, "error") and boxes.has_overlaps:
        raise _overlap_error(boxes, urls)
    if not may_have_holes and (holes := boxes.holes()).any():
        raise _holes_error(boxes, holes, urls)
    return boxes


def rank_files(files: FilesTable, numbers: Sequence[int], overlap: str | None) -> npt.NDArray[Any] | None:
    """Return how much each file counts where they overlap; None: the later, the more."""
    if overlap == "first":
        return -np.arange(len(numbers))
    return choose_file_times(files, numbers, overlap)[1] if overlap == "newest" else None


def choose_file_times(
    files: FilesTable, numbers: Sequence[int], overlap: str | None
) -> tuple[str, npt.NDArray[np.float64]]:
    """Return what says when files were written, and when; empty and NaN if that is not asked for."""
    if overlap != "newest":
        return "", np.full(len(numbers), np.nan)
    chosen = {name: [texts[number] for number in numbers] for name, texts in files.dates.items()}
    return choose_times(chosen, files.modified[list(numbers)], [files.urls[number] for number in numbers])


def make_grid(urls: Sequence[str], numbers: Sequence[int], dim: str, labels: Sequence[Labels], spacing: Any) -> Labels:
    """Return the labels of all files along a dimension, and those that are expected between them."""
    longer = [own for own in {id(own): own for own in labels}.values() if len(own) > 1]
    descending = bool(longer) and all(bool(own[0] > own[-1]) for own in longer)
    try:
        grid = ordered_labels(labels, descending=descending)
    except TypeError as refused:
        kinds = {type(label).__name__ for own in labels for label in own[:1].tolist()}
        raise CombineError(
            f"the labels of {dim!r} have no order: {', '.join(sorted(kinds))}",
            hint="Combine files of one calendar and one type of labels",
        ) from refused
    if spacing is None:
        return grid
    try:
        return expected_labels(grid, spacing, dim)
    except OffGridError as problem:
        holder = next(
            number for number, own in zip(numbers, labels, strict=True) if problem.label in own.tolist()
            or (own == problem.label).any()
        )  # fmt: skip
        raise problem.with_context(url=urls[holder] or None) from None


def _overlap_error(boxes: LabelBoxes, urls: Sequence[str]) -> CombineError:
    """Return the error for files that have a label in common."""
    later, earlier, cell = boxes.first_overlap()
    names = [urls[boxes.numbers[box]] or f"file {boxes.numbers[box]}" for box in (earlier, later)]
    where = ", ".join(_format_cell(boxes, cell))
    return CombineError(f"{names[0]} and {names[1]} both have {where}", url=names[1], hint=CHOOSE_OVERLAP)


def _format_cell(boxes: LabelBoxes, cell: Sequence[int]) -> list[str]:
    """Return the labels of a cell as messages show them."""
    each = zip(boxes.dims, boxes.labels, cell, strict=True)
    return [f"{dim} {format_label(grid[at])}" for dim, grid, at in each]


def _holes_error(boxes: LabelBoxes, holes: npt.NDArray[np.bool_], urls: Sequence[str]) -> CombineError:
    """Return the error for files that do not fill the grid of their labels."""
    cell = tuple(np.argwhere(holes)[0].tolist())
    axis = max(range(len(cell)), key=lambda axis: len({own.tobytes() for own in boxes.places[axis]}) * (axis > 0))
    dim, at = boxes.dims[axis], cell[axis]
    holder = next(box for box, own in enumerate(boxes.places[axis]) if (own == at).any())
    where = " and ".join(_format_cell(boxes, cell))
    return CombineError(
        f"files with different labels along {' and '.join(map(repr, boxes.dims))} do not fill the grid of these: "
        f"none has {where}",
        url=urls[boxes.numbers[holder]] or None,
        hint=f"Give all files the same labels along {dim!r}, in `preprocess` for example, or combine them separately",
    )
