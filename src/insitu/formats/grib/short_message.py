"""Short GRIB messages with the headers of a field and a constant field as data.

ecCodes reads keys and grids from them as from the real message, whose data need not be fetched.
"""

from __future__ import annotations

import struct

from insitu.formats.grib.sections import GribField

__all__ = ["short_message"]

SPECTRAL = (50, 60, 70, 80)
"""GRIB 1: spherical harmonics; the flags of the data must agree."""
_END = b"\0\0\0\6\6\xff" + b"\0\0\0\5\7" + b"7777"


def short_message(field: GribField) -> bytes:
    """Return the short message of a field."""
    return _edition2(field) if field.edition == 2 else _edition1(field)


def _edition2(field: GribField) -> bytes:
    # Section 5, template 0: as many values as points, of no bits each.
    packing = struct.pack(">IB4sHfHHBB", 21, 5, field.grid[6:10], 0, 0.0, 0, 0, 0, 0)
    body = b"".join((field.identification, field.local, field.grid, field.product, packing, _END))
    return b"GRIB\xff\xff" + bytes((field.discipline, 2)) + (16 + len(body)).to_bytes(8, "big") + body


def _edition1(field: GribField) -> bytes:
    product = bytearray(field.identification)
    product[7] &= 0xBF  # no bitmap
    spectral = len(field.grid) > 5 and field.grid[5] in SPECTRAL
    data = b"\0\0\x12\xc0" + bytes(14) if spectral else b"\0\0\x0c" + bytes(9)
    body = bytes(product) + field.grid + data + b"7777"
    return b"GRIB" + (8 + len(body)).to_bytes(3, "big") + b"\1" + body
