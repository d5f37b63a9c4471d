"""How does a GRIB message become the values of its field?

By ecCodes, which knows every packing. Simple packing without anything odd about it, the most common one, is undone here: the same sum in the same order, without the
third of a millisecond that ecCodes takes to look at a message. Values that the bitmap leaves out are NaN. Kerchunk has a codec of this name, with the same
configuration.
"""

from __future__ import annotations

import importlib
import threading
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.form import Configuration, Data, Form, Octets, Step, octets
from insitu.codecs.grib_sections import Parts, alone, checked, parts_of, whole
from insitu.codecs.grib_sizes import sizes_checked
from insitu.codecs.library import find
from insitu.errors import CodecError, UnknownCodecError

__all__ = ["eccodes", "exclusive", "grib", "incomputable"]

MISSING = float(np.finfo(np.float32).max)
"""What ecCodes is told to put where the bitmap has no value; no packing yields it."""
SIMPLE_BITS = (1, 32)
FARTHEST = 1080
"""Degrees of longitude; more than once around is odd, but not senseless."""
MOST_GAUSSIAN = 1 << 14
"""Latitudes between a pole and the equator: their places are found one by one."""
_LOCK = threading.RLock()


@cache
def eccodes() -> Any:
    """The library.

    Raises
    ------
    UnknownCodecError
        If it is not installed.
    """
    # ecCodes' wheel shows its own PROJ to the whole process: pyproj, imported behind it, takes that one and crashes when the process ends.
    with suppress(ImportError):
        importlib.import_module("pyproj")
    try:
        import eccodes as library
    except (ImportError, RuntimeError, OSError) as problem:  # RuntimeError: the package is there, the C library is not
        raise UnknownCodecError(
            f"GRIB needs ecCodes, which cannot be loaded ({problem})",
            codec="grib",
            hint='Try `pip install "insitu[grib]"`',
        ) from problem
    return library


@cache
def _guard() -> AbstractContextManager[Any]:
    """What keeps threads apart: nothing where the library was built for threads, as the one of PyPI is."""
    path = find("gribapi.bindings", "library_path")
    return nullcontext() if "eccodeslib" in str(path) else _LOCK


def exclusive() -> AbstractContextManager[Any]:
    """To be held while ecCodes works."""
    return _guard()


def grib(configuration: Configuration, form: Form) -> Step:
    """Prepare for a message.

    `var`: `latitude` and `longitude` of the grid, anything else: the values. `field`: its number in the message. `alternate`: every other row runs backwards. `columns`: points of a column follow each other. `grid` and `parameter`: what the
    message must hold, where only an index has been read of it.
    """
    var, number = str(configuration.get("var", "values")), int(configuration.get("field") or 0)
    key = f"{var}s" if var in ("latitude", "longitude") else "values"
    alternate, columns = bool(configuration.get("alternate")), bool(configuration.get("columns"))
    count, dtype, shape = form.count, form.dtype, form.shape
    if dtype is None or shape is None or dtype.kind != "f":
        raise CodecError(f"GRIB holds numbers, not {dtype}", codec="grib")

    def run(data: Data, out: Octets | None) -> Data:
        message = whole(octets(data))
        parts = parts_of(message, number)
        checked(message, parts, configuration)
        values = _simple(parts, count) if key == "values" else None
        if values is None:
            if key == "values" and parts.edition == 2:
                sizes_checked(parts.packing, parts.data, parts.points, _integers)
            values = _decoded(message, number, key, count)
        room = np.empty(form.limit, np.uint8) if out is None else out
        target = room.view(dtype)
        if columns or alternate:
            rows = values.reshape(-1, shape[-2] if columns else shape[-1])
            if alternate:
                rows[1::2] = rows[1::2, ::-1].copy()
            values = (rows.T if columns else rows).reshape(-1)
        with np.errstate(over="ignore"):  # as cfgrib: what float32 cannot hold is infinite
            target[...] = values
        return room

    return Step("grib", run, form.compressed(4, 1 << 20), fills=form.exact)


def incomputable(library: Any, handle: Any) -> str:
    """Why ecCodes must not be asked for the points of a grid: of some that are damaged it would end the process, or never come back."""
    kind = library.codes_get(handle, "gridType", str)
    if "reduced" in kind:
        if not library.codes_get(handle, "PLPresent", int) or not library.codes_get_size(handle, "pl"):
            return "the grid is reduced, but says nothing of its rows"
        rows = np.asarray(library.codes_get_array(handle, "pl"))
        if (rows < 0).any() or (rows == 1).any() or rows.sum() < library.codes_get(handle, "numberOfPoints", int):
            return "the rows of the grid do not make up its points"
        ends = [library.codes_get(handle, f"longitudeOf{end}GridPointInDegrees", float) for end in ("First", "Last")]
        if not all(abs(end) <= FARTHEST for end in ends):
            return f"the grid goes from {ends[0]} to {ends[1]} degrees"
    if kind.endswith("_gg") and not 0 < (number := library.codes_get(handle, "N", int)) <= MOST_GAUSSIAN:
        return f"a Gaussian grid of number {number}"
    return ""


def _decoded(message: Octets, number: int, key: str, count: int) -> NDArray[np.float64]:
    """By ecCodes."""
    library = eccodes()
    raw = alone(message, number) if number else message.tobytes()
    with exclusive():
        handle = library.codes_new_from_message(raw)
        try:
            if key == "values":
                library.codes_set(handle, "missingValue", MISSING)
            elif why := incomputable(library, handle):
                raise CodecError(why)
            found = int(library.codes_get_size(handle, key))
            if found != count:
                raise CodecError(f"the message holds {found} values, not {count}")
            values: NDArray[np.float64] = np.asarray(library.codes_get_double_array(handle, key))
        finally:
            library.codes_release(handle)
    if key == "values":
        values[values == MISSING] = np.nan
    return values


def _simple(parts: Parts, count: int) -> NDArray[np.float64] | None:
    """The values of a field in simple packing; None where ecCodes should look."""
    told = _second(parts) if parts.edition == 2 else _first(parts)
    if told is None:
        return None
    reference, binary, decimal, bits, packed = told
    if not SIMPLE_BITS[0] <= bits <= SIMPLE_BITS[1] or abs(decimal) > 22 or abs(binary) > 126:
        return None
    valid = None
    if parts.bitmap is not None:
        valid = _bitmap(parts, count)
        if valid is None:
            return None
    wanted = count if valid is None else int(np.count_nonzero(valid))
    if parts.edition == 2 and (packed != wanted or parts.points != count):
        return None
    raw = parts.data[: -(-wanted * bits // 8)]
    if raw.size * 8 < wanted * bits or not wanted:
        return None
    values = _integers(raw, bits, wanted)
    # In this order: ecCodes does the same, and the bits must agree.
    values *= 2.0**binary
    values += reference
    values *= 10.0**-decimal if decimal <= 0 else 1.0 / 10.0**decimal
    if valid is None:
        return values
    full = np.full(count, np.nan)
    full[valid] = values
    return full


Packed = tuple[float, int, int, int, int]
"""Reference value, binary and decimal scale, bits a value, number of values."""


def _second(parts: Parts) -> Packed | None:
    """GRIB 2, template 5.0."""
    packing = parts.packing.tobytes()
    if len(packing) < 20 or packing[9:11] != b"\0\0":
        return None
    reference = float(np.frombuffer(packing, ">f4", 1, 11)[0])
    count = int.from_bytes(packing[5:9], "big")
    return reference, _signed(packing[15:17]), _signed(packing[17:19]), packing[19], count


def _first(parts: Parts) -> Packed | None:
    """GRIB 1: the values of a grid, in simple packing, without further flags."""
    packing = parts.packing.tobytes()
    if len(packing) < 11 or packing[3] & 0xF0:
        return None
    reference = int.from_bytes(packing[7:10], "big") * 16.0 ** ((packing[6] & 0x7F) - 70)
    reference = -reference if packing[6] & 0x80 else reference
    return reference, _signed(packing[4:6]), _signed(parts.product[26:28].tobytes()), packing[10], 0


def _signed(data: bytes) -> int:
    """GRIB's integers have a sign bit."""
    value = int.from_bytes(data, "big")
    limit = 1 << (8 * len(data) - 1)
    return value if value < limit else limit - value


def _bitmap(parts: Parts, count: int) -> NDArray[np.bool_] | None:
    """Which points have a value; None if the bitmap is one of those that only their centre knows."""
    assert parts.bitmap is not None
    known = parts.bitmap[5] == 0 if parts.edition == 2 else not parts.bitmap[4:6].any()
    bits = parts.bitmap[6:]
    if not known or bits.size * 8 < count:
        return None
    return np.unpackbits(bits, count=count).view(np.bool_)


def _integers(raw: Octets, bits: int, count: int) -> NDArray[np.float64]:
    if bits in (8, 16, 32):
        return raw.view(f">u{bits // 8}")[:count].astype(np.float64)
    unpack = find("imagecodecs", "packints_decode")
    if unpack is None:
        padded = np.unpackbits(raw, count=count * bits).reshape(count, bits)
        return padded @ (2.0 ** np.arange(bits - 1, -1, -1))
    kind = np.dtype(np.uint8 if bits < 8 else np.uint16 if bits < 16 else np.uint32)
    found: NDArray[Any] = unpack(raw.tobytes(), kind, bits)[:count]
    return found.astype(np.float64)
