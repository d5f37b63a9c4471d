"""Parsing and checking of Reductionist requests: each field, and the fields against each other.

More is accepted than by Reductionist: all numeric types, every codec of insitu by its id, `file://`
URLs. Unknown fields, wrong types and inconsistent sizes are errors, as there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from insitu.active.message_decoder import decode_json
from insitu.active.wire_array import MAX_CODECS, MAX_CONFIGURATION_CHARS
from insitu.codecs.registry import is_own
from insitu.errors import ModelError
from insitu.model import Codec
from insitu.server.error_responses import RequestError
from insitu.server.reductionist.missing import Missing, parse_missing
from insitu.server.reductionist.object_url import RequestLocation, locate_object

__all__ = ["DTYPES", "FIELDS", "ChunkRequest", "parse_chunk_request"]

DTYPES = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128", "bool",
)  # fmt: skip
FIELDS = (
    *("interface_type", "url", "dtype", "byte_order", "offset", "size", "shape", "axis", "order", "selection"),
    *("compression", "filters", "missing"),
    *("option_disable_chunk_cache", "option_shape_as_bytes", "option_count_as_bytes"),
)
MAX_AXES = 32
INT64_LIMIT = 1 << 63
COMPRESSIONS_WITHOUT_OPTIONS = ("gzip", "zlib", "blosc2")
"""Compressions that take no options in the protocol."""
SHUFFLES = ("shuffle", "shuffle_simd")
INTERFACES = ("s3", "http", "https", "file")


@dataclass(frozen=True, slots=True)
class ChunkRequest:
    """A valid request."""

    location: RequestLocation
    dtype: np.dtype[Any]
    """With its byte order."""
    offset: int
    size: int | None
    shape: tuple[int, ...] | None
    axis: tuple[int, ...] | None
    """Axes to reduce; None: all; empty: none."""
    order: str
    selection: tuple[slice, ...] | None
    codecs: tuple[Codec, ...]
    """Filters and compression, in the order of encoding."""
    missing: Missing | None
    cached: bool
    shape_as_bytes: bool
    count_as_bytes: bool


def parse_chunk_request(body: bytes) -> ChunkRequest:
    """Return the request in a body; an error if it is not valid."""
    data = _json_object(body)
    unknown = [name for name in data if name not in FIELDS]
    if unknown:
        raise invalid_request(
            f"unknown field `{unknown[0][:60]}`, expected one of {', '.join(f'`{name}`' for name in FIELDS)}"
        )
    for name in ("interface_type", "url", "dtype"):
        if name not in data:
            raise invalid_request(f"missing field `{name}`")
    interface = _choice(data, "interface_type", INTERFACES)
    if not isinstance(data["url"], str):
        raise invalid_request("url: expected a string")
    name = _choice(data, "dtype", DTYPES)
    byte_order = _choice(data, "byte_order", ("big", "little")) if data.get("byte_order") is not None else None
    dtype = np.dtype(name)
    if byte_order is not None:
        dtype = dtype.newbyteorder("big" if byte_order == "big" else "little")
    shape = _optional(data, "shape", _shape)
    axis = _optional(data, "axis", _axes)
    selection = _optional(data, "selection", _selection)
    size = _optional(data, "size", _count)
    offset = _optional(data, "offset", _count) or 0
    if offset + (size or 0) >= INT64_LIMIT:
        raise invalid_request("offset and size are larger than any object")
    if size == 0:
        raise invalid_request("size must be greater than 0")
    codecs = (*(_optional(data, "filters", _filters) or ()), *(_optional(data, "compression", _compression) or ()))
    _check_axes(shape, axis, selection)
    _check_size(size, shape, dtype, codecs)
    return ChunkRequest(
        location=locate_object(interface, data["url"]),
        dtype=dtype,
        offset=offset,
        size=size,
        shape=shape,
        axis=axis,
        order=_choice(data, "order", ("C", "F")) if data.get("order") is not None else "C",
        selection=selection,
        codecs=codecs,
        missing=_optional(data, "missing", lambda what: parse_missing(what, dtype)),
        cached=not _flag(data, "option_disable_chunk_cache"),
        shape_as_bytes=_flag(data, "option_shape_as_bytes"),
        count_as_bytes=_flag(data, "option_count_as_bytes"),
    )


def invalid_request(why: str) -> RequestError:
    """Return the error for an invalid request, with the reason as its cause."""
    return RequestError("request data is not valid", why=why)


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        data = decode_json(body)
    except ModelError as problem:
        raise invalid_request(f"Failed to parse the request body as JSON: {problem}") from None
    if not isinstance(data, dict):
        raise invalid_request("the request body is not a JSON object")
    return data


def _optional(data: dict[str, Any], name: str, check: Callable[[Any], Any]) -> Any:
    """Return a checked field; None if it is missing or null."""
    value = data.get(name)
    if value is None:
        return None
    try:
        return check(value)
    except ValueError as problem:
        if isinstance(problem, RequestError):
            raise
        raise invalid_request(f"{name}: {problem}") from None


def _choice(data: dict[str, Any], name: str, choices: tuple[str, ...]) -> str:
    value = data[name]
    if not isinstance(value, str) or value not in choices:
        shown = json.dumps(value)[:60]
        raise invalid_request(
            f"{name}: unknown variant `{shown}`, expected one of {', '.join(f'`{c}`' for c in choices)}"
        )
    return value


def _flag(data: dict[str, Any], name: str) -> bool:
    value = data.get(name)
    if value is not None and not isinstance(value, bool):
        raise invalid_request(f"{name}: expected a boolean")
    return bool(value)


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("expected an integer")
    if not -INT64_LIMIT <= value < INT64_LIMIT:
        raise ValueError("the number is too large")
    return value


def _count(value: Any) -> int:
    if _integer(value) < 0:
        raise ValueError("must not be negative")
    return int(value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("expected a list")
    return value


def _shape(value: Any) -> tuple[int, ...]:
    shape = tuple(_count(length) for length in _list(value))
    if not shape:
        raise ValueError("shape length must be greater than 0")
    if 0 in shape:
        raise ValueError("shape indices must be greater than 0")
    if len(shape) > MAX_AXES:
        raise ValueError(f"more than {MAX_AXES} axes")
    return shape


def _axes(value: Any) -> tuple[int, ...]:
    return (_count(value),) if not isinstance(value, list) else tuple(_count(axis) for axis in value)


def _selection(value: Any) -> tuple[slice, ...]:
    slices = []
    for entry in _list(value):
        if isinstance(entry, dict):
            if sorted(entry) != ["end", "start", "stride"]:
                raise ValueError("a slice has start, end and stride")
            entry = [entry["start"], entry["end"], entry["stride"]]
        if not isinstance(entry, list) or len(entry) != 3:
            raise ValueError("a slice is a list of start, end and stride")
        start, end, stride = (_integer(number) for number in entry)
        slices.append(slice(start, end, stride))
    if not slices:
        raise ValueError("selection length must be greater than 0")
    return tuple(slices)


def _codec(value: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(value, dict) or not isinstance(value.get("id"), str):
        raise ValueError("expected an object with an id")
    rest = {name: item for name, item in value.items() if name != "id"}
    if len(repr(rest)) > MAX_CONFIGURATION_CHARS:
        raise ValueError("the configuration of a codec is too long")
    name = value["id"].removeprefix("numcodecs.")
    if name not in SHUFFLES and not is_own(name):
        raise ValueError(f"unknown variant `{name[:60]}`")
    return name, rest


def _compression(value: Any) -> tuple[Codec, ...]:
    name, rest = _codec(value)
    if rest and name in COMPRESSIONS_WITHOUT_OPTIONS:
        raise ValueError(f"unknown field `{next(iter(rest))[:60]}`, expected `id`")
    return (Codec(name, rest),)


def _filters(value: Any) -> tuple[Codec, ...]:
    found = []
    if len(_list(value)) > MAX_CODECS:
        raise ValueError(f"more than {MAX_CODECS} filters")
    for entry in _list(value):
        name, rest = _codec(entry)
        if name in SHUFFLES:
            unknown = [key for key in rest if key != "element_size"]
            if unknown:
                raise ValueError(f"unknown field `{unknown[0][:60]}`, expected `element_size`")
            if "element_size" not in rest:
                raise ValueError("missing field `element_size`")
            size = _count(rest["element_size"])
            if size == 0:
                raise ValueError("element_size must be greater than 0")
            name, rest = "shuffle", {"elementsize": size}
        found.append(Codec(name, rest))
    return tuple(found)


def _check_axes(
    shape: tuple[int, ...] | None, axis: tuple[int, ...] | None, selection: tuple[slice, ...] | None
) -> None:
    """Raise an error if shape, axis and selection do not agree."""
    if selection is not None:
        if shape is None:
            raise invalid_request("Selection requires shape to be specified")
        if any(part.step == 0 for part in selection):
            raise invalid_request("selection: stride must not be equal to zero")
        if len(selection) != len(shape):
            raise invalid_request("Shape and selection must have the same length")
    if axis is not None:
        if shape is None:
            raise invalid_request("Axis requires shape to be specified")
        if any(number >= len(shape) for number in axis):
            raise invalid_request("Reduction axis must be within shape")
        if list(axis) != sorted(set(axis)):
            raise invalid_request("Reduction axes must be ascending and unique")


def _check_size(
    size: int | None, shape: tuple[int, ...] | None, dtype: np.dtype[Any], codecs: tuple[Codec, ...]
) -> None:
    """Raise an error if size and shape do not agree; compressed data may have any size."""
    if size is None or any(codec.name != "shuffle" for codec in codecs):
        return
    if shape is None:
        if size % dtype.itemsize:
            raise invalid_request(f"size {size} must be a multiple of dtype size in bytes ({dtype.itemsize})")
    elif size != (whole := math.prod(shape) * dtype.itemsize):
        raise invalid_request(f"size {size} does not equal the product of shape and dtype size in bytes ({whole})")
