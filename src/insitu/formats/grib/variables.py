"""Make variables of GRIB fields.

A variable has all fields of a parameter that agree in everything but member, run, step and level,
as in cfgrib. A dimension of one value becomes a scalar coordinate. A combination that no message
holds is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from insitu.errors import UnsupportedError
from insitu.formats.grib.codecs.packed_sections import grid_fingerprint
from insitu.formats.grib.grid_coordinates import GridCoordinates, find_grid_coordinates
from insitu.formats.grib.header_keys import UNDEFINED, FieldDescription
from insitu.formats.grib.sections import GribField
from insitu.formats.grib.vocabulary import ABOUT_FIELD, ABOUT_FILE, COORDINATES, HEADERS
from insitu.model import UNWRITTEN, Axis, ChunkTable, Codec, Columns, Encoding, Source, Tile, VirtualArray, scatter

__all__ = ["FieldTable", "GribCoordinate", "GribVariable", "Unverified", "has_same_header", "make_variable"]

SPLIT_BY = (*ABOUT_FIELD, *ABOUT_FILE, "parameter", "probabilityType", "geometry")
"""Keys that have one value in a variable, in the order of cfgrib."""
NUMBER_KEYS = ("number", "time", "step", "level")
_OF_GRID = {"numberOfPoints", "gridType", "uvRelativeToGrid", "geometry"}
MOST_CELLS = 1 << 24
"""Most cells of a sparse grid of messages with several fields each."""


class Unverified(NamedTuple):
    """What is checked when the values of a field are read."""

    parameter: bool
    """Whether its parameter is known."""
    mark: int
    """That of its header; 0: nothing of it is known."""


@dataclass(frozen=True, slots=True)
class FieldTable:
    """All fields of a file, with their descriptions."""

    fields: list[GribField]
    descriptions: list[FieldDescription]
    unverified: dict[int, Unverified] = dataclass_field(default_factory=dict)
    """Fields whose messages were not read, or that other files are described by."""

    def header(self, number: int, name: str) -> Any:
        """Return the value of one field along a possible dimension."""
        description = self.descriptions[number]
        return getattr(description, name) if name in NUMBER_KEYS else description.keys[name]

    def headers(self, numbers: Sequence[int], name: str) -> list[Any]:
        """Return the values of some fields along a possible dimension."""
        descriptions = self.descriptions
        if name not in NUMBER_KEYS:
            return [descriptions[number].keys[name] for number in numbers]
        place = FieldDescription._fields.index(name)
        return [descriptions[number][place] for number in numbers]


def has_same_header(one: FieldDescription, other: FieldDescription) -> bool:
    """Return whether two headers describe the same field, but for the grid."""
    names = (
        *(name for name in SPLIT_BY if name not in _OF_GRID),
        *(name for name in HEADERS if name not in NUMBER_KEYS),
    )
    return one[1:] == other[1:] and all(one.keys[name] == other.keys[name] for name in names)


@dataclass(frozen=True, slots=True, eq=False)
class GribCoordinate:
    """The values of one possible dimension, in their order."""

    key: str
    name: str
    values: npt.NDArray[Any]
    attributes: dict[str, Any]

    def same(self, other: GribCoordinate) -> bool:
        """Return whether two coordinates are equal."""
        return self is other or (
            self.attributes == other.attributes
            and self.values.dtype == other.values.dtype
            and np.array_equal(self.values, other.values)
        )


@dataclass(frozen=True, slots=True)
class GribVariable:
    """One variable, not yet an array."""

    name: str
    param: Any
    keys: dict[str, Any]
    """What all its fields have in common."""
    coordinates: dict[str, GribCoordinate]
    geography: GridCoordinates
    attributes: dict[str, Any]
    first: GribField
    cells: npt.NDArray[np.int64]
    """(fields, coordinates): position of each field."""
    numbers: npt.NDArray[np.int64]
    """Numbers of the fields."""
    repeated: tuple[int, ...]
    """Fields whose position another field has already."""
    check: dict[str, Any]
    """What its messages must hold, if some were not read in the scan."""
    marks: npt.NDArray[np.int64] | int
    """What is checked of each field; 0: nothing."""

    @property
    def about_file(self) -> tuple[Any, ...]:
        """Return the keys that have one value in a dataset."""
        found: tuple[Any, ...] = self.keys["about_file"]
        return found

    def array(self, fields: Sequence[GribField], source: Source) -> VirtualArray:
        """Return the virtual array."""
        long = [number for number, c in enumerate(self.coordinates.values()) if len(c.values) > 1]
        header = [c for c in self.coordinates.values() if len(c.values) > 1]
        shape = (*(len(c.values) for c in header), *self.geography.shape)
        axes = (
            *(Axis.regular(len(c.values), 1) for c in header),
            *(Axis.regular(length, length) for length in self.geography.shape),
        )
        grid = tuple(axis.count for axis in axes)
        own = [fields[number] for number in self.numbers]
        numbers = sorted({field.number for field in own})
        encodings = tuple(self._encoding(number) for number in numbers)
        names = tuple(c.name for c in header) + self.geography.dims
        if len(own) == 1:
            mask = self.marks if isinstance(self.marks, int) else int(self.marks[0])
            chunks: ChunkTable = Columns.of_stored(grid, source, own[0].offset, own[0].length, mask)
        else:
            offset = np.array([field.offset for field in own], np.int64)
            length = np.array([field.length for field in own], np.int64)
            positions = np.searchsorted(numbers, [field.number for field in own]) if len(numbers) > 1 else None
            chunks = _chunks(grid, source, self.cells[:, long], offset, length, self.marks, positions)
        coordinates = " ".join(
            [*self.coordinates, *self.geography.names, *(["valid_time"] if self.has_valid_time else [])]
        )
        assert len(shape) == len(names)
        attributes = {**self.attributes, "coordinates": coordinates}
        return VirtualArray.of(Tile(axes, encodings, chunks), dims=names, attributes=attributes)

    @property
    def has_valid_time(self) -> bool:
        """Whether time and step are known."""
        return {"time", "step"} <= self.coordinates.keys()

    def _encoding(self, number: int) -> Encoding:
        configuration: dict[str, Any] = {"var": "values", "dtype": "float32"}
        if number:
            configuration["field"] = number
        if self.keys["alternativeRowScanning"] == 1 and len(self.geography.shape) == 2:
            configuration["alternate"] = True
        if self.geography.columns:
            configuration["columns"] = True
        plain = len(configuration) == 2 and not self.check
        return USUAL_ENCODING if plain else _encoding_of(configuration | self.check)


def _encoding_of(configuration: dict[str, Any]) -> Encoding:
    missing = np.array(np.nan, np.float32).tobytes()
    return Encoding(np.dtype(np.float32), (Codec("grib", configuration),), fill=missing)


USUAL_ENCODING = _encoding_of({"var": "values", "dtype": "float32"})
"""The encoding of nearly all fields."""


def _chunks(
    grid: tuple[int, ...],
    source: Source,
    cells: npt.NDArray[np.int64],
    offset: npt.NDArray[np.int64],
    length: npt.NDArray[np.int64],
    marks: npt.NDArray[np.int64] | int,
    encoding: npt.NDArray[np.int64] | None,
) -> ChunkTable:
    """Return the chunk table of several fields."""
    index = np.zeros((len(cells), len(grid)), np.int64)
    index[:, : cells.shape[1]] = cells
    if encoding is not None:
        return _scattered_table(grid, source, index, offset, length, marks, encoding)
    total = math.prod(grid)
    if total != len(cells):
        return scatter(grid, (source,), index, offset, length, marks)
    order = np.empty(total, np.int64)  # a full cube: no two fields claim one cell
    order[np.ravel_multi_index(tuple(index.T), grid)] = np.arange(total)
    mask = marks if isinstance(marks, int) else marks[order].reshape(grid)
    return Columns.of_stored(grid, source, offset[order].reshape(grid), length[order].reshape(grid), mask)


def _scattered_table(
    grid: tuple[int, ...],
    source: Source,
    index: npt.NDArray[np.int64],
    offset: npt.NDArray[np.int64],
    length: npt.NDArray[np.int64],
    marks: npt.NDArray[np.int64] | int,
    encoding: npt.NDArray[np.int64],
) -> Columns:
    """Return the chunk table of fields that have different numbers in their messages."""
    if np.prod([float(count) for count in grid]) > MOST_CELLS:
        raise UnsupportedError(f"a sparse grid of {grid} messages of several fields each is too large")
    cells = tuple(index.T)
    places = np.full(grid, UNWRITTEN, np.int8)
    places[cells] = 0
    offsets, lengths, masks, encodings = (np.zeros(grid, np.int64) for _ in range(4))
    offsets[cells], lengths[cells], masks[cells], encodings[cells] = offset, length, marks, encoding
    return Columns(grid, (source,), places, offsets, lengths, masks, encoding=encodings)


def make_variable(table: FieldTable, numbers: Sequence[int]) -> GribVariable:
    """Return the variable of fields that agree in `SPLIT_BY`."""
    first, keys = table.fields[numbers[0]], table.descriptions[numbers[0]].keys
    attributes = {f"GRIB_{name}": keys[name] for name in ABOUT_FIELD if keys[name] not in (UNDEFINED, "unknown")}
    attributes |= keys["variable"]
    attributes["long_name"] = attributes.get("GRIB_name", f"original GRIB paramId: {keys['paramId']}")
    attributes["units"] = attributes.get("GRIB_units", "1")
    if "GRIB_cfName" in attributes:
        attributes["standard_name"] = attributes["GRIB_cfName"]
    coordinates: dict[str, GribCoordinate] = {}
    cells = np.zeros((len(numbers), len(HEADERS)), np.int64)
    place = np.zeros(len(numbers), np.int64)
    for key in HEADERS:
        if table.header(numbers[0], key) == UNDEFINED:
            continue
        name = attributes.get("GRIB_typeOfLevel", key) if key == "level" else key
        coordinate, places = _coordinate(key, name, tuple(table.headers(numbers, key)))
        if places is not None:
            cells[:, len(coordinates)] = places
            place = place * len(coordinate.values) + places
        coordinates[coordinate.name] = coordinate
    # Of messages that claim one place, the first counts, as in cfgrib.
    first_of_cell = np.arange(len(numbers))
    if len(numbers) > 1 and (place[1:] <= place[:-1]).any():
        first_of_cell = np.sort(np.unique(place, return_index=True)[1])
    elif len(numbers) > 1 and not coordinates:
        first_of_cell = first_of_cell[:1]
    name = attributes.get("GRIB_cfVarName", "unknown")
    if name in (UNDEFINED, "unknown"):
        name = attributes.get("GRIB_shortName", f"paramId_{keys['paramId']}")
    return GribVariable(
        name=str(name).replace("/", "_"),
        param=keys["paramId"],
        keys=keys,
        coordinates=coordinates,
        geography=find_grid_coordinates(first, keys["geometry"]),
        attributes=attributes,
        first=first,
        cells=cells[first_of_cell][:, : len(coordinates)],
        numbers=np.asarray(numbers, np.int64)[first_of_cell],
        repeated=tuple(np.delete(np.asarray(numbers, np.int64), first_of_cell).tolist())
        if len(first_of_cell) < len(numbers)
        else (),
        check=_expected_headers(table, numbers),
        marks=_marks(table, [numbers[at] for at in first_of_cell.tolist()]) if table.unverified else 0,
    )


def _expected_headers(table: FieldTable, numbers: Sequence[int]) -> dict[str, Any]:
    """Return what to check when values of messages are read that the scan did not read."""
    unseen = [number for number in numbers if number in table.unverified]
    if not unseen:
        return {}
    first = table.fields[numbers[0]]
    found: dict[str, Any] = {"grid": grid_fingerprint(first.grid)}
    codes = {(field.discipline, *field.product[9:11]) for field in (table.fields[number] for number in numbers)}
    if len(codes) == 1 and all(table.unverified[number].parameter for number in unseen):
        found["parameter"] = list(*codes)
    return found


def _marks(table: FieldTable, numbers: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the marks of fields, as a chunk table has them: above the bit of the one codec."""
    found = (table.unverified.get(number) for number in numbers)
    return np.array([field.mark << 1 if field is not None else 0 for field in found], np.int64)


@lru_cache(maxsize=4096, typed=True)
def _coordinate(key: str, name: str, values: tuple[Any, ...]) -> tuple[GribCoordinate, npt.NDArray[np.int64] | None]:
    """Return a possible dimension, and the position of each field along it (None: all are the
    first).

    Cached: files of an archive have the same levels.
    """
    attributes = {
        "long_name": f"original GRIB coordinate for key: {key}({name})",
        "units": "1",
        **COORDINATES.get(name, {}),
    }
    if all(value == values[0] for value in values):
        return GribCoordinate(key, name, np.array(values[:1]), attributes), None
    distinct, places = np.unique(np.array(values), return_inverse=True)
    if attributes.get("stored_direction") == "decreasing":
        distinct, places = distinct[::-1], len(distinct) - 1 - places
    return GribCoordinate(key, name, distinct, attributes), places.reshape(-1)
