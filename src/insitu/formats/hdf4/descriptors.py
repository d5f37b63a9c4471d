"""Read the data descriptors of an HDF4 file: where each object lies.

Blocks of descriptors, chained from the beginning of the file, list every object: tag (its kind),
reference number, offset, length (HDF4 specification, chapter 2). An object whose tag has the
special bit begins with a header that says where its data lies.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError
from insitu.formats.parsing.scheduler import Walk

__all__ = ["MAGIC", "SPECIAL", "ObjectLocation", "ObjectLocations", "ObjectTable", "read_object_table"]

MAGIC = b"\x0e\x03\x13\x01"
SPECIAL = 0x4000
BLOCKS_LIMIT = 1 << 16
"""Most blocks of descriptors: each names the next, so every one costs a read of its own."""
OBJECTS_LIMIT = 1 << 24
"""Most objects of a file; a reference has 16 bits, so each tag has at most 65,535."""
_ROW = np.dtype([("tag", ">u2"), ("ref", ">u2"), ("offset", ">i4"), ("length", ">i4")])


class ObjectLocation(NamedTuple):
    """Where an object lies."""

    offset: int
    length: int
    special: bool
    """Whether a special header lies there instead of the data."""


class ObjectLocations(NamedTuple):
    """Where many objects lie, as columns."""

    exists: npt.NDArray[np.bool_]
    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    special: npt.NDArray[np.bool_]

    def present(self) -> ObjectLocations:
        """Return those that exist."""
        keep = self.exists
        return ObjectLocations(keep[keep], self.offset[keep], self.length[keep], self.special[keep])


class ObjectTable:
    """All objects of a file, by tag and reference number."""

    def __init__(self, rows: np.ndarray[Any, Any], size: int) -> None:
        tag, offset, length = (
            rows["tag"].astype(np.int64),
            rows["offset"].astype(np.int64),
            rows["length"].astype(np.int64),
        )
        exists = (tag > 1) & (offset >= 0) & (length >= 0)  # others are nothing, or were never written
        rows, tag, offset, length = rows[exists], tag[exists], offset[exists], length[exists]
        beyond = offset + length > size
        if beyond.any():
            first = int(beyond.argmax())
            what = f"object {tag[first]}/{rows['ref'][first]} of {length[first]} bytes ends behind the file"
            self.fail(what, int(offset[first]))
        special = (tag & SPECIAL != 0) & (tag & 0x8000 == 0)
        key = (np.where(special, tag & ~SPECIAL, tag) << 16) | rows["ref"]
        self._row = dict(zip(key.tolist(), range(len(key)), strict=True))
        self._key, self._offset, self._length, self._special = key, offset, length, special

    def find(self, tag: int, ref: int) -> ObjectLocation | None:
        """Return an object; None if it was not written."""
        row = self._row.get(tag << 16 | ref)
        return (
            None
            if row is None
            else ObjectLocation(int(self._offset[row]), int(self._length[row]), bool(self._special[row]))
        )

    def find_many(self, tag: int, refs: npt.NDArray[Any]) -> ObjectLocations:
        """Return many objects of a kind at once."""
        get = self._row.get
        rows = np.array([get(key, -1) for key in (tag << 16 | refs.astype(np.int64)).tolist()], np.int64)
        safe = np.maximum(rows, 0)
        if not len(self._key):
            return ObjectLocations(rows >= 0, safe, safe, rows >= 0)
        return ObjectLocations(rows >= 0, self._offset[safe], self._length[safe], self._special[safe])

    def refs(self, tag: int) -> list[int]:
        """Return the reference numbers of all objects of a kind."""
        found: list[int] = (self._key[self._key >> 16 == tag] & 0xFFFF).tolist()
        return found

    def fail(self, what: str, offset: int) -> NoReturn:
        """Raise a `FormatError`: the file is damaged."""
        raise FormatError(what, offset=offset, structure="HDF4 data descriptors")


def read_object_table(size: int) -> Walk[ObjectTable]:
    """Follow the chain of blocks."""
    parts: list[np.ndarray[Any, Any]] = []
    seen: set[int] = set()
    at, total = 4, 0
    while at:
        if at in seen or at + 6 > size or len(seen) > BLOCKS_LIMIT:
            raise FormatError("the chain of descriptors is broken", offset=at, structure="HDF4 data descriptors")
        seen.add(at)
        (head,) = yield [(at, 6)]
        count, following = struct.unpack(">HI", head)
        total += count
        if at + 6 + 12 * count > size or total > OBJECTS_LIMIT:
            raise FormatError(
                f"{count} descriptors do not fit in the file", offset=at, structure="HDF4 data descriptors"
            )
        (block,) = yield [(at + 6, 12 * count)]
        parts.append(np.frombuffer(block, _ROW))
        at = following
    return ObjectTable(np.concatenate(parts), size)
