"""Parse JSON documents and check the types of their fields.

Python's bare `NaN` and `Infinity` and a byte-order mark are accepted. Errors name the document, and
the field that is wrong.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from insitu.errors import FormatError

__all__ = [
    "base64_field",
    "integer_field",
    "integers_field",
    "list_field",
    "name_and_configuration",
    "object_field",
    "parse_object",
    "required_field",
    "text_field",
]

MOST_AXES = 64
"""NumPy's limit; a document that claims more is damaged."""


def parse_object(data: bytes | str | Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a document as a mapping.

    Parameters
    ----------
    data
        JSON text, or a parsed mapping (kerchunk has both).
    name
        The document's key, for messages.
    """
    if isinstance(data, Mapping):
        return dict(data)
    if not isinstance(data, bytes | str):
        raise FormatError(f"expected a JSON object, not {_json_type(data)}", structure=name)
    try:
        value = json.loads(data.decode("utf-8-sig") if isinstance(data, bytes) else data)
    except (ValueError, RecursionError) as problem:
        raise FormatError(f"this is not valid JSON: {problem}", structure=name) from None
    if not isinstance(value, dict):
        raise FormatError(f"expected a JSON object, not {_json_type(value)}", structure=name)
    return value


def required_field(document: Mapping[str, Any], name: str) -> Any:
    """Return a field that must exist."""
    try:
        return document[name]
    except KeyError:
        raise FormatError(f"the field {name!r} is missing") from None


def object_field(value: Any, name: str) -> dict[str, Any]:
    """Return a field that must be an object."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise FormatError(f"{name!r} must be an object, not {_json_type(value)}")
    return dict(value)


def list_field(value: Any, name: str) -> list[Any]:
    """Return a field that must be a list."""
    if not isinstance(value, list):
        raise FormatError(f"{name!r} must be a list, not {_json_type(value)}")
    return value


def text_field(value: Any, name: str) -> str:
    """Return a field that must be text."""
    if not isinstance(value, str):
        raise FormatError(f"{name!r} must be text, not {_json_type(value)}")
    return value


def base64_field(value: Any, name: str) -> bytes:
    """Return the bytes of a field that must be text in base64."""
    text = text_field(value, name)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as problem:
        raise FormatError(f"{name!r} must be base64: {problem}") from None


def integers_field(value: Any, name: str, *, least: int = 0, count: int | None = None) -> tuple[int, ...]:
    """Return a field that must be a list of integers, none below `least`."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise FormatError(f"{name!r} must be a list of integers, not {_json_type(value)}")
    if len(value) > MOST_AXES:
        raise FormatError(f"{name!r} has {len(value)} axes; at most {MOST_AXES} are supported")
    if count is not None and len(value) != count:
        raise FormatError(f"{name!r} has {len(value)} numbers for {count} axes")
    return tuple(integer_field(number, name, least=least) for number in value)


def integer_field(value: Any, name: str, *, least: int = 0) -> int:
    """Return a field that must be an integer, not below `least` (some writers write 3.0)."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise FormatError(f"{name!r} must be an integer, not {_json_type(value)}")
    if not least <= value < 2**63:
        raise FormatError(f"{name!r} must be from {least} to 2**63 - 1, not {value}")
    return value


def name_and_configuration(value: Any, name: str) -> tuple[str, dict[str, Any]]:
    """Return name and configuration of a Zarr V3 extension point, which may be a bare name."""
    if isinstance(value, str):
        return value, {}
    document = object_field(value, name)
    return text_field(required_field(document, "name"), f"{name}.name"), object_field(
        document.get("configuration") or {}, f"{name}.configuration"
    )


def _json_type(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "text", type(None): "null"}.get(type(value), repr(value)[:40])
