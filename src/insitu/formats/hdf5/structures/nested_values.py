"""Reader of attribute values with variable-length parts inside other values.

Members of compounds, or sequences of records. Elements are decoded like those of datasets, and what
lies in heaps is read level by level.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.formats.hdf5.codecs.records import DEPTH_LIMIT, decode_elements, parse_element_type
from insitu.formats.hdf5.structures.attribute_messages import Attribute, heap_collection
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.type_description import describe_type
from insitu.formats.parsing.scheduler import Parallel, Walk

__all__ = ["read_elements", "read_nested_value"]


def read_nested_value(file: FileContext, attribute: Attribute) -> Walk[Any]:
    """Return the value of an attribute, in native byte order."""
    values = yield from read_elements(file, attribute)
    assert attribute.datatype is not None
    shape = attribute.space.shape + attribute.datatype.shape
    return values[0] if values.size == 1 and len(shape) <= 1 else values.reshape(shape)


def read_elements(file: FileContext, attribute: Attribute) -> Walk[npt.NDArray[Any]]:
    """Return the elements of an attribute as a one-dimensional array."""
    datatype = attribute.datatype
    assert datatype is not None
    element = parse_element_type(describe_type(datatype), 8 + file.offset_size)
    if len(attribute.data) % element.size:
        file.fail(
            f"{attribute.name!r} has elements of {datatype.size} bytes, which does not fit its datatype", 0, "attribute"
        )
    stored = np.frombuffer(attribute.data, np.uint8).reshape(-1, element.size)
    heaps: dict[int, dict[int, bytes]] = {}
    for _ in range(DEPTH_LIMIT):
        lookup = _Lookup(file, heaps)
        values = decode_elements(element, stored, lookup)
        if not lookup.missing:
            break
        missing = sorted(lookup.missing)
        found = yield Parallel([heap_collection(file, address) for address in missing])
        heaps.update(zip(missing, found, strict=True))
    else:
        file.fail(f"{attribute.name!r} is nested more than {DEPTH_LIMIT} levels deep", 0, "attribute")
    return values


class _Lookup:
    """Finds objects in the heaps that were read, and collects those that were not.

    Objects of missing heaps are empty until they are read.
    """

    __slots__ = ("file", "heaps", "missing", "total")

    def __init__(self, file: FileContext, heaps: dict[int, dict[int, bytes]]) -> None:
        self.file, self.heaps = file, heaps
        self.missing: set[int] = set()
        self.total = 0

    def __call__(self, references: npt.NDArray[Any]) -> list[bytes]:
        found: list[bytes] = []
        for length, address, number in references.tolist():
            data = b""
            if length and address not in (0, self.file.undefined):
                if address not in self.heaps:
                    self.missing.add(address)
                else:
                    data = self.heaps[address].get(number, b"")
                    if not data:
                        self.file.fail(f"has no object {number}", address, "global heap collection")
            self.total += len(data)
            if self.total > self.file.heap_value_limit:
                self.file.fail("holds objects that are used again and again", address, "global heap collection")
            found.append(data)
        return found
