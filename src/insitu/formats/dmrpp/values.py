"""What do the texts of a DMR++ document say: attributes, fill values, data that stands in the document itself?"""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from typing import Any

import numpy as np

from insitu.errors import FormatError

__all__ = ["TYPES", "attributes_of", "decoded", "embedded", "fill_of", "local_name"]

TYPES = {
    "Byte": "u1", "UByte": "u1", "Char": "u1", "Int8": "i1", "UInt8": "u1", "Int16": "i2", "UInt16": "u2", "Int32": "i4", "UInt32": "u4",
    "Int64": "i8", "UInt64": "u8", "Float32": "f4", "Float64": "f8",
}  # fmt: skip
GLOBAL = ("HDF5_GLOBAL", "NC_GLOBAL")
OWN = ("build_dmrpp_metadata",)
"""Containers of attributes that tell how the document was made."""


def local_name(element: Any) -> str:
    """An element's name without its namespace."""
    tag = element.tag
    return str(tag.rpartition("}")[2]) if isinstance(tag, str) else ""


def fill_of(text: str | None, dtype: np.dtype[Any]) -> bytes | None:
    """One element of a chunk that was never written; None: zeros."""
    if text is None or dtype.kind == "S":
        return None
    return np.array([number_of(text, dtype)], dtype).tobytes()


def number_of(text: str, dtype: np.dtype[Any]) -> Any:
    """A number of a type, as the document writes it: `*` is NaN, and characters may stand for bytes."""
    try:
        if dtype.kind == "f":
            return dtype.type(math.nan if text.strip() == "*" else float(text))
        return dtype.newbyteorder("=").type(int(text))
    except (ValueError, OverflowError) as problem:
        if dtype.itemsize == 1 and len(text) == 1:
            return dtype.type(ord(text) % 256)
        raise FormatError(f"{text!r} is no {dtype.name}", structure="value") from problem


def decoded(element: Any) -> bytes:
    """The bytes that an element holds as base64."""
    try:
        return base64.b64decode("".join((element.text or "").split()), validate=True)
    except binascii.Error as problem:
        raise FormatError(f"embedded data is no base64: {problem}", structure=local_name(element)) from problem


def embedded(element: Any, nbytes: int) -> bytes:
    """Data that stands in the document: as it is, or (`missingdata`) deflated."""
    data = decoded(element)
    if len(data) != nbytes and local_name(element) == "missingdata":
        inflate = zlib.decompressobj()
        try:
            data = inflate.decompress(data, nbytes + 1)
        except zlib.error as problem:
            raise FormatError(f"embedded data is damaged: {problem}", structure="missingdata") from problem
    if len(data) != nbytes:
        raise FormatError(
            f"{len(data)} bytes of embedded data where {nbytes} are needed", structure=local_name(element)
        )
    return data


def attributes_of(element: Any) -> dict[str, Any]:
    """The attributes of a variable or group; those of a file stand in a container of their own."""
    found: dict[str, Any] = {}
    for child in element:
        if local_name(child) != "Attribute" or child.get("name") in OWN:
            continue
        name, kind = child.get("name", ""), child.get("type", "")
        if kind == "Container":
            inner = attributes_of(child)
            found.update(inner if name in GLOBAL else {f"{name}.{key}": value for key, value in inner.items()})
        else:
            texts = [value.text or "" for value in child if local_name(value) == "Value"]
            found[name] = _attribute(texts, kind)
    return found


def _attribute(texts: list[str], kind: str) -> Any:
    if kind not in TYPES:
        return texts[0] if len(texts) == 1 else texts if texts else ""
    dtype = np.dtype(TYPES[kind])
    values = np.array([number_of(text, dtype) for text in texts], dtype)
    return values[0] if values.size == 1 else values
