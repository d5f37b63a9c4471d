"""Parser of global heap collections, which hold the variable-length values of an HDF5 file.

Format specification 3.0, III.E: a header, then numbered objects, padded to eight bytes. Pure
functions from bytes to objects, used when data is read and for attributes.
"""

from __future__ import annotations

from importlib import import_module
from struct import Struct
from types import ModuleType

from insitu.errors import FormatError

__all__ = ["COLLECTION_GUESS", "HEADER_SIZE", "collection_size", "parse_collection"]

metadata: ModuleType | None
"""The C extension, which parses what is sound; None if it was not built."""
try:
    metadata = import_module("insitu.formats.hdf5.structures._metadata")
except ImportError:
    metadata = None

HEADER_SIZE = 16
"""Bytes of a collection's header, and of an object's, whatever the width of lengths: both are
padded to eight."""
COLLECTION_GUESS = 4096
"""Bytes of nearly every collection: the library's smallest, made larger only for a larger
object."""
_HEADERS = {2: Struct("<H6xH"), 4: Struct("<H6xI"), 8: Struct("<H6xQ")}
"""An object's number and size, by the width of lengths; between them lie its use count and four unused bytes."""


def collection_size(header: bytes, length_size: int = 8) -> int:
    """Return the length of a collection in bytes.

    Parameters
    ----------
    header
        Its first bytes, 16 at least.
    length_size
        Bytes of a length in this file.

    Examples
    --------
    >>> collection_size(b"GCOL" + bytes([1, 0, 0, 0]) + (4096).to_bytes(8, "little"))
    4096
    """
    if len(header) < HEADER_SIZE or header[:4] != b"GCOL" or header[4] != 1:
        raise FormatError("these bytes are not a global heap collection", structure="global heap collection")
    size = int.from_bytes(header[8 : 8 + length_size], "little")
    if size < HEADER_SIZE:
        raise FormatError(
            f"the global heap collection has an impossible size of {size} bytes", structure="global heap collection"
        )
    return size


def parse_collection(data: bytes, length_size: int = 8) -> dict[int, bytes]:
    """Return the objects of a collection by number.

    Parameters
    ----------
    data
        The whole collection.
    length_size
        Bytes of a length in this file.
    """
    end = collection_size(data, length_size)
    if len(data) < end:
        raise FormatError("the global heap collection is cut off", structure="global heap collection")
    found: dict[int, bytes] | None = None
    if metadata is not None:
        found = metadata.collection_objects(data if len(data) == end else data[:end], length_size)
    return _parse_objects(data, end, length_size) if found is None else found


def _parse_objects(data: bytes, end: int, length_size: int) -> dict[int, bytes]:
    """Return the objects of a collection, or say which is cut off."""
    objects: dict[int, bytes] = {}
    at = HEADER_SIZE
    read_header = (_HEADERS.get(length_size) or _HEADERS[8]).unpack_from
    while at + HEADER_SIZE <= end:
        number, size = read_header(data, at)
        if number == 0:  # the free space, which is last
            break
        begin = at + HEADER_SIZE
        if begin + size > end:
            raise FormatError(
                f"object {number} of the global heap collection is cut off", structure="global heap collection"
            )
        objects[number] = data[begin : begin + size]
        at = begin + (size + 7) // 8 * 8
    return objects
