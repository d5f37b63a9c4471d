"""CF decoding of a variable: turns attributes into a packing, as xarray's `decode_cf` does.

The same attributes move to `encoding`, the same types come out, the same values are missing. No
values are decoded here; the result is a packing in the array's tiles, so that it survives
concatenation and every chunk is decoded by its own file's rules.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.cf import numbers, times
from insitu.cf.characters import stack_characters
from insitu.cf.unpack import decode_text, unpack
from insitu.errors import FormatError, InsituError, ModelError
from insitu.model import Packing, PackingKind, Packings, Tile, VirtualArray
from insitu.model.time_units import RESOLUTIONS, UNITS, split_units

__all__ = ["MISSING_VALUE_ATTRIBUTES", "DecodedVariable", "decode_variable", "decoding_warning"]

Values = Callable[[], NDArray[Any]]
MISSING_VALUE_ATTRIBUTES: tuple[str, ...] = ("missing_value", "_FillValue")


@dataclass(frozen=True, slots=True)
class DecodedVariable:
    """A variable with CF decoding applied, as xarray shows it."""

    array: VirtualArray
    """The array with the packing in its tiles, the decoded type, and the remaining attributes."""
    attributes: dict[str, Any]
    """The attributes that decoding did not consume."""
    encoding: dict[str, Any]
    """The attributes that decoding consumed, the stored type, and the encoding that was given."""
    warned: bool = False
    """Whether decoding gave a warning."""


def decode_variable(
    array: VirtualArray,
    *,
    name: str | None = None,
    encoding: Mapping[str, Any] | None = None,
    mask_and_scale: bool = True,
    decode_times: Any = True,
    decode_timedelta: Any = None,
    use_cftime: bool | None = None,
    concat_characters: bool = True,
    stack_char_dim: bool = True,
    values: Values | None = None,
) -> DecodedVariable:
    """Return an array that reads as xarray shows it: CF decoding applied.

    Parameters
    ----------
    array
        The array as scanned: stored values, all attributes.
    name
        Name of the variable, for error messages.
    encoding
        Further encoding from the file: it comes first in the result's `encoding`. A `dtype` of
        `str` means that the values are text.
    mask_and_scale, decode_times, decode_timedelta, use_cftime, concat_characters, stack_char_dim
        As for `xarray.conventions.decode_cf_variable`; coder objects are accepted too. The caller,
        who knows the other variables, decides about `stack_char_dim`.
    values
        Reads all stored values of the array. Called only where the result depends on them: times,
        text of varying length, characters cut into several cells.

    Raises
    ------
    FormatError
        If an attribute is invalid; the message names the option that ignores it.
    """
    if not all(tile.packings.identity for tile in array.tiles):
        raise ModelError("the array is already decoded: its tiles have packings")
    encoding_left = dict(encoding or {})
    if array.dtype.kind in "mM":
        return DecodedVariable(array, dict(array.attributes), encoding_left)
    work = _VariableDecoder(array, name, encoding_left, values)
    try:
        if concat_characters:
            if stack_char_dim:
                work.join_characters()
            work.decode_text()
        work.measure_text()
        timedelta = _timedelta_options(decode_times, decode_timedelta)
        if mask_and_scale:
            work.put_off_refusal()
            work.mask(bool(decode_times), timedelta is not None)
            work.scale(bool(decode_times), timedelta is not None)
        if timedelta is not None:
            work.decode_durations(timedelta)
        if decode_times:
            work.decode_dates(*_datetime_options(decode_times, use_cftime))
        return work.build()
    except InsituError as problem:
        problem.with_context(variable=name)
        raise


@dataclass(frozen=True, slots=True)
class _TimedeltaOptions:
    """Options of xarray's CFTimedeltaCoder."""

    time_unit: str | None = None
    decode_via_units: bool = False
    decode_via_dtype: bool = True


def _timedelta_options(decode_times: Any, decode_timedelta: Any) -> _TimedeltaOptions | None:
    if decode_timedelta is None:
        return _TimedeltaOptions(getattr(decode_times, "time_unit", None)) if decode_times else None
    if isinstance(decode_timedelta, bool):
        return _TimedeltaOptions(None, True, True) if decode_timedelta else None
    fields = ("time_unit", "decode_via_units", "decode_via_dtype")
    return _TimedeltaOptions(*(getattr(decode_timedelta, field) for field in fields))


def _datetime_options(decode_times: Any, use_cftime: bool | None) -> tuple[bool | None, str]:
    if isinstance(decode_times, bool):
        return use_cftime, "ns"
    if use_cftime is not None:
        raise TypeError("use_cftime cannot be combined with a coder in decode_times: set it in the coder")
    return decode_times.use_cftime, decode_times.time_unit


@dataclass(slots=True)
class _VariableDecoder:
    """State of the decoding of one variable."""

    array: VirtualArray
    name: str | None
    encoding: dict[str, Any]
    values: Values | None
    attributes: dict[str, Any] = field(init=False)
    dtype: np.dtype[Any] = field(init=False)
    """Type of the values after the steps so far, as xarray has it."""
    original: np.dtype[Any] = field(init=False)
    steps: dict[str, Any] = field(default_factory=dict)
    """Fields of the packing's kind, decided so far."""
    scale_by: float | None = None
    offset_by: float | None = None
    missing: tuple[Any, ...] = ()
    epoch: int = 0
    known: NDArray[Any] | None = None
    """All stored values, if they were read."""
    warned: bool = False

    def __post_init__(self) -> None:
        self.attributes = dict(self.array.attributes)
        self.dtype = self.original = self.array.dtype

    def join_characters(self) -> None:
        """Join the characters along the last dimension into texts."""
        if self.array.dtype == np.dtype("S1") and self.array.dims:
            self.encoding["char_dim_name"] = self.array.dims[-1]
            self.array = stack_characters(self.array, self.values)
            self.values = None
            self.dtype = self.array.dtype

    def decode_text(self) -> None:
        """Decode bytes of a known charset to text."""
        if "_Encoding" in self.attributes:
            charset = str(self._move_to_encoding("_Encoding"))
            self.steps["charset"] = charset
            self.dtype = np.dtype(object)

    def measure_text(self) -> None:
        """Give text of varying length the type of its longest value, which only the values tell.

        The same holds for text of fixed length in HDF5: netCDF shows it as its own type of text.
        Characters stay as they are.
        """
        declared, stored = self.encoding.get("dtype"), self.array.dtype
        if stored.kind not in "OS" or "charset" in self.steps or "char_dim_name" in self.encoding:
            return
        if declared is not str and (
            declared is not None or self.array.details.charset is None or stored == np.dtype("S1")
        ):
            return
        found = self._read_stored()
        if found is None:
            return
        if stored.kind == "S":
            self.steps["charset"] = "utf-8"
            found = decode_text(found, "utf-8")
        width = max(map(len, found.reshape(-1).tolist()), default=1)
        self.dtype = self.original = np.dtype(f"U{max(width, 1)}")
        self.steps["dtype"] = self.dtype.str
        # xarray drops the rest of the encoding in this case, too.
        self.encoding = {}

    def put_off_refusal(self) -> None:
        """Let values fail when they are read, as in xarray, if their scale or offset is a text or
        the like: other variables are fine.
        """
        for key in ("scale_factor", "add_offset"):
            value: Any = self.attributes.get(key)
            try:
                numbers.packed_number(key, value)
            except FormatError as problem:
                if np.asarray(value).size != 1:  # xarray, too, refuses these on opening
                    raise
                self._move_to_encoding(key)
                self.steps["invalid"] = problem.message

    def mask(self, datetimes: bool, timedeltas: bool) -> None:
        """Apply `_FillValue`, `missing_value` and `_Unsigned`."""
        if self.dtype.kind == "V":  # opaque bytes and records have no missing values
            return
        marks = {key: self.attributes.pop(key) for key in MISSING_VALUE_ATTRIBUTES if key in self.attributes}
        if not marks and "_Unsigned" not in self.attributes:
            return
        marks, fills, notes = numbers.fill_values(marks, self.dtype)
        for note in notes:
            self._warn(note)
        for key, value in marks.items():
            self._add_to_encoding(key, value)
        dtype = self.dtype
        if "_Unsigned" in self.attributes:
            unsigned = self._move_to_encoding("_Unsigned")
            if dtype.kind in "iu":
                dtype, fills = numbers.apply_unsigned(dtype, unsigned, marks.get("_FillValue"), fills)
            else:
                self._warn("has the attribute _Unsigned but no integer values: the attribute is ignored")
            if dtype.kind != self.dtype.kind:
                self.steps["unsigned"] = dtype.kind == "u"
        if fills:
            scale, offset = self.attributes.get("scale_factor"), self.attributes.get("add_offset")
            if scale is not None or offset is not None:
                dtype = numbers.float_dtype(dtype, scale, offset)
            elif dtype.kind in "iu" and self._is_time(datetimes, timedeltas):
                dtype = np.dtype(np.int64)
            else:
                dtype = numbers.missing_dtype(dtype)
            self.missing = tuple(value for value in fills if numbers.can_store_in_row(value))
            if len(self.missing) < len(fills):
                self.steps["missing"] = tuple(value for value in fills if not numbers.can_store_in_row(value))
            self.steps["masked"] = numbers.dtype_name(dtype)
            if "dtype" in self.steps:  # texts whose length was measured: only objects can be missing
                self.steps["dtype"] = numbers.dtype_name(dtype)
        self.dtype = dtype

    def scale(self, datetimes: bool, timedeltas: bool) -> None:
        """Apply `scale_factor` and `add_offset`."""
        if self.dtype.kind == "V":
            return
        scale, offset = self._move_to_encoding("scale_factor"), self._move_to_encoding("add_offset")
        if scale is None and offset is None:
            return
        marked = any(key in self.encoding for key in MISSING_VALUE_ATTRIBUTES)
        if not marked or self._is_time(datetimes, timedeltas):
            self.dtype = numbers.float_dtype(self.dtype, scale, offset)
        self.scale_by, scale_dtype = numbers.packed_number("scale_factor", scale)
        self.offset_by, offset_dtype = numbers.packed_number("add_offset", offset)
        self.steps.update(scaled=numbers.dtype_name(self.dtype), scale_dtype=scale_dtype, offset_dtype=offset_dtype)

    def _is_time(self, datetimes: bool, timedeltas: bool) -> bool:
        """Return whether the values will be decoded as times, according to their units."""
        units = self.attributes.get("units")
        if units is None:
            return False
        units = str(units)
        if "since" not in units:
            return timedeltas and units in UNITS
        try:
            split_units(units)
        except ValueError:
            return False
        return datetimes

    def decode_durations(self, how: _TimedeltaOptions) -> None:
        """Decode differences of time (timedelta64)."""
        units = self.attributes.get("units")
        if not isinstance(units, str) or units not in UNITS:
            return
        declared_dtype = self.attributes.get("dtype")
        typed = isinstance(declared_dtype, str) and declared_dtype.startswith("timedelta64")
        if not (typed and how.decode_via_dtype) and not how.decode_via_units:
            return
        self._move_to_encoding("units")
        time_unit = how.time_unit or "ns"
        if typed:
            del self.attributes["dtype"]
            if how.time_unit is None:
                time_unit = self._resolution(str(declared_dtype))
        self._use_clock(times.choose_timedelta_decoding(self._decoded_so_far(), units, time_unit))

    def _resolution(self, declared_dtype: str) -> str:
        """Return the resolution nearest to the one of an attribute `timedelta64[...]`."""
        try:
            unit = str(np.datetime_data(np.dtype(declared_dtype))[0])
        except TypeError as problem:
            raise numbers.bad_attribute_error("dtype", declared_dtype, "decode_timedelta=False") from problem
        if unit in RESOLUTIONS:
            return unit
        nearest = "s" if unit in ("generic", "Y", "M", "W", "D", "h", "m") else "ns"
        self._warn(
            f"has the attribute dtype {declared_dtype}, which is not supported: decoded as timedelta64[{nearest}]"
        )
        return nearest

    def decode_dates(self, use_cftime: bool | None, time_unit: str) -> None:
        """Decode dates ("days since …")."""
        units = self.attributes.get("units")
        if not isinstance(units, str) or "since" not in units:
            return
        self._move_to_encoding("units")
        calendar = self._move_to_encoding("calendar")
        known = self._decoded_so_far()
        if known is None:
            known = np.empty(0, self.dtype)
        self._use_clock(times.choose_date_decoding(known, units, calendar, use_cftime, time_unit))

    def _use_clock(self, clock: times.TimeDecoding) -> None:
        """Take over what was decided about times."""
        if clock.warning:
            self._issue_warning(f"{clock.warning} (variable {self.name!r})")
        self.dtype = np.dtype(clock.dtype)
        self.epoch = clock.number
        self.steps.update(
            (name, getattr(clock, name)) for name in ("dtype", "unit", "base", "fine", "epoch", "calendar")
        )
        self.steps["scaled"] = self.steps.get("scaled") or clock.cast

    def _read_stored(self) -> NDArray[Any] | None:
        """Return all stored values; None if they cannot be read here."""
        if self.known is None and self.values is not None:
            self.known = self.values()
        return self.known

    def _decoded_so_far(self) -> NDArray[Any] | None:
        """Return all values after the steps so far."""
        found = self._read_stored()
        return None if found is None else unpack(found, self._packing())

    def _packing(self) -> Packing:
        return Packing(self.scale_by, self.offset_by, self.missing, PackingKind(**self.steps), self.epoch)

    def build(self) -> DecodedVariable:
        """Return the array with its packing."""
        if not self.dtype.isnative:
            self.dtype = self.original = self.dtype.newbyteorder("=")
        if self.attributes.get("dtype", False) == "bool":
            if "unit" in self.steps:
                raise numbers.bad_attribute_error("dtype", "bool", "decode_times=False")
            # Overwritten, so that writing the variable gives the same file again.
            self.encoding["dtype"] = self.attributes.pop("dtype")
            self.dtype = np.dtype(bool)
            self.steps["dtype"] = "bool"
        if "dtype" not in self.encoding:
            details = self.array.details
            metadata: dict[str, Any] = {"enum": dict(details.enumeration)} if details.enumeration else {}
            if metadata and details.enumeration_name:
                metadata["enum_name"] = details.enumeration_name
            self.encoding["dtype"] = np.dtype(self.original, metadata=metadata) if metadata else self.original
        tiles = self.array.tiles
        if self.steps:
            self.steps.setdefault("dtype", numbers.dtype_name(self.dtype))
            table = _packing_table(self._packing().key)
            tiles = tuple(Tile(tile.axes, tile.encodings, tile.chunks, table, tile.layout) for tile in tiles)
        array, attributes = self.array, self.attributes
        decoded = VirtualArray(
            array.shape, self.dtype, array.dims, tiles, array.origins, attributes, None, array.details
        )
        return DecodedVariable(decoded, dict(attributes), self.encoding, self.warned)

    def _move_to_encoding(self, key: str) -> Any:
        """Move an attribute to the encoding and return its value."""
        value = self.attributes.pop(key, None)
        if value is not None:
            self._add_to_encoding(key, value)
        return value

    def _add_to_encoding(self, key: str, value: Any) -> None:
        if key in self.encoding:
            raise FormatError(f"{key} is given twice, in the attributes and in the encoding")
        self.encoding[key] = value

    def _warn(self, what: str) -> None:
        self._issue_warning(f"variable {self.name!r} {what}")

    def _issue_warning(self, message: str) -> None:
        self.warned = True
        warnings.warn(message, decoding_warning(), stacklevel=3)


def decoding_warning() -> type[Warning]:
    """Return the category of warnings about decoding: xarray's, which users filter, if xarray is in use."""
    xarray = sys.modules.get("xarray")
    return RuntimeWarning if xarray is None else xarray.SerializationWarning


@lru_cache(maxsize=4096)
def _packing_table(key: tuple[Any, ...]) -> Packings:
    """Return the table of one packing.

    Files with equal packings share it, which makes joining fast.
    """
    return Packings.of([key[0]])
