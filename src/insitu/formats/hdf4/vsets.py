"""Parse Vgroups and Vdatas of an HDF4 file.

A Vgroup is a list of objects with a name and a class. A Vdata is a table, whose header lists its
fields (HDF4 specification, 6.7). Datasets, dimensions and attributes of the SD interface are made
of both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from insitu.errors import FormatError
from insitu.formats.parsing.fields import take_bytes, take_fields

__all__ = ["TYPES", "Vdata", "Vgroup", "parse_vdata", "parse_vgroup", "value_of"]

TYPES = {
    # DFNT_* of hntdefs.h; 3, unsigned characters, are numbers to netCDF-4 and pyhdf alike.
    3: "u1", 4: "S1", 5: "f4", 6: "f8", 20: "i1", 21: "u1", 22: "i2", 23: "u2", 24: "i4", 25: "u4", 26: "i8", 27: "u8",
}  # fmt: skip
LITTLE, NATIVE = 0x4000, 0x1000


class Vgroup(NamedTuple):
    """A list of objects."""

    name: str
    kind: str
    """Its class."""
    members: list[tuple[int, int]]
    """Tag and reference number of each."""


class Vdata(NamedTuple):
    """The header of a table."""

    name: str
    kind: str
    records: int
    size: int
    """Bytes of a record."""
    fields: list[tuple[str, int, int]]
    """Name, type, and number of values of each."""


def parse_vgroup(data: bytes) -> Vgroup:
    """Parse a Vgroup."""
    (count,) = take_fields(">H", data, 0, "Vgroup")
    tags = take_fields(f">{count}H", data, 2, "Vgroup")
    refs = take_fields(f">{count}H", data, 2 + 2 * count, "Vgroup")
    name, at = _text(data, 2 + 4 * count, "Vgroup")
    kind, _ = _text(data, at, "Vgroup")
    return Vgroup(name, kind, list(zip(tags, refs, strict=True)))


def parse_vdata(data: bytes) -> Vdata:
    """Parse the header of a Vdata."""
    _, records, size, count = take_fields(">hiHh", data, 0, "Vdata")
    if count < 0 or records < 0:
        raise FormatError(f"a Vdata of {count} fields and {records} records is not valid", structure="Vdata")
    at = 10
    types = take_fields(f">{count}h", data, at, "Vdata")
    orders = take_fields(f">{count}H", data, at + 6 * count, "Vdata")
    at += 8 * count
    fields = []
    for kind, order in zip(types, orders, strict=True):
        name, at = _text(data, at, "Vdata")
        fields.append((name, kind, order))
    name, at = _text(data, at, "Vdata")
    class_name, _ = _text(data, at, "Vdata")
    return Vdata(name, class_name, records, size, fields)


def _text(data: bytes, at: int, structure: str) -> tuple[str, int]:
    (length,) = take_fields(">H", data, at, structure)
    text = take_bytes(data, at + 2, length, structure)
    return text.split(b"\0", 1)[0].decode("utf-8", "replace"), at + 2 + length


def value_of(table: Vdata, data: bytes) -> Any:
    """Return the value of an attribute.

    A table of one field, of many values in one record, or of many records.
    """
    if len(table.fields) != 1:
        raise FormatError(f"an attribute has {len(table.fields)} fields, not one", structure="Vdata")
    _, kind, order = table.fields[0]
    name = TYPES.get(kind & 0xFF)
    if name is None:
        raise FormatError(f"an attribute has the unknown type {kind}", structure="Vdata")
    count = table.records * order
    dtype = np.dtype(name).newbyteorder("<" if kind & LITTLE else ">")
    if count * dtype.itemsize > len(data):
        raise FormatError(f"an attribute of {count} values does not fit in {len(data)} bytes", structure="Vdata")
    if name == "S1":
        return data[:count].rstrip(b"\0").decode("utf-8", "replace")
    values = np.frombuffer(data, dtype, count).astype(dtype.newbyteorder("="))
    return values[0] if values.size == 1 else values
