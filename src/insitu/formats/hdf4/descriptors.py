"""Where does each object of an HDF4 file lie?

Blocks of data descriptors, chained from the beginning of the file, list every object: tag (its kind), reference number, offset, length (HDF4 specification, chapter 2). An object whose tag has the special bit
begins with a header that says where its data are.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, NoReturn

import numpy as np

from insitu.errors import FormatError
from insitu.formats.hdf5.walk import Walk

__all__ = ["MAGIC", "SPECIAL", "Descriptors", "Place", "read_descriptors"]

MAGIC = b"\x0e\x03\x13\x01"
SPECIAL = 0x4000
BLOCKS_LIMIT = 1 << 16
OBJECTS_LIMIT = 1 << 24
_ROW = np.dtype([("tag", ">u2"), ("ref", ">u2"), ("offset", ">i4"), ("length", ">i4")])


class Place(NamedTuple):
    """Where an object lies."""

    offset: int
    length: int
    special: bool
    """Whether a header stands there instead of the data."""


class Descriptors:
    """All objects of a file, by tag and reference number."""

    def __init__(self, rows: np.ndarray[Any, Any], size: int, url: str) -> None:
        self.url = url
        self._places: dict[tuple[int, int], Place] = {}
        self._refs: dict[int, list[int]] = {}
        for tag, ref, offset, length in rows.tolist():
            if tag in (0, 1) or offset < 0 or length < 0:
                continue  # nothing, or never written
            if offset + length > size:
                self.fail(f"object {tag}/{ref} of {length} bytes ends behind the file", offset)
            special = bool(tag & SPECIAL and not tag & 0x8000)
            plain = tag & ~SPECIAL if special else tag
            self._places[plain, ref] = Place(offset, length, special)
            self._refs.setdefault(plain, []).append(ref)

    def find(self, tag: int, ref: int) -> Place | None:
        """An object, if it was written."""
        return self._places.get((tag, ref))

    def refs(self, tag: int) -> list[int]:
        """All objects of a kind."""
        return self._refs.get(tag, [])

    def fail(self, what: str, offset: int) -> NoReturn:
        """The file is damaged."""
        raise FormatError(what, url=self.url, offset=offset, structure="HDF4 data descriptors")


def read_descriptors(size: int, url: str) -> Walk[Descriptors]:
    """Follow the chain of blocks."""
    parts: list[np.ndarray[Any, Any]] = []
    seen: set[int] = set()
    at, total = 4, 0
    while at:
        if at in seen or at + 6 > size or len(seen) > BLOCKS_LIMIT:
            raise FormatError(
                "the chain of descriptors is broken", url=url, offset=at, structure="HDF4 data descriptors"
            )
        seen.add(at)
        (head,) = yield [(at, 6)]
        count, following = struct.unpack(">HI", head)
        total += count
        if at + 6 + 12 * count > size or total > OBJECTS_LIMIT:
            raise FormatError(f"{count} descriptors do not fit", url=url, offset=at, structure="HDF4 data descriptors")
        (block,) = yield [(at + 6, 12 * count)]
        parts.append(np.frombuffer(block, _ROW))
        at = following
    return Descriptors(np.concatenate(parts), size, url)
