"""Convert Zarr data types, V2 and V3, to NumPy types and back.

V2 writes NumPy's own strings. V3 writes names without a byte order (the `bytes` codec has it), some
with a configuration. Values of variable length get NumPy's object type; their codec tells what they
are.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from insitu.errors import FormatError, UnsupportedError
from insitu.zarr_metadata.json_fields import (
    integer_field,
    integers_field,
    name_and_configuration,
    object_field,
    required_field,
    text_field,
)

__all__ = ["from_v2", "from_v3", "numpy_dtype", "to_v2", "to_v3"]

_SIMPLE = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64", "complex64", "complex128",
    )
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _SIMPLE.items()}
_VARIABLE_LENGTH = frozenset({"string", "bytes", "variable_length_utf8", "variable_length_bytes"})
_LARGEST = 1 << 31
_TIME_UNITS = frozenset(
    {"generic", "Y", "M", "W", "D", "h", "m", "s", "ms", "us", "\N{GREEK SMALL LETTER MU}s", "ns", "ps", "fs", "as"}
)


def from_v2(value: Any) -> np.dtype[Any]:
    """Return the NumPy type of a V2 `dtype`.

    Examples
    --------
    >>> from_v2([["a", "<u2"], ["b", "|S3"]]).itemsize
    5
    """
    dtype = _read_v2(value)
    if dtype.hasobject and dtype.kind != "O":
        raise UnsupportedError(f"structured types with object fields are not supported: {value}")
    return dtype


def _read_v2(value: Any) -> np.dtype[Any]:
    if isinstance(value, str):
        return numpy_dtype(value)
    if not isinstance(value, list):
        raise FormatError(f"'dtype' must be text or a list of fields, not {value!r}")
    fields = []
    for item in value:
        if not isinstance(item, list) or len(item) not in (2, 3) or not isinstance(item[0], str):
            raise FormatError(
                f"{item!r} is not a field of a structured type: expected [name, type] or [name, type, shape]"
            )
        shape = integers_field(item[2], "dtype") if len(item) == 3 else ()
        fields.append((item[0], _read_v2(item[1]), shape))
    return _join_fields(fields)


def numpy_dtype(text: str) -> np.dtype[Any]:
    """Return the type that a string of NumPy's names; raise `FormatError` if there is none."""
    try:
        return np.dtype(text)
    except (TypeError, ValueError, SyntaxError) as problem:  # NumPy parses "2,<f4" as Python
        raise FormatError(f"{text[:80]!r} is not a NumPy type: {problem}") from None


def _join_fields(fields: list[Any]) -> np.dtype[Any]:
    """Return a structured type; NumPy refuses names that occur twice, and sizes beyond 2 GiB."""
    try:
        return np.dtype(fields)
    except (TypeError, ValueError) as problem:
        raise FormatError(f"these fields do not make a structured type: {problem}") from None


def from_v3(value: Any) -> np.dtype[Any]:
    """Return the NumPy type of a V3 `data_type`, little-endian until the `bytes` codec changes it.

    Examples
    --------
    >>> from_v3({"name": "numpy.datetime64", "configuration": {"unit": "ms", "scale_factor": 10}})
    dtype('<M8[10ms]')
    """
    name, configuration = name_and_configuration(value, "data_type")
    if name in _SIMPLE:
        return _SIMPLE[name]
    if name in _VARIABLE_LENGTH:
        return np.dtype(object)
    if (bits := re.fullmatch(r"r(\d+)", name)) is not None:
        size = int(bits[1]) if len(bits[1]) < 12 else 0
        if size % 8 or not 0 < size < 8 * _LARGEST:
            raise FormatError(f"raw values must have a positive multiple of 8 bits, not {name!r}")
        return np.dtype(f"V{size // 8}")
    if name in ("numpy.datetime64", "numpy.timedelta64"):
        unit = text_field(required_field(configuration, "unit"), "unit")
        scale = integer_field(configuration.get("scale_factor", 1), "scale_factor", least=1)
        kind = "M8" if name == "numpy.datetime64" else "m8"
        if unit not in _TIME_UNITS:
            raise FormatError(f"{unit!r} is not a unit of time")
        return numpy_dtype(f"<{kind}" if unit == "generic" else f"<{kind}[{scale}{unit}]")
    if name in ("fixed_length_utf32", "null_terminated_bytes", "fixed_length_ascii", "raw_bytes"):
        size = _size_in_bytes(configuration, name)
        if name == "fixed_length_utf32":
            if size % 4:
                raise FormatError(f"the size of fixed_length_utf32 must be a multiple of 4 bytes, not {size}")
            return np.dtype(f"<U{size // 4}")
        return np.dtype(f"V{size}" if name == "raw_bytes" else f"S{size}")
    if name in ("struct", "structured"):
        return _structured_dtype(required_field(configuration, "fields"))
    raise UnsupportedError(f"the data type {name!r} is not supported")


def _size_in_bytes(configuration: dict[str, Any], name: str) -> int:
    if "length_bits" in configuration:
        size = integer_field(configuration["length_bits"], "length_bits") // 8
    else:
        size = integer_field(required_field(configuration, "length_bytes"), "length_bytes")
    if size >= _LARGEST:
        raise FormatError(f"a {name} value of {size} bytes is too large")
    return size


def _structured_dtype(fields: Any) -> np.dtype[Any]:
    if not isinstance(fields, list) or not fields:
        raise FormatError("a structured type needs a list of fields")
    members = []
    for item in fields:
        # [name, type] in zarr 3.1, {name, data_type} later.
        if isinstance(item, list) and len(item) == 2:
            name, kind = item
        else:
            field = object_field(item, "fields")
            name, kind = required_field(field, "name"), required_field(field, "data_type")
        member = from_v3(kind)
        if member.hasobject:
            raise UnsupportedError(
                f"field {name!r} has values of variable length: such structured types are not supported"
            )
        members.append((text_field(name, "fields.name"), member))
    return _join_fields(members)


def to_v2(dtype: np.dtype[Any]) -> Any:
    """Return the V2 `dtype` of a NumPy type."""
    if dtype.names is None:
        return "|O" if dtype.hasobject else dtype.str
    if dtype.itemsize != sum(dtype[name].itemsize for name in dtype.names):
        raise UnsupportedError(f"Zarr cannot hold a structured type with padding between its fields: {dtype}")
    rows: list[Any] = []
    for name in dtype.names:
        member = dtype[name]
        inner, shape = (member.subdtype[0], list(member.subdtype[1])) if member.subdtype else (member, None)
        rows.append([name, to_v2(inner)] if shape is None else [name, to_v2(inner), shape])
    return rows


def to_v3(dtype: np.dtype[Any], *, text_values: bool = True) -> Any:
    """Return the V3 `data_type` of a NumPy type; its byte order goes into the `bytes` codec.

    Parameters
    ----------
    dtype
        The NumPy type.
    text_values
        Of objects: whether they are texts or bytes.
    """
    if dtype.hasobject and dtype.kind == "O":
        return "string" if text_values else "variable_length_bytes"
    if dtype.names is not None:
        if dtype.itemsize != sum(dtype[name].itemsize for name in dtype.names):
            raise UnsupportedError(f"Zarr cannot hold a structured type with padding between its fields: {dtype}")
        fields = [{"name": name, "data_type": to_v3(dtype[name])} for name in dtype.names]
        return {"name": "struct", "configuration": {"fields": fields}}
    little = dtype.newbyteorder("<")
    if little in _NAMES:
        return _NAMES[little]
    if dtype.kind in "mM":
        unit, scale = np.datetime_data(dtype)
        name = "numpy.datetime64" if dtype.kind == "M" else "numpy.timedelta64"
        return {"name": name, "configuration": {"unit": unit, "scale_factor": scale}}
    kinds = {"U": "fixed_length_utf32", "S": "null_terminated_bytes", "V": "raw_bytes"}
    if dtype.kind in kinds and dtype.subdtype is None:
        return {"name": kinds[dtype.kind], "configuration": {"length_bytes": dtype.itemsize}}
    raise UnsupportedError(f"Zarr V3 has no data type for {dtype}")
