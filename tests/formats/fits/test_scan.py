"""Does a scan of FITS files find every image and column, and say how their numbers are packed?

Modules: formats/fits/codecs/integers.py, formats/fits/codecs/quantized.py, formats/fits/codecs/rice.py,
formats/fits/codecs/table_cells.py, formats/fits/header_units.py, formats/fits/image_arrays.py,
formats/fits/number_formats.py, formats/fits/wcs.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits
from astropy.wcs import WCS

import insitu
from damaged_bytes import count_refused, cut, flip_each, read_all
from insitu.errors import FormatError, UnsupportedError, VariableError
from insitu.formats.parsing.read_cache import LOCAL_HEAD, LOCAL_ROUND
from insitu.reading import ReadStatistics
from insitu.sources import CountingSource, MemorySource
from rounded_floats import assert_same_floats


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "i8", "f4", "f8", "i1", "u2", "u4", "u8"])
def test_every_type(tmp_path: Path, dtype: str) -> None:
    values = np.arange(60).reshape(3, 4, 5).astype(dtype)
    if dtype[0] == "u":
        values[0, 0, 0] = np.iinfo(dtype).max  # of eight bytes: no float could hold it
    fits.PrimaryHDU(values).writeto(tmp_path / "a.fits")
    group = insitu.scan(tmp_path / "a.fits", decode=False)
    array = group.arrays["PRIMARY"]
    assert (array.dims, array.dtype.newbyteorder("=")) == (("z", "y", "x"), values.dtype)
    np.testing.assert_array_equal(insitu.read(group, "PRIMARY", decode=False), values)
    np.testing.assert_array_equal(insitu.read(group, "PRIMARY", np.s_[1:, ::-2, 3], decode=False), values[1:, ::-2, 3])


def test_unsigned_images_are_cut_into_cells(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 2**16, (7, 900, 1000)).astype("u2")
    fits.PrimaryHDU(values).writeto(tmp_path / "a.fits")
    group = insitu.scan(tmp_path / "a.fits", decode=False)
    assert group.arrays["PRIMARY"].tiles[0].chunks.shape == (4, 1, 1)
    np.testing.assert_array_equal(insitu.read(group, "PRIMARY", decode=False), values)
    tally = ReadStatistics()
    insitu.read(group, "PRIMARY", np.s_[6, 5, 5], tally=tally, decode=False)
    assert tally.bytes_fetched <= 4 << 20


def test_a_pixel_of_a_plain_image_costs_its_bytes(tmp_path: Path) -> None:
    fits.PrimaryHDU(np.zeros((100, 100, 100), "f4")).writeto(tmp_path / "a.fits")
    tally = ReadStatistics()
    insitu.read(tmp_path / "a.fits", "PRIMARY", np.s_[50, 50, 10:20], tally=tally, decode=False)
    assert tally.bytes_fetched == 40


def test_scale_zero_and_blank_are_as_cf_has_them(tmp_path: Path) -> None:
    image = fits.PrimaryHDU(np.array([[1, 2, -99]], "i2"))
    image.header["BSCALE"], image.header["BZERO"], image.header["BLANK"] = 0.5, 10.0, -99
    image.writeto(tmp_path / "a.fits")
    with fits.open(tmp_path / "a.fits", mode="update", do_not_scale_image_data=True) as file:
        file[0].header["BSCALE"], file[0].header["BZERO"], file[0].header["BLANK"] = 0.5, 10.0, -99
    group = insitu.scan(tmp_path / "a.fits", decode=False)
    attributes = group.arrays["PRIMARY"].attributes
    assert (attributes["scale_factor"], attributes["add_offset"], attributes["_FillValue"]) == (0.5, 10.0, -99)
    stored = insitu.read(group, "PRIMARY", decode=False).astype(float)
    meant = np.where(stored == -99, np.nan, stored * 0.5 + 10)
    with fits.open(tmp_path / "a.fits") as file:
        np.testing.assert_allclose(meant, file[0].data)


def test_a_blank_of_unsigned_integers_is_one_of_them(tmp_path: Path) -> None:
    image = fits.PrimaryHDU(np.array([1, 2, 65535], "u2"))
    image.header["BLANK"] = 32767
    image.writeto(tmp_path / "a.fits")
    assert insitu.scan(tmp_path / "a.fits", decode=False).arrays["PRIMARY"].attributes["_FillValue"] == 65535


def test_several_units_share_dimensions_where_they_can(tmp_path: Path) -> None:
    units = [
        fits.PrimaryHDU(),
        fits.ImageHDU(np.ones((4, 5), "f4"), name="SCI"),
        fits.ImageHDU(np.full((4, 5), 2, "f4"), name="ERR"),
        fits.ImageHDU(np.full((3, 5), 3, "f4"), name="SCI", ver=2),
        fits.ImageHDU(np.full((2, 2), 4, "u1")),
    ]
    units[0].header["OBSERVER"] = "Hubble"
    fits.HDUList(units).writeto(tmp_path / "a.fits")
    group = insitu.scan(tmp_path / "a.fits", decode=False)
    assert {name: array.dims for name, array in group.arrays.items()} == {
        "SCI": ("y", "x"),
        "ERR": ("y", "x"),
        "SCI_2": ("y_SCI_2", "x"),
        "HDU4": ("y_HDU4", "x_HDU4"),
    }
    assert group.attributes["OBSERVER"] == "Hubble"
    assert [float(insitu.read(group, name, decode=False).mean()) for name in group.arrays] == [1, 2, 3, 4]
    assert list(insitu.scan(tmp_path / "a.fits", variables=["ERR"], decode=False).arrays) == ["ERR"]
    with pytest.raises(VariableError, match="SCI_2"):
        insitu.scan(tmp_path / "a.fits", variables=["FLUX"], decode=False)


def test_separable_world_coordinates(tmp_path: Path) -> None:
    wcs = WCS(naxis=3)
    wcs.wcs.ctype, wcs.wcs.cunit = ["FREQ", "STOKES", "VELO"], ["Hz", "", "m/s"]
    wcs.wcs.crval, wcs.wcs.cdelt, wcs.wcs.crpix = [1.4e9, 1.0, -2e4], [1e6, 1.0, 500.0], [1.0, 1.0, 3.5]
    fits.PrimaryHDU(np.zeros((6, 2, 8), "f4"), wcs.to_header()).writeto(tmp_path / "a.fits")
    group = insitu.scan(tmp_path / "a.fits", decode=False)
    with fits.open(tmp_path / "a.fits") as file:
        expected = WCS(file[0].header)
    for number, (name, length) in enumerate((("x", 8), ("y", 2), ("z", 6))):
        pixels = [np.zeros(length)] * 3
        pixels[number] = np.arange(length)
        np.testing.assert_allclose(insitu.read(group, name, decode=False), expected.wcs_pix2world(*pixels, 0)[number])
    assert group.arrays["x"].attributes == {"long_name": "FREQ", "units": "Hz"}


@pytest.mark.parametrize("change", [{"CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN"}, {"PC1_2": 0.5}, {"CROTA2": 10.0}])
def test_axes_that_depend_on_each_other_have_no_coordinates(tmp_path: Path, change: dict[str, Any]) -> None:
    image = fits.PrimaryHDU(np.zeros((4, 5), "f4"))
    for name, value in {"CRVAL1": 1.0, "CDELT1": 2.0, "CRVAL2": 1.0, "CDELT2": 2.0, **change}.items():
        image.header[name] = value
    image.writeto(tmp_path / "a.fits")
    group = insitu.scan(tmp_path / "a.fits", decode=False)
    assert list(group.arrays) == ["PRIMARY"]
    assert group.arrays["PRIMARY"].attributes["CRVAL1"] == 1.0


def test_headers_are_attributes(tmp_path: Path) -> None:
    image = fits.PrimaryHDU(np.zeros((2, 2), "u1"))
    image.header["OBJECT"] = "it's / quoted"
    image.header["LONGTEXT"] = "a very long text " * 10
    image.header["HIERARCH ESO DET CHIP1 NAME"] = "CCD"
    image.header["NOTHING"] = None
    image.header["FLAG"], image.header["COUNT"], image.header["GAIN"] = True, 7, 2.5e-3
    image.header["COMMENT"] = "first"
    image.header["COMMENT"] = "second"
    image.writeto(tmp_path / "a.fits")
    attributes = dict(insitu.scan(tmp_path / "a.fits", decode=False).arrays["PRIMARY"].attributes)
    comment = attributes.pop("COMMENT")
    assert comment.endswith("first\nsecond")
    assert attributes == {
        "OBJECT": "it's / quoted",
        "LONGTEXT": ("a very long text " * 10).strip(),
        "ESO DET CHIP1 NAME": "CCD",
        "FLAG": True,
        "COUNT": 7,
        "GAIN": 2.5e-3,
    }


def test_columns_of_tables(tmp_path: Path) -> None:
    rows = 5000
    columns = [
        fits.Column("NAME", "6A", array=[f"s{n}" for n in range(rows)]),
        fits.Column("FLUX", "E", unit="Jy", array=np.arange(rows, dtype="f4")),
        fits.Column("COUNT", "I", bzero=32768, array=np.arange(rows, dtype="u2")),
        fits.Column("SPECTRUM", "6D", dim="(2,3)", array=np.arange(6.0 * rows).reshape(rows, 3, 2)),
        fits.Column("SCALED", "J", array=np.arange(rows)),
    ]
    table = fits.BinTableHDU.from_columns(columns, name="CAT")
    table.header["TSCAL5"], table.header["TZERO5"] = 0.5, 3.0
    fits.HDUList([fits.PrimaryHDU(), table]).writeto(tmp_path / "a.fits")
    group = insitu.scan(tmp_path / "a.fits", decode=False)
    assert group.groups["CAT"].arrays["SPECTRUM"].dims == ("row", "SPECTRUM_0", "SPECTRUM_1")
    assert group.groups["CAT"].arrays["FLUX"].attributes == {"units": "Jy"}
    with fits.open(tmp_path / "a.fits") as file:
        data = file["CAT"].data
        for name in ("FLUX", "COUNT", "SPECTRUM"):
            np.testing.assert_array_equal(insitu.read(group, f"CAT/{name}", decode=False), data[name])
        assert insitu.read(group, "CAT/NAME", decode=False).tolist() == [text.encode() for text in data["NAME"]]
        scaled = group.groups["CAT"].arrays["SCALED"].attributes
        stored = insitu.read(group, "CAT/SCALED", decode=False)
        np.testing.assert_array_equal(stored * scaled["scale_factor"] + scaled["add_offset"], data["SCALED"])
    np.testing.assert_array_equal(insitu.read(group, "CAT/COUNT", np.s_[4990:], decode=False), np.arange(4990, 5000))


@pytest.mark.parametrize("method", ["RICE_1", "GZIP_1", "GZIP_2"])
@pytest.mark.parametrize("dtype", ["i2", "i4", "u2", "f4"])
def test_tile_compressed_images(tmp_path: Path, method: str, dtype: str) -> None:
    if dtype == "f4" and method == "RICE_1":
        pytest.skip("floats are rounded first")
    values = np.random.default_rng(0).integers(0, 900, (50, 70)).astype(dtype)
    how = {"quantize_level": 0} if dtype == "f4" else {}
    fits.HDUList(
        [fits.PrimaryHDU(), fits.CompImageHDU(values, compression_type=method, tile_shape=(16, 32), **how)]
    ).writeto(tmp_path / "a.fits")
    group = insitu.scan(tmp_path / "a.fits", decode=False)
    (name,) = group.arrays
    np.testing.assert_array_equal(insitu.read(group, name, decode=False), values)
    np.testing.assert_array_equal(insitu.read(group, name, np.s_[40:, ::3], decode=False), values[40:, ::3])


def test_what_is_not_read_is_refused_by_name(tmp_path: Path) -> None:
    groups = fits.GroupsHDU(
        fits.GroupData(np.ones((2, 1, 3, 4), "f4"), parnames=["A"], pardata=[np.ones(2)], bitpix=-32)
    )
    other = fits.ImageHDU(np.ones(3, "f4"), name="OTHER")
    fits.HDUList([groups, fits.ImageHDU(np.ones(3, "f4"), name="FINE"), other]).writeto(tmp_path / "a.fits")
    data = bytearray((tmp_path / "a.fits").read_bytes())
    place = data.rindex(b"XTENSION= 'IMAGE   '")
    data[place : place + 20] = b"XTENSION= 'FOREIGN '"
    (tmp_path / "a.fits").write_bytes(data)
    with pytest.raises(UnsupportedError):
        insitu.scan(tmp_path / "a.fits", decode=False)
    with pytest.warns(insitu.formats.InsituWarning):
        group = insitu.scan(tmp_path / "a.fits", errors="warn", decode=False)
    assert group.problems.keys() == {"PRIMARY", "OTHER"}
    assert "random groups" in group.problems["PRIMARY"]
    assert "FOREIGN" in group.problems["OTHER"]
    assert insitu.read(group, "FINE", decode=False).tolist() == [1, 1, 1]
    assert insitu.read(tmp_path / "a.fits", "FINE", decode=False).tolist() == [1, 1, 1]  # nobody asked for the others


def test_units_are_hopped_over(tmp_path: Path) -> None:
    images = [fits.ImageHDU(np.zeros((300, 400), "f4"), name=f"E{n}") for n in range(6)]
    fits.HDUList([fits.PrimaryHDU(), *images]).writeto(tmp_path / "a.fits")
    counted = CountingSource(MemorySource((tmp_path / "a.fits").read_bytes()))
    assert len(insitu.scan(counted, decode=False).arrays) == 6
    assert counted.batches <= 7
    assert counted.bytes <= LOCAL_HEAD + 6 * LOCAL_ROUND


def _sample(tmp_path: Path) -> bytes:
    units = [
        fits.PrimaryHDU(np.arange(12, dtype="i2").reshape(3, 4)),
        fits.ImageHDU(np.arange(6, dtype="u2"), name="U"),
        fits.BinTableHDU.from_columns([fits.Column("A", "J", array=np.arange(9))], name="T"),
        fits.CompImageHDU(np.arange(100, dtype="i4").reshape(10, 10), name="Z"),
    ]
    fits.HDUList(units).writeto(tmp_path / "sample.fits")
    return (tmp_path / "sample.fits").read_bytes()


def test_a_file_that_was_cut_off_is_refused_or_right(tmp_path: Path) -> None:
    data = _sample(tmp_path)
    whole = read_all(data)
    assert len(whole) == 4

    def check(data: bytes) -> None:
        for name, values in read_all(data).items():
            np.testing.assert_array_equal(values, whole[name])

    assert count_refused(cut(data, range(0, len(data), 97)), check)


def test_flipped_bytes_do_no_harm(tmp_path: Path) -> None:
    data = _sample(tmp_path)
    random = np.random.default_rng(2)
    places = random.integers(0, len(data), 200).tolist()
    assert count_refused(flip_each(data, places, (0x01, 0x80, 0xFF, 0x10)), read_all)


def test_errors_say_where(tmp_path: Path) -> None:
    data = _sample(tmp_path)
    with pytest.raises(FormatError, match="within a header"):
        insitu.scan(MemorySource(data[:2000].replace(b"END ", b"    ")), decode=False)
    with pytest.raises(FormatError, match="bytes of the image are missing") as caught:
        insitu.scan(MemorySource(data[:2890]), decode=False)
    assert caught.value.offset == 2890


@pytest.mark.parametrize("method", ["RICE_1", "GZIP_1", "GZIP_2"])
@pytest.mark.parametrize("quantize", [-1, 1, 2])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rounded_floats(tmp_path: Path, method: str, quantize: int, dtype: str) -> None:
    values = np.random.default_rng(3).normal(1000, 5, (90, 130)).astype(dtype)
    values[3, 4:9] = np.nan
    values[10:12] = 0
    values[20] = 7  # a constant row cannot be rounded: it is kept as it is
    how = {"compression_type": method, "quantize_method": quantize, "quantize_level": 16, "dither_seed": 77}
    for number, tile in enumerate([(1, 130), (32, 50)]):
        path = tmp_path / f"{number}.fits"
        fits.HDUList([fits.PrimaryHDU(), fits.CompImageHDU(values, tile_shape=tile, **how)]).writeto(path)
        with fits.open(path) as file:
            expected = file[1].data
            name = file[1].name
        found = insitu.read(path, name, decode=False)
        assert found.dtype.newbyteorder("=") == expected.dtype.newbyteorder("=")
        assert_same_floats(found.astype(expected.dtype), expected)
