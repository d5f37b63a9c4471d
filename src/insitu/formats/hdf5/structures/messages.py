"""Type numbers of object header messages.

Format specification 3.0, IV.A.2.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "ATTRIBUTE",
    "ATTRIBUTE_INFO",
    "BTREE_K",
    "CACHE_IMAGE",
    "CONTINUATION",
    "DATASPACE",
    "DATATYPE",
    "DRIVER_INFO",
    "EXTERNAL_FILES",
    "FILL",
    "FILL_OLD",
    "FILTERS",
    "GROUP_INFO",
    "LAST_KNOWN",
    "LAYOUT",
    "LINK",
    "LINK_INFO",
    "SHARED_TABLE",
    "SYMBOL_TABLE",
    "Message",
]

DATASPACE = 0x01  # IV.A.2.b
LINK_INFO = 0x02  # IV.A.2.c
DATATYPE = 0x03  # IV.A.2.d
FILL_OLD = 0x04  # IV.A.2.e
FILL = 0x05  # IV.A.2.f
LINK = 0x06  # IV.A.2.g
EXTERNAL_FILES = 0x07  # IV.A.2.h
LAYOUT = 0x08  # IV.A.2.i
GROUP_INFO = 0x0A  # IV.A.2.k
FILTERS = 0x0B  # IV.A.2.l
ATTRIBUTE = 0x0C  # IV.A.2.m
SHARED_TABLE = 0x0F  # IV.A.2.p
CONTINUATION = 0x10  # IV.A.2.q
SYMBOL_TABLE = 0x11  # IV.A.2.r
BTREE_K = 0x13  # IV.A.2.t
DRIVER_INFO = 0x14  # IV.A.2.u
ATTRIBUTE_INFO = 0x15  # IV.A.2.v
CACHE_IMAGE = 0x18  # H5O_MDCI: the metadata lies in an image of the library's cache
LAST_KNOWN = 0x18


class Message(NamedTuple):
    """One message of an object header."""

    kind: int
    """Its type number."""
    flags: int
    """Bit 1: the body says where a shared message lies. Bit 7: who does not know it must not use
    the object."""
    body: bytes
    """What it says."""
    order: int
    """Its creation index, where the header keeps that; else 0."""
    place: int = -1
    """The address of the body; -1: it was put together from elsewhere."""

    @property
    def shared(self) -> bool:
        """Whether the body is only a pointer to the message."""
        return bool(self.flags & 2)
