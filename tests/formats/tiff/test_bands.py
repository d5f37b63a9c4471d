"""Bands with scales and offsets of their own are shown as the engine rasterio shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import rioxarray  # noqa: F401  (registers the engine)
import xarray as xr
from rasterio.transform import from_origin

import insitu

pytestmark = pytest.mark.filterwarnings(
    "ignore:Use `@` matmul:PendingDeprecationWarning", "ignore:.* differ across bands"
)  # rasterio's and rioxarray's own

SCALES, OFFSETS = (0.1, 2.0, 1.0), (5.0, 0.0, -1.0)


def write(path: Path, *, scales: Any = SCALES, offsets: Any = OFFSETS, **how: Any) -> np.ndarray:
    values = np.random.default_rng(2).integers(-50, 50, (3, 40, 35)).astype("int16")
    values[:, 3:5, 7] = -9
    given: dict[str, Any] = {"nodata": -9, **how}
    with rasterio.open(
        path, "w", driver="GTiff", width=35, height=40, count=3, dtype="int16",
        transform=from_origin(0, 10, 1, 1), crs="EPSG:4326", **given,
    ) as file:  # fmt: skip
        file.write(values)
        file.scales, file.offsets = scales, offsets
    return values


FORMS: dict[str, dict[str, Any]] = {
    "chunky": {"interleave": "pixel"},
    "planar": {"interleave": "band"},
    "tiles": {"interleave": "pixel", "tiled": True, "blockxsize": 16, "blockysize": 16, "compress": "deflate",
    "predictor": 2},
    "no nodata": {"nodata": None},
    "scales alone": {"offsets": (0.0, 0.0, 0.0)},
    "offsets alone": {"scales": (0.5, 0.5, 0.5)},
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_as_rasterio_shows_them(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a.tif"
    write(path, **FORMS[form])
    with xr.open_dataset(path, engine="rasterio") as expected:
        actual = insitu.open_dataset(path)
        # rioxarray computes in float32, CF and we in float64.
        np.testing.assert_allclose(actual.band_data.values, expected.band_data.values, rtol=1e-6)
        assert not {"scales", "offsets"} & actual.band_data.attrs.keys()
        part = {"band": [2, 0], "y": slice(2, 30, 3)}
        np.testing.assert_array_equal(actual.band_data.isel(part), actual.band_data.load().isel(part))


def test_chunks_are_fetched_once(tmp_path: Path) -> None:
    write(tmp_path / "a.tif", **FORMS["tiles"])
    actual = insitu.open_dataset(tmp_path / "a.tif")
    with insitu.trace() as seen:
        actual.band_data.load()
    assert seen.bytes <= (tmp_path / "a.tif").stat().st_size


def test_kept_joined_and_left_alone(tmp_path: Path) -> None:
    stored = write(tmp_path / "a.tif")
    write(tmp_path / "b.tif", scales=(3.0, 2.0, 1.0))
    actual = insitu.open_dataset(tmp_path / "a.tif")
    actual.insitu.save(tmp_path / "a.insitu")
    xr.testing.assert_equal(insitu.open_dataset(tmp_path / "a.insitu").load(), actual.load())
    both = insitu.open_mfdataset([tmp_path / "a.tif", tmp_path / "b.tif"], combine="nested", concat_dim="time")
    other = insitu.open_dataset(tmp_path / "b.tif")
    np.testing.assert_array_equal(both.band_data.isel(time=0), actual.band_data)
    np.testing.assert_array_equal(both.band_data.isel(time=1), other.band_data)
    raw = insitu.open_dataset(tmp_path / "a.tif", mask_and_scale=False).band_data
    np.testing.assert_array_equal(raw, stored)
    assert list(raw.attrs["scales"]) == list(SCALES)
