"""Are colours, logarithms and odd samples shown as rasterio shows them, whatever their compression?

Modules: formats/tiff/codecs/ycbcr.py
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import rasterio
import tifffile

import insitu
from insitu.errors import CodecError, InsituError, UnsupportedError
from insitu.sources import MemorySource

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")


def _tiff(tags: dict[int, Any], strips: Sequence[bytes], *, tiled: bool = False) -> bytes:
    """A little-endian TIFF with these strips or tiles; numbers are SHORTs, pairs RATIONALs, texts
    as they are.
    """
    rows: list[tuple[int, int, int, bytes]] = []
    data = bytearray(struct.pack("<2sHI", b"II", 42, 0))
    places = []
    for strip in strips:
        places.append(len(data))
        data += strip + b"\0" * (len(strip) % 2)
    offsets, counts = (324, 325) if tiled else (273, 279)
    values: dict[int, Any] = {**tags, offsets: ("I", places), counts: ("I", [len(strip) for strip in strips])}
    for tag, value in sorted(values.items()):
        kind, numbers = value if isinstance(value, tuple) else ("H", [value])
        if kind == "R":
            packed = b"".join(struct.pack("<II", round(number * 10**6), 10**6) for number in numbers)
        else:
            packed = struct.pack(f"<{len(numbers)}{kind}", *numbers)
        rows.append((tag, {"H": 3, "I": 4, "R": 5}[kind], len(numbers), packed))
    place = bytearray()
    for tag, kind, count, packed in rows:
        if len(packed) > 4:
            packed, at = struct.pack("<I", len(data)), len(data)
            data += values_of(rows, tag)
            assert at % 2 == 0
        place += struct.pack("<HHI4s", tag, kind, count, packed.ljust(4, b"\0"))
    data[4:8] = struct.pack("<I", len(data))
    return bytes(data + struct.pack("<H", len(rows)) + place + struct.pack("<I", 0))


def values_of(rows: list[tuple[int, int, int, bytes]], tag: int) -> bytes:
    packed = next(row[3] for row in rows if row[0] == tag)
    return packed + b"\0" * (len(packed) % 2)


def _rasterio(data: bytes) -> np.ndarray[Any, Any]:
    with rasterio.MemoryFile(data) as memory, memory.open() as file:
        return file.read()


def _ours(data: bytes) -> np.ndarray[Any, Any]:
    source = MemorySource(data)
    return insitu.read(insitu.scan(source, decode=False), "band_data", decode=False)


def _noise(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).integers(0, 256, shape).astype("u1")


def _units(rows: int, columns: int, across: int, down: int) -> bytes:
    return _noise(-(-rows // down), -(-columns // across), across * down + 2).tobytes()


PACKED = {
    1: bytes,
    5: imagecodecs.lzw_encode,
    8: imagecodecs.zlib_encode,
    32773: imagecodecs.packbits_encode,
    50000: imagecodecs.zstd_encode,
}


@pytest.mark.parametrize("ratio", [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (1, 2)])
@pytest.mark.parametrize("compression", PACKED)
@pytest.mark.parametrize("reference", [None, (16, 235, 128, 240, 128, 240), (0, 255, 128, 255, 128, 255)])
def test_chroma_that_pixels_share(ratio: tuple[int, int], compression: int, reference: Any) -> None:
    across, down = ratio
    height, width, rows = 22, 37, 8
    tags: dict[int, Any] = {
        256: width, 257: height, 258: ("H", [8, 8, 8]), 259: compression, 262: 6, 277: 3, 278: rows,
        530: ("H", [across, down]),
    }  # fmt: skip
    if reference:
        tags |= {532: ("R", reference), 529: ("R", (0.2126, 0.7152, 0.0722))}
    strips = [
        PACKED[compression](_units(min(rows, height - first), width, across, down)) for first in range(0, height, rows)
    ]
    data = _tiff(tags, strips)
    expected = _rasterio(data)
    assert expected.shape == (3, height, width)
    np.testing.assert_array_equal(_ours(data), expected)


def test_chroma_of_tiles() -> None:
    tags = {
        256: 37, 257: 22, 258: ("H", [8, 8, 8]), 259: 5, 262: 6, 277: 3, 322: 16, 323: 16, 530: ("H", [2, 2]),
    }  # fmt: skip
    data = _tiff(tags, [imagecodecs.lzw_encode(_units(16, 16, 2, 2)) for _ in range(6)], tiled=True)
    np.testing.assert_array_equal(_ours(data), _rasterio(data))


@pytest.mark.parametrize("compression", [None, "lzw", "zlib", "packbits", "zstd", "lzma"])
@pytest.mark.parametrize("tile", [None, (32, 32)])
def test_ycbcr_becomes_red_green_and_blue(tmp_path: Path, compression: Any, tile: Any) -> None:
    how: dict[str, Any] = {"tile": tile} if tile else {"rowsperstrip": 16}
    tifffile.imwrite(tmp_path / "a.tif", _noise(50, 70, 3), photometric="ycbcr", compression=compression, **how)
    with rasterio.open(tmp_path / "a.tif") as file:
        np.testing.assert_array_equal(insitu.read(tmp_path / "a.tif", "band_data", decode=False), file.read())


@pytest.mark.parametrize(("photometric", "samples"), [("separated", 4), ("separated", 5), ("cielab", 3)])
@pytest.mark.parametrize("compression", [None, "lzw", "zlib"])
@pytest.mark.parametrize("dtype", ["u1", "u2"])
@pytest.mark.parametrize("planar", [True, False])
def test_cmyk_and_cie_lab_are_shown_as_stored(
    tmp_path: Path, photometric: str, samples: int, compression: Any, dtype: str, planar: bool
) -> None:
    """As tifffile shows them (GDAL makes RGB of eight bits, and shows sixteen bits as stored)."""
    values = _noise(50, 70, samples).astype(dtype) * (200 if dtype == "u2" else 1)
    stored = np.ascontiguousarray(np.moveaxis(values, -1, 0)) if planar else values
    tifffile.imwrite(
        tmp_path / "a.tif",
        stored,
        photometric=photometric,
        compression=compression,
        planarconfig="separate" if planar else "contig",
        rowsperstrip=16,
    )
    found = insitu.read(tmp_path / "a.tif", "band_data", decode=False)
    expected = tifffile.imread(tmp_path / "a.tif")
    np.testing.assert_array_equal(found, expected if planar else np.moveaxis(expected, -1, 0))
    assert found.shape == (samples, 50, 70)


def test_cmyk_in_jpeg_is_shown_as_stored(tmp_path: Path) -> None:
    values = np.full((32, 48, 4), (10, 60, 90, 30), "u1")
    tifffile.imwrite(tmp_path / "a.tif", values, photometric="separated", compression="jpeg")
    found = insitu.read(tmp_path / "a.tif", "band_data", decode=False)
    np.testing.assert_array_equal(found, np.moveaxis(tifffile.imread(tmp_path / "a.tif"), -1, 0))


def test_old_style_jpeg_that_is_a_file_of_its_own(tmp_path: Path) -> None:
    values = np.full((16, 24, 3), (200, 60, 90), "u1")
    strip = imagecodecs.jpeg8_encode(values, subsampling="422")
    tags = {256: 24, 257: 16, 258: ("H", [8] * 3), 259: 6, 262: 6, 277: 3, 278: 16, 513: ("I", [8]), 530: ("H", [2, 1])}
    (tmp_path / "a.tif").write_bytes(_tiff(tags, [strip]))
    np.testing.assert_array_equal(
        insitu.read(tmp_path / "a.tif", "band_data", decode=False),
        np.moveaxis(tifffile.imread(tmp_path / "a.tif"), -1, 0),
    )
    with pytest.raises(UnsupportedError, match="old-style JPEG"):
        _ours(_tiff({**tags, 513: ("I", [10])}, [strip]))


@pytest.mark.parametrize(("dtype", "bits"), [("uint8", 8), ("uint16", 16), ("float32", 32)])
def test_pixarlog(dtype: str, bits: int) -> None:
    values = (_noise(20, 30, 3) / (255 if dtype == "float32" else 1)).astype(dtype)
    tags = {256: 30, 257: 20, 258: ("H", [bits] * 3), 259: 32909, 262: 2, 277: 3, 278: 20}
    tags[339] = ("H", [3 if dtype == "float32" else 1] * 3)
    data = _tiff(tags, [imagecodecs.pixarlog_encode(values)])
    np.testing.assert_array_equal(_ours(data), _rasterio(data))


def test_integers_of_24_bits_have_no_sign_as_in_gdal() -> None:
    data = _tiff({256: 5, 257: 4, 258: 24, 259: 1, 262: 1, 277: 1, 278: 4, 339: 2}, [_noise(60).tobytes()])
    np.testing.assert_array_equal(_ours(data), _rasterio(data))


def test_tiles_that_end_with_the_image() -> None:
    values = _noise(7, 16)
    tags = {256: 16, 257: 7, 258: 8, 259: 32773, 262: 1, 277: 1, 322: 16, 323: 16}
    data = _tiff(tags, [imagecodecs.packbits_encode(values.tobytes())], tiled=True)
    np.testing.assert_array_equal(_ours(data)[0], values)
    short = _tiff(tags, [imagecodecs.packbits_encode(values[:6].tobytes())], tiled=True)
    with pytest.raises(CodecError):
        _ours(short)


@pytest.mark.parametrize(
    ("tags", "what"),
    [
        ({258: ("H", [12, 12, 12]), 262: 6, 277: 3, 530: ("H", [2, 2])}, "chroma"),
        ({258: ("H", [8, 8, 8]), 262: 6, 277: 3, 259: 5, 317: 2}, "predictor"),
        ({258: 8, 259: 34661, 262: 1, 277: 1}, "JBIG"),
        ({258: 4, 259: 32809, 262: 1, 277: 1}, r"ThunderScan \(number 32809\).*tiffcp"),
        ({258: 2, 259: 32766, 262: 1, 277: 1}, "NeXT.*tiffcp"),
        ({258: 16, 259: 34676, 262: 32844, 277: 1, 339: 2}, "SGI LogLuv.*tiffcp"),
    ],
)
def test_what_is_not_read_is_named(tags: dict[int, Any], what: str) -> None:
    with pytest.raises(UnsupportedError, match=what):
        _ours(_tiff({256: 4, 257: 4, 259: 1, 278: 4, **tags}, [bytes(200)]))


def test_damaged_codes_of_lzw_do_no_harm() -> None:
    tags = {256: 64, 257: 64, 258: ("H", [8] * 3), 259: 5, 262: 6, 277: 3, 278: 64}
    for seed in range(30):
        noise = np.random.default_rng(seed).integers(0, 256, 400).astype("u1").tobytes()
        try:
            found = _ours(_tiff(tags, [noise]))
        except InsituError:
            continue
        assert found.shape == (3, 64, 64)
