"""Parse texts of a DMR++ document: attributes, fill values, base64 data."""

from __future__ import annotations

import base64
import binascii
import math
import warnings
import zlib
from itertools import islice
from typing import Any

import numpy as np

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.unreadable import InsituWarning

__all__ = [
    "NUMBERS",
    "attributes_of",
    "child_of",
    "decode_base64",
    "decode_element",
    "fill_of",
    "inflate",
    "local_name",
    "whole_number",
]

NUMBERS = {
    "Byte": "u1", "UByte": "u1", "Char": "u1", "Int8": "i1", "UInt8": "u1", "Int16": "i2", "UInt16": "u2",
    "Int32": "i4", "UInt32": "u4",
    "Int64": "i8", "UInt64": "u8", "Float32": "f4", "Float64": "f8",
}  # fmt: skip

GLOBAL = ("HDF5_GLOBAL", "NC_GLOBAL")
OWN = ("build_dmrpp_metadata",)
"""Containers of attributes that describe how the document was made."""


def local_name(element: Any) -> str:
    """Return an element's name without its namespace."""
    tag = element.tag
    return str(tag.rpartition("}")[2]) if isinstance(tag, str) else ""


def child_of(element: Any, *names: str) -> Any:
    """Return the first child of one of these names; None if there is none."""
    return next((child for child in element if local_name(child) in names), None)


def whole_number(element: Any, name: str) -> int:
    """Return an attribute that is a whole number."""
    text = element.get(name, "")
    if not text.isdecimal() or len(text) > 18:
        raise FormatError(f"{name}={text!r} is not a whole number", structure=local_name(element))
    return int(text)


def fill_of(text: str | None, dtype: np.dtype[Any], padding: str | None = None) -> bytes | None:
    """Return one element of a chunk that was never written; None: zeros.

    Parameters
    ----------
    text
        The attribute `fillValue`; of a structure, the values of all its members, one after the other.
    dtype
        Of the element.
    padding
        Of a text: see `text_padding`.
    """
    if text is None or (text == "unsupported-string" and dtype.kind == "S"):  # so builders of 2022 mark any text
        return None
    if text.startswith("unsupported-"):  # so a builder marks what it cannot describe
        raise UnsupportedError(f"the document does not hold the data of this variable: {text}", structure="fillValue")
    if dtype.kind == "S":
        data = text.encode()[: dtype.itemsize]
        if padding == "space-padded" and len(data) == dtype.itemsize:  # a shorter one ended with NUL
            data = data.rstrip(b" ")
        return data.ljust(dtype.itemsize, b"\0")
    if dtype.names is not None:
        return _record_fill(text.split(), dtype)
    return np.array([number_of(text, dtype)], dtype).tobytes()


def _record_fill(texts: list[str], dtype: np.dtype[Any]) -> bytes:
    """A value for each element of each member, or one for all of them."""
    assert dtype.names is not None
    record = np.zeros((), dtype)
    count = sum(record[name].size for name in dtype.names)
    if len(texts) not in (1, count):
        raise FormatError(
            f"{len(texts)} fill values for {len(dtype.names)} members of {count} elements", structure="fillValue"
        )
    values = iter(texts)
    for name in dtype.names:
        base, shape = dtype[name].base, dtype[name].shape
        own = texts if len(texts) == 1 else islice(values, math.prod(shape))
        numbers = np.array([number_of(text, base) for text in own], base)
        record[name] = numbers[0] if len(texts) == 1 else numbers.reshape(shape)
    return record.tobytes()


def number_of(text: str, dtype: np.dtype[Any]) -> Any:
    """Return a number of a type; `*` is NaN, and characters may stand for bytes."""
    try:
        if dtype.kind == "f":
            return dtype.newbyteorder("=").type(math.nan if text.strip() == "*" else float(text))
        return dtype.newbyteorder("=").type(int(text))
    except (ValueError, OverflowError) as problem:
        if dtype.itemsize == 1 and len(text) == 1:
            return dtype.type(ord(text) % 256)
        raise FormatError(f"{text!r} is not a value of type {dtype.name}", structure="value") from problem


def decode_element(element: Any) -> bytes:
    """Return the bytes that an element holds as base64."""
    return decode_base64((element.text or "").encode("ascii", "replace"), local_name(element))


def decode_base64(data: bytes, structure: str) -> bytes:
    """Decode base64."""
    try:
        return base64.b64decode(b"".join(data.split()), validate=True)
    except binascii.Error as problem:
        raise FormatError(f"embedded data is not valid base64: {problem}", structure=structure) from problem


def inflate(data: bytes, nbytes: int, structure: str) -> bytes:
    """Inflate data, of which so many bytes are expected."""
    try:
        return zlib.decompressobj().decompress(data, nbytes + 1)
    except zlib.error as problem:
        raise FormatError(f"embedded data is damaged: {problem}", structure=structure) from problem


def attributes_of(element: Any) -> dict[str, Any]:
    """Return the attributes of a variable or group.

    Those of a file are in a container of their own.
    """
    found: dict[str, Any] = {}
    for child in element:
        if local_name(child) != "Attribute" or child.get("name") in OWN:
            continue
        name, kind = child.get("name", ""), child.get("type", "")
        if kind == "Container":
            inner = attributes_of(child)
            found.update(inner if name in GLOBAL else {f"{name}.{key}": value for key, value in inner.items()})
        else:
            texts = [value.get("value", value.text or "") for value in child if local_name(value) == "Value"]
            if not texts and "value" not in child.attrib and len(child):
                reason = f"it holds <{local_name(child[0])}>, not values"
                warnings.warn(f"left out: attribute {name!r}: {reason}", InsituWarning, stacklevel=2)
                continue
            found[name] = _attribute(texts or ([child.get("value")] if "value" in child.attrib else []), kind)
    return found


def _attribute(texts: list[str], kind: str) -> Any:
    if kind not in NUMBERS:
        return texts[0] if len(texts) == 1 else texts if texts else ""
    dtype = np.dtype(NUMBERS[kind])
    values = np.array([number_of(text, dtype) for text in texts], dtype)
    return values[0] if values.size == 1 else values
