"""Coordinates of GRIB grids: latitudes and longitudes, by ecCodes, from the headers alone.

Each grid is asked for once. Latitudes and longitudes of regular grids are dimensions; those of
projected and rotated grids have both axes; all others lie in one row of points. Large coordinates
are not kept but computed when they are read, from the first message.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError, InsituError
from insitu.forking import fork_safe_lock
from insitu.formats.grib.header_keys import EccodesMessage
from insitu.formats.grib.sections import GribField
from insitu.formats.grib.vocabulary import COORDINATES, ROWS_AND_COLUMNS
from insitu.model import Axis, Codec, Columns, Encoding, Source, Tile, VirtualArray

__all__ = ["GridCoordinates", "find_grid_coordinates"]

KEPT_POINTS = 1 << 16
"""Most points of a grid whose latitudes and longitudes are kept, half a MiB each."""
COMPUTED_POINTS = 1 << 26
"""Most points of a regular grid whose axes are computed: ecCodes lists all points to find the
distinct values.
"""
MEMORY = 64


@dataclass(frozen=True, slots=True)
class GridCoordinates:
    """The dimensions of a grid, and its coordinates."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    values: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    """Coordinates that are kept in memory."""
    lazy: tuple[str, ...] = ()
    """Coordinates that are computed when they are read."""
    problem: InsituError | None = None
    """Why there are no coordinates; None if there are."""
    columns: bool = False
    """Whether points of one longitude follow each other, not those of one latitude."""
    made: dict[str, VirtualArray] = field(default_factory=dict)
    """Cache of the kept coordinates as arrays: all variables and files on the grid share them."""

    @property
    def names(self) -> tuple[str, ...]:
        """The coordinates that there are."""
        return (*self.values, *self.lazy)

    def same(self, other: GridCoordinates) -> bool:
        """Return whether two grids have the same points, by what is known without computing them."""
        if self is other:
            return True
        if (
            self.lazy
            or other.lazy
            or (self.dims, self.shape, self.values.keys()) != (other.dims, other.shape, other.values.keys())
        ):
            return False
        return all(np.array_equal(values, other.values[name]) for name, values in self.values.items())

    def arrays(self, first: GribField, source: Source, check: dict[str, Any]) -> dict[str, VirtualArray]:
        """Return the coordinates as arrays.

        Lazy ones are computed from the first field, which must match `check`.
        """
        for name, values in self.values.items():
            if name in self.made:
                continue
            attributes = dict(COORDINATES[name])
            if name == "latitude" and self.dims == ("latitude", "longitude") and values[0] > values[-1]:
                attributes["stored_direction"] = "decreasing"
            dims = (name,) if name in self.dims else self.dims
            axes = tuple(Axis.regular(length, max(length, 1)) for length in values.shape)
            tile = Tile(
                axes, (Encoding(np.dtype(np.float64)),), Columns.of_inline((1,) * values.ndim, values.tobytes())
            )
            self.made[name] = VirtualArray.of(tile, dims=dims, attributes=attributes)
        found = dict(self.made)
        for name in self.lazy:
            configuration: dict[str, Any] = {"var": name, "dtype": "float64", **check}
            if first.number:
                configuration["field"] = first.number
            encoding = Encoding(np.dtype(np.float64), (Codec("grib", configuration),))
            axes = tuple(Axis.regular(length, length) for length in self.shape)
            place = (np.asarray(first.offset), np.asarray(first.length))
            chunks = Columns((1,) * len(axes), (source,), np.asarray(0), *place)
            found[name] = VirtualArray.of(Tile(axes, (encoding,), chunks), dims=self.dims, attributes=COORDINATES[name])
        return found


_memory: dict[bytes, GridCoordinates] = {}
_lock = fork_safe_lock()


def find_grid_coordinates(first: GribField, geometry: bytes) -> GridCoordinates:
    """Return the grid of a field.

    Parameters
    ----------
    first
        A field on it.
    geometry
        What tells its grid from others.
    """
    key = bytes((first.edition,)) + geometry
    found = _memory.get(key)
    if found is None:
        found = _ask_eccodes(first)
        with _lock:
            if len(_memory) >= MEMORY:
                _memory.clear()
            found = _memory.setdefault(key, found)
    return found


def _ask_eccodes(first: GribField) -> GridCoordinates:
    with EccodesMessage(first) as asked:
        kind = asked.get("gridType")
        points = _count(asked, "numberOfPoints")
        apart, crossed = kind in ("regular_ll", "regular_gg"), kind in ROWS_AND_COLUMNS
        shape: tuple[int, ...] = (_count(asked, "Ny"), _count(asked, "Nx")) if apart or crossed else (points,)
        problem: InsituError | None
        if math.prod(shape) != points:  # the values are there all the same, in a row
            problem = FormatError(f"the grid of shape {shape} declares {points} points", offset=first.offset)
            return GridCoordinates(("values",), (points,), {}, (), problem)
        if apart and points > COMPUTED_POINTS:
            problem = FormatError(f"the grid has too many points to compute coordinates: {points}", offset=first.offset)
            return GridCoordinates(("latitude", "longitude"), shape, {}, (), problem)
        if apart and (
            asked.get_or_undefined("iScansNegatively") == 1 or asked.get_or_undefined("jPointsAreConsecutive") == 1
        ):
            return _reordered_grid(asked, shape)
        if apart:
            values, problem = _values(asked, ("latitude", "distinctLatitudes"), ("longitude", "distinctLongitudes"))
            if not problem and (values["latitude"].size, values["longitude"].size) != shape:
                problem = FormatError(
                    f"ecCodes gives another number of latitudes or longitudes for the grid of shape {shape}",
                    offset=first.offset,
                )
            return GridCoordinates(("latitude", "longitude"), shape, {} if problem else values, (), problem)
        dims = ("y", "x") if crossed else ("values",)
        if kind == "sh":  # spherical harmonics: coefficients are nowhere
            return GridCoordinates(dims, shape)
        if points > KEPT_POINTS:
            return GridCoordinates(dims, shape, {}, ("latitude", "longitude"))
        values, problem = _values(asked, ("latitude", "latitudes"), ("longitude", "longitudes"))
        if any(array.size != points for array in values.values()):
            problem = FormatError(
                f"ecCodes gives another number of coordinates for the grid of {points} points", offset=first.offset
            )
        if problem is not None:
            return GridCoordinates(dims, shape, {}, (), problem)
        return GridCoordinates(dims, shape, {name: array.reshape(shape) for name, array in values.items()})


def _reordered_grid(asked: EccodesMessage, shape: tuple[int, ...]) -> GridCoordinates:
    """Return a regular grid whose points run from the east, or column by column.

    They stand where ecCodes' lists have them.

    cfgrib shows all as if they came from the west, row by row.
    """
    dims = ("latitude", "longitude")
    values, problem = _values(asked, ("latitude", "latitudes"), ("longitude", "longitudes"))
    if problem is None and all(array.size == math.prod(shape) for array in values.values()):
        for columns in (False, True):
            latitude, longitude = (
                values[name].reshape(shape[::-1]).T if columns else values[name].reshape(shape) for name in dims
            )
            if (latitude == latitude[:, :1]).all() and (longitude == longitude[:1]).all():
                kept = {"latitude": latitude[:, 0].copy(), "longitude": longitude[0].copy()}
                return GridCoordinates(dims, shape, kept, columns=columns)
    problem = problem or FormatError(f"the grid of shape {shape} has no rows and columns", offset=asked.field.offset)
    return GridCoordinates(dims, shape, {}, (), problem)


def _values(
    asked: EccodesMessage, *keys: tuple[str, str]
) -> tuple[dict[str, npt.NDArray[np.float64]], InsituError | None]:
    try:
        return {name: asked.array(key) for name, key in keys}, None
    except InsituError as problem:
        return {}, problem


LARGEST = 1 << 31


def _count(asked: EccodesMessage, key: str) -> int:
    count = asked.get(key)
    if not isinstance(count, int) or not 1 <= count <= LARGEST:
        raise FormatError(
            f"the grid has an invalid number of points: {key} = {count}",
            offset=asked.field.offset,
            structure="GRIB grid",
        )
    return count
