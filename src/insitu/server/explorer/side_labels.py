"""Coordinates along the sides of pictures, and the selected position of the other dimensions in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.model.time_units import NANOSECONDS, UNITS
from insitu.reading import ReadContext, read_array
from insitu.scanning.forecast_axes import valid_times
from insitu.server.explorer.formula_array import ShownArray, group_of_array
from insitu.server.explorer.opened_archives import OpenedArchive
from insitu.server.explorer.shown_values import (
    calendar_of,
    label_kind,
    label_units,
    long_name_of,
    shown_labels,
    to_number_array,
    to_text,
    to_texts,
    units_of,
    with_units,
)
from insitu.server.explorer.spatial_dimensions import find_coordinate

__all__ = ["describe_side", "position_labels", "selection_text"]

RUN_NAME, LEAD_NAME = "forecast_reference_time", "forecast_period"
"""CF's standard names of the axes of forecasts."""
TIME_UNITS = UNITS | {"hour": "h", "h": "h", "hr": "h", "minute": "m", "min": "m", "second": "s", "s": "s", "day": "D"}
"""Units of lead times that are stored as numbers."""
MAX_LABELS = 200_000
"""Labels of a side that are read in one piece; of more, only those of the pixels."""


def describe_side(
    archive: OpenedArchive,
    path: str,
    array: ShownArray,
    dim: str,
    centres: npt.NDArray[np.float64],
    context: ReadContext,
) -> tuple[dict[str, Any], npt.NDArray[np.float64]]:
    """Return what a side of a picture shows, and the coordinate at each pixel.

    Parameters
    ----------
    archive, path, array, dim
        The variable or formula, and its dimension along this side.
    centres
        Position of the middle of each pixel along the dimension, increasing.
    context
        How to read.
    """
    size = array.shape[array.dims.index(dim)]
    found = find_coordinate(archive, group_of_array(path, array), dim, size)
    about: dict[str, Any] = {"dim": dim, "kind": "index", "units": None, "name": dim, "labels": None, "calendar": None}
    if found is None:
        return about, centres
    labels = archive.array(found)
    about |= {"kind": label_kind(labels), "units": label_units(labels), "name": long_name_of(labels, found)}
    about["calendar"] = calendar_of(labels)
    first, last = max(math.floor(centres[0]), 0), min(math.ceil(centres[-1]), size - 1)
    around = np.arange(first, last + 1)
    if last - first > MAX_LABELS:
        around = np.unique(np.clip(np.concatenate([np.floor(centres), np.ceil(centres)]), 0, size - 1).astype(np.int64))
    rows = around if last - first > MAX_LABELS else slice(first, last + 1)
    values = shown_labels(labels, read_array(labels, rows, context))
    if about["kind"] in ("text", "other"):
        near = np.searchsorted(around, np.clip(np.floor(centres).astype(np.int64), first, last))
        about["labels"] = to_texts(values[near])
        return about, centres
    # The middle of a pixel may lie between two elements: its coordinate then lies between theirs.
    return about, np.interp(centres, around, to_number_array(values).astype(np.float64))


def position_labels(
    archive: OpenedArchive, path: str, array: ShownArray, index: Mapping[str, int], context: ReadContext
) -> dict[str, tuple[str, str | None]]:
    """Return for each dimension the label at a position, and its units; the position itself where there
    is no coordinate.
    """
    group, sizes = group_of_array(path, array), dict(zip(array.dims, array.shape, strict=True))
    found: dict[str, tuple[str, str | None]] = {}
    for dim, position in index.items():
        where = find_coordinate(archive, group, dim, sizes[dim])
        if where is None:
            found[dim] = str(position), None
            continue
        labels = archive.array(where)
        value = read_array(labels, slice(position, position + 1), replace(context, name=where))
        found[dim] = to_text(shown_labels(labels, value)[0]), label_units(labels)
    return found


def selection_text(
    archive: OpenedArchive, path: str, array: ShownArray, index: Mapping[str, int], context: ReadContext
) -> str:
    """Return what is selected, in words; of a forecast also the time that it is about."""
    labels = position_labels(archive, path, array, index, context)
    parts = [f"{dim} {with_units(text, units)}" for dim, (text, units) in labels.items()]
    valid = _valid_time(archive, group_of_array(path, array), index, context)
    return ", ".join(parts if valid is None else [*parts, f"valid {valid}"])


def _valid_time(archive: OpenedArchive, group: str, index: Mapping[str, int], context: ReadContext) -> str | None:
    """Return the time that a selected forecast is about: a coordinate of times along both of its axes, or the sum of
    reference and lead time; None if it is no forecast, or only one of the two is selected.
    """
    member = archive.member(group)
    found: dict[str, npt.NDArray[Any]] = {}
    for name in sorted(member.coords):
        variable = member.variables[name]
        standard_name = variable.attributes.get("standard_name")
        is_joint = len(variable.dims) == 2 and variable.dtype.kind == "M"
        if not set(variable.dims) <= set(index) or not (is_joint or standard_name in (RUN_NAME, LEAD_NAME)):
            continue
        where = f"{group}/{name}" if group else name
        labels = archive.array(where)
        value = read_array(labels, tuple(index[dim] for dim in labels.dims), replace(context, name=where))
        if is_joint:
            return to_text(np.asarray(value)[()])
        if standard_name == LEAD_NAME and labels.dtype.kind in "iuf" and units_of(labels) in TIME_UNITS:
            seconds = np.asarray(value, np.float64) * NANOSECONDS[TIME_UNITS[str(units_of(labels))]] / 1e9
            value = np.round(seconds * 1000).astype("timedelta64[ms]")
        found[str(standard_name)] = np.asarray(value).reshape(1)
    runs, leads = found.get(RUN_NAME), found.get(LEAD_NAME)
    if runs is None or leads is None or runs.dtype.kind not in "MO" or leads.dtype.kind != "m":
        return None
    return to_text(valid_times(runs, leads)[0, 0])
