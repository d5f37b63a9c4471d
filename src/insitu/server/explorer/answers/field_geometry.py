"""`api/geometry`: where the cells of a picture of `api/field` lie on the earth."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.reading import ReadContext
from insitu.server.error_responses import RequestError, RequestTooLargeError
from insitu.server.explorer.answers.field_values import PicturePlan, plan_picture
from insitu.server.explorer.api_answer import ApiAnswer, binary_answer
from insitu.server.explorer.archive_route import ApiTask, ArchiveRequest
from insitu.server.explorer.cell_corners import compact_degrees
from insitu.server.explorer.cell_geometry import BUDGET_BYTES, axis_edges, find_bounds, grid_corners, read_vertices
from insitu.server.explorer.field_query import FieldQuery
from insitu.server.explorer.find_map import FieldMap, find_map
from insitu.server.explorer.opened_archives import OpenedArchive
from insitu.server.explorer.projected_grid import projection_problems

__all__ = ["find_field_map", "prepare_geometry"]

CELL_BYTES = 400
"""Bytes that are held for a cell of a grid: points of the sphere, between which corners are computed."""
VERTEX_BYTES = 100
"""Bytes that are held for a vertex of a cell."""
LABEL_BYTES = 64
"""Bytes that are held for a label of an axis."""


def prepare_geometry(request: ArchiveRequest) -> ApiTask:
    """Return the task of `api/geometry`."""
    archive = request.archive
    plan = plan_picture(request)
    field, found = plan.field, find_field_map(archive, plan.field)
    cells = plan.sampling.y.count * plan.sampling.x.count
    if found.kind == "axes":
        nbytes = max(field.array.shape) * LABEL_BYTES
    else:
        nbytes = cells * (CELL_BYTES if found.kind == "grid" else _vertex_bytes(archive, found)) + BUDGET_BYTES // 4
    if nbytes > request.limits.memory:
        raise RequestTooLargeError(
            "the corners of so many cells need more memory than this server allows: ask for less"
        )

    def work(context: ReadContext) -> ApiAnswer:
        box = field.box
        header = {
            "kind": found.kind,
            "shape": [plan.sampling.y.count, plan.sampling.x.count],
            "box": [box.top, box.bottom, box.left, box.right],
            "sampling": plan.describe_sampling(),
        }
        return binary_answer(header, _read_arrays(archive, plan, found, context))

    return ApiTask(work, cost=nbytes)


def find_field_map(archive: OpenedArchive, field: FieldQuery) -> FieldMap:
    """Return how a field lies on the earth; an error if that is not known."""
    found = find_map(archive, field.group, field.array, field.y, field.x)
    if found is None:
        raise RequestError(
            f"{field.path[:200]!r} cannot be placed on the earth along {field.y!r} and {field.x!r}",
            why="; ".join(
                [
                    "It has no longitudes and latitudes of these dimensions",
                    *(f"{path}: {reason}" for path, reason in projection_problems(archive).items()),
                ]
            ),
        )
    return found


def _read_arrays(
    archive: OpenedArchive, plan: PicturePlan, found: FieldMap, context: ReadContext
) -> dict[str, npt.NDArray[Any]]:
    if found.kind == "cells":
        return _read_cells(archive, plan, found, context)
    if found.kind == "axes":
        assert found.lon is not None
        assert found.lat is not None
        lon = axis_edges(archive, found.lon, "x", plan.edges[1], context)
        lat = axis_edges(archive, found.lat, "y", plan.edges[0], context)
        return {"lon_edges": lon, "lat_edges": lat}
    lon, lat = compact_degrees(*grid_corners(archive, plan.field, found, plan.edges, context))
    return {"lon": np.ascontiguousarray(lon), "lat": np.ascontiguousarray(lat)}


def _vertex_bytes(archive: OpenedArchive, found: FieldMap) -> int:
    """Return the bytes that are held for a cell."""
    if found.mesh is not None:
        sizes = archive.variable(found.mesh.connectivity).sizes
        return VERTEX_BYTES * max([size for dim, size in sizes.items() if dim != found.mesh.faces], default=1)
    bounds = None if found.lon is None else find_bounds(archive, found.lon, None)
    return VERTEX_BYTES * (1 if bounds is None else archive.variable(bounds).shape[-1])


def _read_cells(
    archive: OpenedArchive, plan: PicturePlan, found: FieldMap, context: ReadContext
) -> dict[str, npt.NDArray[Any]]:
    """Return the vertices of cells one after another, where each cell begins, and which cells they are."""
    cells = plan.cells
    first, last = int(cells[0]), int(cells[-1])
    is_all = last - first + 1 == len(cells)
    used, where = np.unique(cells, return_inverse=True)
    lon, lat, is_vertex = read_vertices(archive, plan.field, found, slice(first, last + 1) if is_all else used, context)
    if not is_all and len(used) < len(cells):
        lon, lat, is_vertex = lon[where], lat[where], is_vertex[where]
    offsets = np.append(0, np.cumsum(is_vertex.sum(axis=1)))
    lon, lat = compact_degrees(lon, lat)
    return {
        "lon": lon[is_vertex],
        "lat": lat[is_vertex],
        "offsets": offsets.astype("u4"),
        "cells": cells.astype("u4"),
    }
