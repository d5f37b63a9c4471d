"""Short GRIB messages with the headers of a field and a constant field as data.

ecCodes reads keys and grids from them as from the real message, whose data need not be fetched.
"""

from __future__ import annotations

import struct

from insitu.formats.grib.sections import GribField

__all__ = ["resize_grid", "short_message", "shrink_grid"]

SPECTRAL = (50, 60, 70, 80)
"""GRIB 1: spherical harmonics; the flags of the data must agree."""
HEALPIX = 150
"""GRIB 2: the grid has a number of points along the side of each of its twelve squares."""
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


def resize_grid(field: GribField, rows: int, columns: int, *, plain: bool = False) -> GribField:
    """Return a field on a grid of other numbers of rows and columns, but else the same.

    Grids of rows and columns have these numbers at the same place in all templates. `plain`: of rows at equal
    distances, not Gaussian ones.
    """
    grid = bytearray(field.grid)
    if field.edition == 2:
        grid[6:10] = struct.pack(">I", rows * columns)
        grid[30:38] = struct.pack(">II", columns, rows)
        if plain:
            grid[12:14] = bytes(2)
    else:
        grid[6:10] = struct.pack(">HH", columns, rows)
        if plain:
            grid[5] = 0
    return field._replace(grid=bytes(grid))


def shrink_grid(field: GribField) -> GribField:
    """Return a field on a grid of few points, but else the same: can ecCodes compute such a grid?"""
    grid = field.grid
    if field.edition == 2 and int.from_bytes(grid[12:14], "big") == HEALPIX:
        return field._replace(grid=grid[:6] + struct.pack(">I", 48) + grid[10:31] + struct.pack(">I", 2) + grid[35:])
    return resize_grid(field, 2, 2)
