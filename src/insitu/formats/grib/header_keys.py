"""Describe GRIB fields.

Keys by ecCodes, remembered for all headers that differ only in plain numbers.

Names of parameters and levels come from the tables of ecCodes; to ask takes a millisecond. Most
headers of a file differ only in plain numbers (date, step, member, level), which are read here. So
ecCodes is asked once for all headers that are otherwise the same, in whatever file. Its answer is
compared with the plain numbers until each of them, other than zero, has agreed for this layout of
header. Headers where they differ are asked about every time.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from insitu.errors import FormatError, InsituError, UnsupportedError
from insitu.formats.grib.codecs.eccodes_library import (
    MISSING,
    eccodes,
    eccodes_lock,
    has_empty_rows,
    is_consistent_grid,
    is_small_grid,
    reason_not_to_compute,
)
from insitu.formats.grib.codecs.subprocess_decoder import decode_in_subprocess
from insitu.formats.grib.header_numbers import EPOCH, NO_NUMBERS, HeaderNumbers, split_header
from insitu.formats.grib.sections import GribField
from insitu.formats.grib.short_message import short_message
from insitu.formats.grib.vocabulary import ABOUT_FILE, ABOUT_GRID, ABOUT_VARIABLE, HEADERS, NAMES, UNIT_SECONDS
from insitu.lru import LruCache

__all__ = ["UNDEFINED", "EccodesMessage", "FieldDescription", "describe", "geometry"]

UNDEFINED = "undef"
NO_LIMIT = -1e99
"""ecCodes gives less than this for a limit that is missing."""
MANY_VALUES = {"pl"}
"""Keys that may be arrays."""
MEMORY = 1 << 16
"""Headers that are remembered."""


class FieldDescription(NamedTuple):
    """What a field is: keys and numbers of its header."""

    keys: dict[str, Any]
    """By ecCodes, for all headers that are the same but for the plain numbers."""
    time: Any
    step: Any
    number: Any
    level: Any


class _KnownHeader(NamedTuple):
    """What ecCodes answered for a header."""

    keys: dict[str, Any]
    plain: bool
    """Whether the plain numbers agreed."""


_memory: dict[tuple[Any, ...], _KnownHeader] = {}
_tried: set[tuple[Any, ...]] = set()
"""Shapes of headers, each with the name of a plain number that agreed."""


def describe(field: GribField) -> FieldDescription:
    """Return what a field is."""
    rest, plain, shape = split_header(field)
    known = _memory.get(rest)
    if (
        known is not None
        and known.plain
        and _is_proven(plain.step, shape, "step")
        and _is_proven(plain.number, shape, "number")
    ):
        return _combine(known.keys, plain)
    exact = (field.edition, field.discipline, *field[5:])
    if known is not None and not known.plain and exact in _memory:
        return _combine(_memory[exact].keys, NO_NUMBERS)
    keys = _ask_keys(field)
    matches = all(have is None or have == keys[name] for name, have in zip(plain._fields, plain, strict=True))
    if len(_memory) >= MEMORY:
        _memory.clear()
        _tried.clear()
    if matches:
        _tried.update((shape, name) for name, have in zip(plain._fields, plain, strict=True) if have)
    if known is None or not matches:
        _memory[rest] = _KnownHeader(keys, matches)
    if not matches:
        _memory[exact] = _KnownHeader(keys, False)
    return _combine(keys if known is None or not matches else known.keys, plain if matches else NO_NUMBERS)


def _is_proven(value: Any, shape: tuple[Any, ...], name: str) -> bool:
    return not value or (shape, name) in _tried


def _ask_keys(field: GribField) -> dict[str, Any]:
    """Ask ecCodes for all keys.

    What depends only on the centre, the grid or the parameter is asked once for each.
    """
    about, grid = field.identification, field.grid
    centre = (2, about[5:9]) if field.edition == 2 else (1, about[4:5], about[25:26])
    place = (field.edition, grid or about[6:7])
    with EccodesMessage(field) as message:
        keys = {
            **_remembered_keys(_centres, centre, ("edition", "centre", "centreDescription", "subCentre"), message),
            **_remembered_keys(
                _grids, place, ("numberOfPoints", "gridType", "uvRelativeToGrid", "alternativeRowScanning"), message
            ),
            **{name: message.get_or_undefined(name) for name in ("paramId", "dataType", "typeOfLevel", "stepType")},
            **{
                name: _COMPUTED[name](message) if name in _COMPUTED else message.get_or_undefined(name)
                for name in HEADERS
            },
            "probabilityType": _probability_type(message),
        }
        named = (about[5:12] if field.edition == 2 else about[3:5] + about[25:26], keys["paramId"])
        known = keys["paramId"] not in (0, UNDEFINED)
        found = {
            **_remembered_keys(_names if known else None, named, NAMES, message),
            **_remembered_keys(_grid_names, (*place, keys["gridType"]), ABOUT_GRID.get(keys["gridType"], ()), message),
            **{name: message.get_or_undefined(name) for name in ABOUT_VARIABLE},
        }
    keys["variable"] = {
        f"GRIB_{name}": np.array(value) if isinstance(value, tuple) else value
        for name, value in sorted(found.items())
        if not (isinstance(value, str) and value == UNDEFINED)
    }
    keys["stepUnits"] = 1  # steps are in hours here
    keys["parameter"] = ()
    if not known:  # one name for all that the tables do not know: they must not be mixed
        product = field.product[9:11] if field.edition == 2 else field.identification[3:5] + field.identification[8:9]
        keys["parameter"] = (field.discipline, *product)
    keys["geometry"] = geometry(field)
    keys["about_file"] = tuple(keys[name] for name in ABOUT_FILE)
    return keys


_KeyCache = LruCache[tuple[Any, ...], dict[str, Any]]
_centres, _grids, _names, _grid_names = (_KeyCache(MEMORY // 64) for _ in range(4))


def _remembered_keys(
    memory: _KeyCache | None, key: tuple[Any, ...], names: tuple[str, ...], message: EccodesMessage
) -> dict[str, Any]:
    def ask() -> dict[str, Any]:
        return {name: message.get_or_undefined(name) for name in names}

    return ask() if memory is None else memory.get_or_load(key, ask)


def geometry(field: GribField) -> bytes:
    """Return the part of the headers that describes the grid, without the vertical coefficients of
    GRIB 1.
    """
    grid = field.grid
    if field.edition == 2:
        return grid[5:]
    if not grid:
        return field.identification[6:7]
    count, place = grid[3], grid[4] - 1
    return grid[5:place] + grid[place + 4 * count :] if count and place >= 5 else grid[5:]


def _combine(keys: dict[str, Any], plain: HeaderNumbers) -> FieldDescription:
    time, step, number, level = plain
    return FieldDescription(
        keys,
        keys["time"] if time is None else time,
        keys["step"] if step is None else step,
        keys["number"] if number is None else number,
        keys["level"] if level is None else level,
    )


class EccodesMessage:
    """A field that ecCodes has opened, to be used in a `with` block."""

    def __init__(self, field: GribField) -> None:
        self.field = field
        self.library = eccodes()
        self._guard = eccodes_lock()

    def __enter__(self) -> EccodesMessage:
        self._guard.__enter__()
        try:
            self._handle = self.library.codes_new_from_message(short_message(self.field))
            try:
                if not self.library.codes_is_defined(self._handle, "gridType"):
                    raise self._unknown_grid_error()
                self.library.codes_set(self._handle, "missingValue", MISSING)
                if has_empty_rows(self.library, self._handle):
                    raise ValueError("a row of its reduced grid has no points")
            except BaseException:
                self.library.codes_release(self._handle)
                raise
        except Exception as problem:  # whatever the library raises: the message is not one that it knows
            self._guard.__exit__(None, None, None)
            if isinstance(problem, UnsupportedError):
                raise
            raise FormatError(
                f"ecCodes cannot read the message: {problem}",
                offset=self.field.offset,
                length=self.field.length,
                structure="GRIB message",
            ) from problem
        return self

    def __exit__(self, *problem: object) -> None:
        self.library.codes_release(self._handle)
        self._guard.__exit__(None, None, None)

    def _unknown_grid_error(self) -> UnsupportedError:
        grid, edition = self.field.grid, self.field.edition
        number = int.from_bytes(grid[12:14], "big") if edition == 2 else grid[5] if len(grid) > 5 else "without a grid"
        return UnsupportedError(
            f"ecCodes does not know the grid of the field: template {number} of GRIB {edition}",
            offset=self.field.offset,
            length=self.field.length,
            structure="GRIB grid",
            hint='errors="warn" leaves the message out',
        )

    def get(self, key: str, kind: type | None = None) -> Any:
        """Return a key; of many values, as an array.

        Raises
        ------
        FormatError
            If ecCodes cannot compute it.
        """
        library, handle = self.library, self._handle
        try:
            if key in MANY_VALUES and library.codes_get_size(handle, key) > 1:
                return library.codes_get_array(handle, key, kind)
            return library.codes_get(handle, key, kind)
        except Exception as problem:
            raise FormatError(
                f"ecCodes cannot compute the key {key}: {problem}", offset=self.field.offset, structure="GRIB message"
            ) from problem

    def array(self, key: str) -> np.ndarray[Any, Any]:
        """Return coordinates as an array of doubles.

        Computed in a subprocess if that takes long, or the grid may crash ecCodes.
        """
        library, handle = self.library, self._handle
        try:
            if self.has_consistent_grid(key) and is_small_grid(library, handle):
                return np.asarray(library.codes_get_array(handle, key), np.float64)
            points = library.codes_get(handle, "numberOfPoints", int)
            return decode_in_subprocess(short_message(self.field), key, points)
        except InsituError:
            raise
        except Exception as problem:
            raise FormatError(
                f"ecCodes cannot compute the key {key}: {problem}", offset=self.field.offset, structure="GRIB message"
            ) from problem

    def has_consistent_grid(self, key: str) -> bool:
        """Return whether ecCodes can compute coordinates without harm.

        Raises
        ------
        UnsupportedError
            If it cannot compute them of any grid of this type.
        FormatError
            If it must not be asked.
        """
        library, handle = self.library, self._handle
        if not library.codes_is_defined(handle, key):
            raise UnsupportedError(
                f"ecCodes cannot compute the points of grids of type {library.codes_get(handle, 'gridType', str)}",
                offset=self.field.offset,
                structure="GRIB grid",
            )
        if reason := reason_not_to_compute(library, handle):
            raise FormatError(reason, offset=self.field.offset, structure="GRIB grid")
        return is_consistent_grid(library, handle)

    def get_or_undefined(self, key: str) -> Any:
        """Return a key, or "undef"."""
        try:
            value = self.get(key)
        except InsituError:
            return UNDEFINED
        if value is None:
            return UNDEFINED
        return tuple(value.tolist()) if isinstance(value, np.ndarray) else value


def _time(message: EccodesMessage) -> Any:
    date, time = message.get_or_undefined("dataDate"), message.get_or_undefined("dataTime")
    if not isinstance(date, int) or not isinstance(time, int):
        return UNDEFINED
    try:
        moment = datetime.datetime(date // 10000, date // 100 % 100, date % 100, time // 100, time % 100)
    except (ValueError, OverflowError):  # no date of the calendar
        return UNDEFINED
    return int((moment - EPOCH).total_seconds())


def _step(message: EccodesMessage) -> Any:
    # ecCodes first tries hours; where these do not do, it falls back to the unit of the header, and
    # answers the second time.
    for _ in range(2):
        try:
            unit, end = UNIT_SECONDS.get(message.get("stepUnits", int)), message.get("endStep", int)
        except InsituError:
            continue
        if unit is None:
            return UNDEFINED
        if isinstance(end, int):
            return end * unit / 3600.0
    return UNDEFINED


def _level(message: EccodesMessage) -> Any:
    try:
        return message.get("level", float)
    except InsituError:
        return UNDEFINED


PROBABILITIES, PERCENTILES = (5, 9), (6, 10)
"""Templates of section 4 of GRIB 2."""
# Code table 4.9: below the lower limit, above the upper one, between them, above the lower, below the upper one.
_LIMITS = {
    0: ("lowerLimit",),
    1: ("upperLimit",),
    2: ("lowerLimit", "upperLimit"),
    3: ("lowerLimit",),
    4: ("upperLimit",),
}


def _product_template(field: GribField) -> int:
    return int.from_bytes(field.product[7:9], "big") if field.edition == 2 else -1


def _probability_type(message: EccodesMessage) -> Any:
    if _product_template(message.field) not in PROBABILITIES:
        return UNDEFINED
    return message.get_or_undefined("probabilityType")


def _threshold_value(message: EccodesMessage, place: int = 0) -> Any:
    limits = _LIMITS.get(_probability_type(message), ())
    if place >= len(limits):
        return UNDEFINED
    value = message.get_or_undefined(limits[place])
    return float(value) if isinstance(value, (int, float)) and value > NO_LIMIT else UNDEFINED


def _percentile(message: EccodesMessage) -> Any:
    if _product_template(message.field) not in PERCENTILES:
        return UNDEFINED
    return message.get_or_undefined("percentileValue")


_COMPUTED: dict[str, Callable[[EccodesMessage], Any]] = {
    "time": _time,
    "step": _step,
    "level": _level,
    "percentile": _percentile,
    "threshold": _threshold_value,
    "upperThreshold": partial(_threshold_value, place=1),
}
