"""Where cells of a grid have their corners on the earth: edges of axes, corners between centres, from bounds.

Pure computation, in degrees. Corners between centres are interpolated as points of the sphere, so that
the date line and the poles are no exceptions. NaN: no place on the earth.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "bound_corners",
    "centre_corners",
    "compact_degrees",
    "edges_of_axis",
    "fill_gaps",
    "has_gaps",
    "is_ordered",
    "mask_invalid",
    "polygon_areas",
    "to_degrees",
    "to_lon_lat",
    "to_sphere",
    "unwrap_longitudes",
    "vertex_order",
]

Values = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

LARGEST_LONGITUDE = 720.0
"""Longitudes beyond are fill values that are not declared; some grids count on behind 360."""
LARGEST_LATITUDE = 90.01
"""Latitudes a little beyond the pole are rounded ones."""
FINE_CELL = 2e-3
"""Degrees of a cell from which float32 is enough: it resolves 1.5e-5 degrees at the date line."""
LARGEST_MISMATCH = 0.3
"""Distance of the corners that neighbours should share, as a part of the size of a cell."""


def to_degrees(values: npt.NDArray[Any], units: Any) -> Values:
    """Return angles in degrees."""
    numbers = np.asarray(values, dtype=np.float64)
    return np.rad2deg(numbers) if str(units or "").lower() in ("radian", "radians", "rad") else numbers


def unwrap_longitudes(values: Values) -> Values:
    """Return longitudes without jumps by 360 degrees between neighbours.

    Examples
    --------
    >>> unwrap_longitudes(np.array([170.0, 178.0, -174.0])).tolist()
    [170.0, 178.0, 186.0]
    """
    return np.asarray(np.unwrap(values, period=360)) if np.isfinite(values).all() else values


def has_gaps(values: Values) -> bool:
    """Return whether there are numbers missing."""
    return not bool(np.isfinite(values).all())


def is_ordered(values: Values) -> bool:
    """Return whether numbers increase, or decrease, without equal neighbours."""
    steps = np.diff(values)
    return bool((steps > 0).all() or (steps < 0).all())


def edges_of_axis(centres: Values, bounds: Values | None = None) -> Values:
    """Return where cells along an axis meet, one more than there are cells: from bounds, else between the centres.

    Examples
    --------
    >>> edges_of_axis(np.array([0.0, 1.0, 3.0])).tolist()
    [-0.5, 0.5, 2.0, 4.0]
    """
    if bounds is not None and np.isfinite(bounds).all():
        ordered = bounds if (bounds[-1].sum() >= bounds[0].sum()) == (bounds[0, 1] >= bounds[0, 0]) else bounds[:, ::-1]
        edges = np.append(ordered[:, 0], ordered[-1, 1])
        size = np.abs(np.diff(edges)).max(initial=0)
        if np.allclose(ordered[1:, 0], ordered[:-1, 1], rtol=0, atol=1e-3 * size):
            return edges
    if len(centres) == 1:
        return np.asarray(centres[0] + np.array([-0.5, 0.5]))
    between = (centres[:-1] + centres[1:]) / 2
    return np.concatenate([[2 * centres[0] - between[0]], between, [2 * centres[-1] - between[-1]]])


def mask_invalid(lon: Values, lat: Values, *, keep_origin: bool = False) -> tuple[Values, Values]:
    """Return longitudes and latitudes with NaN in place of pairs that are no place on the earth.

    Those are fill values that are not declared, and zeros that stand for missing places: many at exactly (0, 0), unless
    `keep_origin`.
    """
    lon, lat = np.asarray(lon, np.float64), np.asarray(lat, np.float64)
    with np.errstate(invalid="ignore"):
        is_place = (np.abs(lon) <= LARGEST_LONGITUDE) & (np.abs(lat) <= LARGEST_LATITUDE)
    origin = (lon == 0) & (lat == 0)
    if not keep_origin and np.count_nonzero(origin) > 1:
        is_place &= ~origin
    if is_place.all():
        return lon, lat
    return np.where(is_place, lon, np.nan), np.where(is_place, lat, np.nan)


def to_sphere(lon: Values, lat: Values) -> Values:
    """Return places as points of the unit sphere, along a new last axis."""
    lon, lat = np.deg2rad(lon), np.deg2rad(np.clip(lat, -90, 90))
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=-1)


def to_lon_lat(points: Values) -> tuple[Values, Values]:
    """Return longitudes and latitudes of directions from the centre of the sphere."""
    x, y, z = points[..., 0], points[..., 1], points[..., 2]
    return np.rad2deg(np.arctan2(y, x)), np.rad2deg(np.arctan2(z, np.hypot(x, y)))


def centre_corners(points: Values, positions: tuple[Indices, Indices], edges: tuple[Values, Values]) -> Values:
    """Return corners between centres: points of the sphere, one more than the cells along both axes.

    Parameters
    ----------
    points
        The centres, as points of the sphere: (rows, columns, 3).
    positions
        Which rows and columns of the grid these are, increasing.
    edges
        Where corners are wanted along both axes: 3 is between the rows 2 and 3, also in the middle of a row.
    """
    rows, columns = positions
    if len(rows) == 1 or len(columns) == 1:
        points, rows, columns = _widen(points, rows, columns)
    points = fill_gaps(points, (rows, columns))
    return _interpolate(_interpolate(points, rows, edges[0] - 0.5, 0), columns, edges[1] - 0.5, 1)


def _widen(points: Values, rows: Indices, columns: Indices) -> tuple[Values, Indices, Indices]:
    """Return a grid of one row or column with a second one beside it, as far away as its cells are apart."""
    if len(rows) == 1 and len(columns) == 1:
        east = np.cross([0.0, 0.0, 1.0], points[0, 0])
        length = np.linalg.norm(east)
        east = east / length if length > 0 else np.array([1.0, 0.0, 0.0])
        points = np.concatenate([points, points + np.deg2rad(1) * east], axis=1)
        columns = np.append(columns, columns[-1] + 1)
    if len(columns) == 1:
        points, columns, rows = _widen(points.transpose(1, 0, 2), columns, rows)
        return points.transpose(1, 0, 2), rows, columns
    along = np.gradient(points, columns, axis=1)
    return np.concatenate([points, points + np.cross(along, points)]), np.append(rows, rows[-1] + 1), columns


def fill_gaps(points: Values, positions: tuple[Indices, Indices]) -> Values:
    """Return points with those beside the missing ones continued into them, for two cells.

    A cell at the edge of what is known has corners, too.
    """
    for _ in range(2):
        missing = np.isnan(points[..., 0])
        if not missing.any():
            break
        total, count = np.zeros(points.shape), np.zeros(missing.shape)
        for axis in (0, 1):
            for turn in (1, -1):
                moved = np.moveaxis(points, axis, 0)[::turn]
                at = positions[axis][::turn].astype(np.float64)
                if len(at) < 3:
                    continue
                ratio = ((at[2:] - at[1:-1]) / (at[1:-1] - at[:-2]))[:, None, None]
                found = np.full_like(moved, np.nan)
                found[2:] = moved[1:-1] + (moved[1:-1] - moved[:-2]) * ratio
                found = np.moveaxis(found[::turn], 0, axis)
                is_new = missing & np.isfinite(found[..., 0])
                total[is_new] += found[is_new]
                count += is_new
        points = np.where((count > 0)[..., None], total / np.maximum(count, 1)[..., None], points)
    return points


def _interpolate(points: Values, positions: Indices, wanted: Values, axis: int) -> Values:
    """Return points between those along an axis, continued at the ends."""
    at = np.clip(np.searchsorted(positions, wanted, side="right") - 1, 0, len(positions) - 2)
    weight = (wanted - positions[at]) / (positions[at + 1] - positions[at])
    weight = weight[:, None, None] if axis == 0 else weight[None, :, None]
    low, high = points.take(at, axis), points.take(at + 1, axis)
    # A corner in the middle of a cell needs no neighbour.
    return np.where(weight == 0, low, np.where(weight == 1, high, low + (high - low) * weight))


def bound_corners(
    points: Values, positions: tuple[Indices, Indices], edges: tuple[Indices, Indices], order: tuple[int, ...]
) -> Values:
    """Return corners from the bounds of cells.

    Parameters
    ----------
    points
        The four vertices of each cell, as points of the sphere: (rows, columns, 4, 3).
    positions
        Which rows and columns of the grid these are, increasing.
    edges
        Where corners are wanted along both axes: 3 is between the rows 2 and 3.
    order
        As `vertex_order` gives it.
    """
    found = np.full((len(edges[0]), len(edges[1]), 3), np.nan)
    for number, (down, right) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1))):
        # The corner is the first vertex of the cell behind it, the second of the one before, …
        places, known = zip(
            *(_find(at, edge - shift) for at, edge, shift in zip(positions, edges, (down, right), strict=True)),
            strict=True,
        )
        vertices = points[places[0][:, None], places[1][None, :], order[number]]
        is_new = np.isnan(found[..., 0]) & known[0][:, None] & known[1][None, :]
        found[is_new] = vertices[is_new]
    return found


def _find(positions: Indices, wanted: Indices) -> tuple[Indices, npt.NDArray[np.bool_]]:
    at = np.minimum(np.searchsorted(positions, wanted), len(positions) - 1)
    return at, positions[at] == wanted


def vertex_order(points: Values) -> tuple[int, ...] | None:
    """Return which vertex of a cell is its corner before (row, column), and those before the next column, the next row,
    and both; None if neighbours share no corners.

    CF (7.1) has them counterclockwise, as seen from above, beginning anywhere; files have them in any order.

    Parameters
    ----------
    points
        The vertices of some neighbouring cells, as points of the sphere: (rows, columns, 4, 3).
    """
    rows, columns = points.shape[:2]
    size = np.nanmedian(np.linalg.norm(points[:, :, 2] - points[:, :, 0], axis=-1)) if points.size else np.nan
    if not np.isfinite(size):
        return None
    best, least = None, np.inf
    for order in permutations(range(4)):
        one, right, down, both = order
        distances = [
            points[:, :-1, right] - points[:, 1:, one],
            points[:, :-1, both] - points[:, 1:, down],
            points[:-1, :, down] - points[1:, :, one],
            points[:-1, :, both] - points[1:, :, right],
        ]
        lengths = np.concatenate([np.linalg.norm(part, axis=-1).ravel() for part in distances])
        mismatch = float(np.nanmedian(lengths)) if np.isfinite(lengths).any() else 0.0
        if mismatch < least - 1e-9 and not (rows == columns == 1 and order != (0, 1, 3, 2)):
            best, least = order, mismatch
    return best if least <= LARGEST_MISMATCH * size else None


def polygon_areas(points: Values) -> Values:
    """Return areas of polygons on the unit sphere, by the angles at their first vertices.

    Parameters
    ----------
    points
        (…, vertices, 3): the vertices of each, of any direction around; a polygon with fewer repeats one.
    """
    first, total = points[..., 0, :], np.zeros(points.shape[:-2])
    for number in range(1, points.shape[-2] - 1):
        second, third = points[..., number, :], points[..., number + 1, :]
        # Van Oosterom and Strackee: the solid angle of a triangle.
        volume = np.einsum("...i,...i->...", first, np.cross(second, third))
        dots = [np.einsum("...i,...i->...", a, b) for a, b in ((first, second), (second, third), (third, first))]
        total = total + 2 * np.arctan2(volume, 1 + dots[0] + dots[1] + dots[2])
    return np.abs(total)


def compact_degrees(lon: Values, lat: Values) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return places as float32, or as float64 if float32 would not keep cells apart."""
    steps = [np.abs([np.diff(lon, axis=axis), np.diff(lat, axis=axis)]).max(axis=0) for axis in range(lat.ndim)]
    moved = np.concatenate([step.ravel() for step in steps])
    with np.errstate(invalid="ignore"):
        moved = moved[moved > 0]
    dtype = "f8" if len(moved) and np.median(moved) < FINE_CELL else "f4"
    return lon.astype(dtype), lat.astype(dtype)
