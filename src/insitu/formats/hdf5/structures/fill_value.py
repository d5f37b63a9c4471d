"""Fill values: the value of elements that were never written.

Fill value messages, old (IV.A.2.e) and new (IV.A.2.f, versions 1 to 3), of format specification
3.0. The fill value of a variable-length type has parts in heaps; that of an array type has one
value for each of its elements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from insitu.errors import FormatError
from insitu.formats.hdf5.structures.attribute_messages import Attribute, heap_records, read_heap_values
from insitu.formats.hdf5.structures.dataspace import Dataspace
from insitu.formats.hdf5.structures.datatype import Datatype
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.nested_values import read_elements
from insitu.formats.hdf5.structures.type_description import describe_type, needs_element_decoder
from insitu.formats.parsing.fields import check_length, take_bytes
from insitu.formats.parsing.scheduler import Walk

__all__ = ["Fill", "parse_fill", "parse_old_fill", "resolve_fill"]


@dataclass(frozen=True, slots=True)
class Fill:
    """The fill value of a dataset."""

    value: bytes | None
    """One element, as stored; None: zeros."""
    state: str
    """user, default (zeros), undefined (whatever was there; read as zeros), or per element (a value
    that differs from element to element of an array type: only datasets without gaps can be read).
    """


def parse_old_fill(body: bytes) -> Fill:
    """Parse an old fill value message: a size and a value."""
    size = int.from_bytes(body[:4], "little")
    return Fill(take_bytes(body, 4, size, "fill value message"), "user") if size else Fill(None, "default")


def parse_fill(body: bytes) -> Fill:
    """Parse a fill value message."""
    check_length(body, 2, "fill value message")
    version = body[0]
    if version in (1, 2):
        check_length(body, 4, "fill value message")
        defined, at = bool(body[3]), 4
        undefined = not defined
    elif version == 3:
        defined, undefined, at = bool(body[1] & 0x20), bool(body[1] & 0x10), 2
    else:
        raise FormatError(
            f"the fill value message has version {version}, only 1 to 3 are known", structure="fill value"
        )
    if undefined:
        return Fill(None, "undefined")
    size = int.from_bytes(body[at : at + 4], "little") if defined else 0
    return Fill(take_bytes(body, at + 4, size, "fill value message"), "user") if size else Fill(None, "default")


def resolve_fill(file: FileContext, datatype: Datatype, fill: Fill) -> Walk[Fill]:
    """Return the fill value of a variable-length type or an array type.

    Parameters
    ----------
    file
        The file, whose heaps hold what varies in length.
    datatype
        Of the elements.
    fill
        As the message has it.
    """
    value = fill.value or b""
    if not any(value):
        return Fill(None, fill.state)
    if len(value) != datatype.size:
        raise FormatError(
            f"the fill value has {len(value)} bytes, but elements have {datatype.size}", structure="fill value"
        )
    if datatype.is_variable_length and not needs_element_decoder(datatype):
        parts = yield from read_heap_values(file, heap_records(file, value))
    elif datatype.is_variable_length or datatype.has_nested_variable_length:
        as_attribute = Attribute("fill value", datatype, Dataspace((), ()), value)
        elements = yield from read_elements(file, as_attribute)
        parts = [_serialize_value(element, describe_type(datatype)) for element in elements]
    else:
        size = datatype.size // math.prod(datatype.shape)
        repeats = value == value[:size] * (len(value) // size)
        return fill if repeats else Fill(value, "per element")
    if any(part != parts[0] for part in parts):
        return Fill(None, "per element")
    return Fill(parts[0] or None, fill.state)


def _serialize_value(value: Any, description: Mapping[str, Any]) -> bytes:
    """Serialise a value for `insitu.model.Encoding`: member after member.

    A variable-length member is preceded by its length.
    """
    if description["kind"] == "text":
        data = str(value).encode("utf-8", "surrogateescape")
        return len(data).to_bytes(4, "little") + data
    if description["kind"] == "sequence":
        elements = [_serialize_value(element, description["base"]) for element in np.asarray(value).reshape(-1)]
        return len(value).to_bytes(4, "little") + b"".join(elements)
    if description["kind"] == "compound":
        return b"".join(
            _serialize_value(element, member)
            for name, _, shape, member in description["members"]
            for element in (value[name].reshape(-1) if shape else [value[name]])
        )
    return np.asarray(value, description["dtype"]).tobytes()
