"""Are images that were compressed tile by tile what astropy shows, whatever the method?"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits

import insitu
from damaged_bytes import count_refused, flip, read_all
from rounded_floats import assert_same_floats

METHODS = ["RICE_1", "GZIP_1", "GZIP_2", "PLIO_1", "HCOMPRESS_1", "NOCOMPRESS"]


def _image(dtype: str) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(3)
    values = np.cumsum(random.integers(0, 4, (50, 70)), axis=1) + np.arange(50)[:, None]
    return (values / 3 if dtype.startswith("f") else values).astype(dtype)


def _compared(path: Path, values: np.ndarray[Any, Any], **options: Any) -> None:
    unit = fits.CompImageHDU(values, name="C", **options)
    fits.HDUList([fits.PrimaryHDU(), unit]).writeto(path, overwrite=True)
    group = insitu.scan(path, decode=False)
    with fits.open(path) as file:
        expected = file["C"].data
        actual = insitu.read(group, "C", decode=False)
        assert actual.dtype.kind == expected.dtype.kind
        assert_same_floats(actual, expected)
        assert_same_floats(insitu.read(group, "C", np.s_[7:31:3, -5:], decode=False), expected[7:31:3, -5:])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32"])
@pytest.mark.parametrize("tile", [None, (16, 24)])
def test_integers(tmp_path: Path, method: str, dtype: str, tile: Any) -> None:
    if method == "PLIO_1" and dtype == "uint16":
        pytest.skip("astropy writes no PLIO of unsigned integers")
    if method == "HCOMPRESS_1":  # at least four pixels along each side
        tile = (25, 70) if tile is None else (25, 24)
    _compared(tmp_path / "a.fits", _image(dtype), compression_type=method, tile_shape=tile)


@pytest.mark.parametrize(
    ("method", "dither"), list(itertools.product(["RICE_1", "GZIP_1", "GZIP_2", "HCOMPRESS_1"], [-1, 1, 2]))
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounded_floats(tmp_path: Path, method: str, dither: int, dtype: str) -> None:
    values = _image(dtype) + np.random.default_rng(0).normal(0, 0.1, (50, 70)).astype(dtype)
    values[3, 5:9] = 0
    if method != "HCOMPRESS_1":
        values[9, 9] = np.nan
    options = {"quantize_method": dither, "dither_seed": 77, "quantize_level": 4, "tile_shape": (25, 35)}
    _compared(tmp_path / "a.fits", values, compression_type=method, **options)


@pytest.mark.parametrize("method", ["GZIP_1", "GZIP_2", "NOCOMPRESS"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_as_they_are(tmp_path: Path, method: str, dtype: str) -> None:
    values = _image(dtype)
    values[1, 1] = np.nan
    _compared(tmp_path / "a.fits", values, compression_type=method, quantize_level=0)


@pytest.mark.parametrize("options", [{"hcomp_scale": 2.0}, {"hcomp_scale": 3.0, "hcomp_smooth": 1}])
def test_h_compressed_with_losses(tmp_path: Path, options: dict[str, Any]) -> None:
    _compared(tmp_path / "a.fits", _image("int32"), compression_type="HCOMPRESS_1", tile_shape=(25, 35), **options)


def test_pixel_lists_of_a_mask(tmp_path: Path) -> None:
    """Runs, single pixels, steps up and down, and values above twelve bits."""
    random = np.random.default_rng(5)
    values = np.zeros((40, 300), "i4")
    for row in values[:35]:
        for start in random.integers(0, 299, 12):
            row[start : start + random.integers(1, 40)] = random.choice([1, 2, 3, 4000, 5000, 100000, 1000000])
    _compared(tmp_path / "a.fits", values, compression_type="PLIO_1", tile_shape=(1, 300))


@pytest.mark.parametrize("method", METHODS)
def test_flipped_bytes_do_no_harm(tmp_path: Path, method: str) -> None:
    unit = fits.CompImageHDU(_image("int16"), compression_type=method, tile_shape=(25, 35), name="C")
    fits.HDUList([fits.PrimaryHDU(), unit]).writeto(tmp_path / "a.fits")
    data = (tmp_path / "a.fits").read_bytes()
    random = np.random.default_rng(4)
    places = [*random.integers(2880, len(data), 60).tolist(), *range(len(data) - 2880, len(data) - 2700, 5)]
    assert count_refused(flip(data, places, (0x01, 0x80, 0xFF)), read_all)
