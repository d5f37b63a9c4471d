"""Reader of object headers: the messages that describe an object.

Versions 1 and 2 with their continuation blocks: format specification 3.0, IV.A.1.
"""

from __future__ import annotations

from typing import NoReturn

from insitu.formats.hdf5.structures.checksum import verify_checksum
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.message_cache import recall, remember
from insitu.formats.hdf5.structures.messages import CONTINUATION, LAST_KNOWN, LAYOUT, Message
from insitu.formats.parsing.scheduler import Walk

__all__ = ["read_object_header"]

# Headers of ordinary variables fit; a bigger one costs one more request, of its exact size.
FIRST_READ = 1024
CONTINUATION_LIMIT = 100_000


def read_object_header(file: FileContext, address: int) -> Walk[list[Message]]:
    """Return all messages of an object header, continuation blocks included."""
    first = file.range_up_to(address, FIRST_READ, 16, "object header")
    data = file.peek(*first)
    if data is None:
        (data,) = yield [first]
    messages: list[Message] = []
    if data[:4] == b"OHDR":
        tracked, start, length = _prefix_v2(file, data, address)
        if start + length > len(data):
            (data,) = yield [file.range(address, start + length, "object header")]
        whole = data[: start + length]
        known = recall((read_object_header, whole))
        if known is not None:
            return list(known)
        verify_checksum(file, whole, address, "object header")
        second = True
        waiting = _parse_messages(
            file, whole, start, start + length - 4, address, messages, second=second, tracked=tracked
        )
        if not waiting and not any(m.kind == LAYOUT and _may_be_compact(m.body) for m in messages):
            # Files of one archive often have the same headers, addresses included. (Of compact data
            # the place may matter.)
            remember((read_object_header, whole), len(whole), tuple(messages))
    elif data[0] == 1:
        length = int.from_bytes(data[8:12], "little")
        if 16 + length > len(data):
            (data,) = yield [file.range(address, 16 + length, "object header")]
        tracked, second = False, False
        waiting = _parse_messages(file, data, 16, 16 + length, address, messages)
    else:
        file.fail("has neither the signature of version 2 nor version 1", address, "object header")
    seen: set[int] = set()
    while waiting:
        places = waiting
        waiting = []
        for place, _ in places:
            if place in seen or len(seen) > CONTINUATION_LIMIT:
                file.fail("refers back to itself", place, "object header continuation")
            seen.add(place)
        blocks = yield [file.range(place, size, "object header continuation") for place, size in places]
        for (place, _), block in zip(places, blocks, strict=True):
            begin, end = 0, len(block)
            if second:
                if block[:4] != b"OCHK" or len(block) < 8:
                    file.fail("has no signature", place, "object header continuation")
                verify_checksum(file, block, place, "object header continuation")
                begin, end = 4, len(block) - 4
            waiting += _parse_messages(file, block, begin, end, place, messages, second=second, tracked=tracked)
    return messages


def _may_be_compact(layout: bytes) -> bool:
    return len(layout) < 2 or layout[0] < 3 or layout[1] == 0  # the version, the class


def _prefix_v2(file: FileContext, data: bytes, address: int) -> tuple[bool, int, int]:
    """Return whether creation order is tracked, and start and length of the messages.

    The length includes the checksum.
    """
    if data[4] != 2:
        file.fail(f"has version {data[4]}", address, "object header")
    flags = data[5]
    start = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
    width = 1 << (flags & 3)
    length = int.from_bytes(data[start : start + width], "little")
    return bool(flags & 4), start + width, length + 4


def _parse_messages(
    file: FileContext,
    data: bytes,
    at: int,
    end: int,
    address: int,
    messages: list[Message],
    *,
    second: bool = False,
    tracked: bool = False,
) -> list[tuple[int, int]]:
    """Add the messages of a block, of version 1 or 2; return where the header continues."""
    waiting: list[tuple[int, int]] = []
    prefix = 8 if not second else 6 if tracked else 4
    while at + prefix <= end:  # what is shorter than a message's prefix is a gap
        if second:
            kind, size, flags = data[at], data[at + 1] | data[at + 2] << 8, data[at + 3]
        else:
            kind, size, flags = data[at] | data[at + 1] << 8, data[at + 2] | data[at + 3] << 8, data[at + 4]
        begin = at + prefix
        stop = begin + size
        if stop > end:
            file.fail("has a message that is longer than its block", address, "object header")
        if kind == CONTINUATION:
            waiting.append(_continuation(file, data[begin:stop]))
        elif kind:
            order = data[at + 4] | data[at + 5] << 8 if tracked else 0
            messages.append(Message(kind, flags, data[begin:stop], order, address + begin))
            if kind > LAST_KNOWN and flags & 0x80:
                _refuse(file, kind)
        at = stop
    return waiting


def _refuse(file: FileContext, kind: int) -> NoReturn:
    file.refuse(f"object header message {kind:#x} is unknown, and the file requires readers to know it")


def _continuation(file: FileContext, body: bytes) -> tuple[int, int]:
    """IV.A.2.q: the address and length of the next block."""
    width = file.offset_size
    return (
        int.from_bytes(body[:width], "little"),
        int.from_bytes(body[width : width + file.length_size], "little"),
    )
