"""Split a GRIB message into the sections that its values are decoded from.

The decoder needs three sections of a field: representation, bitmap, data. A GRIB 2 message may hold
several fields, which share what is not repeated; `single_field_message` makes a message of its own
of one of them, for libraries that take one field only.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

from insitu.codecs.buffer_spec import Configuration, Octets
from insitu.codecs.configuration import integer_field
from insitu.errors import CodecError
from insitu.formats.grib.codecs.header_mark import find_difference

__all__ = ["FieldSections", "check_field", "grid_fingerprint", "single_field_message", "split_sections", "trim_message"]

_HEAD = struct.Struct(">IB")
SAME_BITMAP, NO_BITMAP = 254, 255


class FieldSections(NamedTuple):
    """The sections of one field."""

    edition: int
    points: int
    """Of the grid, as GRIB 2 says it; 0 in GRIB 1."""
    product: Octets
    """GRIB 1: section 1. GRIB 2: section 4."""
    packing: Octets
    """GRIB 2: section 5. GRIB 1: the first eleven bytes of section 4."""
    bitmap: Octets | None
    """GRIB 2: section 6, None if it says that there is none. GRIB 1: section 3."""
    data: Octets
    """GRIB 2: section 7 without its head. GRIB 1: section 4 without its first eleven bytes."""
    shared: bytes
    """GRIB 2: sections 1, 2, 3 of this field, in this order."""
    grid: Octets
    """GRIB 2: section 3. GRIB 1: section 2."""


def trim_message(message: Octets) -> Octets:
    """Return the message without padding behind it."""
    if message.size < 16:
        return message
    length = int.from_bytes(message[8:16].tobytes() if message[7] == 2 else message[4:7].tobytes(), "big")
    large = message[7] == 1 and length & 0x800000  # ECMWF's mark of large messages
    return message if large or not 16 <= length < message.size else message[:length]


def grid_fingerprint(grid: bytes) -> str:
    """Return a fingerprint of the grid section."""
    return hashlib.blake2b(grid, digest_size=8).hexdigest()


def check_field(message: Octets, parts: FieldSections, configuration: Configuration) -> None:
    """Raise if a field is not what its index said.

    `grid`, the fingerprint of its grid; `parameter`, its codes; `mark`, that of its header.

    Raises
    ------
    CodecError
        If it is another one.
    """
    grid, parameter = configuration.get("grid"), configuration.get("parameter")
    mark = integer_field(configuration, "mark", 0)
    found = [int(message[6]), *parts.product[9:11].tolist()]
    problem: str | None = None
    if grid is not None and grid_fingerprint(parts.grid.tobytes()) != grid:
        problem = "is on another grid"
    elif parameter is not None and parts.edition == 2 and list(parameter) != found:
        problem = f"holds parameter {found}, not {list(parameter)}"
    elif mark and parts.edition == 2:
        problem = find_difference(mark, parts.shared[:21], parts.product.tobytes())
    if problem is not None:
        raise CodecError(
            f"the message does not match its index: it {problem}",
            hint="Make the index anew, or scan the GRIB file itself, without the index",
        )


def split_sections(message: Octets, number: int = 0) -> FieldSections:
    """Return the sections of one field of a message.

    Raises
    ------
    CodecError
        If the bytes are no whole message, or it has no such field.
    """
    message = trim_message(message)
    if message.size < 16 or bytes(message[:4]) != b"GRIB" or bytes(message[-4:]) != b"7777":
        raise CodecError("the bytes are not a GRIB message")
    edition = int(message[7])
    if edition == 2:
        return _split_edition2(message, number)
    if edition != 1 or number:
        raise CodecError(f"a message of GRIB edition {edition} has no field {number}")
    return _split_edition1(message)


def _split_edition2(message: Octets, number: int) -> FieldSections:
    sections: dict[int, Octets] = {}
    bitmap: Octets | None = None
    at, end, field = 16, message.size - 4, 0
    while at + 5 <= end:
        size, kind = _HEAD.unpack(message[at : at + 5].tobytes())
        if size < 5 or at + size > end:
            break
        section = message[at : at + size]
        sections[kind] = section
        if kind == 6 and size >= 6 and section[5] != SAME_BITMAP:
            bitmap = None if section[5] == NO_BITMAP else section
        if kind == 7:
            if (
                field == number
                and {1, 3, 4, 5, 6} <= sections.keys()
                and sections[3].size >= 10
                and sections[5].size >= 11
            ):
                shared = b"".join(sections[kind].tobytes() for kind in (1, 2, 3) if kind in sections)
                points = int.from_bytes(sections[3][6:10].tobytes(), "big")
                return FieldSections(2, points, sections[4], sections[5], bitmap, section[5:], shared, sections[3])
            field += 1
        at += size
    raise CodecError(f"the message has no field {number}")


def _split_edition1(message: Octets) -> FieldSections:
    at = 8
    sections: list[Octets] = []
    flags = int(message[15])
    for present in (True, bool(flags & 0x80), bool(flags & 0x40)):
        size = int.from_bytes(message[at : at + 3].tobytes(), "big") if present else 0
        if (present and size < 6) or at + size + 15 > message.size:
            raise CodecError("a section exceeds the message")
        sections.append(message[at : at + size])
        at += size
    size = int.from_bytes(message[at : at + 3].tobytes(), "big")
    whole = message[at : message.size - 4] if size < 120 else message[at : at + size]  # ECMWF's mark of large messages
    return FieldSections(
        1, 0, sections[0], whole[:11], sections[2] if sections[2].size else None, whole[11:], b"", sections[1]
    )


def single_field_message(message: Octets, number: int) -> bytes:
    """Return one field of a GRIB 2 message as a message of its own."""
    parts = split_sections(message, number)
    bitmap = parts.bitmap.tobytes() if parts.bitmap is not None else b"\0\0\0\6\6\xff"
    data = _HEAD.pack(parts.data.size + 5, 7) + parts.data.tobytes()
    body = b"".join((parts.shared, parts.product.tobytes(), parts.packing.tobytes(), bitmap, data, b"7777"))
    return message[:8].tobytes() + (len(body) + 16).to_bytes(8, "big") + body
