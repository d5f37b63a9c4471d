"""Virtual arrays of FITS images.

An image is one run of big-endian numbers, NAXIS1 fastest. Plain numbers are one cell, which the
reader cuts as it likes. Unsigned integers have a codec, so they are cut into cells of a few MiB
along the slowest axes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.fits.header_units import HeaderDataUnit
from insitu.formats.fits.number_formats import NumberFormat, number_format
from insitu.model import Axis, Columns, Encoding, Source, Tile, VirtualArray

__all__ = ["header_attributes", "image_of"]

TYPES = {8: "u1", 16: ">i2", 32: ">i4", 64: ">i8", -32: ">f4", -64: ">f8"}
CELL_BYTES = 4 << 20
STRUCTURE = {
    "SIMPLE", "XTENSION", "BITPIX", "NAXIS", "EXTEND", "PCOUNT", "GCOUNT", "GROUPS", "BSCALE", "BZERO", "BLANK", "END",
    "TFIELDS", "THEAP",
    "CHECKSUM", "DATASUM",
}  # fmt: skip
LARGEST = 2**62


def header_attributes(unit: HeaderDataUnit) -> dict[str, Any]:
    """Return the cards of a header that do not describe its structure as attributes.

    Comments and history as one text each.
    """
    found = {
        name: value
        for name, value in unit.cards.items()
        if value is not None and name not in STRUCTURE and not (name.startswith("NAXIS") and name[5:].isdecimal())
    }
    return {**found, **{name: "\n".join(lines) for name, lines in unit.notes.items()}}


def image_of(unit: HeaderDataUnit, source: Source, size: int, dims: tuple[str, ...]) -> VirtualArray:
    """Return the array of an image.

    Parameters
    ----------
    unit
        Its header.
    source, size
        The file, and its size.
    dims
        Names of the dimensions, the slowest first.
    """
    if unit.card("GROUPS") is True and unit.axes[:1] == (0,):
        raise UnsupportedError("FITS random groups are not supported", offset=unit.offset, structure="GROUPS")
    bits = unit.whole("BITPIX", least=-64, most=64)
    if bits not in TYPES:
        raise FormatError(f"BITPIX has the invalid value {bits}", offset=unit.offset, structure="BITPIX")
    stored = np.dtype(TYPES[bits])
    shape = unit.axes[::-1]
    nbytes = math.prod(shape) * stored.itemsize
    if unit.data + nbytes > size:
        raise FormatError(
            f"the file is truncated: {unit.data + nbytes - size} bytes of the image are missing",
            offset=size,
            structure="FITS data",
        )
    numbers = number_format(stored, *(unit.number_of(word) for word in ("BSCALE", "BZERO", "BLANK")))
    tile = _tile(numbers, shape, unit.data, source)
    return VirtualArray.of(tile, dims=dims, attributes={**header_attributes(unit), **numbers.attributes})


def _tile(numbers: NumberFormat, shape: tuple[int, ...], offset: int, source: Source) -> Tile:
    encoding = Encoding(numbers.dtype, numbers.codecs)
    cuts = _cell_shape(shape, numbers.dtype.itemsize) if numbers.codecs else shape
    axes = tuple(Axis.regular(length, max(cut, 1), padded=False) for length, cut in zip(shape, cuts, strict=True))
    grid = tuple(axis.count for axis in axes)
    if 0 in grid:
        return Tile(axes, (encoding,), Columns.of_unwritten(grid))
    place = np.full((1,) * len(grid), offset, np.int64)
    length = np.full((1,) * len(grid), numbers.dtype.itemsize, np.int64)
    stride = numbers.dtype.itemsize
    for number in reversed(range(len(shape))):
        along = tuple(-1 if i == number else 1 for i in range(len(shape)))
        cells = np.arange(grid[number], dtype=np.int64)
        place = place + (cells * cuts[number] * stride).reshape(along)
        length = length * np.minimum(shape[number] - cells * cuts[number], cuts[number]).reshape(along)
        stride *= shape[number]
    return Tile(axes, (encoding,), Columns(grid, (source,), np.asarray(0), place, length))


def _cell_shape(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the shape of the largest contiguous cells of at most a few MiB.

    Whole along fast axes, 1 along slow ones.
    """
    cuts = [1] * len(shape)
    room = max(CELL_BYTES // itemsize, 1)
    for number in reversed(range(len(shape))):
        cuts[number] = max(min(shape[number], room), 1)
        room //= max(shape[number], 1)
        if room < 1 or cuts[number] < shape[number]:
            break
    return tuple(cuts)
