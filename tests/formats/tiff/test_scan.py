"""Does a scan of TIFFs find every strip and tile, whatever the layout, the compression and the
predictor?

Modules: formats/tiff/citations.py, formats/tiff/codecs/strips.py, formats/tiff/directory.py,
formats/tiff/georeferencing.py, formats/tiff/metadata.py, formats/tiff/strips_and_tiles.py, formats/tiff/units.py,
formats/tiff/wkt.py, scanning/band_packing.py
"""

from __future__ import annotations

import itertools
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import rasterio.shutil
import rioxarray  # noqa: F401  (registers the engine)
import tifffile
import xarray
from affine import Affine
from rasterio.control import GroundControlPoint
from rasterio.enums import Resampling

import insitu
from damaged_bytes import count_refused, cut, flip_each, read_all
from insitu.errors import FormatError, UnsupportedError, VariableError
from insitu.model import Unwritten
from insitu.reading import ReadStatistics
from insitu.sources import CountingSource, MemorySource

# Of rasterio and rioxarray, which are only asked here.
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning", "ignore::DeprecationWarning")
PLACE = {"crs": "EPSG:32633", "transform": Affine(10.0, 0.0, 300000.0, 0.0, -20.0, 5000040.0)}


def _pixels(bands: int, height: int, width: int, dtype: str) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(1)
    values = np.cumsum(random.integers(0, 3, (bands, height, width)), axis=2) + np.arange(height)[None, :, None]
    return (values / 4 if dtype.startswith("f") else values % 100).astype(dtype)


def _write(path: Path, values: np.ndarray[Any, Any], **options: Any) -> None:
    bands, height, width = values.shape
    profile = {"driver": "GTiff", "count": bands, "height": height, "width": width, "dtype": values.dtype, **PLACE}
    with rasterio.open(path, "w", **{**profile, **options}) as file:
        file.write(values)


LAYOUTS = {
    "strips": {},
    "one row a strip": {"blockysize": 1},
    "tall strips": {"blockysize": 64},
    "tiles": {"tiled": True, "blockxsize": 32, "blockysize": 16},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("interleave", ["pixel", "band"])
@pytest.mark.parametrize("compress", ["none", "deflate", "lzw", "zstd", "packbits", "lzma", "lerc"])
def test_layouts_and_compressions(tmp_path: Path, layout: str, interleave: str, compress: str) -> None:
    values = _pixels(3, 75, 101, "int16" if compress != "lerc" else "float32")
    _write(tmp_path / "a.tif", values, **LAYOUTS[layout], interleave=interleave, compress=compress)
    group = insitu.scan(tmp_path / "a.tif", decode=False)
    assert group.arrays["band_data"].dims == ("band", "y", "x")
    np.testing.assert_array_equal(insitu.read(group, "band_data", decode=False), values)
    for selection in (np.s_[1], np.s_[:, 20:41:3, ::-7], np.s_[2, -1, 3:9], np.s_[::-1, [5, 70, 6], 50]):
        np.testing.assert_array_equal(insitu.read(group, "band_data", selection, decode=False), values[selection])


@pytest.mark.parametrize("endianness", ["little", "big"])
@pytest.mark.parametrize(
    ("dtype", "predictor"),
    [
        *itertools.product(["uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"], [1, 2]),
        *itertools.product(["float32", "float64"], [1, 2, 3]),
        ("complex64", 1),
        ("complex64", 2),
        ("complex128", 1),
        ("int8", 1),
    ],
)
def test_types_and_predictors(tmp_path: Path, dtype: str, predictor: int, endianness: str) -> None:
    values = _pixels(2, 33, 47, dtype)
    how = {"tiled": True, "blockxsize": 16, "blockysize": 16, "endianness": endianness}
    _write(tmp_path / "a.tif", values, compress="deflate", predictor=predictor, **how)
    if (dtype, predictor, endianness) == ("complex64", 2, "big"):
        with pytest.raises(UnsupportedError, match="predictor 2"):
            insitu.read(tmp_path / "a.tif", "band_data", decode=False)
        return
    found = insitu.read(tmp_path / "a.tif", "band_data", decode=False)
    assert found.dtype.newbyteorder("=") == values.dtype
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("nbits", [1, 2, 4, 7, 10, 12, 17])
@pytest.mark.parametrize("compress", ["none", "deflate"])
def test_odd_numbers_of_bits(tmp_path: Path, nbits: int, compress: str) -> None:
    dtype = "uint8" if nbits < 8 else "uint16" if nbits < 16 else "uint32"
    values = np.random.default_rng(0).integers(0, 2**nbits, (2, 21, 35)).astype(dtype)
    _write(tmp_path / "a.tif", values, nbits=nbits, compress=compress, blockysize=8)
    np.testing.assert_array_equal(insitu.read(tmp_path / "a.tif", "band_data", decode=False), values)


@pytest.mark.parametrize("compress", ["jpeg", "webp"])
def test_lossy_images_are_as_gdal_decodes_them(tmp_path: Path, compress: str) -> None:
    values = _pixels(3, 64, 96, "uint8")
    _write(tmp_path / "a.tif", values, tiled=True, blockxsize=32, blockysize=32, compress=compress, interleave="pixel")
    with rasterio.open(tmp_path / "a.tif") as file:
        np.testing.assert_array_equal(insitu.read(tmp_path / "a.tif", "band_data", decode=False), file.read())


@pytest.mark.parametrize("dtype", ["int16", "uint32", "float32", "float64"])
@pytest.mark.parametrize("compress", ["lerc", "lerc_zstd"])
def test_lerc_in_big_endian_files(tmp_path: Path, dtype: str, compress: str) -> None:
    """GDAL swaps the bytes before it encodes them."""
    values = _pixels(2, 33, 47, dtype)
    _write(tmp_path / "a.tif", values, compress=compress, endianness="big", tiled=True, blockxsize=16, blockysize=16)
    np.testing.assert_array_equal(insitu.read(tmp_path / "a.tif", "band_data", decode=False), values)


@pytest.mark.parametrize("photometric", ["minisblack", "miniswhite", "rgb"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_three_bands_in_jpeg_that_are_no_colours(tmp_path: Path, photometric: str, dtype: str) -> None:
    values = _pixels(3, 40, 50, dtype)
    _write(tmp_path / "a.tif", values, compress="jpeg", interleave="pixel", photometric=photometric)
    with rasterio.open(tmp_path / "a.tif") as file:
        np.testing.assert_array_equal(insitu.read(tmp_path / "a.tif", "band_data", decode=False), file.read())


DTYPES = ("uint8", "int16", "float32")


def test_files_that_are_alike_are_not_taken_for_each_other(tmp_path: Path) -> None:
    """What was made of one file's tags is used for the next: each must get its own values,
    attributes and place.
    """
    for number in range(12):
        values = _pixels(1 + number % 2, 40, 50, DTYPES[number % 3]) + number
        where = {"crs": f"EPSG:{32633 + number % 2}", "transform": Affine(10.0, 0.0, 3e5 + number, 0.0, -20.0, 5e6)}
        nodata = {"nodata": number} if number % 4 == 3 else {}
        path = tmp_path / f"{number}.tif"
        _write(path, values.astype(DTYPES[number % 3]), compress="deflate", blockysize=8, **where, **nodata)
        group = insitu.scan(path, decode=False)
        with rasterio.open(path) as file:
            np.testing.assert_array_equal(insitu.read(group, "band_data", decode=False), file.read())
            assert insitu.read(group, "x", decode=False)[0] == 3e5 + number + 5
            assert f'"{32633 + number % 2}"' in group.arrays["spatial_ref"].attributes["crs_wkt"]
            assert group.arrays["band_data"].attributes.get("_FillValue") == file.nodata


@pytest.mark.parametrize("bigtiff", ["yes", "no"])
def test_both_offset_sizes(tmp_path: Path, bigtiff: str) -> None:
    values = _pixels(1, 300, 40, "uint8")
    _write(tmp_path / "a.tif", values, bigtiff=bigtiff, blockysize=1, compress="deflate")
    np.testing.assert_array_equal(insitu.read(tmp_path / "a.tif", "band_data", decode=False), values)


def test_uncompressed_strips_in_a_row_are_one_cell(tmp_path: Path) -> None:
    values = _pixels(1, 200, 150, "uint16")
    _write(tmp_path / "a.tif", values, blockysize=1)
    group = insitu.scan(tmp_path / "a.tif", decode=False)
    assert group.arrays["band_data"].tiles[0].chunks.shape == (1, 1, 1)
    tally = ReadStatistics()
    np.testing.assert_array_equal(
        insitu.read(group, "band_data", np.s_[0, 7, 20:30], tally=tally, decode=False), values[0, 7, 20:30]
    )
    assert tally.bytes_fetched == 20


def test_sparse_tiles_hold_nodata(tmp_path: Path) -> None:
    how = {"tiled": True, "blockxsize": 16, "blockysize": 16, "sparse_ok": True, "compress": "deflate", "nodata": -7}
    with rasterio.open(
        tmp_path / "a.tif", "w", driver="GTiff", count=1, height=64, width=64, dtype="int16", **how, **PLACE
    ) as file:
        file.write(np.ones((16, 16), "int16"), 1, window=rasterio.windows.Window(16, 32, 16, 16))
    group = insitu.scan(tmp_path / "a.tif", decode=False)
    array = group.arrays["band_data"]
    assert isinstance(array.tiles[0].chunks[0, 0, 0], Unwritten)
    assert array.attributes["_FillValue"] == -7
    with rasterio.open(tmp_path / "a.tif") as file:
        np.testing.assert_array_equal(insitu.read(group, "band_data", decode=False), file.read())


def _cog(path: Path, **options: Any) -> np.ndarray[Any, Any]:
    values = _pixels(2, 700, 900, "uint16")
    profile = {"count": 2, "height": 700, "width": 900, "dtype": "uint16", **PLACE}
    with rasterio.MemoryFile() as memory:
        with memory.open(driver="GTiff", **profile) as file:
            file.write(values)
        with memory.open() as file:
            rasterio.shutil.copy(
                file, path, driver="COG", blocksize=128, compress="deflate", overviews="auto", **options
            )
    return values


def test_overviews_are_groups(tmp_path: Path) -> None:
    values = _cog(tmp_path / "a.tif")
    group = insitu.scan(tmp_path / "a.tif", decode=False)
    np.testing.assert_array_equal(insitu.read(group, "band_data", decode=False), values)
    with rasterio.open(tmp_path / "a.tif") as file:
        levels = len(file.overviews(1))
    assert list(group.groups) == [f"overview_{level}" for level in range(levels)]
    assert levels > 1
    for level in range(levels):
        with rasterio.open(tmp_path / "a.tif", overview_level=level) as file:
            np.testing.assert_array_equal(insitu.read(group, f"overview_{level}/band_data", decode=False), file.read())
            x = insitu.read(group, f"overview_{level}/x", decode=False)
            assert x[0] == pytest.approx(file.transform.c + file.transform.a / 2)
            assert x[1] - x[0] == pytest.approx(file.transform.a)
    assert list(insitu.scan(tmp_path / "a.tif", group="overview_0", decode=False).arrays) == list(group.arrays)
    with pytest.raises(VariableError, match="overview_0"):
        insitu.scan(tmp_path / "a.tif", group="overview_9", decode=False)


def test_a_cog_is_scanned_in_one_request(tmp_path: Path) -> None:
    _cog(tmp_path / "a.tif")
    counted = CountingSource(MemorySource((tmp_path / "a.tif").read_bytes()))
    insitu.scan(counted, decode=False)
    assert counted.batches == 1


def test_directories_at_the_end_take_few_requests(tmp_path: Path) -> None:
    """Written strip by strip, with overviews added later: the tables lie behind the data."""
    values = np.random.default_rng(0).integers(0, 255, (1, 1024, 1024)).astype("uint8")
    _write(tmp_path / "a.tif", values, tiled=True, blockxsize=64, blockysize=64)
    with rasterio.open(tmp_path / "a.tif", "r+") as file:
        file.build_overviews([2, 4], Resampling.nearest)
    counted = CountingSource(MemorySource((tmp_path / "a.tif").read_bytes()))
    group = insitu.scan(counted, decode=False)
    assert len(group.groups) == 2
    assert counted.batches <= 5
    assert counted.bytes < 300_000


def test_masks_lie_beside_their_image(tmp_path: Path) -> None:
    values = _pixels(1, 40, 50, "uint8")
    mask = np.zeros((40, 50), bool)
    mask[5:20, 10:30] = True
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        rasterio.open(
            tmp_path / "a.tif", "w", driver="GTiff", count=1, height=40, width=50, dtype="uint8", **PLACE
        ) as file,
    ):
        file.write(values)
        file.write_mask(mask)
    group = insitu.scan(tmp_path / "a.tif", decode=False)
    assert group.arrays["mask"].dims == ("y", "x")
    np.testing.assert_array_equal(insitu.read(group, "mask", decode=False) > 0, mask)


def test_pages_of_one_kind_are_stacked(tmp_path: Path) -> None:
    stack = np.random.default_rng(0).integers(0, 1000, (5, 30, 40)).astype("uint16")
    tifffile.imwrite(tmp_path / "a.tif", stack, photometric="minisblack", compression="zlib", metadata=None)
    group = insitu.scan(tmp_path / "a.tif", decode=False)
    assert group.arrays["band_data"].dims == ("page", "band", "y", "x")
    assert not group.groups
    np.testing.assert_array_equal(insitu.read(group, "band_data", decode=False)[:, 0], stack)
    np.testing.assert_array_equal(insitu.read(group, "band_data", np.s_[3, 0, ::2], decode=False), stack[3, ::2])


@pytest.mark.parametrize(
    "how", [{"imagej": True}, {"ome": True}, {"truncate": True}, {"imagej": True, "truncate": True}]
)
def test_stacks_of_microscopes(tmp_path: Path, how: dict[str, Any]) -> None:
    """Of some, only the first image has a directory."""
    stack = np.random.default_rng(0).integers(0, 1000, (5, 30, 40)).astype("uint16")
    tifffile.imwrite(tmp_path / "a.tif", stack, photometric="minisblack", **how)
    np.testing.assert_array_equal(insitu.read(tmp_path / "a.tif", "band_data", decode=False)[:, 0], stack)


def test_pages_with_overviews_are_stacked_level_by_level(tmp_path: Path) -> None:
    stack = np.random.default_rng(0).integers(0, 255, (3, 64, 64)).astype("uint8")
    with tifffile.TiffWriter(tmp_path / "a.tif", ome=True) as file:
        file.write(stack, subifds=2, tile=(16, 16), photometric="minisblack")
        for step in (2, 4):
            file.write(stack[:, ::step, ::step], subfiletype=1, tile=(16, 16), photometric="minisblack")
    group = insitu.scan(tmp_path / "a.tif", decode=False)
    assert list(group.groups) == ["overview_0", "overview_1"]
    for path, step in (("band_data", 1), ("overview_0/band_data", 2), ("overview_1/band_data", 4)):
        np.testing.assert_array_equal(insitu.read(group, path, decode=False)[:, 0], stack[:, ::step, ::step])


def test_volumes_are_refused_by_name(tmp_path: Path) -> None:
    tifffile.imwrite(
        tmp_path / "a.tif", np.zeros((4, 32, 32), "u1"), volumetric=True, tile=(2, 16, 16), photometric="minisblack"
    )
    with pytest.raises(UnsupportedError, match="a volume of 4 slices"):
        insitu.scan(tmp_path / "a.tif", decode=False)


def test_pages_that_differ_are_groups(tmp_path: Path) -> None:
    pages = [np.arange(20, dtype="u1").reshape(4, 5), np.ones((3, 3), "f4"), np.full((2, 2), 7, "i2")]
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for page in pages:
            file.write(page, photometric="minisblack", metadata=None)
    group = insitu.scan(tmp_path / "a.tif", decode=False)
    assert list(group.groups) == ["page_1", "page_2"]
    for path, page in zip(("band_data", "page_1/band_data", "page_2/band_data"), pages, strict=True):
        np.testing.assert_array_equal(insitu.read(group, path, decode=False)[0], page)


def test_one_page_that_cannot_be_read_leaves_the_others(tmp_path: Path) -> None:
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for page in (np.ones((4, 4), "u1"), np.full((3, 3), 2, "u1")):
            file.write(page, photometric="minisblack", metadata=None)
    with tifffile.TiffFile(tmp_path / "a.tif", mode="r+b") as file:
        file.pages[1].tags["Compression"].overwrite(34661)
    with pytest.raises(UnsupportedError, match="JBIG"):
        insitu.scan(tmp_path / "a.tif", decode=False)
    with pytest.warns(insitu.formats.InsituWarning, match="JBIG"):
        group = insitu.scan(tmp_path / "a.tif", errors="warn", decode=False)
    assert insitu.read(group, "band_data", decode=False).sum() == 16
    assert "page_1/band_data" in group.problems
    assert insitu.read(tmp_path / "a.tif", "band_data", decode=False).sum() == 16  # nobody asked for the other


@pytest.mark.parametrize("point", [False, True])
def test_coordinates_and_attributes_are_as_rioxarray_shows_them(tmp_path: Path, point: bool) -> None:
    with rasterio.open(
        tmp_path / "a.tif", "w", driver="GTiff", count=2, height=5, width=7, dtype="int16", nodata=-1, **PLACE
    ) as file:
        file.write(np.arange(70, dtype="int16").reshape(2, 5, 7))
        file.scales, file.offsets, file.units = (0.1, 0.1), (5.0, 5.0), ("K", "m")
        file.descriptions = ("first", "second")
        file.update_tags(AREA_OR_POINT="Point" if point else "Area", PRODUCT="made up", NUMBER="12")
        file.update_tags(1, STATISTICS_MEAN="3.5")
    group = insitu.scan(tmp_path / "a.tif", decode=False)
    with xarray.open_dataset(tmp_path / "a.tif", engine="rasterio", mask_and_scale=False) as reference:
        for name in ("band", "x", "y"):
            np.testing.assert_array_equal(insitu.read(group, name, decode=False), reference[name].values)
        actual = dict(group.arrays["band_data"].attributes)
        assert actual.pop("grid_mapping") == actual.pop("coordinates") == "spatial_ref"
        expected = dict(reference["band_data"].attrs)
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            assert list(np.atleast_1d(actual[name])) == list(np.atleast_1d(value)), name
        assert dict(group.arrays["spatial_ref"].attributes) == reference["spatial_ref"].attrs


SYSTEMS = [
    "EPSG:4326", "EPSG:4269", "EPSG:3857", "EPSG:3035", "EPSG:5070", "EPSG:3413", "EPSG:2263", "EPSG:26918+5703",
    "ESRI:54009",
    "+proj=sinu +lon_0=0 +R=6371007.181", "+proj=lcc +lat_1=25 +lat_0=25 +lon_0=265 +R=6371229",
    "+proj=longlat +R=6371229",
    "+proj=aea +lat_1=29.5 +lat_2=45.5 +lat_0=23 +lon_0=-96 +datum=NAD83", "+proj=robin", "+proj=eqc +lat_ts=30",
    "+proj=utm +zone=33 +ellps=intl",
]  # fmt: skip


@pytest.mark.parametrize("system", SYSTEMS)
def test_reference_systems_are_as_rioxarray_shows_them(tmp_path: Path, system: str) -> None:
    _write(tmp_path / "a.tif", _pixels(2, 4, 5, "int16"), crs=system)
    with (
        insitu.open_dataset(tmp_path / "a.tif") as actual,
        xarray.open_dataset(tmp_path / "a.tif", engine="rasterio") as reference,
    ):
        assert "spatial_ref" in actual.coords
        assert actual.spatial_ref.attrs == reference.spatial_ref.attrs
        assert actual.band_data.rio.crs == reference.band_data.rio.crs


def test_control_points_are_as_rioxarray_shows_them(tmp_path: Path) -> None:
    points = [GroundControlPoint(row, column, 10 + column, 50 - row) for row in (0, 4) for column in (0, 5)]
    profile = {"driver": "GTiff", "count": 1, "height": 4, "width": 5, "dtype": "uint8"}
    with rasterio.open(tmp_path / "a.tif", "w", gcps=points, crs="EPSG:4326", **profile) as file:
        file.write(_pixels(1, 4, 5, "uint8"))
    group = insitu.scan(tmp_path / "a.tif", decode=False)
    assert "x" not in group.arrays
    with xarray.open_dataset(tmp_path / "a.tif", engine="rasterio") as reference:
        assert dict(group.arrays["spatial_ref"].attributes) == reference.spatial_ref.attrs


def test_a_turned_image_has_its_transformation_only(tmp_path: Path) -> None:
    turned = Affine(10, 3, 3e5, 2, -20, 5e6)
    _write(tmp_path / "a.tif", _pixels(1, 4, 5, "uint8"), transform=turned)
    group = insitu.scan(tmp_path / "a.tif", decode=False)
    assert {"x", "y"}.isdisjoint(group.arrays)
    numbers = [float(part) for part in group.arrays["spatial_ref"].attributes["GeoTransform"].split()]
    assert Affine.from_gdal(*numbers) == turned


def test_a_table_of_colours_is_kept_beside_the_indices(tmp_path: Path) -> None:
    values = _pixels(1, 4, 5, "uint8")
    table = {number: (number, 255 - number, 7, 255) for number in range(256)}
    profile = {"driver": "GTiff", "count": 1, "height": 4, "width": 5, "dtype": "uint8", **PLACE}
    with rasterio.open(tmp_path / "a.tif", "w", photometric="palette", **profile) as file:
        file.write(values)
        file.write_colormap(1, table)
    array = insitu.scan(tmp_path / "a.tif", decode=False).arrays["band_data"]
    assert array.details.notes["colormap"] == [colour[:3] for colour in table.values()]
    np.testing.assert_array_equal(insitu.read(tmp_path / "a.tif", "band_data", decode=False), values)


def test_without_pyproj_the_number_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from insitu.formats.tiff import crs, scan

    _write(tmp_path / "a.tif", _pixels(1, 4, 4, "uint8"))

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(crs, "import_before_fork", missing)
    crs._attributes.cache_clear()
    scan._DESCRIPTIONS.clear()
    try:
        attributes = insitu.scan(tmp_path / "a.tif", decode=False).arrays["spatial_ref"].attributes
    finally:
        crs._attributes.cache_clear()
        scan._DESCRIPTIONS.clear()
    assert attributes["crs_wkt"] == "EPSG:32633"


def _sample(tmp_path: Path) -> bytes:
    _write(
        tmp_path / "sample.tif",
        _pixels(2, 40, 50, "uint8"),
        tiled=True,
        blockxsize=16,
        blockysize=16,
        compress="deflate",
    )
    with rasterio.open(tmp_path / "sample.tif", "r+") as file:
        file.build_overviews([2], Resampling.nearest)
    return (tmp_path / "sample.tif").read_bytes()


def test_a_file_that_was_cut_off_is_refused_or_right(tmp_path: Path) -> None:
    data = _sample(tmp_path)
    whole = read_all(data)

    def check(data: bytes) -> None:
        for name, values in read_all(data).items():
            np.testing.assert_array_equal(values, whole[name])

    assert count_refused(cut(data, range(0, len(data), 7)), check)


def test_flipped_bytes_do_no_harm(tmp_path: Path) -> None:
    data = _sample(tmp_path)
    random = np.random.default_rng(3)
    places = [*range(500), *random.integers(500, len(data), 300).tolist()]
    assert count_refused(flip_each(data, places, (0x01, 0x80, 0xFF)), read_all)


def test_errors_say_where() -> None:
    entry = struct.pack("<HHII", 256, 3, 1, 1)
    with pytest.raises(FormatError, match="is a loop"):
        insitu.scan(MemorySource(b"II*\0" + struct.pack("<IH", 8, 1) + entry + struct.pack("<I", 8)), decode=False)
    with pytest.raises(FormatError, match="behind the end of the file") as caught:
        insitu.scan(MemorySource(b"II*\0" + struct.pack("<I", 999)), decode=False)
    assert caught.value.offset == 999
    with pytest.raises(FormatError, match="does not fit"):
        insitu.scan(MemorySource(b"II*\0" + struct.pack("<IH", 8, 60000)), decode=False)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_metadata_that_gdal_escaped_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    note = "<a> & 'b' \"c\" &lt; &amp;amp; &nbsp; é"
    with rasterio.open(path, "w", driver="GTiff", width=5, height=4, count=2, dtype="uint8") as file:
        file.write(np.ones((2, 4, 5), "u1"))
        file.update_tags(NOTE=note, **{"A&B": "x"})
        file.update_tags(1, FIRST="1 < 2")
        file.descriptions, file.units = ("x < y & z", "q"), ("m & s", "k>")
    found = insitu.open_dataset(path).band_data.attrs
    assert found["NOTE"] == note
    with xarray.open_dataset(path, engine="rasterio") as reference:
        expected = reference.band_data.attrs
        assert {name: found[name] for name in ("NOTE", "A&B", "FIRST")} == {
            name: expected[name] for name in ("NOTE", "A&B", "FIRST")
        }
        for name in ("long_name", "units"):
            assert tuple(found[name]) == tuple(expected[name])


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_metadata_with_numbers_of_characters(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    text = '<GDALMetadata><Item name="NOTE">&amp;#65;&amp;#x42;&amp;#0;&amp;x;</Item></GDALMetadata>'
    tifffile.imwrite(path, np.zeros((4, 5), "u1"), metadata=None, extratags=[(42112, "s", 0, text, True)])
    with rasterio.open(path) as file:
        expected = file.tags()["NOTE"]
    found = insitu.open_dataset(path).band_data.attrs["NOTE"]
    assert (found[:2], expected[:2]) == ("AB", "AB")
