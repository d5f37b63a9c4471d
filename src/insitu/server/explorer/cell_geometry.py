"""Where the cells of a field lie: the coordinates of its map are read and made edges of axes, or corners."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline
from insitu.reading import ReadContext, read_array
from insitu.server.error_responses import RequestError
from insitu.server.explorer.cell_corners import (
    bound_corners,
    centre_corners,
    edges_of_axis,
    has_gaps,
    is_ordered,
    mask_invalid,
    polygon_areas,
    to_degrees,
    to_lon_lat,
    to_sphere,
    unwrap_longitudes,
    vertex_order,
)
from insitu.server.explorer.field_query import FieldQuery
from insitu.server.explorer.field_sampling import FieldBox, sample_field
from insitu.server.explorer.find_map import FieldMap
from insitu.server.explorer.formula_array import estimate_values
from insitu.server.explorer.mesh import read_faces
from insitu.server.explorer.opened_archives import OpenedArchive
from insitu.server.explorer.projected_grid import Projection
from insitu.server.explorer.spatial_dimensions import variable_attribute

__all__ = [
    "axis_edges",
    "find_bounds",
    "grid_corners",
    "has_areas",
    "read_areas",
    "read_places",
    "read_vertices",
    "row_slabs",
]

BUDGET_BYTES = 256 << 20
"""Bytes that the chunks of coordinates may decode to; of larger ones, fewer are read, and corners lie between them."""
SLAB_CELLS = 1 << 18
"""Cells whose corners are held at a time where areas of all are wanted."""
PATCH_CELLS = 32
"""Rows and columns of the cells that tell in which order vertices are."""
Values = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


def axis_edges(archive: OpenedArchive, path: str, side: str, edges: Values, context: ReadContext) -> Values:
    """Return the longitude or latitude at edges along an axis.

    Parameters
    ----------
    archive, path
        The labels of the axis.
    side
        `x` for longitudes, which increase or decrease throughout; `y` for latitudes, which end at the poles.
    edges
        Positions along the axis: 3 is between the labels 2 and 3.
    context
        How to read.
    """
    array = archive.array(path)
    units = variable_attribute(array, "units")
    centres = to_degrees(read_array(array, ..., replace(context, name=path)), units)
    if side == "x":
        centres = unwrap_longitudes(centres)
    if has_gaps(centres) or not is_ordered(centres):
        word = "longitudes" if side == "x" else "latitudes"
        raise RequestError(
            f"the {word} {path[:200]!r} neither increase nor decrease throughout: there is no map of them"
        )
    bounds = find_bounds(archive, path, 2)
    ends = None
    if bounds is not None:
        ends = to_degrees(read_array(archive.array(bounds), ..., replace(context, name=bounds)), units)
        if side == "x":  # each cell beside its centre
            ends = ends + 360 * np.round((centres[:, None] - ends) / 360)
        if not ((np.minimum(*ends.T) <= centres) & (centres <= np.maximum(*ends.T))).all():
            ends = None
    found = np.interp(edges, np.arange(len(centres) + 1), edges_of_axis(centres, ends))
    return found if side == "x" else np.clip(found, -90, 90)


def find_bounds(archive: OpenedArchive, path: str, vertices: int | None) -> str | None:
    """Return the path of the bounds of a coordinate, if these have the shape that CF 7.1 asks for."""
    group, _, _ = path.rpartition("/")
    coordinate = archive.variable(path)
    name = str(variable_attribute(coordinate, "bounds") or "")
    found = archive.member(group).variables.get(name)
    if found is None or found.shape[:-1] != coordinate.shape or found.dtype.kind not in "fiu":
        return None
    fits = len(found.shape) == len(coordinate.shape) + 1 and vertices in (None, found.shape[-1])
    return (f"{group}/{name}" if group else name) if fits else None


def grid_corners(
    archive: OpenedArchive, field: FieldQuery, found: FieldMap, edges: tuple[Values, Values], context: ReadContext
) -> tuple[Values, Values]:
    """Return longitudes and latitudes of corners, rows first.

    Parameters
    ----------
    archive, field, found
        A field and its map, whose kind is `grid`.
    edges
        Where corners are wanted along y and x: 3 is between the rows 2 and 3.
    context
        How to read.
    """
    if found.projection is not None:
        return found.projection.to_lon_lat(*_projected_edges(archive, field, found, found.projection, edges, context))
    assert found.lon is not None
    assert found.lat is not None
    lon_dims, lat_dims = archive.variable(found.lon).dims, archive.variable(found.lat).dims
    if len(lon_dims) == len(lat_dims) == 1:  # rows of one longitude
        lon = axis_edges(archive, found.lon, "x", edges[0 if lon_dims == (field.y,) else 1], context)
        lat = axis_edges(archive, found.lat, "y", edges[0 if lat_dims == (field.y,) else 1], context)
        turned = np.meshgrid(lon, lat, indexing="ij" if lon_dims == (field.y,) else "xy")
        return turned[0], turned[1]
    corners = _corners_of_bounds(archive, field, found, edges, context)
    if corners is None:
        positions = _centre_positions(archive, field, found, edges)
        lon, lat = read_centres(archive, field, found, positions, context)
        corners = centre_corners(to_sphere(lon, lat), positions, edges)
    return to_lon_lat(corners)


def _projected_edges(
    archive: OpenedArchive,
    field: FieldQuery,
    found: FieldMap,
    projection: Projection,
    edges: tuple[Values, Values],
    context: ReadContext,
) -> tuple[Values, Values]:
    """Return coordinates x and y of a projection at edges of rows and columns."""
    if not found.labels:
        assert projection.geo_transform is not None
        x0, x_column, x_row, y0, y_column, y_row = projection.geo_transform
        row, column = edges[0][:, None], edges[1][None, :]
        return x0 + column * x_column + row * x_row, y0 + column * y_column + row * y_row
    along: dict[str, Values] = {}
    for side in ("x", "y"):
        path = found.labels[side]
        array = archive.array(path)
        centres = np.asarray(read_array(array, ..., replace(context, name=path)), np.float64)
        if has_gaps(centres) or not is_ordered(centres):
            raise RequestError(f"{path[:200]!r} neither increases nor decreases throughout: there is no map of it")
        bounds = find_bounds(archive, path, 2)
        ends = None
        if bounds is not None:
            ends = np.asarray(read_array(archive.array(bounds), ..., replace(context, name=bounds)), np.float64)
        scale = projection.scale_of(variable_attribute(array, "units"))
        meeting = scale * edges_of_axis(centres, ends)
        axis = 0 if array.dims == (field.y,) else 1
        values = np.interp(edges[axis], np.arange(len(meeting)), meeting)
        along[side] = np.expand_dims(values, 1 - axis)
    x, y = np.broadcast_arrays(along["x"], along["y"])
    return x, y


def read_vertices(
    archive: OpenedArchive, field: FieldQuery, found: FieldMap, positions: slice | Indices, context: ReadContext
) -> tuple[Values, Values, npt.NDArray[np.bool_]]:
    """Return longitudes and latitudes of the vertices of some cells, and which of them there are.

    The arrays have the shape (cells, most vertices): a point has one.
    """
    if found.mesh is not None:
        return read_faces(archive, found.mesh, positions, context)
    assert found.lon is not None
    assert found.lat is not None
    paths = [find_bounds(archive, path, None) for path in (found.lon, found.lat)]
    if paths[0] is None or paths[1] is None or archive.variable(paths[0]).shape != archive.variable(paths[1]).shape:
        lon, lat = (
            _read_along(archive, field, path, path, positions, context)[:, None] for path in (found.lon, found.lat)
        )
        lon, lat = mask_invalid(lon, lat)
        return lon, lat, np.ones(lon.shape, bool)
    lon = _read_along(archive, field, paths[0], found.lon, positions, context)
    lat = _read_along(archive, field, paths[1], found.lat, positions, context)
    lon, lat = mask_invalid(lon, lat, keep_origin=True)
    # Cells with fewer vertices have missing ones behind them, or the last one again.
    again = np.zeros(lon.shape, bool)
    again[:, 1:] = (lon[:, 1:] == lon[:, :-1]) & (lat[:, 1:] == lat[:, :-1])
    return lon, lat, np.isfinite(lon) & ~again


def _read_along(
    archive: OpenedArchive, field: FieldQuery, path: str, centres: str, positions: slice | Indices, context: ReadContext
) -> Values:
    """Return a coordinate of cells, or its bounds, in degrees; bounds without units have those of the centres."""
    array = archive.array(path)
    key = tuple(positions if dim == field.x else slice(None) for dim in array.dims)
    units = variable_attribute(array, "units") or variable_attribute(archive.array(centres), "units")
    return to_degrees(read_array(array, key, replace(context, name=path)), units)


def read_places(
    archive: OpenedArchive, field: FieldQuery, found: FieldMap, rows: slice, columns: slice, context: ReadContext
) -> tuple[Values, Values]:
    """Return longitudes and latitudes of the centres of cells in a box of a field, of any kind of map."""
    if found.kind == "cells":
        if found.lon is not None and found.lat is not None:
            lon, lat = (_read_along(archive, field, path, path, columns, context) for path in (found.lon, found.lat))
            lon, lat = mask_invalid(lon, lat)
        else:
            vertices = read_vertices(archive, field, found, columns, context)
            points = np.where(vertices[2][..., None], to_sphere(vertices[0], vertices[1]), 0)
            lon, lat = to_lon_lat(points.sum(axis=1))
        return lon[None, :], lat[None, :]
    if found.projection is not None:
        middles = np.arange(rows.start, rows.stop) + 0.5, np.arange(columns.start, columns.stop) + 0.5
        return grid_corners(archive, field, found, middles, context)
    return read_centres(archive, field, found, (rows, columns), context)


def has_areas(archive: OpenedArchive, found: FieldMap) -> bool:
    """Return whether the corners of cells are known: those of points are not."""
    if found.kind != "cells" or found.mesh is not None:
        return True
    return found.lon is not None and find_bounds(archive, found.lon, None) is not None


def read_areas(
    archive: OpenedArchive, field: FieldQuery, found: FieldMap, rows: slice, columns: slice, context: ReadContext
) -> Values:
    """Return areas of the cells in a box of a field, on the unit sphere; 0 where there is no place on the earth."""
    if found.kind == "cells":
        lon, lat, is_vertex = read_vertices(archive, field, found, columns, context)
        points = to_sphere(lon, lat)
        for number in range(1, points.shape[1]):  # a polygon with fewer vertices repeats one
            points[:, number] = np.where(is_vertex[:, number, None], points[:, number], points[:, number - 1])
        return np.nan_to_num(polygon_areas(points))[None, :]
    edges = np.arange(rows.start, rows.stop + 1, dtype=float), np.arange(columns.start, columns.stop + 1, dtype=float)
    points = to_sphere(*grid_corners(archive, field, found, edges, context))
    around = np.stack([points[:-1, :-1], points[:-1, 1:], points[1:, 1:], points[1:, :-1]], axis=-2)
    return np.nan_to_num(polygon_areas(around))


def row_slabs(rows: slice, width: int) -> Iterator[slice]:
    """Yield parts of some rows, whose corners are held at a time."""
    count = max(SLAB_CELLS // max(width, 1), 1)
    for begin in range(rows.start, rows.stop, count):
        check_deadline()
        yield slice(begin, min(begin + count, rows.stop))


def read_centres(
    archive: OpenedArchive, field: FieldQuery, found: FieldMap, positions: tuple[Any, Any], context: ReadContext
) -> tuple[Values, Values]:
    """Return longitudes and latitudes of the centres of cells at some rows and columns."""
    assert found.lon is not None
    assert found.lat is not None
    lon, lat = (_read_degrees(archive, field, path, path, positions, context) for path in (found.lon, found.lat))
    lon, lat = np.broadcast_arrays(lon, lat)
    return mask_invalid(lon, lat)


def _read_degrees(
    archive: OpenedArchive, field: FieldQuery, path: str, centres: str, positions: tuple[Any, Any], context: ReadContext
) -> Values:
    """Return a coordinate, or its bounds, at some rows and columns, in degrees; bounds have their vertices last."""
    array = archive.array(path)
    read = read_array(array, _coordinate_key(field, array.dims, positions), replace(context, name=path))
    values = to_degrees(read, variable_attribute(array, "units") or variable_attribute(archive.array(centres), "units"))
    left = [dim for dim in array.dims if dim in (field.y, field.x)]
    if left == [field.x, field.y]:
        return values.swapaxes(0, 1)
    return values if len(left) == 2 else values[:, None] if left == [field.y] else values[None, :]


def _coordinate_key(field: FieldQuery, dims: tuple[str, ...], positions: tuple[Any, Any]) -> tuple[Any, ...]:
    """Return the selection of a coordinate: along its other dimensions the position of the field."""
    sizes = dict(zip(field.array.dims, field.array.shape, strict=True))
    chosen: dict[Any, Any] = {dim: field.index.get(dim, 0) for dim in sizes}
    chosen |= {field.y: positions[0], field.x: positions[1]}
    return tuple(chosen.get(dim, slice(None)) for dim in dims)


def _centre_positions(
    archive: OpenedArchive, field: FieldQuery, found: FieldMap, edges: tuple[Values, Values]
) -> tuple[Indices, Indices]:
    """Return the rows and columns whose centres are read: that of each pixel, and those at the borders.

    If their chunks decode to too much, fewer.
    """
    assert found.lon is not None
    assert field.y is not None
    sizes = dict(zip(field.array.dims, field.array.shape, strict=True))
    rows, columns = (_pixel_positions(along, sizes[dim]) for along, dim in zip(edges, (field.y, field.x), strict=True))
    array = archive.array(found.lon)
    if array.ndim < 2 or estimate_values(array, _coordinate_key(field, array.dims, (rows, columns))).bytes_decoded <= (
        BUDGET_BYTES
    ):
        return rows, columns
    box = FieldBox(int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1)
    dims = array.dims.index(field.y), array.dims.index(field.x)
    sampling = sample_field(
        array,
        dims,
        lambda *positions: _coordinate_key(field, array.dims, positions),
        box,
        (len(rows), len(columns)),
        "nearest",
        BUDGET_BYTES,
    )
    assert sampling is not None
    return tuple(_to_positions(side.selector) for side in (sampling.y, sampling.x))  # type: ignore[return-value]


def _to_positions(selector: slice | Indices) -> Indices:
    return np.arange(selector.start, selector.stop, selector.step) if isinstance(selector, slice) else selector


def _pixel_positions(edges: Values, size: int) -> Indices:
    """Return the positions of the middle of each pixel, of the cells at both ends, and of their neighbours outside."""
    middles = np.floor((edges[:-1] + edges[1:] - 1) / 2)
    ends = [np.floor(edges[0]) - 1, np.floor(edges[0]), np.ceil(edges[-1]) - 1, np.ceil(edges[-1])]
    found = np.unique(np.concatenate([middles, ends])).astype(np.int64)
    return found[(found >= 0) & (found < size)]


def _corners_of_bounds(
    archive: OpenedArchive, field: FieldQuery, found: FieldMap, edges: tuple[Values, Values], context: ReadContext
) -> Values | None:
    """Return corners that the bounds of cells say; None if there are none, or neighbours do not share theirs."""
    if found.lon is None or found.lat is None:
        return None
    paths = [find_bounds(archive, path, 4) for path in (found.lon, found.lat)]
    if paths[0] is None or paths[1] is None or len(archive.variable(found.lon).dims) < 2:
        return None
    (lon_path, lat_path), (lon_bounds, lat_bounds) = (found.lon, found.lat), (paths[0], paths[1])
    assert field.y is not None
    sizes = dict(zip(field.array.dims, field.array.shape, strict=True))
    shape = sizes[field.y], sizes[field.x]
    whole = tuple(np.round(along).astype(np.int64) for along in edges)
    positions = tuple(np.unique(np.minimum(along, size - 1)) for along, size in zip(whole, shape, strict=True))
    array = archive.array(lon_bounds)
    if estimate_values(array, _coordinate_key(field, array.dims, (positions[0], positions[1]))).bytes_decoded > (
        BUDGET_BYTES
    ):
        return None

    def read(where: tuple[Any, Any]) -> Values:
        lon = _read_degrees(archive, field, lon_bounds, lon_path, where, context)
        lat = _read_degrees(archive, field, lat_bounds, lat_path, where, context)
        return to_sphere(*mask_invalid(lon, lat, keep_origin=True))

    middles = [int(along[len(along) // 2]) for along in whole]
    patch = [
        slice(max(min(middle, size - 1) - PATCH_CELLS // 2, 0), middle + PATCH_CELLS // 2)
        for middle, size in zip(middles, shape, strict=True)
    ]
    order = vertex_order(read((patch[0], patch[1])))
    if order is None:
        return None
    return bound_corners(read((positions[0], positions[1])), (positions[0], positions[1]), (whole[0], whole[1]), order)
