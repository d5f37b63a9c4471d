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

from insitu.errors import CodecError, FormatError, InsituError, UnsupportedError
from insitu.formats.grib.header_keys import EccodesMessage
from insitu.formats.grib.sections import GribField
from insitu.formats.grib.short_message import resize_grid, shrink_grid
from insitu.formats.grib.vocabulary import COORDINATES, ROWS_AND_COLUMNS
from insitu.lru import LruCache
from insitu.model import Axis, Codec, Columns, Encoding, Source, Tile, VirtualArray

__all__ = ["GridCoordinates", "find_grid_coordinates"]

KEPT_POINTS = 1 << 16
"""Most points of a grid whose latitudes and longitudes are kept, half a MiB each."""
LONGEST_AXIS = 1 << 20
"""Most latitudes or longitudes of a regular grid; a millionth of the equator is 40 metres."""
DAMAGE = (FormatError, UnsupportedError, CodecError)
"""Why a grid has no coordinates, this time and always; `SourceError` is of the moment."""


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
    cached_arrays: dict[str, VirtualArray] = field(default_factory=dict)
    """The coordinates in memory as arrays: all variables and files on the grid share them."""

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
            if name in self.cached_arrays:
                continue
            attributes = dict(COORDINATES[name])
            if name == "latitude" and self.dims == ("latitude", "longitude") and values[0] > values[-1]:
                attributes["stored_direction"] = "decreasing"
            dims = (name,) if name in self.dims else self.dims
            self.cached_arrays[name] = VirtualArray.from_values(values, dims=dims, attributes=attributes)
        found = dict(self.cached_arrays)
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


_memory: LruCache[bytes, GridCoordinates] = LruCache(64)


def find_grid_coordinates(first: GribField, geometry: bytes) -> GridCoordinates:
    """Return the grid of a field.

    Parameters
    ----------
    first
        A field on it.
    geometry
        What tells its grid from others.
    """
    return _memory.get_or_load(bytes((first.edition,)) + geometry, lambda: _ask_eccodes(first))


def _ask_eccodes(first: GribField) -> GridCoordinates:
    with EccodesMessage(first) as message:
        kind = message.get("gridType")
        points = _count(message, "numberOfPoints")
        separate, crossed = kind in ("regular_ll", "regular_gg"), kind in ROWS_AND_COLUMNS
        shape: tuple[int, ...] = (_count(message, "Ny"), _count(message, "Nx")) if separate or crossed else (points,)
        if math.prod(shape) != points:  # the values are there all the same, in a row
            mismatch = FormatError(f"the grid of shape {shape} declares {points} points", offset=first.offset)
            return GridCoordinates(("values",), (points,), {}, (), mismatch)
        if separate:
            keys = ("iScansNegatively", "jPointsAreConsecutive")
            reordered = any(message.get_or_undefined(key) == 1 for key in keys)
            return _regular_grid(first, shape, reordered, gaussian=kind == "regular_gg")
        dims = ("y", "x") if crossed else ("values",)
        if kind == "sh":  # spherical harmonics: coefficients are nowhere
            return GridCoordinates(dims, shape)
        if points > KEPT_POINTS:
            reason = _reason_not_to_offer(message, kind, points)
            return GridCoordinates(dims, shape, {}, () if reason else ("latitude", "longitude"), reason)
        try:
            values = {name: message.array(f"{name}s") for name in ("latitude", "longitude")}
        except DAMAGE as problem:
            return GridCoordinates(dims, shape, {}, (), problem)
        if any(array.size != points for array in values.values()):
            unequal = f"ecCodes gives another number of coordinates for the grid of {points} points"
            return GridCoordinates(dims, shape, {}, (), FormatError(unequal, offset=first.offset))
        return GridCoordinates(dims, shape, {name: array.reshape(shape) for name, array in values.items()})


def _reason_not_to_offer(message: EccodesMessage, kind: str, points: int) -> InsituError | None:
    """Return why ecCodes cannot compute the points of a large grid, None if it can.

    A grid of few points that is else the same tells it at once. Gaussian and reduced grids depend on all their rows:
    unless these are consistent, all points are computed.
    """
    sides = [message.get_or_undefined(key) for key in ("Nx", "Ny", "Nside")]
    declared = (
        sides[0] * sides[1] if isinstance(sides[0], int) else 12 * sides[2] ** 2 if isinstance(sides[2], int) else 0
    )
    try:
        if kind.endswith("_gg") or "reduced" in kind or not declared:
            if not message.has_consistent_grid("latitudes"):
                message.array("latitudes")
        elif declared != points:
            raise FormatError(f"the grid of {declared} points declares {points}", offset=message.field.offset)
        else:
            with EccodesMessage(shrink_grid(message.field)) as shrunken:
                shrunken.array("latitudes")
    except DAMAGE as problem:
        return problem
    return None


def _regular_grid(first: GribField, shape: tuple[int, ...], reordered: bool, *, gaussian: bool) -> GridCoordinates:
    """Return a grid of latitudes and longitudes.

    Points that run from the east, or column by column, stand where ecCodes' lists have them; cfgrib shows all as if
    they came from the west, row by row. To find the latitudes of a large grid two columns of it are enough, and two
    rows to find its longitudes.
    """
    dims, (rows, columns) = ("latitude", "longitude"), shape
    fields = dict.fromkeys(dims, (first, shape))
    try:
        if max(shape) > LONGEST_AXIS:
            raise FormatError(f"the grid of shape {shape} is too large to compute coordinates", offset=first.offset)
        if math.prod(shape) > KEPT_POINTS and first.grid:
            fields["latitude"] = resize_grid(first, rows, 2), (rows, 2)
            fields["longitude"] = resize_grid(first, 2, columns, plain=gaussian), (2, columns)
        found = {name: _find_axis(*fields[name], name, reordered) for name in dims}
    except DAMAGE as problem:
        return GridCoordinates(dims, shape, {}, (), problem)
    values = {name: axis for name, (axis, _) in found.items()}
    if tuple(axis.size for axis in values.values()) != shape:
        reason = f"ecCodes gives another number of latitudes or longitudes for the grid of shape {shape}"
        return GridCoordinates(dims, shape, {}, (), FormatError(reason, offset=first.offset))
    return GridCoordinates(dims, shape, values, columns=found["latitude"][1])


def _find_axis(
    field: GribField, shape: tuple[int, ...], name: str, reordered: bool
) -> tuple[npt.NDArray[np.float64], bool]:
    """Return latitudes or longitudes of a regular grid, and whether points of a column follow each other."""
    with EccodesMessage(field) as message:
        if not reordered:
            return message.array(f"distinct{name.capitalize()}s"), False
        latitude, longitude = message.array("latitudes"), message.array("longitudes")
    if latitude.size == longitude.size == math.prod(shape):
        for columns in (False, True):
            rows, turned = (
                array.reshape(shape[::-1]).T if columns else array.reshape(shape) for array in (latitude, longitude)
            )
            if (rows == rows[:, :1]).all() and (turned == turned[:1]).all():
                return (rows[:, 0] if name == "latitude" else turned[0]).copy(), columns
    raise FormatError(f"the grid of shape {shape} has no rows and columns", offset=field.offset)


LARGEST = 1 << 31


def _count(message: EccodesMessage, key: str) -> int:
    count = message.get(key)
    if not isinstance(count, int) or not 1 <= count <= LARGEST:
        raise FormatError(
            f"the grid has an invalid number of points: {key} = {count}",
            offset=message.field.offset,
            structure="GRIB grid",
        )
    return count
