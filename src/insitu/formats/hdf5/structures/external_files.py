"""Parser of external data files messages: the files that hold the data of a dataset.

Format specification 3.0, IV.A.2.h. The names lie in a local heap.
"""

from __future__ import annotations

from typing import NamedTuple

from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.local_heap import read_local_heap
from insitu.formats.parsing.scheduler import Walk

__all__ = ["ExternalSegment", "read_external_segments"]


class ExternalSegment(NamedTuple):
    """A part of another file."""

    name: str
    offset: int
    size: int | None
    """None: up to the end of the data."""


def read_external_segments(file: FileContext, body: bytes) -> Walk[tuple[ExternalSegment, ...]]:
    """Return the segments of an external data files message."""
    width, length = file.offset_size, file.length_size
    count = int.from_bytes(body[6:8], "little")
    at = 8 + width
    if len(body) < at + 3 * length * count or body[0] != 1:
        file.fail("message is cut off, or of an unknown version", 0, "external data files")
    names = yield from read_local_heap(file, int.from_bytes(body[8:at], "little"))
    segments = []
    for slot in range(count):
        place, offset, size = (
            int.from_bytes(body[at + (3 * slot + i) * length : at + (3 * slot + i + 1) * length], "little")
            for i in range(3)
        )
        end = names.find(b"\0", place)
        if end < 0 or place >= len(names):
            file.fail("has a name outside its heap", 0, "external data files")
        name = names[place:end].decode("utf-8", "surrogateescape")
        segments.append(ExternalSegment(name, offset, None if size == (1 << 8 * length) - 1 else size))
    return tuple(segments)
