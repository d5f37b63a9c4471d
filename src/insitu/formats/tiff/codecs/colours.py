"""Codecs that turn the colours of a TIFF into RGB: YCbCr, CMYK and CIE L*a*b*.

They follow the rules and the arithmetic of libtiff's RGBA interface, so that the values are those
that GDAL and rasterio show: "TIFF Revision 6.0", sections 16, 20, 21 and 23.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.errors import CodecError

__all__ = ["tiff_cielab", "tiff_cmyk", "tiff_ycbcr"]

SHIFT = 16
HALF = 1 << (SHIFT - 1)
FAR = 128 * 32
"""Limit that libtiff sets to samples with an unusual reference."""

XYZ_TO_RGB = ((3.2410, -1.5374, -0.4986), (-0.9692, 1.8760, 0.0416), (0.0556, -0.2040, 1.0570))
D50 = 96.4250 / (96.4250 + 100.0 + 82.4680), 100.0 / (96.4250 + 100.0 + 82.4680)
STEPS, GAMMA, BRIGHTEST, DARKEST = 1500, 2.4, 100.0, 1.0
"""Parameters of libtiff's display: sRGB, by a table of so many steps."""


def tiff_ycbcr(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for YCbCr.

    Configuration: `subsampling` (pixels across and down that share their chroma), `coefficients`,
    and `reference` (black and white of each component).
    """
    across, down = (int(number) for number in configuration.get("subsampling", (2, 2)))
    rows, columns = _extents("tiff_ycbcr", form, 3)
    if not {across, down} <= {1, 2, 4}:
        raise CodecError(f"chroma subsampling {across} × {down} is not valid: 1, 2 and 4 are", codec="tiff_ycbcr")
    grid = -(-rows // down), -(-columns // across)
    size = across * down + 2
    tables = _chroma_tables(
        tuple(configuration.get("coefficients") or (0.299, 0.587, 0.114)),
        tuple(configuration.get("reference") or (0, 255, 128, 255, 128, 255)),
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
    red, green, blue = (np.float32(part) for part in luma)
    if len(reference) != 6 or not green:
        raise CodecError("the YCbCr coefficients or reference values are not valid", codec="tiff_ycbcr")
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


def tiff_cmyk(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for four inks, and perhaps others behind them (`samples` in all), as red, green, blue
    and an opaque alpha.
    """
    samples = int(configuration.get("samples", 4))
    if samples < 4:
        raise CodecError(f"CMYK needs 4 inks, not {samples}", codec="tiff_cmyk")

    def paint(stored: NDArray[Any]) -> NDArray[Any]:
        light = 255 - stored[..., :4].astype(np.int32)
        return np.asarray(light[..., :3] * light[..., 3:] // 255)

    return _to_opaque_rgb("tiff_cmyk", form, samples, paint)


def tiff_cielab(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for CIE L*a*b* by a `white` point, as red, green, blue and an opaque alpha.

    Samples behind the three are left out.
    """
    x, y = (np.float32(part) for part in configuration.get("white") or D50)
    if not y:
        raise CodecError("the CIE L*a*b* white point is not valid", codec="tiff_cielab")
    white = [x / y * np.float32(100), np.float32(100), (np.float32(1) - x - y) / y * np.float32(100)]
    steps = np.arange(STEPS + 1)
    bright = (np.float32(255) * ((steps / STEPS) ** (1 / GAMMA)).astype(np.float32)).astype(np.float32)
    table = np.floor(bright + np.float32(0.5)).astype(np.int32)
    step = np.float32((BRIGHTEST - DARKEST) / STEPS)

    def paint(stored: NDArray[Any]) -> NDArray[Any]:
        one = np.float32
        light = (stored[..., 0].astype(np.int32) * 257).astype(one) * one(100) / one(65535)
        a, b = (stored[..., part].view(np.int8).astype(one) for part in (1, 2))
        dark = light < one(8.856)
        low, high = light * white[1] / one(903.292), (light + one(16)) / one(116)
        cube = np.where(dark, one(7.787) * (low / white[1]) + one(16.0) / one(116), high)
        found = [np.where(dark, low, white[1] * high * high * high)] * 3
        for part, shifted in ((0, a / one(500) + cube), (2, cube - b / one(200))):
            small = white[part] * (shifted - one(0.13793)) / one(7.787)
            found[part] = np.where(shifted < one(0.2069), small, white[part] * shifted * shifted * shifted)
        rows = [sum(one(factor) * part for factor, part in zip(row, found, strict=True)) for row in XYZ_TO_RGB]
        linear = np.clip(np.stack(rows, axis=-1), one(DARKEST), one(BRIGHTEST))
        places = np.minimum(((linear - one(DARKEST)) / step).astype(np.int64), STEPS)
        return np.asarray(table[places])

    return _to_opaque_rgb("tiff_cielab", form, int(configuration.get("samples", 3)), paint)


def _to_opaque_rgb(
    name: str, form: BufferSpec, samples: int, paint: Callable[[NDArray[Any]], NDArray[Any]]
) -> DecodeStep:
    rows, columns = _extents(name, form, 4)

    def run(data: Data, out: Octets | None) -> Data:
        room = np.empty(form.limit, np.uint8) if out is None else out
        target = room.reshape(rows, columns, 4)
        target[..., :3] = paint(as_octets(data).reshape(rows, columns, samples))
        target[..., 3] = 255
        return room

    return DecodeStep(name, run, BufferSpec.array(np.dtype("u1"), (rows, columns, samples)), fills=True)


def _extents(name: str, form: BufferSpec, bands: int) -> tuple[int, int]:
    """Return rows and columns of a chunk of colours; axes of one element may stand before them."""
    shape = form.shape
    if (
        shape is None
        or form.dtype != np.dtype("u1")
        or len(shape) < 3
        or shape[-1] != bands
        or math.prod(shape[:-3]) != 1
    ):
        raise CodecError(f"colours cannot become {form.dtype} of shape {shape}", codec=name)
    return shape[-3], shape[-2]
