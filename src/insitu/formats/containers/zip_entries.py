"""List the entries of a zip archive, and find where their bytes begin.

The central directory at the end lists them (APPNOTE 4.3.12). Their bytes begin behind a local
header, whose length only the header itself tells. The headers of the entries that are wanted are
read in one batch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from insitu.errors import FormatError
from insitu.formats.containers.archive_entry import ArchiveEntry
from insitu.formats.parsing.read_cache import ReadCache
from insitu.sources.protocol import ByteSource, read_tail

__all__ = ["LOCAL_HEADER", "ZipEntry", "end_of_local_header", "find_offsets", "read_directory", "zip_entries"]

_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_ENTRY = struct.Struct("<4s6H3I5H2I")
LOCAL_HEADER = 30
"""Bytes of a local file header without name and extra field (APPNOTE 4.3.7)."""
TAIL = 1 << 16
"""Bytes at the end in which the end record is looked for: its comment has at most 65,535 (APPNOTE 4.3.16, 4.4.11)."""
LARGEST = 1 << 28
"""Bytes of a central directory."""


class ZipEntry(NamedTuple):
    """What the central directory says of a file."""

    name: str
    flags: int
    method: int
    """How it is compressed; 0: not at all."""
    crc: int
    packed: int
    """Bytes in the archive."""
    full: int
    """Bytes unpacked."""
    header: int
    """Where its local header is."""


def zip_entries(window: ReadCache) -> list[ArchiveEntry]:
    """Return all entries that are files, without the offsets of their bytes (see `find_offsets`)."""
    return [_to_entry(entry) for entry in read_directory(window.source, window.size, window.head)]


def _to_entry(entry: ZipEntry) -> ArchiveEntry:
    problem = "it is encrypted" if entry.flags & 1 else ""
    if entry.method or entry.packed != entry.full:
        problem = problem or "it is compressed"
    return ArchiveEntry(entry.name, -1, entry.packed, problem, entry.header)


def read_directory(source: ByteSource, size: int, head: bytes = b"") -> list[ZipEntry]:
    """Return the entries of all files in the central directory.

    Parameters
    ----------
    source
        The archive.
    size
        Its bytes.
    head
        The first of them, if known: a small archive is not read twice.
    """
    url, start = source.url, max(size - TAIL - _END.size, 0)
    tail = head[start:] if size and len(head) == size else read_tail(source, size - start)
    place = _find_end_record(tail)
    if place < 0:
        raise FormatError(
            "the zip file has no central directory",
            url=url,
            offset=start,
            structure="end of directory",
            hint="It may be truncated: fetch it again",
        )
    _, _, _, _, count, length, offset, _ = _END.unpack_from(tail, place)
    if count == 0xFFFF or 0xFFFFFFFF in (length, offset):
        count, length, offset = _read_zip64_record(source, size, tail, place, start)
    if length > LARGEST or offset + length > size:
        raise FormatError(
            f"a central directory of {length} bytes at {offset} does not fit in the file",
            url=url,
            offset=offset,
            structure="directory",
        )
    data = tail[offset - start : offset - start + length] if offset >= start else source.read(offset, length)
    return _parse_entries(data, count, url, offset)


def find_offsets(entries: Sequence[ArchiveEntry], source: ByteSource) -> list[ArchiveEntry]:
    """Return the entries with the offsets of their bytes."""
    unlocated = [entry for entry in entries if entry.offset < 0]
    headers = iter(source.read_many([(entry.header, LOCAL_HEADER) for entry in unlocated]))
    size = source.size()
    return [entry if entry.offset >= 0 else _with_offset(entry, next(headers), size, source.url) for entry in entries]


def _with_offset(entry: ArchiveEntry, header: bytes, size: int, url: str) -> ArchiveEntry:
    begin = end_of_local_header(header, entry.header, url, f"member {entry.name!r}")
    problem = entry.problem or ("the archive is truncated before its end" if begin + entry.length > size else "")
    return entry._replace(offset=begin, problem=problem)


def end_of_local_header(header: bytes, offset: int, url: str, entry: str = "a member of the zip file") -> int:
    """Return where the bytes of an entry begin, by its local header, which lies at `offset`."""
    if len(header) != LOCAL_HEADER or header[:4] != b"PK\3\4":
        raise FormatError(
            f"{entry} is not where the central directory says",
            url=url,
            offset=offset,
            structure="local file header",
        )
    name_length, extra_length = struct.unpack_from("<HH", header, 26)
    return int(offset + LOCAL_HEADER + name_length + extra_length)


def _find_end_record(tail: bytes) -> int:
    """Return where the end record lies.

    The last one whose comment fills the rest (a comment may hold anything); -1: nowhere.
    """
    last = place = tail.rfind(b"PK\5\6")
    while place >= 0:
        if place + _END.size <= len(tail):
            (comment,) = struct.unpack_from("<H", tail, place + _END.size - 2)
            if place + _END.size + comment == len(tail):
                return place
        place = tail.rfind(b"PK\5\6", 0, place)
    return last if last >= 0 and last + _END.size <= len(tail) else -1


def _read_zip64_record(source: ByteSource, size: int, tail: bytes, place: int, start: int) -> tuple[int, int, int]:
    """Return count, length and offset of a directory that is too large for the old record.

    Zip64 (4.3.14).
    """
    at = place - _LOCATOR.size
    if at < 0 or tail[at : at + 4] != b"PK\6\7":
        raise FormatError(
            "the Zip64 locator is missing", url=source.url, offset=start + place, structure="Zip64 locator"
        )
    (_, _, record_offset, _) = _LOCATOR.unpack_from(tail, at)
    data = source.read(record_offset, _END64.size) if record_offset + _END64.size <= size else b""
    if len(data) != _END64.size or data[:4] != b"PK\6\6":
        raise FormatError(
            "the Zip64 record is missing", url=source.url, offset=record_offset, structure="Zip64 end of directory"
        )
    found = _END64.unpack(data)
    return found[7], found[8], found[9]


def _parse_entries(data: bytes, count: int, url: str, offset: int) -> list[ZipEntry]:
    """Parse the central directory."""
    found: list[ZipEntry] = []
    at = 0
    for _ in range(count):
        if at + _ENTRY.size > len(data) or data[at : at + 4] != b"PK\1\2":
            raise FormatError("the central directory is damaged", url=url, offset=offset + at, structure="directory")
        _, _, _, flags, method, _, _, crc, packed, full, names, extras, comments, _, _, _, place = _ENTRY.unpack_from(
            data, at
        )
        begin = at + _ENTRY.size
        raw = data[begin : begin + names]
        name = raw.decode("ascii") if raw.isascii() else raw.decode("utf-8" if flags & 0x800 else "cp437", "replace")
        if extras:
            full, packed, place = _apply_zip64_field(data[begin + names : begin + names + extras], full, packed, place)
        at = begin + names + extras + comments
        if not name.endswith("/"):
            found.append(ZipEntry(name, flags, method, crc, packed, full, place))
    return found


def _apply_zip64_field(extra: bytes, full: int, packed: int, place: int) -> tuple[int, int, int]:
    """Return sizes and offset with those of the Zip64 extra field (4.5.3).

    Only numbers that are all ones in the entry, in this order.
    """
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, at)
        if tag == 1:
            rest = extra[at + 4 : at + 4 + length]
            numbers = list(struct.unpack(f"<{len(rest) // 8}Q", rest[: len(rest) // 8 * 8]))[::-1]
            full = numbers.pop() if full == 0xFFFFFFFF and numbers else full
            packed = numbers.pop() if packed == 0xFFFFFFFF and numbers else packed
            place = numbers.pop() if place == 0xFFFFFFFF and numbers else place
        at += 4 + length
    return full, packed, place
