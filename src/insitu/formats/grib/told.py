"""What does ecCodes say about a field, and must it be asked?

Names of parameters and levels are the business of ecCodes' tables, and asking takes a millisecond. Most headers of a file differ only in the date, the step and the member,
which are plain numbers at known places: those are read here, and ecCodes is asked once for all headers that are otherwise the same, in whatever file. Each time
it is asked, its answer is held beside the plain numbers: where they differ, the header is one of the odd kind and is asked about every time.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from insitu.codecs.grib import MISSING, eccodes, exclusive
from insitu.errors import FormatError, InsituError
from insitu.formats.grib.sections import Field
from insitu.formats.grib.stub import stub_of
from insitu.formats.grib.vocabulary import ABOUT_FIELD, ABOUT_FILE, HEADERS, UNIT_SECONDS

__all__ = ["UNDEFINED", "Asked", "Told", "describe", "geometry"]

UNDEFINED = "undef"
MEMORY = 1 << 16
"""Headers that are remembered."""


class Plain(NamedTuple):
    """The numbers of a header that need no tables; None: not there, or not plain."""

    time: int | None
    """Seconds since 1970."""
    step: float | None
    """Hours."""
    number: int | None


class Told(NamedTuple):
    """What a header says."""

    keys: dict[str, Any]
    """By ecCodes, for all headers that are the same but for the plain numbers."""
    time: Any
    step: Any
    number: Any


class _Known(NamedTuple):
    """What was said about a header, and which of its plain numbers have been held beside the answer."""

    keys: dict[str, Any]
    plain: bool
    """Whether they agreed."""
    tried: tuple[bool, ...]
    """For each of them: whether it was tried with something else than zero, which agrees with everything."""


_memory: dict[tuple[Any, ...], _Known] = {}


def describe(field: Field) -> Told:
    """What a field is."""
    key, plain = _second(field) if field.edition == 2 else _first(field)
    known = _memory.get(key)
    if known is not None and known.plain and all(map(_tried, known.tried, plain)):
        return _told(known.keys, plain)
    exact = (field.edition, field.discipline, *field[5:])
    if known is not None and not known.plain and exact in _memory:
        return _told(_memory[exact].keys, Plain(None, None, None))
    keys = _keys_of(field)
    agree = all(have is None or have == keys[name] for name, have in zip(plain._fields, plain, strict=True))
    if len(_memory) >= MEMORY:
        _memory.clear()
    tried = tuple(map(bool, plain)) if known is None else tuple(map(_or, known.tried, plain))
    _memory[key] = _Known(keys, agree and (known is None or known.plain), tried)
    if not agree:
        _memory[exact] = _Known(keys, False, ())
    return Told(keys, keys["time"], keys["step"], keys["number"])


def _tried(before: bool, value: Any) -> bool:
    return before or not value


def _or(before: bool, value: Any) -> bool:
    return before or bool(value)


def _keys_of(field: Field) -> dict[str, Any]:
    """By ecCodes."""
    with Asked(field) as asked:
        keys = {name: asked.defined(name) for name in (*ABOUT_FILE, *ABOUT_FIELD, "alternativeRowScanning")}
        keys |= {name: _COMPUTED[name](asked) if name in _COMPUTED else asked.defined(name) for name in HEADERS}
    keys["stepUnits"] = 1  # steps are in hours here
    keys["parameter"] = ()
    if keys["paramId"] in (0, UNDEFINED):  # one name for all that the tables do not know: they must not be mixed
        product = field.product[9:11] if field.edition == 2 else field.identification[3:5] + field.identification[8:9]
        keys["parameter"] = (field.discipline, *product)
    keys["geometry"] = geometry(field)
    return keys


def geometry(field: Field) -> bytes:
    """The part of the headers that says where the points are. GRIB 1 keeps coefficients of vertical levels there too, which are left out."""
    grid = field.grid
    if field.edition == 2:
        return grid[5:]
    if not grid:
        return field.identification[6:7]
    count, place = grid[3], grid[4] - 1
    return grid[5:place] + grid[place + 4 * count :] if count and place >= 5 else grid[5:]


def _told(keys: dict[str, Any], plain: Plain) -> Told:
    time, step, number = plain
    return Told(
        keys,
        keys["time"] if time is None else time,
        keys["step"] if step is None else step,
        keys["number"] if number is None else number,
    )


# GRIB 2: where the end of the interval lies in section 4, for products over an interval; the number of ranges follows.
_INTERVALS = {8: 34, 9: 47, 10: 35, 11: 37, 12: 36}
_INSTANTS = (0, 1, 2, 5, 6)
_MEMBERS = (1, 11)


def _second(field: Field) -> tuple[tuple[Any, ...], Plain]:
    """The header without its plain numbers, and these: GRIB 2."""
    identification, product = field.identification, field.product
    template = int.from_bytes(product[7:9], "big")
    if len(identification) < 21 or not (template in _INSTANTS or template in _INTERVALS) or len(product) < 34:
        return (2, field.discipline, *field[5:]), Plain(None, None, None)
    time = _seconds(int.from_bytes(identification[12:14], "big"), *identification[14:18])
    head = identification[:12] + identification[19:] if time is not None else identification
    rest = bytearray(product)
    step, number = None, None
    if template in _INSTANTS:
        unit = UNIT_SECONDS.get(product[17])
        if unit is not None and not product[18] & 0x80:
            step = int.from_bytes(product[18:22], "big") * unit / 3600.0
            rest[17:22] = bytes(5)
    elif len(product) > (at := _INTERVALS[template]) + 7 and product[at + 7] == 1:
        rest[at : at + 7] = bytes(7)
    if template in _MEMBERS and len(product) > 36:
        number = product[35]
        rest[35] = 0
    return (2, field.discipline, head, field.local, field.grid, bytes(rest)), Plain(time, step, number)


def _first(field: Field) -> tuple[tuple[Any, ...], Plain]:
    """The same for GRIB 1."""
    product = field.identification
    rest = bytearray(product)
    rest[26:28] = b"\0\0"  # the decimal scale factor
    time = _seconds((product[24] - 1) * 100 + product[12], *product[13:17]) if product[24] else None
    if time is not None:
        rest[12:17], rest[24] = bytes(5), 0
    step, number = None, None
    unit = UNIT_SECONDS.get(product[17])
    if unit is not None and product[17] < 13 and product[20] in (0, 10):
        value = product[18] if product[20] == 0 else int.from_bytes(product[18:20], "big")
        step = value * unit / 3600.0
        rest[18:20] = bytes(2)
    if len(product) >= 52 and product[4] == 98 and product[40] in (1, 2, 5, 6, 26, 30):
        number = product[49]
        rest[49] = 0
    return (1, bytes(rest), field.grid), Plain(time, step, number)


def _seconds(year: int, month: int, day: int, hour: int, minute: int) -> int | None:
    """Since 1970, of a date that is one; seconds are not looked at, as ecCodes does not."""
    try:
        moment = datetime.datetime(year, month, day, hour, minute)
    except ValueError:
        return None
    return int((moment - _EPOCH).total_seconds())


_EPOCH = datetime.datetime(1970, 1, 1)


class Asked:
    """A field in the hands of ecCodes; to be used in a `with` block."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.library = eccodes()
        self._guard = exclusive()

    def __enter__(self) -> Asked:
        self._guard.__enter__()
        try:
            self._handle = self.library.codes_new_from_message(stub_of(self.field))
            self.library.codes_set(self._handle, "missingValue", MISSING)
        except Exception as problem:  # whatever the library raises: the message is not one that it knows
            self._guard.__exit__(None, None, None)
            raise FormatError(
                f"ecCodes does not understand the message: {problem}",
                offset=self.field.offset,
                length=self.field.length,
                structure="GRIB message",
            ) from problem
        return self

    def __exit__(self, *problem: object) -> None:
        self.library.codes_release(self._handle)
        self._guard.__exit__(None, None, None)

    def get(self, key: str, kind: type | None = None) -> Any:
        """A key; of many values, as an array.

        Raises
        ------
        FormatError
            If the library cannot tell.
        """
        library, handle = self.library, self._handle
        try:
            if library.codes_get_size(handle, key) > 1:
                return library.codes_get_array(handle, key, kind)
            return library.codes_get(handle, key, kind)
        except Exception as problem:
            raise FormatError(
                f"ecCodes cannot tell {key}: {problem}", offset=self.field.offset, structure="GRIB message"
            ) from problem

    def array(self, key: str) -> np.ndarray[Any, Any]:
        """A key as an array of doubles, of one value too."""
        return np.atleast_1d(np.asarray(self.get(key), np.float64))

    def defined(self, key: str) -> Any:
        """A key, or "undef"."""
        try:
            value = self.get(key)
        except InsituError:
            return UNDEFINED
        if value is None:
            return UNDEFINED
        return tuple(value.tolist()) if isinstance(value, np.ndarray) else value


def _time(asked: Asked) -> Any:
    try:
        date, time = asked.get("dataDate"), asked.get("dataTime")
        return int(
            (
                datetime.datetime(date // 10000, date // 100 % 100, date % 100, time // 100, time % 100) - _EPOCH
            ).total_seconds()
        )
    except (InsituError, ValueError, TypeError):
        return UNDEFINED


def _step(asked: Asked) -> Any:
    try:
        unit = UNIT_SECONDS.get(asked.get("stepUnits", int))
        return UNDEFINED if unit is None else asked.get("endStep", int) * unit / 3600.0
    except (InsituError, TypeError):
        return UNDEFINED


def _level(asked: Asked) -> Any:
    try:
        return asked.get("level", float)
    except InsituError:
        return UNDEFINED


_COMPUTED: dict[str, Callable[[Asked], Any]] = {"time": _time, "step": _step, "level": _level}
