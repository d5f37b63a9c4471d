"""Read the directories (IFDs) of a TIFF: tables of tags, one for each image.

Small values lie in the table, others elsewhere in the file. "TIFF Revision 6.0", section 2, and
"The BigTIFF File Format", which has 8-byte counts and offsets. The chain of directories is followed
first; then the values of all directories are read in one batch, only of tags that are asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError
from insitu.formats.parsing.read_cache import ReadCache

__all__ = ["Directory", "is_tiff", "read_directories"]

TYPES: dict[int, str] = {
    # field type: NumPy's type of an element
    1: "u1", 2: "S1", 3: "u2", 4: "u4", 5: "u4,u4", 6: "i1", 7: "u1", 8: "i2", 9: "i4", 10: "i4,i4", 11: "f4",
    12: "f8", 13: "u4",
    16: "u8", 17: "i8", 18: "u8",
}  # fmt: skip
ASCII, UNDEFINED = 2, 7
DTYPES: dict[tuple[str, int], np.dtype[Any]] = {
    (order, kind): np.dtype(",".join(f"{order}{part}" for part in name.split(",")))
    for kind, name in TYPES.items()
    for order in "<>"
}
SIZES = {kind: DTYPES["<", kind].itemsize for kind in TYPES}
WHOLE = {kind: (SIZES[kind], name[0] == "i") for kind, name in TYPES.items() if name[0] in "iu" and "," not in name}
"""Field types of integers: size, and whether they have a sign."""
SUB_IFDS = 330
ORDERS = {b"II": "<", b"MM": ">"}

MOST_DIRECTORIES = 1 << 20
"""Most images of a file. Each directory names the next, so that reading them takes one step after the other."""
DIRECTORY_GUESS = 4096
"""Bytes fetched at a directory whose length is not known yet: some three hundred tags."""


def is_tiff(window: ReadCache) -> bool:
    """Return whether a file begins as TIFF or BigTIFF does."""
    head = window.head[:4]
    return head in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


class _Entry(NamedTuple):
    """One row of a directory."""

    kind: int
    number: int
    """Of elements."""
    data: bytes | None
    """The value, if it lies in the row."""
    offset: int
    """Else, where it lies."""


@dataclass(slots=True)
class Directory:
    """One image's tags."""

    offset: int
    """Where it lies."""
    order: str
    """Byte order of the file: < or >."""
    entries: dict[int, _Entry]
    parent: Directory | None = None
    """The directory that names this one among its SubIFDs."""
    data: dict[int, bytes] = field(default_factory=dict)
    """The values of tags, as they are stored; decoded when asked for."""
    unread: dict[int, str] = field(default_factory=dict)
    """Tags whose values cannot be read, and why."""

    def fail(self, what: str, structure: str = "directory") -> NoReturn:
        """Raise a `FormatError` at this directory."""
        raise FormatError(what, offset=self.offset, structure=structure)

    def value(self, tag: int) -> npt.NDArray[Any] | None:
        """Return the elements of a tag in native byte order, fractions as floats.

        None if it is missing or unreadable.
        """
        data = self.data.get(tag)
        if data is None:
            return None
        dtype = DTYPES[self.order, self.entries[tag].kind]
        values = np.frombuffer(data, dtype)
        if dtype.names is not None:  # a fraction
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.asarray(values["f0"] / values["f1"])
        return values if dtype.isnative else values.astype(dtype.newbyteorder("="))

    def numbers(self, tag: int) -> npt.NDArray[Any] | None:
        """Return the numbers of a tag; None if it is missing."""
        if tag in self.unread:
            self.fail(self.unread[tag], f"tag {tag}")
        value = self.value(tag)
        if value is not None and value.dtype.kind not in "iuf":
            self.fail(f"tag {tag} does not hold numbers", f"tag {tag}")
        return value

    def number(self, tag: int, default: int) -> int:
        """Return the one integer of a tag."""
        if tag in self.unread:
            self.fail(self.unread[tag], f"tag {tag}")
        if tag not in self.entries:
            return default
        kind = self.entries[tag].kind
        if kind not in WHOLE:
            self.fail(f"tag {tag} does not hold an integer", f"tag {tag}")
        size, signed = WHOLE[kind]
        data = self.data.get(tag, b"")
        # Old writers repeat a number for every band; numbers that differ are those of something else.
        if not data or data != data[:size] * (len(data) // size):
            self.fail(f"tag {tag} holds {len(data) // size} numbers in place of one", f"tag {tag}")
        return int.from_bytes(data[:size], "little" if self.order == "<" else "big", signed=signed)

    def text(self, tag: int) -> str | None:
        """Return the text of a tag; None if it is missing or unreadable."""
        data = self.data.get(tag)
        if data is None or self.entries[tag].kind not in (1, ASCII, UNDEFINED):
            return None
        return data.split(b"\0", 1)[0].decode("utf-8", "replace")

    def raw(self, tag: int) -> bytes | None:
        """Return the bytes of a tag; None if it is missing or unreadable."""
        return self.data.get(tag)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Struct formats of TIFF or BigTIFF in one byte order."""

    order: str
    head: struct.Struct
    row: struct.Struct
    link: struct.Struct

    @classmethod
    def of(cls, order: str, big: bool) -> _Layout:
        parts = ("Q", "HHQ8s", "Q") if big else ("H", "HHI4s", "I")
        return cls(order, *(struct.Struct(order + part) for part in parts))


def read_directories(window: ReadCache, tag_numbers: Iterable[int]) -> list[Directory]:
    """Return all directories in the order of the chain, each followed by its SubIFDs, with the
    values of the wanted tags.
    """
    head = window.head
    order = ORDERS.get(head[:2])
    if order is None or not is_tiff(window):
        raise FormatError("the file is not a TIFF", offset=0, structure="header")
    big = 43 in head[2:4]
    layout = _Layout.of(order, big)
    if len(head) < (16 if big else 8):
        raise FormatError("the file ends within its header", offset=len(head), structure="header")
    if big and struct.unpack_from(order + "HH", head, 4) != (8, 0):
        raise FormatError("the BigTIFF has an unknown offset size", offset=4, structure="header")
    (first,) = layout.link.unpack_from(head, 8 if big else 4)
    found: list[Directory] = []
    seen: set[int] = set()
    _chain(window, layout, first, None, found, seen)
    tags = set(tag_numbers) | {SUB_IFDS}
    _read_values(window, found, tags)
    children = [(directory, _children(directory)) for directory in found]
    if any(offsets for _, offsets in children):
        with_children: list[Directory] = []
        for directory, offsets in children:
            with_children.append(directory)
            for offset in offsets:
                if offset and offset not in seen:
                    _chain(window, layout, offset, directory, with_children, seen)
        _read_values(window, with_children, tags)
        found = with_children
    return found


def _children(directory: Directory) -> list[int]:
    value = directory.value(SUB_IFDS)
    return [int(offset) for offset in value] if value is not None and value.dtype.kind == "u" else []


def _chain(
    window: ReadCache, layout: _Layout, offset: int, parent: Directory | None, found: list[Directory], seen: set[int]
) -> None:
    """Follow a chain of directories."""
    begun = len(found)
    while offset:
        if offset in seen:
            raise FormatError("the chain of directories is a loop", offset=offset, structure="IFD")
        if len(seen) >= MOST_DIRECTORIES:
            raise FormatError(f"the file has more than {MOST_DIRECTORIES} directories", offset=offset, structure="IFD")
        seen.add(offset)
        try:
            directory, offset = _directory(window, layout, offset)
        except FormatError:
            if len(found) == begun and parent is None:
                raise
            # What follows a broken link is lost; what came before it is there.
            found[-1].unread.setdefault(0, f"the next directory, at {offset}, is damaged")
            return
        directory.parent = parent
        found.append(directory)
        if parent is not None:  # all are listed there; some writers chain those of one level of all pages, too
            return


def _directory(window: ReadCache, layout: _Layout, offset: int) -> tuple[Directory, int]:
    """Return one directory, and the offset of the next one."""
    size = window.size
    if offset + layout.head.size > size:
        raise FormatError("a directory lies behind the end of the file", offset=offset, structure="IFD")
    (data,) = _bytes(window, [(offset, min(DIRECTORY_GUESS, size - offset))])
    (count,) = layout.head.unpack_from(data)
    end = layout.head.size + count * layout.row.size
    if not count or offset + end > size:
        raise FormatError(f"a directory of {count} tags does not fit in the file", offset=offset, structure="IFD")
    if end + layout.link.size > len(data):
        (data,) = _bytes(window, [(offset, min(end + layout.link.size, size - offset))])
    entries: dict[int, _Entry] = {}
    unread: dict[int, str] = {}
    small, make, link = layout.link.size, tuple.__new__, layout.link.unpack
    for tag, kind, number, value in layout.row.iter_unpack(data[layout.head.size : end]):
        if tag in entries:  # the first counts
            continue
        if kind not in TYPES:  # of the future, or damaged
            unread[tag] = f"tag {tag} has the unknown type {kind}"
            continue
        nbytes = number * SIZES[kind]
        # Made without NamedTuple's own constructor, which takes twice as long: there are dozens in
        # each file.
        if nbytes <= small:
            entries[tag] = make(_Entry, (kind, number, value[:nbytes], 0))
        else:
            entries[tag] = make(_Entry, (kind, number, None, link(value)[0]))
    # A file may end right behind its last directory, without the link to none.
    next_offset = layout.link.unpack_from(data, end)[0] if end + layout.link.size <= len(data) else 0
    return Directory(offset, layout.order, entries, unread=unread), next_offset


def _bytes(window: ReadCache, ranges: list[tuple[int, int]]) -> list[bytes]:
    """Return ranges that lie in the file."""
    at_hand = window.peek_many(ranges)
    return window.fetch([ranges])[0] if at_hand is None else at_hand


def _read_values(window: ReadCache, directories: list[Directory], tag_numbers: set[int]) -> None:
    """Read the values of the wanted tags of all directories, in one batch."""
    missing: list[tuple[Directory, int]] = []
    ranges: list[tuple[int, int]] = []
    for directory in directories:
        known, unread = directory.data, directory.unread
        for tag, (kind, number, data, offset) in directory.entries.items():
            if tag not in tag_numbers or tag in known or tag in unread:
                continue
            if data is not None:
                known[tag] = data
                continue
            nbytes = number * SIZES[kind]
            if offset + nbytes > window.size:
                unread[tag] = f"the value of tag {tag} lies behind the end of the file"
            else:
                missing.append((directory, tag))
                ranges.append((offset, nbytes))
    if missing:
        for (directory, tag), block in zip(missing, _bytes(window, ranges), strict=True):
            directory.data[tag] = block
