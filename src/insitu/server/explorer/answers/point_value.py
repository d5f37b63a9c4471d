"""`api/point`: the exact value of a variable at one position, with the labels and coordinates there."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from insitu.errors import InsituError
from insitu.reading import ReadContext, read_array
from insitu.server.error_responses import RequestError, RequestTooLargeError
from insitu.server.explorer.api_answer import ApiAnswer, json_answer
from insitu.server.explorer.archive_route import ApiTask, ArchiveRequest
from insitu.server.explorer.field_query import find_values
from insitu.server.explorer.formula_array import estimate_values, group_of_array, read_values
from insitu.server.explorer.shown_values import (
    label_units,
    shown_labels,
    to_number_array,
    to_text,
    units_of,
    with_units,
)
from insitu.server.explorer.side_labels import position_labels

__all__ = ["is_missing", "prepare_point"]

MAX_COORDINATES = 20
"""Coordinates that are read at a point."""


def prepare_point(request: ArchiveRequest) -> ApiTask:
    """Return the task of `api/point`."""
    archive, query = request.archive, request.query
    path, array, sizes = find_values(archive, query)
    index = query.index(sizes)
    if missing := [dim for dim in sizes if dim not in index]:
        raise RequestError(f"a point needs the index of every dimension: {', '.join(missing)} is not given")
    key = tuple(index[dim] for dim in array.dims)
    weight = estimate_values(array, key)
    if weight.chunk > request.limits.chunk:
        raise RequestTooLargeError(
            f"a chunk of {weight.chunk:,} bytes is larger than the limit of this server, {request.limits.chunk:,} bytes"
        )

    def work(context: ReadContext) -> ApiAnswer:
        value = np.asarray(read_values(array, key, replace(context, name=path)))[()]
        labels = position_labels(archive, path, array, index, context)
        return json_answer(
            {
                "value": to_text(value),
                "number": _number(value),
                "missing": is_missing(value),
                "units": units_of(array),
                "labels": {dim: with_units(text, units) for dim, (text, units) in labels.items()},
                "coordinates": {name: _coordinate_text(request, where, index, context) for name, where in nearby},
            }
        )

    group = group_of_array(path, array)
    member = archive.member(group)
    nearby = [
        (other, f"{group}/{other}" if group else other)
        for other, variable in member.variables.items()
        if other in member.coords
        and other != path.rpartition("/")[2]
        and variable.dims != (other,)
        and set(variable.dims) <= set(sizes)
    ][:MAX_COORDINATES]
    return ApiTask(work, cost=(1 << 20) + 2 * weight.chunk + weight.plan)


def _coordinate_text(request: ArchiveRequest, path: str, index: dict[str, int], context: ReadContext) -> str:
    try:
        array = request.archive.array(path)
        key = tuple(index[dim] for dim in array.dims)
        value = np.asarray(read_array(array, key, replace(context, name=path)))[()]
    except InsituError:
        return "cannot be read"  # the value that was asked for is there nevertheless
    return with_units(to_text(shown_labels(array, value)[()]), label_units(array))


def is_missing(value: Any) -> bool:
    """Return whether a value means that there is none: NaN, NaT, None."""
    if value is None:
        return True
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    return isinstance(value, (float, complex, np.inexact)) and bool(np.isnan(value))


def _number(value: Any) -> float | int | None:
    """Return a value as a number of JSON; times in milliseconds since 1970."""
    if is_missing(value) or isinstance(value, (str, bytes, complex, np.complexfloating, np.void, np.ndarray)):
        return None
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, (int, np.integer)) and not isinstance(value, np.timedelta64):
        return int(value)
    found = float(to_number_array(np.array(value))[()])
    return found if math.isfinite(found) else None
