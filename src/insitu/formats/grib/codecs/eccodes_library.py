"""Access to ecCodes: lock, import, and checks for grids that would crash or hang it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.libraries import find_function
from insitu.errors import CodecError, UnknownCodecError, UnsupportedError
from insitu.forking import fork_safe_rlock, import_before_fork

__all__ = [
    "MISSING",
    "decode_values",
    "eccodes",
    "eccodes_lock",
    "has_empty_rows",
    "import_alone",
    "is_consistent_grid",
    "is_small_grid",
    "reason_not_to_compute",
]

MISSING = float(np.finfo(np.float32).max)
"""The value that ecCodes puts where the bitmap has none; no packing yields it."""
FARTHEST = 1080
"""Most degrees of longitude: more than once around is unusual, but valid."""
NORTHERNMOST = 91
"""Most degrees of latitude; a grid may begin a little behind the pole."""
MOST_GAUSSIAN = 1 << 14
"""Most latitudes between a pole and the equator: ecCodes finds them one by one."""
SOON = 1280
"""So many latitudes are found in less than a second; 2,560 take four."""
MOST_POINTS = 1 << 16
"""Most points of a grid that are computed in this process."""
BEHIND = 256
"""Bytes that are put in the place of the end of a message, to see whether they become values."""
_LOCK = fork_safe_rlock()
_beside_others = True
"""Whether the process may import other libraries after ecCodes."""


@cache
def eccodes() -> Any:
    """Import and return the library.

    Raises
    ------
    UnknownCodecError
        If it is not installed.
    """
    # ecCodes' wheel shows its own PROJ to the whole process: pyproj, imported behind it, takes that
    # one and crashes when the process ends.
    if _beside_others:
        with suppress(ImportError):
            import_before_fork("pyproj")
    try:
        import eccodes as library
    except (ImportError, RuntimeError, OSError) as problem:  # RuntimeError: the package is there, the C library is not
        raise UnknownCodecError(
            f"GRIB needs ecCodes, which cannot be imported ({problem})",
            codec="grib",
            hint="Try `pip install 'insitu[grib]'`",
        ) from problem
    return library


def import_alone() -> None:
    """Import the library into a process that has no other task, so that pyproj is not needed."""
    global _beside_others
    _beside_others = False
    with suppress(UnknownCodecError):  # decoding raises it again
        eccodes()


@cache
def _make_lock() -> AbstractContextManager[Any]:
    """Return the lock between threads.

    A null context if the library was built for threads, as the one of PyPI is.
    """
    path = find_function("gribapi.bindings", "library_path")
    return nullcontext() if "eccodeslib" in str(path) else _LOCK


def eccodes_lock() -> AbstractContextManager[Any]:
    """Return the lock to hold while ecCodes is used."""
    return _make_lock()


def reason_not_to_compute(library: Any, handle: Any) -> str:
    """Return why ecCodes must not compute the points of a grid, empty if it may.

    Some damaged grids crash or hang it.
    """
    kind = library.codes_get(handle, "gridType", str)
    if "reduced" in kind:
        if not library.codes_get(handle, "PLPresent", int) or not library.codes_get_size(handle, "pl"):
            return "the grid is reduced, but says nothing of its rows"
        rows = np.asarray(library.codes_get_array(handle, "pl"))
        if (rows < 0).any() or (rows == 1).any() or rows.sum() < library.codes_get(handle, "numberOfPoints", int):
            return "the rows of the grid do not make up its points"
    if kind.endswith(("_ll", "_gg")):
        for name, farthest in (("latitude", NORTHERNMOST), ("longitude", FARTHEST)):
            ends = [library.codes_get(handle, f"{name}Of{end}GridPointInDegrees", float) for end in ("First", "Last")]
            if not all(abs(end) <= farthest for end in ends):
                return f"the grid goes from {ends[0]} to {ends[1]} degrees of {name}"
    if kind.endswith("_gg") and not 0 < (number := library.codes_get(handle, "N", int)) <= MOST_GAUSSIAN:
        return f"a Gaussian grid of number {number}"
    return ""


def has_empty_rows(library: Any, handle: Any) -> bool:
    """Return whether a reduced grid has a row of one point or none.

    ecCodes would crash on any of its keys.
    """
    if not library.codes_get(handle, "gridType", str).startswith("reduced"):
        return False
    if library.codes_get_size(handle, "pl") == 0:
        return True
    rows = np.asarray(library.codes_get_array(handle, "pl"))
    return bool((rows == 1).any() or rows.max() <= 1)


def is_small_grid(library: Any, handle: Any) -> bool:
    """Return whether ecCodes computes the points of a consistent grid in less than a second."""
    if library.codes_get(handle, "numberOfPoints", int) > MOST_POINTS:
        return False
    kind = library.codes_get(handle, "gridType", str)
    return not kind.endswith("_gg") or bool(library.codes_get(handle, "N", int) <= SOON)


def is_consistent_grid(library: Any, handle: Any) -> bool:
    """Return whether what a header says of its grid fits together, so that ecCodes can compute its points.

    Inconsistent Gaussian grids crash it, and so do grids of one row without an increment. It brings longitudes into
    the range of a circle by one turn after the other, so that increments of many turns would keep it for hours.
    """
    kind = library.codes_get(handle, "gridType", str)
    reduced = "reduced" in kind
    try:
        if kind.endswith(("_ll", "_gg")) and not reduced and not _has_short_rows(library, handle):
            return False
        if not reduced and not kind.endswith("_gg"):
            return _has_rows(library, handle)
        rows = library.codes_get(handle, "Nj", int)
        first, last = (
            library.codes_get(handle, f"latitudeOf{end}GridPointInDegrees", float) for end in ("First", "Last")
        )
        west, east = (
            library.codes_get(handle, f"longitudeOf{end}GridPointInDegrees", float) for end in ("First", "Last")
        )
        whole = 0 < first < 90 and abs(first + last) < 1e-3 and west == 0 and 0 < east < 360
        points = library.codes_get(handle, "numberOfPoints", int)
        if kind.endswith("_gg"):
            whole = whole and rows == 2 * library.codes_get(handle, "N", int)
        if not reduced:
            return bool(whole and rows * library.codes_get(handle, "Ni", int) == points)
        row = np.asarray(library.codes_get_array(handle, "pl"))
        return bool(whole and row.size == rows and (row > 1).all() and row.sum() == points)
    except Exception:  # whatever the library raises: a key is missing
        return False


def _has_short_rows(library: Any, handle: Any) -> bool:
    """Return whether the increments of a row lead around the globe a few times at most."""
    step = library.codes_get(handle, "iDirectionIncrementInDegrees", float)
    return bool(abs(step) * library.codes_get(handle, "Ni", int) <= FARTHEST)


def _has_rows(library: Any, handle: Any) -> bool:
    """Return whether a grid has more than one row, or is none of rows."""
    try:
        return bool(library.codes_get(handle, "Nj", int) > 1)
    except Exception:  # whatever the library raises: a key is missing
        return True


def decode_values(raw: bytes, key: str, count: int) -> NDArray[np.float64]:
    """Return values that ecCodes decodes in this process.

    Parameters
    ----------
    raw
        A message of one field.
    key
        `values`, `latitudes` or `longitudes`; or what ecCodes calls the different ones of these.
    count
        How many there must be; of the different ones, at most.

    Raises
    ------
    CodecError
        If the message is damaged.
    UnsupportedError
        If ecCodes does not know its packing.
    """
    values, packing = _decode(raw, key, count)
    if "second_order" in packing:
        # Only the data tells where it ends, and ecCodes does not look: what it reads behind it must not matter.
        for fill in (b"\0", b"\xff"):
            if not np.array_equal(_decode(raw[:-4] + fill * BEHIND, key, count)[0], values, equal_nan=True):
                raise CodecError("the data ends before the last value")
    return values


def _decode(raw: bytes, key: str, count: int) -> tuple[NDArray[np.float64], str]:
    """Return values, and for `values` the type of packing."""
    library = eccodes()
    packing = ""
    with eccodes_lock():
        handle = library.codes_new_from_message(raw)
        try:
            if key == "values":
                if library.codes_is_defined(handle, "packingType"):
                    packing = library.codes_get(handle, "packingType", str)
                if packing == "unknown":
                    raise UnsupportedError("ecCodes does not know the packing of the field")
                library.codes_set(handle, "missingValue", MISSING)
            elif reason := reason_not_to_compute(library, handle):
                raise CodecError(reason)
            found = int(library.codes_get_size(handle, key))
            if found > count or (found < count and not key.startswith("distinct")):
                raise CodecError(f"the message holds {found} values, not {count}")
            values: NDArray[np.float64] = np.asarray(library.codes_get_double_array(handle, key))
        finally:
            library.codes_release(handle)
    if key == "values":
        values[values == MISSING] = np.nan
    return values, packing
