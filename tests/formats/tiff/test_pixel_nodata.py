"""GDAL's `NODATA_VALUES`: a pixel has no data where each of its bands has its own value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import rioxarray  # noqa: F401  (registers the engine)
import xarray as xr

import insitu
from insitu.errors import InsituWarning

pytestmark = pytest.mark.filterwarnings(
    "ignore::rasterio.errors.NotGeoreferencedWarning", "ignore::PendingDeprecationWarning", "ignore::DeprecationWarning"
)

FORMS: dict[str, dict[str, Any]] = {
    "strips": {},
    "one strip": {"blockysize": 64},
    "tiles": {"tiled": True, "blockxsize": 16, "blockysize": 16, "compress": "deflate", "predictor": 2},
    "compressed strips": {"compress": "lzw", "blockysize": 7},
    "not all are written": {"tiled": True, "blockxsize": 16, "blockysize": 16, "SPARSE_OK": True},
}


def write(path: Path, dtype: str = "uint8", values: str = "0 1 2", **how: Any) -> np.ndarray[Any, Any]:
    pixels = np.random.default_rng(2).integers(0, 3, (3, 40, 35)).astype(dtype)
    pixels[:, 3:9, 4:20] = np.array([0, 1, 2])[:, None, None]
    if "SPARSE_OK" in how:
        pixels[:, 16:32] = 0
    given = {"interleave": "pixel", "nodata": 0, **how}
    with rasterio.open(path, "w", driver="GTiff", width=35, height=40, count=3, dtype=dtype, **given) as file:
        file.write(pixels)
        file.update_tags(NODATA_VALUES=values)
    return pixels


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
def test_as_rioxarray_shows_them(tmp_path: Path, form: str, dtype: str) -> None:
    path = tmp_path / "a.tif"
    stored = write(path, dtype, **FORMS[form])
    with xr.open_dataset(path, engine="rasterio") as reference:
        expected = reference.band_data.load()
    actual = insitu.open_dataset(path).band_data
    assert actual.dtype == expected.dtype
    assert actual.encoding["_FillValue"] == 0
    for _ in range(2):
        np.testing.assert_array_equal(actual.values, expected.values)
    assert np.isnan(expected).sum() >= 3 * 6 * 16
    part = {"band": [2, 0], "y": slice(2, 30, 3), "x": 5}
    np.testing.assert_array_equal(actual.isel(part), expected.isel(part))
    assert int(actual.count()) == int(expected.count())
    raw = insitu.open_dataset(path, mask_and_scale=False).band_data
    np.testing.assert_array_equal(raw, stored)
    assert raw.dtype == stored.dtype


@pytest.mark.parametrize("values", ["0 1", "0 1 2 3", "0 1 many", "300 1 2"])
def test_values_that_do_not_fit(tmp_path: Path, values: str) -> None:
    """Too few or too many are no nodata values; a number that no pixel can have hides none."""
    path = tmp_path / "a.tif"
    write(path, values=values)
    actual = insitu.open_dataset(path).band_data
    if values != "0 1 many":
        with xr.open_dataset(path, engine="rasterio") as reference:
            np.testing.assert_array_equal(actual.values, reference.band_data.values)
    assert (int(np.isnan(actual.values).sum()) > 0) == (values != "300 1 2")


@pytest.mark.filterwarnings("ignore:.*differ across bands:UserWarning")
def test_scales_of_bands(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    write(path)
    with rasterio.open(path, "r+") as file:
        file.scales, file.offsets = (0.5, 2.0, 1.0), (3.0, 0.0, 1.0)
    with xr.open_dataset(path, engine="rasterio") as reference:
        np.testing.assert_allclose(insitu.open_dataset(path).band_data, reference.band_data, rtol=1e-6)


def test_bands_stored_one_by_one_are_not_masked(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    stored = write(path, interleave="band")
    with pytest.warns(InsituWarning, match=r"NODATA_VALUES .*one by one"):
        actual = insitu.open_dataset(path).band_data
    np.testing.assert_array_equal(actual, stored)
    nodata = xr.DataArray([0, 1, 2], dims="band")
    with xr.open_dataset(path, engine="rasterio") as reference:
        np.testing.assert_array_equal(actual.where((actual != nodata).any("band")), reference.band_data)


def test_saved_joined_and_stored(tmp_path: Path) -> None:
    names = [tmp_path / name for name in ("a.tif", "b.tif")]
    stored = [write(path, **how) for path, how in zip(names, (FORMS["tiles"], FORMS["strips"]), strict=True)]
    both = insitu.open_mfdataset(names, combine="nested", concat_dim="time")
    for number, path in enumerate(names):
        with xr.open_dataset(path, engine="rasterio") as reference:
            np.testing.assert_array_equal(both.band_data.isel(time=number), reference.band_data)
    both.insitu.save(tmp_path / "both.insitu")
    again = insitu.open_dataset(tmp_path / "both.insitu")
    np.testing.assert_array_equal(again.band_data, both.band_data)
    one = insitu.open_dataset(names[0])
    one.insitu.save(tmp_path / "one.insitu")
    for place in (names[0], tmp_path / "one.insitu"):
        found = insitu.read(place, "band_data", decode=False)
        assert found.dtype == stored[0].dtype
        np.testing.assert_array_equal(found, stored[0])
        np.testing.assert_array_equal(insitu.read(place, "band_data"), one.band_data)
