"""Reader of the links of new-style groups.

Link messages lie in the object header or, if there are many, in a fractal heap with a B-tree of
names. Format specification 3.0, IV.A.2.c and IV.A.2.g.
"""

from __future__ import annotations

from typing import NamedTuple

from insitu.errors import FormatError
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.messages import LINK, LINK_INFO, Message
from insitu.formats.parsing.fields import check_length, take_bytes, take_uint
from insitu.formats.parsing.scheduler import Walk

__all__ = ["Link", "read_links"]


class Link(NamedTuple):
    """A name in a group: exactly one of address, path and outside is given."""

    name: str
    address: int | None
    """Hard link: the object header."""
    path: str | None
    """Soft link: the path of the object."""
    outside: tuple[str, str] | None
    """External link: file and path."""
    order: int
    """Creation index; 0 where none is kept."""


def read_links(file: FileContext, messages: list[Message]) -> Walk[tuple[list[Link], bool]]:
    """Return the links of a new-style group, and whether their creation order is tracked."""
    width = file.offset_size
    links = [parse_link(m.body, width) for m in messages if m.kind == LINK]
    tracked = False
    for message in messages:
        if message.kind != LINK_INFO:
            continue
        body = message.body
        tracked = bool(take_uint(body, 1, 1, "link info message") & 1)
        at = 2 + (8 if tracked else 0)
        heap = take_uint(body, at, width, "link info message")
        tree = take_uint(body, at + width, width, "link info message")
        if heap == file.undefined or tree == file.undefined:
            continue
        from insitu.formats.hdf5.structures.btree_v2 import read_records
        from insitu.formats.hdf5.structures.fractal_heap import read_heap_objects

        # Type 5: a hash of the name (4 bytes), then the heap id (7 bytes).
        records = yield from read_records(file, tree, (5,))
        found = yield from read_heap_objects(file, heap, tuple(record[4:] for record in records))
        links += [parse_link(data, width) for data in found]
    return links, tracked


def parse_link(body: bytes, offset_size: int) -> Link:
    """Parse a link message."""
    check_length(body, 4, "link message")
    if body[0] != 1:
        raise FormatError(f"the link message has version {body[0]}, only 1 is known", structure="link")
    flags = body[1]
    at, kind, order = 2, 0, 0
    if flags & 8:
        kind = body[at]
        at += 1
    if flags & 4:
        order = int.from_bytes(body[at : at + 8], "little")
        at += 8
    if flags & 16:
        at += 1  # the character set; names are UTF-8 or its subset ASCII either way
    width = 1 << (flags & 3)
    length = take_uint(body, at, width, "link message")
    at += width
    name = (
        take_bytes(body, at, length, "link message").split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
    )  # C strings, for the library
    at += length
    if kind == 0:
        return Link(name, take_uint(body, at, offset_size, "link message"), None, None, order)
    value = body[at + 2 : at + 2 + int.from_bytes(body[at : at + 2], "little")]
    if kind == 1:
        return Link(name, None, value.decode("utf-8", "surrogateescape"), None, order)
    if kind == 64:
        parts = value[1:].split(b"\0")
        texts = [part.decode("utf-8", "surrogateescape") for part in [*parts, b"", b""][:2]]
        return Link(name, None, None, (texts[0], texts[1]), order)
    return Link(name, None, None, (f"user-defined link type {kind}", ""), order)
