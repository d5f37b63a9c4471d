"""Labels that are expected along a dimension at a fixed spacing, from the first label of the files to the last."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas
import xarray

from insitu.combining.align import pandas_index
from insitu.errors import CombineError

__all__ = ["OffGridError", "check_expected", "choose_spacings", "expected_labels", "format_label"]

Labels = npt.NDArray[Any]
TOLERANCE = 1e-3
"""How far a number may lie off the grid, in parts of the spacing: sums of float32 are not exact."""
MAX_LABELS = 1 << 24
"""So many labels no archive has: the spacing was mistyped."""


def format_label(label: Any) -> str:
    """Return a label as messages show it."""
    if isinstance(label, np.datetime64):
        return str(np.datetime_as_string(label, unit="auto"))
    return str(pandas.Timedelta(label) if isinstance(label, np.timedelta64) else label)


def check_expected(expect: Any, known: Collection[str]) -> None:
    """Raise if labels are expected along a dimension that no file has labels of."""
    if isinstance(expect, Mapping) and (unknown := [dim for dim in expect if dim not in known]):
        raise CombineError(
            f"expect= names {unknown[0]!r}, along which no file has labels",
            hint=f"Labels lie along: {', '.join(sorted(known)) or 'no dimension'}",
        )


def choose_spacings(expect: Any, joined: Sequence[str], labels: Mapping[str, Labels]) -> dict[str, Any]:
    """Return the spacing that is expected along each dimension that has one.

    Parameters
    ----------
    expect
        The option: a spacing, or a mapping of dimensions to spacings. A plain one is that of the
        dimension that files are joined along; of several, of the one with labels of its kind. Texts have none.
    joined, labels
        The dimensions that files are joined along, and the labels along every dimension.

    Raises
    ------
    CombineError
        If there is no such dimension, or if there are several.
    """
    if expect is None:
        return {}
    if isinstance(expect, Mapping):
        return {dim: spacing for dim, spacing in expect.items() if dim in labels}
    spaced = [dim for dim in joined if _can_have_spacing(labels[dim])]
    if len(spaced) == 1:
        return {spaced[0]: expect}
    among = spaced or list(labels)
    kinds = ("MO", "m") if isinstance(expect, str) else ("iuf",)
    fitting = next((found for kind in kinds if (found := [dim for dim in among if labels[dim].dtype.kind in kind])), [])
    if len(fitting) == 1:
        return {fitting[0]: expect}
    example = (fitting or among or ["time"])[0]
    raise CombineError(
        f"expect={expect!r} does not say of which dimension: {', '.join(fitting or among) or 'none'} may be meant",
        hint=f"Name it: expect={{{example!r}: {expect!r}}}",
    )


def _can_have_spacing(labels: Labels) -> bool:
    return labels.dtype.kind != "U" and not any(isinstance(label, str) for label in labels[:1].tolist())


def _is_timed(labels: Labels) -> bool:
    return labels.dtype.kind in "mMO"


def expected_labels(labels: Labels, spacing: Any, dim: str) -> Labels:
    """Return the labels of a regular grid from the first of these to the last.

    Labels that lie on it stay as they are; of numbers also those that differ by rounding.

    Parameters
    ----------
    labels
        Those that files have, in order.
    spacing
        An offset as pandas writes it (`"1D"`, `"6h"`, `"MS"`) for dates and durations, else a number.
    dim
        The dimension, for messages.

    Raises
    ------
    CombineError
        If a label is off the grid (`OffGridError`, which has it), or if the spacing is none.
    """
    if not len(labels):
        return labels
    descending = len(labels) > 1 and bool(labels[-1] < labels[0])
    rising = labels[::-1] if descending else labels
    try:
        if _is_timed(rising):
            grid = _timed_grid(rising, spacing)
        elif rising.dtype.kind in "iuf":
            grid = _numeric_grid(rising, spacing)
        else:
            raise ValueError(f"the labels are {rising.dtype}")
    except (ValueError, TypeError) as refused:
        raise CombineError(
            f"expect={spacing!r} is no spacing of the labels of {dim!r}: {refused}",
            hint='Give an offset of pandas for dates and durations ("1D", "6h", "MS"), a number for numbers',
        ) from refused
    known = np.asarray(pandas_index(grid, dim).get_indexer(pandas_index(rising, dim)))
    if (known < 0).any():
        raise OffGridError(dim, rising[int(np.argmax(known < 0))], spacing, grid)
    return grid[::-1] if descending else grid


class OffGridError(CombineError):
    """A label does not lie on the grid of those that are expected."""

    def __init__(self, dim: str, label: Any, spacing: Any, grid: Labels) -> None:
        where = f"begins at {format_label(grid[0])}" if len(grid) else "has no label between those of the files"
        super().__init__(
            f"the label {format_label(label)} of {dim!r} is off the grid of expect={spacing!r}, which {where}",
            hint="Leave the file out, expect a smaller spacing, or correct the label in `preprocess`",
        )
        self.label = label


def _timed_grid(labels: Labels, spacing: Any) -> Labels:
    if not isinstance(spacing, str):
        raise ValueError("dates and durations need an offset")
    first, last = labels[0], labels[-1]
    if labels.dtype.kind == "m":
        step = pandas.Timedelta(pandas.tseries.frequencies.to_offset(spacing))
        grid: Any = pandas.timedelta_range(first, last, freq=step)
    elif labels.dtype.kind == "M":
        _check_length((last - first) / np.timedelta64(1, "s"), spacing)
        grid = pandas.date_range(first, last, freq=spacing)
    elif hasattr(first, "calendar"):
        _check_length((last - first).total_seconds(), spacing)
        grid = xarray.date_range(first, last, freq=spacing, calendar=first.calendar, use_cftime=True)
    else:
        raise ValueError(f"the labels are {type(first).__name__}")
    values: Labels = grid.to_numpy()
    return values if labels.dtype == object else values.astype(labels.dtype)


def _check_length(seconds: float, spacing: str) -> None:
    """Raise if a spacing is so small that the grid would not fit into memory."""
    offset = pandas.tseries.frequencies.to_offset(spacing)
    begin = pandas.Timestamp("2000-01-01")
    step = ((begin + offset + offset) - (begin + offset)).total_seconds()
    if step <= 0 or seconds / step > MAX_LABELS:
        raise ValueError(f"it gives more than {MAX_LABELS:,} labels")


def _numeric_grid(labels: Labels, spacing: Any) -> Labels:
    if isinstance(spacing, (str, bool)) or not np.isfinite(spacing) or spacing <= 0:
        raise ValueError("it must be a positive number")
    steps = (labels.astype(np.float64) - float(labels[0])) / float(spacing)
    if steps[-1] > MAX_LABELS:
        raise ValueError(f"it gives more than {MAX_LABELS:,} labels")
    at = np.rint(steps).astype(np.int64)
    grid = (float(labels[0]) + np.arange(at[-1] + 1) * float(spacing)).astype(labels.dtype)
    near = np.abs(steps - at) <= (0 if labels.dtype.kind in "iu" else TOLERANCE)
    if labels.dtype.kind in "iu" and float(spacing) != int(spacing):
        raise ValueError("the labels are integers")
    grid[at[near]] = labels[near]
    return grid
