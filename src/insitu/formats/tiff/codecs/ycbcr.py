"""Codec of TIFF: YCbCr, whose pixels may share their chroma, to RGB.

It follows the rules and the arithmetic of libtiff's RGBA interface, so that the values are those
that GDAL and rasterio show: "TIFF Revision 6.0", sections 20 and 21.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.configuration import floats_field, integers_field
from insitu.errors import CodecError

__all__ = ["tiff_ycbcr"]

SHIFT = 16
HALF = 1 << (SHIFT - 1)
FAR = 128 * 32
"""Limit that libtiff sets to samples with an unusual reference."""


def tiff_ycbcr(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for YCbCr.

    Configuration: `subsampling` (pixels across and down that share their chroma), `coefficients`,
    and `reference` (black and white of each component).
    """
    subsampling = integers_field(configuration, "subsampling", (2, 2))
    rows, columns = _extents(form)
    if len(subsampling) != 2 or not set(subsampling) <= {1, 2, 4}:
        raise CodecError(f"chroma subsampling {subsampling} is not valid: two of 1, 2 and 4 are", codec="tiff_ycbcr")
    across, down = subsampling
    grid = -(-rows // down), -(-columns // across)
    size = across * down + 2
    tables = _chroma_tables(
        floats_field(configuration, "coefficients", (0.299, 0.587, 0.114)),
        floats_field(configuration, "reference", (0, 255, 128, 255, 128, 255)),
    )

    def run(data: Data, out: Octets | None) -> Data:
        units = as_octets(data).reshape(*grid, size)
        pixels = units[..., : size - 2].reshape(*grid, down, across).transpose(0, 2, 1, 3)
        light = tables[0][pixels.reshape(grid[0] * down, grid[1] * across)[:rows, :columns]]
        blue, red = (
            units[..., size - 2 + part].repeat(down, 0).repeat(across, 1)[:rows, :columns] for part in range(2)
        )
        room = np.empty(form.limit, np.uint8) if out is None else out
        target = room.reshape(rows, columns, 3)
        target[..., 0] = np.clip(light + tables[1][red], 0, 255)
        target[..., 1] = np.clip(light + ((tables[2][blue] + tables[3][red]) >> SHIFT), 0, 255)
        target[..., 2] = np.clip(light + tables[4][blue], 0, 255)
        return room

    return DecodeStep(
        "tiff_ycbcr", run, BufferSpec(grid[0] * grid[1] * size, True, np.dtype("u1"), (*grid, size)), fills=True
    )


def _chroma_tables(luma: Sequence[float], reference: Sequence[float]) -> list[NDArray[np.int64]]:
    """Return what each stored value adds.

    Light, red by Cr, green by Cb, green by Cr, blue by Cb.
    """
    if len(luma) != 3 or len(reference) != 6 or not np.isfinite([*luma, *reference]).all() or not np.float32(luma[1]):
        raise CodecError("the YCbCr coefficients or reference values are not valid", codec="tiff_ycbcr")
    red, green, blue = (np.float32(part) for part in luma)
    of_red, of_blue = np.float32(2) - np.float32(2) * red, np.float32(2) - np.float32(2) * blue
    d1, d3 = _to_fixed_point(of_red), _to_fixed_point(of_blue)
    d2, d4 = -_to_fixed_point(red * of_red / green), -_to_fixed_point(blue * of_blue / green)
    codes = np.arange(-128, 128)
    cr = _scale_codes(codes, reference[4] - 128, reference[5] - 128, 127)
    cb = _scale_codes(codes, reference[2] - 128, reference[3] - 128, 127)
    light = _scale_codes(codes + 128, reference[0], reference[1], 255)
    return [light, (d1 * cr + HALF) >> SHIFT, d4 * cb + HALF, d2 * cr, (d3 * cb + HALF) >> SHIFT]


def _to_fixed_point(number: np.float32) -> int:
    return int(float(np.clip(number, np.float32(0), np.float32(2))) * (1 << SHIFT) + 0.5)


def _scale_codes(codes: NDArray[Any], black: float, white: float, full: int) -> NDArray[np.int64]:
    """Return stored values between a black and a white, stretched to `full`, rounded towards zero."""
    span = np.float32(white) - np.float32(black)
    # As C has it: the difference to the truncated black is an integer, the rest is in single
    # precision.
    found = (codes - int(black)).astype(np.float32) * np.float32(full) / (span if span else np.float32(1))
    return np.asarray(np.clip(found, np.float32(-FAR), np.float32(FAR)), np.int64)


def _extents(form: BufferSpec) -> tuple[int, int]:
    """Return rows and columns of a chunk of RGB; axes of one element may stand before them."""
    shape = form.shape
    if shape is None or form.dtype != np.dtype("u1") or len(shape) < 3 or shape[-1] != 3 or math.prod(shape[:-3]) != 1:
        raise CodecError(f"colours cannot become {form.dtype} of shape {shape}", codec="tiff_ycbcr")
    return shape[-3], shape[-2]
