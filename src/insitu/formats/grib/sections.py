"""Read the header sections of one GRIB message, and split it into fields.

A message is a chain of sections, each with its length in front. Only the sections that say what,
when and where are read; bitmaps and data are skipped. A GRIB 2 message may repeat sections 2 to 7:
each section 7 ends a field, and sections that are not repeated hold on.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.parsing.scheduler import ExactRanges, Walk

__all__ = ["MAGIC", "GribField", "GribMessage", "read_message", "read_similar_message"]

MAGIC = b"GRIB"
FIELDS_LIMIT = 1 << 16
"""Fields of one message."""
LARGE = 0x800000
"""GRIB 1 beyond 8 MiB, as ECMWF writes it: the length counts pieces of 120 bytes."""
_HEAD = struct.Struct(">IB")


class GribField(NamedTuple):
    """One field: where its message lies, and its header sections."""

    offset: int
    """Of the message."""
    length: int
    """Of the message."""
    number: int
    """Of the field in the message."""
    edition: int
    discipline: int
    """GRIB 2: octet 7 of section 0."""
    identification: bytes
    """GRIB 2: section 1. GRIB 1: section 1, the product definition."""
    local: bytes
    """GRIB 2: section 2, if there."""
    grid: bytes
    """GRIB 2: section 3. GRIB 1: section 2, if there."""
    product: bytes
    """GRIB 2: section 4."""


class GribMessage(NamedTuple):
    """The fields of one message, and its layout."""

    offset: int
    length: int
    fields: list[GribField]
    header: int
    """Bytes from the start of the message to its data."""
    packing: bytes = b""
    """GRIB 2: the first 21 bytes of section 5 of the first field. GRIB 1: the first 4 bytes of section 4, if at hand.
    """
    bitmap: int = 0
    """GRIB 2: octet 6 of section 6 of the first field."""
    layout: tuple[tuple[int, bytes], ...] = ()
    """GRIB 2, of one field: where sections begin, and their first five bytes, from the first to the
    bitmap.
    """


class _MessageBytes:
    """The bytes of a message read so far."""

    def __init__(self, offset: int, data: bytes, end: int) -> None:
        self.offset, self.data, self.start, self.end = offset, data, 0, end

    def take(self, at: int, length: int, ahead: int = 0) -> Walk[bytes]:
        """Return a range of the message; a request for it reads `ahead` bytes more."""
        if at < self.start or at + length > self.start + len(self.data):
            if at + length > self.end:
                raise FormatError("a section exceeds its message", offset=self.offset + at, structure="GRIB section")
            (self.data,) = yield ExactRanges([(self.offset + at, min(length + ahead, self.end - at))])
            self.start = at
            if len(self.data) < length:
                raise FormatError(
                    "the file is truncated within a message", offset=self.offset + at, structure="GRIB section"
                )
        return self.data[at - self.start : at - self.start + length]

    def at_hand(self, at: int, length: int) -> bytes:
        """Return a range of the message if it was read already, else nothing."""
        found = self.data[at - self.start : at - self.start + length] if at >= self.start else b""
        return found if len(found) == length else b""


def read_message(offset: int, data: bytes, size: int) -> Walk[GribMessage]:
    """Read the headers of a message.

    Parameters
    ----------
    offset
        Where it begins.
    data
        Its first bytes, at least sixteen.
    size
        Bytes in the file.
    """
    edition = data[7]
    room = size - offset
    reach = _MessageBytes(offset, data, room)
    if edition == 2:
        length = int.from_bytes(data[8:16], "big")
    elif edition == 1:
        length = int.from_bytes(data[4:7], "big")
        if length & LARGE:
            length = yield from _large_message_length(reach, length)
    else:
        raise UnsupportedError(f"GRIB edition {edition} is not supported", offset=offset, structure="GRIB section 0")
    if length > room:
        raise FormatError(
            f"the file is truncated: {length - room} bytes of the message are missing",
            offset=offset,
            structure="GRIB section 0",
            hint='errors="warn" leaves the message out',
        )
    reach.end = length
    found = yield from (_read_edition2(reach, length) if edition == 2 else _read_edition1(reach, length))
    return found


def _large_message_length(reach: _MessageBytes, coded: int) -> Walk[int]:
    """Return the length of a GRIB 1 message beyond 8 MiB, from that of its last section, which is
    then less than 120.
    """
    at = 8
    (flags,) = yield from reach.take(at + 7, 1)
    for present in (True, bool(flags & 0x80), bool(flags & 0x40)):
        if present:
            at += int.from_bytes((yield from reach.take(at, 3, 64)), "big")
    last = int.from_bytes((yield from reach.take(at, 3, 64)), "big")
    return (coded & (LARGE - 1)) * 120 - last + 4 if last < 120 else coded


def _read_edition1(reach: _MessageBytes, length: int) -> Walk[GribMessage]:
    """Read GRIB 1: the product definition, and the grid definition if there is one."""
    size = int.from_bytes((yield from reach.take(8, 3, 512)), "big")
    if size < 28:
        raise FormatError(f"section 1 has only {size} bytes", offset=reach.offset + 8, structure="GRIB section 1")
    product = yield from reach.take(8, size, 512)
    at, grid = 8 + size, b""
    if product[7] & 0x80:
        size = int.from_bytes((yield from reach.take(at, 3, 512)), "big")
        if size < 32:
            raise FormatError(f"section 2 has only {size} bytes", offset=reach.offset + at, structure="GRIB section 2")
        grid = yield from reach.take(at, size, 512)
        at += size
    if at + 4 > length:  # else a message of no length would be found again and again
        raise FormatError(
            f"the message has {length} bytes, its headers {at}", offset=reach.offset, structure="GRIB section 0"
        )
    field = GribField(reach.offset, length, 0, 1, 0, product, b"", grid, b"")
    has_bitmap = bool(product[7] & 0x40)
    return GribMessage(reach.offset, length, [field], at, b"" if has_bitmap else reach.at_hand(at, 4))


def _read_edition2(reach: _MessageBytes, length: int) -> Walk[GribMessage]:
    """Read GRIB 2: one section after the other, up to the end of the message."""
    offset, discipline = reach.offset, reach.data[6]
    sections = {1: b"", 2: b"", 3: b"", 4: b""}
    fields: list[GribField] = []
    at, header = 16, 0
    packing, bitmap = b"", 0
    layout: list[tuple[int, bytes]] = []
    while at < length - 4:
        start = yield from reach.take(at, 5, 512)
        size, number = _HEAD.unpack(start)
        if size < 5 or at + size > length - 4 or not 1 <= number <= 7:
            raise FormatError(
                f"a section of GRIB 2 cannot have the number {number} and {size} bytes",
                offset=offset + at,
                structure="GRIB section",
            )
        if number != 7:
            layout.append((at, start))
        if number <= 4:
            sections[number] = yield from reach.take(at, size, 512)
        elif number == 5 and not fields:
            packing = yield from reach.take(at, min(size, 21), 512)
        elif number == 6 and not fields and size > 5:
            bitmap = (yield from reach.take(at, 6, 512))[5]
        elif number == 7:
            header = header or at
            if not (sections[1] and sections[3] and sections[4]):
                raise FormatError(
                    "a data section has no product definition", offset=offset + at, structure="GRIB section 7"
                )
            fields.append(
                GribField(
                    offset, length, len(fields), 2, discipline, sections[1], sections[2], sections[3], sections[4]
                )
            )
            if len(fields) > FIELDS_LIMIT:
                raise FormatError(
                    f"the message has more than {FIELDS_LIMIT} fields", offset=offset, structure="GRIB message"
                )
        at += size
    if at != length - 4 or not fields:
        raise FormatError("the sections do not fill the message", offset=offset + at, structure="GRIB section 8")
    similar_layout = tuple(layout) if len(fields) == 1 else ()
    return GribMessage(offset, length, fields, header, packing, bitmap, similar_layout)


def read_similar_message(before: GribMessage, offset: int, data: bytes, size: int) -> GribMessage | None:
    """Read the headers of a GRIB 2 message with the layout of another.

    Return None if it has another layout.

    Most messages of a file have the same layout: this takes a tenth of the time of `read_message`.

    Parameters
    ----------
    before
        The other message.
    offset, data, size
        As for `read_message`.
    """
    at = before.header
    if not before.layout or len(data) < at + 5 or data[7] != 2:
        return None
    for start, head in before.layout:
        if data[start : start + 5] != head:
            return None
    length = int.from_bytes(data[8:16], "big")
    if data[at + 4] != 7 or at + int.from_bytes(data[at : at + 4], "big") != length - 4 or length > size - offset:
        return None
    sections = {1: b"", 2: b"", 3: b"", 4: b""}
    old = before.fields[0]
    packing, bitmap = b"", 0
    for start, head in before.layout:
        number, stop = head[4], start + int.from_bytes(head[:4], "big")
        if number <= 4:
            sections[number] = data[start:stop]
        elif number == 5:
            packing = data[start : min(stop, start + 21)]
        elif stop > start + 5:
            bitmap = data[start + 5]
    # The same bytes as the same object: their hash is known.
    identification = old.identification if sections[1] == old.identification else sections[1]
    grid = old.grid if sections[3] == old.grid else sections[3]
    field = GribField(offset, length, 0, 2, data[6], identification, sections[2], grid, sections[4])
    return GribMessage(offset, length, [field], at, packing, bitmap, before.layout)
