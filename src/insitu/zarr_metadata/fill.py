"""Convert Zarr fill values from JSON to the bytes of one element, and back.

All spellings are read: numbers, NaN and Infinity as text or bare, hexadecimal bits, base64, null,
parts of complex numbers, fields of structured types.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from insitu.errors import FormatError
from insitu.zarr_metadata.json_fields import base64_field

__all__ = ["from_json", "to_json"]

_SPECIAL_FLOATS = {
    "nan": np.nan,
    "infinity": np.inf, "+infinity": np.inf, "-infinity": -np.inf,
    "inf": np.inf, "+inf": np.inf, "-inf": -np.inf,
}  # fmt: skip


def from_json(value: Any, dtype: np.dtype[Any]) -> bytes | None:
    """Return one element's bytes, in the byte order of `dtype`; None: there is no fill value
    (zeros).

    Examples
    --------
    >>> from_json("0x7fc00001", np.dtype("<f4")).hex()
    '0100c07f'
    """
    if value is None:
        return None
    if dtype.hasobject:
        return _decode_bytes(value)
    if dtype.kind == "f":
        return _float_bytes(value, dtype)
    if dtype.kind == "c":
        half = np.dtype(f"{dtype.byteorder}f{dtype.itemsize // 2}")
        parts = value if isinstance(value, list) else [value, 0.0]
        if len(parts) != 2:
            raise _not_of_type(value, dtype)
        return _float_bytes(parts[0], half) + _float_bytes(parts[1], half)
    if dtype.kind in "iu":
        return _integer_bytes(value, dtype)
    if dtype.kind == "b":
        if value not in (0, 1, True, False):
            raise FormatError(f"fill_value {value!r} is not a boolean")
        return np.array(bool(value), dtype).tobytes()
    if dtype.kind in "mM":
        is_nat = isinstance(value, str) and value.lower() == "nat"
        return _integer_bytes(np.iinfo(np.int64).min if is_nat else value, np.dtype(dtype.str[0] + "i8"))
    if dtype.kind == "U":
        return np.array("" if value == 0 else str(value), dtype).tobytes()
    if dtype.names is not None and isinstance(value, Mapping):
        return _structure_bytes(value, dtype)
    return _fixed_length_bytes(value, dtype)


def _not_of_type(value: Any, dtype: np.dtype[Any]) -> FormatError:
    return FormatError(f"fill_value {value!r:.80} is not a value of type {dtype}")


def _float_bytes(value: Any, dtype: np.dtype[Any]) -> bytes:
    if not isinstance(value, int | float | str):
        raise _not_of_type(value, dtype)
    if isinstance(value, str):
        if value.lower() in _SPECIAL_FLOATS:
            value = _SPECIAL_FLOATS[value.lower()]
        elif re.fullmatch(r"0x[0-9a-f]+", value.lower()):
            bits = int(value, 16)
            if bits >= 1 << 8 * dtype.itemsize:
                raise _not_of_type(value, dtype)
            return bits.to_bytes(dtype.itemsize, "big" if dtype.str[0] == ">" else "little")
    try:
        number = float(value)
    except (ValueError, OverflowError):  # not a number; an integer beyond all floats
        raise _not_of_type(value, dtype) from None
    return np.array(number, dtype).tobytes()


def _integer_bytes(value: Any, dtype: np.dtype[Any]) -> bytes:
    if not isinstance(value, int | float | str) or (isinstance(value, float) and not value.is_integer()):
        raise _not_of_type(value, dtype)
    try:
        number = int(value)
    except ValueError:
        raise _not_of_type(value, dtype) from None
    limits = np.iinfo(dtype)
    if not limits.min <= number <= limits.max:
        raise _not_of_type(value, dtype)
    return np.array(number, dtype).tobytes()


def _fixed_length_bytes(value: Any, dtype: np.dtype[Any]) -> bytes:
    """Return bytes of a fixed length from base64, a list of numbers, or the 0 of old writers."""
    if value == 0 and not isinstance(value, str):
        return bytes(dtype.itemsize)
    data = _decode_bytes(value)
    if len(data) > dtype.itemsize or (dtype.kind == "V" and len(data) not in (0, dtype.itemsize)):
        raise FormatError(f"fill_value has {len(data)} bytes, but an element has {dtype.itemsize}")
    return data.ljust(dtype.itemsize, b"\0")


def _decode_bytes(value: Any) -> bytes:
    if isinstance(value, list):
        if not all(isinstance(item, int) and 0 <= item < 256 for item in value):
            raise FormatError(f"fill_value {value!r:.80} is not a list of bytes")
        return bytes(value)
    if isinstance(value, str):
        return base64_field(value, "fill_value")
    if not isinstance(value, int | float):
        raise FormatError(f"fill_value {value!r:.80} is neither text nor a number")
    return str(value).encode()


def _structure_bytes(value: Mapping[str, Any], dtype: np.dtype[Any]) -> bytes:
    element = np.zeros((), dtype)
    for name in dtype.names or ():
        raw = from_json(value.get(name), dtype[name])
        if raw is not None:
            element[name] = np.frombuffer(raw, dtype[name], count=1)[0]
    return element.tobytes()


def from_text(value: Any) -> bytes | None:
    """Return the fill value of variable-length texts, as UTF-8. A number becomes its digits, as in
    zarr-python.
    """
    if value is None or value == "":
        return None
    try:
        return str(value).encode()
    except UnicodeEncodeError:
        raise FormatError(f"fill_value {value!r:.80} is not valid text") from None


def to_json(fill: bytes | None, dtype: np.dtype[Any], *, zarr_format: int, text_values: bool = True) -> Any:
    """Return a fill value as a document writes it.

    Parameters
    ----------
    fill
        One element's bytes; None: zeros, which V2 writes as null.
    dtype
        The type of the element.
    zarr_format
        2 or 3.
    text_values
        Of objects: whether they are texts or bytes.
    """
    if dtype.hasobject:
        if not text_values:
            return base64.b64encode(fill or b"").decode()
        return "" if fill is None else fill.decode("utf-8", "surrogateescape")
    if fill is None:
        if zarr_format == 2:
            return None
        fill = bytes(dtype.itemsize)
    if dtype.names is not None and zarr_format == 3:
        fields: Mapping[str, Any] = dtype.fields or {}
        return {
            name: to_json(fill[at : at + kind.itemsize], kind, zarr_format=3)
            for name, (kind, at, *_) in ((name, fields[name]) for name in dtype.names)
        }
    if dtype.kind in "SV":
        data = fill.rstrip(b"\0") if dtype.kind == "S" and zarr_format == 3 else fill
        return base64.b64encode(data).decode()
    value = np.frombuffer(fill, dtype, count=1)[0]
    if dtype.kind == "f":
        return _float_to_json(value, fill, dtype, zarr_format)
    if dtype.kind == "c":
        half = np.dtype(f"{dtype.byteorder}f{dtype.itemsize // 2}")
        parts = (fill[: half.itemsize], fill[half.itemsize :])
        return [_float_to_json(np.frombuffer(part, half)[0], part, half, zarr_format) for part in parts]
    if dtype.kind in "mM":
        return int(value.astype(np.int64))
    return value.item()


def _float_to_json(value: Any, fill: bytes, dtype: np.dtype[Any], zarr_format: int) -> Any:
    if np.isnan(value):
        usual = np.array(np.nan, dtype).tobytes()
        if fill != usual and zarr_format == 3:
            bits = fill if dtype.str[0] == ">" else fill[::-1]
            return "0x" + bits.hex()
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)
