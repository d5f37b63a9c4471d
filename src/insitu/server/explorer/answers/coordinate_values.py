"""`api/coordinate`: the labels of a dimension, or the values of a one-dimensional variable."""

from __future__ import annotations

from typing import Any

import numpy as np

from insitu.model import VirtualArray
from insitu.reading import ReadContext, read_array
from insitu.server.error_responses import RequestError
from insitu.server.explorer.api_answer import ApiAnswer, json_answer
from insitu.server.explorer.api_query import check_dimension
from insitu.server.explorer.archive_route import ApiTask, ArchiveRequest
from insitu.server.explorer.shown_values import (
    calendar_of,
    label_kind,
    label_units,
    shown_labels,
    to_json_values,
    type_name,
)
from insitu.server.explorer.spatial_dimensions import find_coordinate

__all__ = ["prepare_coordinate"]

MAX_VALUES = 20_000
"""Values that are sent; of more, every n-th."""


def prepare_coordinate(request: ArchiveRequest) -> ApiTask:
    """Return the task of `api/coordinate`."""
    archive, query = request.archive, request.query
    if query.get("variable"):
        array = archive.array(query["variable"])
        if array.ndim != 1:
            raise RequestError(
                f"a coordinate has one dimension, but {query['variable'][:200]!r} has {array.ndim}",
                why="Ask api/point or api/field for its values",
            )
        return _labels_task(array, array.dims[0])
    dim, group = query.require("dimension"), (query.get("group") or "").strip("/")
    sizes = archive.member(group).sizes
    check_dimension(dim, sizes, "group")
    path = find_coordinate(archive, group, dim, sizes[dim])
    return _labels_task(archive.array(path), dim) if path is not None else _positions_task(dim, sizes[dim])


def _labels_task(array: VirtualArray, dim: str) -> ApiTask:
    size = array.shape[0]
    step = max(-(-size // MAX_VALUES), 1)

    def work(context: ReadContext) -> ApiAnswer:
        values = read_array(array, np.s_[::step], context)
        about: dict[str, Any] = {"dim": dim, "size": size, "dtype": type_name(array), "kind": label_kind(array)}
        return json_answer(
            {
                **about,
                "units": label_units(array),
                "calendar": calendar_of(array),
                "step": step,
                "values": to_json_values(shown_labels(array, values)),
            }
        )

    return ApiTask(work, cost=(1 << 20) + 200 * (size // step))


def _positions_task(dim: str, size: int) -> ApiTask:
    """Return the task for a dimension without labels: its positions."""
    step = max(-(-size // MAX_VALUES), 1)
    about = {
        "dim": dim,
        "size": size,
        "dtype": "int64",
        "kind": "number",
        "units": None,
        "calendar": None,
        "step": step,
    }
    return ApiTask(lambda context: json_answer({**about, "values": list(range(0, size, step))}), cost=4 << 20)
