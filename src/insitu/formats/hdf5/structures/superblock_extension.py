"""Reader of the superblock extension: B-tree sizes, shared messages, cache image, driver.

The extension is an object header: format specification 3.0, II.C. A metadata cache image: a file
may be closed with the library's metadata cache written as one block (H5AC, "MDCI") instead of to
the addresses of its entries. The entries are laid over the bytes of the file, so that every parser
sees what the cache held.
"""

from __future__ import annotations

from insitu.formats.hdf5.structures.checksum import verify_checksum
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.messages import BTREE_K, CACHE_IMAGE, DRIVER_INFO, SHARED_TABLE
from insitu.formats.hdf5.structures.object_header import read_object_header
from insitu.formats.parsing.fields import check_length
from insitu.formats.parsing.scheduler import Overlay, Walk

__all__ = ["read_cache_image", "read_extension"]

ENTRY_SIZE = 14  # type, flags, ring, age, three counts of two bytes, rank
GLOBAL_HEAP = b"GCOL"


def read_extension(file: FileContext, address: int) -> Walk[bytes]:
    """Read the constants of the file that are not in the superblock (II.C).

    Return the name of the driver that wrote the file; nothing: an ordinary one.
    """
    driver = b""
    messages = yield from read_object_header(file, address)
    for message in messages:
        body = message.body
        if message.kind == BTREE_K and len(body) >= 7:
            file.chunk_node_k, file.group_node_k, file.group_leaf_k = (
                int.from_bytes(body[at : at + 2], "little") for at in (1, 3, 5)
            )
            if not (file.chunk_node_k and file.group_node_k and file.group_leaf_k):
                file.fail("has B-tree nodes without room for children", address, "superblock extension")
        elif message.kind == SHARED_TABLE and len(body) >= 2 + file.offset_size:
            file.shared_table = int.from_bytes(body[1 : 1 + file.offset_size], "little")
            file.shared_indexes = min(body[1 + file.offset_size], 8)
        elif message.kind == CACHE_IMAGE:
            yield from read_cache_image(file, body)
        elif message.kind == DRIVER_INFO:
            check_length(body, 9, "driver info message")
            driver = body[1:9]
    return driver


def read_cache_image(file: FileContext, body: bytes) -> Walk[None]:
    """Read the cache image that a message of the superblock extension names."""
    width, long = file.offset_size, file.length_size
    check_length(body, 1 + width + long, "cache image message")
    address = int.from_bytes(body[1 : 1 + width], "little")
    size = int.from_bytes(body[1 + width : 1 + width + long], "little")
    if body[0] != 0:
        file.fail(f"has an unknown version ({body[0]})", address, "cache image")
    if address == file.undefined or not size:
        return
    (data,) = yield [file.range(address, size, "cache image")]
    if data[:4] != b"MDCI" or data[4] != 0:
        file.fail("has no signature, or an unknown version", address, "cache image")
    verify_checksum(file, data, address, "cache image")
    count = int.from_bytes(data[6 + long : 10 + long], "little")
    at = 10 + long
    patches: list[tuple[int, bytes]] = []
    for _ in range(count):
        begin = at + ENTRY_SIZE + width + long
        if begin > len(data) - 4:
            file.fail("is cut off", address, "cache image")
        parents = int.from_bytes(data[at + 8 : at + 10], "little")
        place = int.from_bytes(data[at + ENTRY_SIZE : at + ENTRY_SIZE + width], "little")
        length = int.from_bytes(data[at + ENTRY_SIZE + width : begin], "little")
        begin += parents * width
        at = begin + length
        if at > len(data) - 4:
            file.fail("is cut off", address, "cache image")
        entry = data[begin:at]
        offset, _ = file.range(place, length, "entry of the cache image")
        if entry[:4] == GLOBAL_HEAP:
            file.has_heaps_in_cache_image = True
        patches.append((offset, entry))
    yield Overlay(patches)
