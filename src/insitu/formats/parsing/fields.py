"""Bounds-checked reading of fixed-width fields from a structure that is in memory.

Every function raises `FormatError` if the structure ends before the field does. A parser that reads
its fields this way needs no `except IndexError`, so a defect of the parser is never reported as a
damaged file.
"""

from __future__ import annotations

import struct
from typing import Any

from insitu.errors import FormatError

__all__ = ["check_length", "take_bytes", "take_fields", "take_uint"]


def check_length(data: bytes, least: int, structure: str) -> None:
    """Raise `FormatError` if a structure is shorter than `least` bytes."""
    if len(data) < least:
        raise FormatError(
            f"the {structure} is cut off: it has {len(data)} bytes, at least {least} are needed", structure=structure
        )


def take_bytes(data: bytes, at: int, length: int, structure: str) -> bytes:
    """Return `length` bytes of a structure from offset `at`."""
    if at + length > len(data):
        check_length(data, at + length, structure)
    return data[at : at + length]


def take_fields(layout: str, data: bytes, at: int, structure: str) -> tuple[Any, ...]:
    r"""Return the fields at offset `at` of a structure, by a layout of the module `struct`.

    Examples
    --------
    >>> take_fields(">HB", b"\x00\x01\x02\x03", 1, "example")
    (258, 3)
    """
    end = at + struct.calcsize(layout)
    if end > len(data):
        check_length(data, end, structure)
    return struct.unpack_from(layout, data, at)


def take_uint(data: bytes, at: int, width: int, structure: str) -> int:
    r"""Return the little-endian unsigned integer of `width` bytes at offset `at` of a structure.

    Examples
    --------
    >>> take_uint(b"\x01\x02\x03", 1, 2, "example")
    770
    """
    if at + width > len(data):
        check_length(data, at + width, structure)
    return int.from_bytes(data[at : at + width], "little")
