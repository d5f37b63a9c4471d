"""Do scans and values of TIFFs made by others agree with rasterio and tifffile?

Each image, overview and page must equal what one of the two reads, or be refused by an error of ours. Where the two disagree the file is listed: GDAL turns CMYK
and CIELAB into RGB, upsamples the colours of JPEG without smoothing, and has no JPEG XL in its wheels.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import tifffile

import insitu
from insitu.errors import InsituError

ROOT = Path(__file__).parents[3] / "shared" / "corpus"
FILES = sorted(path for kind in ("tiff", "bigtiff") for path in (ROOT / kind).rglob("*") if path.is_file())
pytestmark = pytest.mark.skipif(not FILES, reason="the corpus is not here")

MOST_PIXELS = 100_000_000
REFUSED = {
    # compressions and pixels that are not read
    "next_literalspan.tif", "thunder.tif", "uint16_sgilog.tif", "logluv-3c-16b.tiff", "int24.tif", "uint33.tif", "int12_ycbcr_contig.tif",
    "ycbcr_12_lzw.tif", "ycbcr_22_lzw.tif", "ycbcr_41_lzw.tif", "ycbcr_42_lzw_optimized.tif", "ycbcr_44_lzw.tif", "ycbcr_44_lzw_optimized.tif",
    # damaged, or headers without their data
    "bigtiff_header_extract.tif", "huge-number-strips.tif", "strip_larger_than_2GB_header.tif", "corrupted_deflate_singlestrip.tif",
    "excessive-memory-TIFFFillStrip.tif", "lzw_corrupted.tif", "missing_tilebytecounts_and_offsets.tif", "huge4GB.tif",
    "irregular_tile_size_jpeg_in_tiff.tif", "many_blocks_truncated.tif", "scanline_more_than_2GB.tif", "tiff_dos_strip_chop.tif",
    "toomanyblocks_separate.tif", "zackthecat_corrupted.tif",
    # a tile that ends where the image does
    "contig_tiled.tif",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def _rasterio(path: Path, **options: Any) -> np.ndarray[Any, Any] | None:
    try:
        with rasterio.open(path, **options) as file:
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


def _equal(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any] | None) -> bool:
    """Whether the values are the same; GDAL widens float16, narrows complex integers, and tifffile shows bits as bool."""
    if theirs is None or ours.shape != theirs.shape:
        return False
    return np.array_equal(ours, theirs.astype(ours.dtype), equal_nan=ours.dtype.kind in "fc")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_values_agree(path: Path) -> None:
    try:
        group = insitu.scan(path, errors="warn")
        array = group.arrays.get("band_data")
        if array is None or array.size > MOST_PIXELS:
            assert array is not None or path.name in REFUSED
            return
        ours = insitu.read(group, "band_data")
    except InsituError:
        assert path.name in REFUSED
        return
    first = ours[0] if "page" in array.dims else ours
    expected, other = _rasterio(path), _tifffile(path, 0)
    assert expected is not None or other is not None
    assert _equal(first, expected) or _equal(first, other)
    if "page" in array.dims:
        for page in range(1, array.shape[0]):
            assert _equal(ours[page], _tifffile(path, page))
    for name, overview in group.groups.items():
        if "band_data" in overview.arrays:
            level = int(name.rpartition("_")[2])
            values = insitu.read(overview, "band_data")
            theirs = _rasterio(path, overview_level=level) if name.startswith("overview") else _tifffile(path, level)
            assert _equal(values, theirs), name


def test_few_are_refused() -> None:
    assert len(REFUSED) < 0.08 * len(FILES)
