"""Regions of a field: a box or a polygon as a mask of cells, and the area that each cell counts for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.reading import ReadContext, read_array
from insitu.server.error_responses import RequestError, RequestTooLargeError
from insitu.server.explorer.api_query import ApiQuery
from insitu.server.explorer.cell_geometry import has_areas, read_areas, read_places, row_slabs
from insitu.server.explorer.field_query import FieldQuery
from insitu.server.explorer.find_map import FieldMap, find_map, is_earth_coordinate
from insitu.server.explorer.formula_array import ShownArray, group_of_array
from insitu.server.explorer.opened_archives import OpenedArchive
from insitu.server.explorer.shown_values import is_calendar_time, kind_of, to_number_array
from insitu.server.explorer.spatial_dimensions import find_coordinate, variable_attribute

__all__ = [
    "Region",
    "area_weights",
    "parse_region",
    "parse_region_of_map",
    "points_in_polygon",
    "polygon_mask",
    "side_centres",
]

MAX_CELLS = 16 << 20
"""Cells of the box around a region: their weights are held in memory."""
MAX_VERTICES = 1000
Values = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Region:
    """Cells of a field: rows and columns, and which of the cells in them lie inside."""

    rows: slice
    columns: slice
    mask: npt.NDArray[np.bool_] | None = None
    """None: all."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    @property
    def cells(self) -> int:
        """Number of cells inside."""
        return math.prod(self.shape) if self.mask is None else int(np.count_nonzero(self.mask))


def parse_region(query: ApiQuery, centres: Mapping[str, Values]) -> Region:
    """Return the region that a query asks for: the cells of its `box`, or those whose centres lie in its `polygon`.

    Parameters
    ----------
    query
        The query.
    centres
        For `y` and `x`, the coordinates of the centres, or the positions 0, 1, 2 … if the polygon is given by index.
    """
    height, width = len(centres["y"]), len(centres["x"])
    vertices = query.polygon(MAX_VERTICES)
    if vertices is None:
        top, bottom, left, right = query.box(height, width)
        region = Region(slice(top, bottom), slice(left, right))
        _check_size(region)
        return region
    points = np.array(vertices, np.float64)
    around = [_range_between(centres[side], points[:, axis]) for axis, side in ((1, "y"), (0, "x"))]
    if around[0] is not None and around[1] is not None:
        _check_size(Region(around[0], around[1]))
        mask = polygon_mask(centres["x"][around[1]], centres["y"][around[0]], points)
        if mask.any():
            return Region(around[0], around[1], mask)
    raise _no_centre()


def _check_size(region: Region) -> None:
    cells = math.prod(region.shape)
    if cells > MAX_CELLS:
        raise RequestTooLargeError(
            f"the region covers {cells:,} cells, and this server weighs up to {MAX_CELLS:,} at once: draw a smaller one"
        )


def _range_between(centres: Values, ends: Values) -> slice | None:
    """Return the positions from the first to the last centre that lies between the extremes of some numbers."""
    inside = np.flatnonzero((centres >= ends.min()) & (centres <= ends.max()))
    return slice(int(inside[0]), int(inside[-1]) + 1) if len(inside) else None


def polygon_mask(xs: Values, ys: Values, polygon: Values) -> npt.NDArray[np.bool_]:
    """Return which points of a grid lie inside a polygon, by the even-odd rule.

    Parameters
    ----------
    xs, ys
        Coordinates of the columns and of the rows, in any order.
    polygon
        Its vertices, x and y of each; the last is joined to the first.

    Examples
    --------
    >>> triangle = np.array([[0, 0], [4, 0], [0, 4]])
    >>> polygon_mask(np.array([1.0, 2.0, 3.5]), np.array([1.0, 2.5]), triangle).tolist()
    [[True, True, False], [True, False, False]]
    """
    order = np.argsort(xs, kind="stable")
    ordered = xs[order]
    # Where a row crosses an edge, all points to the left change sides: an edge costs one entry for each row.
    toggles = np.zeros((len(ys), len(xs) + 1), np.uint8)
    for (x0, y0), (x1, y1) in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        rows = np.flatnonzero((y0 <= ys) != (y1 <= ys))
        if not len(rows):
            continue
        crossings = x0 + (ys[rows] - y0) * ((x1 - x0) / (y1 - y0))
        toggles[rows, 0] ^= 1
        toggles[rows, np.searchsorted(ordered, crossings)] ^= 1
    found = np.empty((len(ys), len(xs)), bool)
    found[:, order] = np.bitwise_xor.accumulate(toggles[:, :-1], axis=1).astype(bool)
    return found


def parse_region_of_map(
    archive: OpenedArchive, field: FieldQuery, found: FieldMap, query: ApiQuery, context: ReadContext
) -> Region:
    """Return the region that a query asks for, whose polygon has longitudes and latitudes as vertices: its edges are
    straight where both are the sides of the picture, and it may cross the date line.
    """
    height, width = field.shape
    vertices = query.polygon(MAX_VERTICES)
    if vertices is None:
        return parse_region(query, {"y": np.arange(height), "x": np.arange(width)})
    polygon = np.array(vertices, np.float64)
    middle = (polygon[:, 0].min() + polygon[:, 0].max()) / 2
    around = Region(slice(0, height), slice(0, width))
    if found.kind == "axes":  # of a large field few rows and columns come near
        lon, _ = read_places(archive, field, found, slice(0, 1), around.columns, context)
        _, lat = read_places(archive, field, found, around.rows, slice(0, 1), context)
        near_rows = _range_between(lat[:, 0], polygon[:, 1])
        near_columns = _range_between(_near(lon[0], middle), polygon[:, 0])
        if near_rows is None or near_columns is None:
            raise _no_centre()
        around = Region(near_rows, near_columns)
    _check_size(around)
    mask = np.zeros(around.shape, bool)
    for part in row_slabs(around.rows, around.shape[1]):
        lon, lat = read_places(archive, field, found, part, around.columns, context)
        mask[part.start - around.rows.start : part.stop - around.rows.start] = points_in_polygon(
            _near(lon, middle), lat, polygon
        )
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        raise _no_centre()
    box = slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)
    top, left = around.rows.start, around.columns.start
    return Region(
        slice(top + box[0].start, top + box[0].stop), slice(left + box[1].start, left + box[1].stop), mask[box]
    )


def _near(longitudes: Values, middle: float) -> Values:
    """Return longitudes that are half a turn from another one at most."""
    return np.asarray(middle + (longitudes - middle + 180) % 360 - 180)


def points_in_polygon(xs: Values, ys: Values, polygon: Values) -> npt.NDArray[np.bool_]:
    """Return which points lie inside a polygon, by the even-odd rule.

    Parameters
    ----------
    xs, ys
        Coordinates of the points; NaN lies outside.
    polygon
        Its vertices, x and y of each; the last is joined to the first.

    Examples
    --------
    >>> points_in_polygon(np.array([1.0, 3.5]), np.array([1.0, 2.5]), np.array([[0, 0], [4, 0], [0, 4]])).tolist()
    [True, False]
    """
    found = np.zeros(xs.shape, bool)
    with np.errstate(invalid="ignore"):
        (low_x, low_y), (high_x, high_y) = polygon.min(axis=0), polygon.max(axis=0)
        near = (xs >= low_x) & (xs <= high_x) & (ys >= low_y) & (ys <= high_y)
    x, y = xs[near], ys[near]
    inside = np.zeros(x.shape, bool)
    for (x0, y0), (x1, y1) in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        if y0 != y1:
            inside ^= ((y0 <= y) != (y1 <= y)) & (x < x0 + (y - y0) * ((x1 - x0) / (y1 - y0)))
    found[near] = inside
    return found


def _no_centre() -> RequestError:
    return RequestError("the centre of no cell lies within the polygon: draw a larger one")


def side_centres(
    archive: OpenedArchive,
    path: str,
    array: ShownArray,
    dims: Mapping[str, str | None],
    by_index: bool,
    context: ReadContext,
) -> dict[str, Values]:
    """Return the coordinates of the cells along both sides of a field, as the page has them on its axes.

    Parameters
    ----------
    archive, path, array
        The variable or formula.
    dims
        Its dimensions along `y` and `x`; None: one row of cells.
    by_index
        Whether positions count in place of coordinates.
    context
        How to read.
    """
    found: dict[str, Values] = {}
    for side, dim in dims.items():
        if dim is None:
            found[side] = np.zeros(1)
            continue
        size = array.shape[array.dims.index(dim)]
        label = None if by_index else find_coordinate(archive, group_of_array(path, array), dim, size)
        labels = None if label is None else archive.array(label)
        found[side] = np.arange(size, dtype=np.float64)
        if labels is not None and kind_of(labels) in ("number", "time") and not is_calendar_time(labels):
            centres = to_number_array(read_array(labels, ..., context)).astype(np.float64)
            steps = np.diff(centres)
            if (steps > 0).all() or (steps < 0).all():  # else the page draws by position, too
                found[side] = centres
    return found


def area_weights(archive: OpenedArchive, field: FieldQuery, region: Region, context: ReadContext) -> tuple[Values, str]:
    """Return what each cell of the box around a region counts for, and where that comes from, in words.

    The areas that `cell_measures` names; else, along a latitude, the difference of the sines of its bounds, times
    the width of the bounds of longitude; else the cosine of latitude; else the areas between the corners of cells,
    if these are known; else 1.
    """
    group, array = field.group, field.array
    dims = {side: dim for side, dim in (("y", field.y), ("x", field.x)) if dim is not None}
    chosen = {dim: region.rows if side == "y" else region.columns for side, dim in dims.items()}
    member = archive.member(group)

    def find(name: str) -> str | None:
        return (f"{group}/{name}" if group else name) if name in member.variables else None

    def read_cells(name: str) -> Values:
        """Return a variable of both dimensions, rows first."""
        of = archive.array(name)
        values = to_number_array(read_array(of, tuple(chosen[dim] for dim in of.dims), context)).astype(np.float64)
        return values.reshape(region.shape) if of.dims[0] != field.x or field.y is None else values.T

    found_map = find_map(archive, group, array, field.y, field.x)
    measures = str(variable_attribute(array, "cell_measures") or "").split()
    for word, name in pairwise(measures):
        place = find(name)
        if word == "area:" and place is not None and set(archive.array(place).dims) == set(chosen):
            return np.nan_to_num(read_cells(place)), f"cell areas ({name})"
    weights, weighting = np.ones(region.shape), ""
    for side, axis in (("y", 0), ("x", 1)) if field.y is not None else ():
        found = find_coordinate(archive, group, dims[side], array.shape[array.dims.index(dims[side])])
        if found is None or not (_is_latitude(archive, found) or _is_longitude(archive, found)):
            continue
        part = region.rows if side == "y" else region.columns
        along, text = _weights_along(archive, found, find, part, context)
        weights = weights * np.expand_dims(along, 1 - axis)
        weighting = text if _is_latitude(archive, found) else weighting
    if weighting:
        return weights, weighting
    if found_map is not None and has_areas(archive, found_map):
        parts = [
            read_areas(archive, field, found_map, part, region.columns, context)
            for part in row_slabs(region.rows, region.shape[1])
        ]
        return np.concatenate(parts), "areas between the corners of cells"
    return np.ones(region.shape), "every cell counts the same"


def _weights_along(
    archive: OpenedArchive, path: str, find: Any, part: slice, context: ReadContext
) -> tuple[Values, str]:
    """Return weights along a one-dimensional latitude or longitude, and where they come from."""
    labels, is_latitude = archive.array(path), _is_latitude(archive, path)
    place = find(str(variable_attribute(labels, "bounds") or ""))
    if place is not None:
        bounds = archive.array(place)
        if bounds.shape == (labels.shape[0], 2):
            ends = to_number_array(read_array(bounds, (part, slice(None)), context)).astype(np.float64)
            ends = np.sin(np.deg2rad(np.clip(ends, -90, 90))) if is_latitude else ends
            return np.abs(ends[:, 1] - ends[:, 0]), f"cell bounds ({place.rpartition('/')[2]})"
    if not is_latitude:
        return np.ones(part.stop - part.start), ""
    values = to_number_array(read_array(labels, part, context)).astype(np.float64)
    return np.maximum(np.cos(np.deg2rad(values)), 0), "cosine of latitude"


def _is_latitude(archive: OpenedArchive, path: str) -> bool:
    return is_earth_coordinate("y", path, archive.variable(path))


def _is_longitude(archive: OpenedArchive, path: str) -> bool:
    return is_earth_coordinate("x", path, archive.variable(path))
