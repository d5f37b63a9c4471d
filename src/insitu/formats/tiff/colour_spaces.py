"""Colour spaces of TIFF: which images are shown as RGB though they are stored otherwise.

YCbCr, CMYK and CIE L*a*b* of eight bits become RGB, as in GDAL (through libtiff's RGBA interface)
and so in rasterio. Images that are stored band by band are shown as they are stored: their strips
cannot be combined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from insitu.errors import UnsupportedError
from insitu.formats.tiff.directory import Directory
from insitu.model import Codec

__all__ = ["SEPARATED", "TAGS", "YCBCR", "Colours", "colours_of"]

EXTRA_SAMPLES, INK_SET, WHITE_POINT = 338, 332, 318
COEFFICIENTS, SUBSAMPLING, REFERENCE = 529, 530, 532
TAGS = (EXTRA_SAMPLES, INK_SET, WHITE_POINT, COEFFICIENTS, SUBSAMPLING, REFERENCE)
SEPARATED, YCBCR, CIELAB = 5, 6, 8


@dataclass(frozen=True, slots=True)
class Colours:
    """How stored samples become bands."""

    bands: int
    codec: Codec | None = None
    subsampling: tuple[int, int] = (1, 1)
    """Pixels across and down that share their chroma in what is stored."""


def colours_of(tags: Directory, photometric: int, compression: str, bits: int, samples: int, planar: bool) -> Colours:
    """Return how the samples of a pixel become bands.

    Raises
    ------
    UnsupportedError
        If subsampled chroma is stored in a way that is not supported.
    """
    as_stored = Colours(samples)
    if photometric == YCBCR and compression != "jpeg":
        ratio = _floats(tags, SUBSAMPLING, 2) or [2.0, 2.0]
        across, down = int(ratio[0]), int(ratio[1])
        if planar or samples != 3 or bits != 8:
            if (across, down) == (1, 1):
                return as_stored
            raise UnsupportedError(
                f"subsampled chroma ({across} × {down} pixels) in {samples} samples of {bits} bits is not supported",
                url=tags.url, offset=tags.offset, structure="YCbCrSubSampling",
            )  # fmt: skip
        said: dict[str, Any] = {"subsampling": [across, down]}
        for name, tag, count in (("coefficients", COEFFICIENTS, 3), ("reference", REFERENCE, 6)):
            if values := _floats(tags, tag, count):
                said[name] = values
        return Colours(3, Codec("tiff_ycbcr", said), (across, down))
    if bits != 8 or planar:
        return as_stored
    if photometric == SEPARATED and samples >= 4 and tags.number(INK_SET, 1) == 1:
        return Colours(4, Codec("tiff_cmyk", {"samples": samples}))
    extra = tags.numbers(EXTRA_SAMPLES)
    if photometric == CIELAB and samples - (0 if extra is None else extra.size) == 3:
        white = _floats(tags, WHITE_POINT, 2)
        return Colours(4, Codec("tiff_cielab", {"samples": samples, **({"white": white} if white else {})}))
    return as_stored


def _floats(tags: Directory, tag: int, count: int) -> list[float]:
    values = tags.numbers(tag)
    return [] if values is None or values.size != count else [float(value) for value in values]
