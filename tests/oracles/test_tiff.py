"""Do scans and values of TIFFs made by others agree with rasterio and tifffile?

Each image, overview and page must equal what rasterio reads, or else (files in `AS_TIFFFILE`) what
tifffile reads, or be refused by an error of ours. Rasterio's wheels may lack JPEG XL, and may have
a libjpeg of the Independent JPEG Group, which magnifies the chroma of a JPEG otherwise than
libjpeg-turbo does, which nearly everybody else has.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import tifffile
from rasterio.windows import Window

import insitu
from insitu.errors import InsituError
from real_files import corpus_files, parameters

FILES = parameters("tiff", "bigtiff")

MOST_PIXELS = 100_000_000
REFUSED = {
    # samples that neither oracle reads
    "uint33.tif", "int12_ycbcr_contig.tif",
    # compressions of the last century
    "next_literalspan.tif", "thunder.tif", "uint16_sgilog.tif", "logluv-3c-16b.tiff",
    # damaged, or headers without their data
    "bigtiff_header_extract.tif", "huge-number-strips.tif", "strip_larger_than_2GB_header.tif",
    "corrupted_deflate_singlestrip.tif",
    "excessive-memory-TIFFFillStrip.tif", "lzw_corrupted.tif", "missing_tilebytecounts_and_offsets.tif", "huge4GB.tif",
    "irregular_tile_size_jpeg_in_tiff.tif", "many_blocks_truncated.tif", "scanline_more_than_2GB.tif",
    "tiff_dos_strip_chop.tif",
    "toomanyblocks_separate.tif", "zackthecat_corrupted.tif",
    # one strip of one byte at offset 0
    "minimum_tiff_tags_no_warning.tif",
}  # fmt: skip


AS_TIFFFILE = {
    # JPEG XL; pixels of a size that GDAL takes for damage
    "jxl-rgbi.tif", "rgbsmall_JXL.tif", "rgbsmall_JXL_separate.tif", "block_width_above_32bit.tif", "hugeblocksize.tif",
    # chroma of a JPEG magnified by libjpeg-turbo
    "rgbsmall_JPEG_ycbcr.tif", "w_jpeg.tiff", "quad-tile.jpg.tiff", "tiled-jpeg-ycbcr.tif",
    # CMYK and CIE L*a*b*, shown as stored
    "cielab.tif", "rgbsmall_cmyk.tif", "cmyk-3c-8b.tiff", "tiled-cmyk-i8.tif",
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("quiet")


def _rasterio(path: Path, window: Window | None = None, **options: Any) -> np.ndarray[Any, Any] | None:
    try:
        with rasterio.open(path, **options) as file:
            if window is not None:
                return file.read(window=window)
            if file.count * file.width * file.height > MOST_PIXELS:
                return None
            return file.read()
    except Exception:  # whatever the oracle raises on files that are damaged on purpose
        return None


def _tifffile(path: Path, page: int) -> np.ndarray[Any, Any] | None:
    with contextlib.suppress(Exception), tifffile.TiffFile(path) as file:
        found = file.pages[page]
        if found.size > MOST_PIXELS:
            return None
        values = found.asarray()
        height, width = found.imagelength, found.imagewidth
        if found.planarconfig == 1:
            return values.reshape(height, width, -1).transpose(2, 0, 1)
        return values.reshape(-1, height, width)
    return None


def _equal(actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any] | None) -> bool:
    """Whether the values are the same; GDAL widens float16, narrows complex integers, and tifffile
    shows bits as bool.
    """
    if expected is None or actual.shape != expected.shape:
        return False
    return np.array_equal(actual, expected.astype(actual.dtype), equal_nan=actual.dtype.kind in "fc")


def _corners_agree(path: Path, group: Any) -> None:
    """Of an image that is too large to be read whole."""
    height, width = group.arrays["band_data"].shape[-2:]
    for row, column in ((0, 0), (height // 2, width // 2), (max(height - 90, 0), max(width - 70, 0))):
        rows, columns = min(90, height - row), min(70, width - column)
        actual = insitu.read(
            group, "band_data", (..., slice(row, row + rows), slice(column, column + columns)), decode=False
        )
        assert _equal(actual, _rasterio(path, Window(column, row, columns, rows)))


@pytest.mark.parametrize("path", FILES)
def test_values_agree(path: Path) -> None:
    try:
        group = insitu.scan(path, errors="warn", decode=False)
        array = group.arrays.get("band_data")
        if array is None:
            assert path.name in REFUSED
            return
        if array.size > MOST_PIXELS:
            _corners_agree(path, group)
            return
        actual = insitu.read(group, "band_data", decode=False)
    except InsituError:
        assert path.name in REFUSED
        return
    first = actual[0] if "page" in array.dims else actual
    if not _equal(first, _rasterio(path)):
        assert path.name in AS_TIFFFILE
        assert _equal(first, _tifffile(path, 0))
    if "page" in array.dims:
        for page in range(1, array.shape[0]):
            assert _equal(actual[page], _tifffile(path, page))
    for name, overview in group.groups.items():
        if "band_data" in overview.arrays:
            level = int(name.rpartition("_")[2])
            values = insitu.read(overview, "band_data", decode=False)
            expected = _rasterio(path, overview_level=level) if name.startswith("overview") else _tifffile(path, level)
            assert _equal(values, expected), name


def test_few_are_refused(corpus: Path) -> None:
    assert len(REFUSED) < 0.06 * len(corpus_files("tiff", "bigtiff"))
