"""Reader of shared messages, which are stored outside the object header that uses them.

Format specification 3.0, IV.A.2.1 ("Shared Message"). They lie in the header of another object (a
committed datatype) or in the heap of the shared message table (III.G).
"""

from __future__ import annotations

from insitu.formats.hdf5.structures.checksum import verify_checksum
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.fractal_heap import read_heap_objects
from insitu.formats.hdf5.structures.messages import Message
from insitu.formats.hdf5.structures.object_header import read_object_header
from insitu.formats.parsing.fields import check_length
from insitu.formats.parsing.scheduler import Shared, Walk

__all__ = ["read_shared", "read_shared_in_heap", "resolve_shared"]

DEPTH_LIMIT = 8


def resolve_shared(file: FileContext, message: Message) -> Walk[Message]:
    """Return the message itself, wherever it is stored."""
    if not message.shared:
        return message
    body = yield from read_shared(file, message.kind, message.body)
    return Message(message.kind, message.flags & ~2, body, message.order)


def read_shared(file: FileContext, kind: int, body: bytes, depth: int = 0) -> Walk[bytes]:
    """Return the body of a shared message of some type.

    Parameters
    ----------
    file
        The file.
    kind
        The message type.
    body
        What stands in its place.
    """
    check_length(body, 2, "shared message")
    version, location = body[0], body[1]
    width = file.offset_size
    if version == 1:  # two bytes, six reserved, and a symbol table entry: name offset, address
        at, location = 8 + file.length_size, 0
    elif version in (2, 3):
        at = 2
    else:
        file.fail(f"has version {version}", 0, "shared message")
    if version == 3 and location == 1:
        found = yield from read_shared_in_heap(file, kind, (body[at : at + 8],))
        return found[0]
    if at + width > len(body) or depth > DEPTH_LIMIT:
        file.fail("has no valid target", 0, "shared message")
    address = int.from_bytes(body[at : at + width], "little")
    messages = yield Shared(("object header", address), lambda: read_object_header(file, address))
    for message in messages:
        if message.kind == kind:
            if message.shared:
                return (yield from read_shared(file, kind, message.body, depth + 1))
            whole: bytes = message.body
            return whole
    file.fail(f"points to an object without a message of type {kind:#x}", address, "shared message")


def read_shared_in_heap(file: FileContext, kind: int, ids: tuple[bytes, ...]) -> Walk[list[bytes]]:
    """Return messages in the heap that the shared message table has for a message type."""
    if file.shared_table is None:
        file.fail("is in a heap, but the file has no shared message table", 0, "shared message")
    address = file.shared_table
    heaps = yield Shared(("shared message table", address), lambda: _read_table(file, address))
    heap = next((place for types, place in heaps if types >> kind & 1), None)
    if heap is None:
        file.fail(f"has no heap for messages of type {kind:#x}", address, "shared message table")
    return (yield from read_heap_objects(file, heap, ids))


def _read_table(file: FileContext, address: int) -> Walk[list[tuple[int, int]]]:
    """Return the message types (bits) and the heap of each index.

    III.G, "Shared Object Header Message Table".
    """
    width = file.offset_size
    size = 14 + 2 * width
    # The number of indexes stands in the superblock extension, next to the address; eight is the
    # most there can be.
    (data,) = yield [file.range_up_to(address, 4 + 8 * size + 4, 8, "shared message table")]
    if data[:4] != b"SMTB":
        file.fail("has no signature", address, "shared message table")
    count = file.shared_indexes
    verify_checksum(file, data[: 4 + count * size + 4], address, "shared message table")
    heaps = []
    for at in range(4, 4 + count * size, size):
        types = int.from_bytes(data[at + 2 : at + 4], "little")
        heaps.append((types, int.from_bytes(data[at + 14 + width : at + 14 + 2 * width], "little")))
    return heaps
