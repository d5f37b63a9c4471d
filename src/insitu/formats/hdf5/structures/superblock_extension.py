"""Reader of the superblock extension: B-tree sizes, shared messages, cache image, driver.

The extension is an object header: format specification 3.0, II.C.
"""

from __future__ import annotations

from insitu.formats.hdf5.structures.cache_image import read_cache_image
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.messages import BTREE_K, CACHE_IMAGE, DRIVER_INFO, SHARED_TABLE
from insitu.formats.hdf5.structures.object_header import read_object_header
from insitu.formats.hdf5.structures.superblock import SetDescription, check_not_set_member
from insitu.formats.parsing.scheduler import Walk

__all__ = ["read_extension"]


def read_extension(file: FileContext, address: int) -> Walk[None]:
    """Read the constants of the file that are not in the superblock (II.C)."""
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
            check_not_set_member(file, SetDescription(body[1:9], body[11:], 0))  # that it is long enough has been seen
