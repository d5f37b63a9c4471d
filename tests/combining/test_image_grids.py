"""Series of GeoTIFF files: one dataset with dates, if they are of one grid; else an error says what differs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import rioxarray  # noqa: F401  (registers the engine)
import xarray as xr

import insitu
from fixtures.images import write_image
from insitu.errors import CombineError

pytestmark = pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")  # rasterio's own

DAYS = ("20200131", "20200210", "20200220")
NESTED: dict[str, Any] = {"combine": "nested", "concat_dim": "time"}
BY_NAME: dict[str, Any] = {"concat_dim": {"time": r"_(\d{8})"}}


def write_series(folder: Path, **last: Any) -> list[Path]:
    paths = [folder / f"scene_{day}_B.tif" for day in DAYS]
    for number, path in enumerate(paths):
        write_image(path, number, **(last if number == 2 else {}))
    return paths


def test_dates_of_names_and_values_of_files(tmp_path: Path) -> None:
    paths = write_series(tmp_path)
    found = insitu.open_mfdataset(paths[::-1], **BY_NAME).sortby("time")
    assert found.time.dtype == "datetime64[ns]"
    assert found.time.dt.strftime("%Y%m%d").values.tolist() == [*DAYS]
    expected = []
    for path in paths:
        with rasterio.open(path) as file:
            expected.append(file.read())
    np.testing.assert_array_equal(found.band_data, np.stack(expected))
    with xr.open_dataset(paths[0], engine="rasterio") as one:
        assert found.spatial_ref.attrs["crs_wkt"] == one.spatial_ref.attrs["crs_wkt"]
        np.testing.assert_array_equal(found.x, one.x)
    assert found.insitu.tiles()["band_data"] == 1


DIFFERENT: dict[str, tuple[dict[str, Any], str]] = {
    "half a pixel": ({"corner": (500005.0, 10.0)}, r"the corner at \(500005.0, 10.0\) here, .* \(500000.0, 10.0\) in"),
    "size": ({"size": (40, 36)}, "36 × 40 pixels here, 35 × 40 pixels in"),
    "pixels": ({"resolution": 20.0}, r"pixels of 20.0 × -20.0 here, pixels of 10.0 × -10.0 in"),
    "both": ({"resolution": 20.0, "size": (20, 18)}, "18 × 20 pixels, pixels of 20.0 × -20.0 here"),
}


@pytest.mark.parametrize("how", [NESTED, BY_NAME], ids=["nested", "by name"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("case", DIFFERENT)
def test_other_grids_are_named(tmp_path: Path, case: str, how: dict[str, Any], workers: int) -> None:
    other, text = DIFFERENT[case]
    paths = write_series(tmp_path, **other)
    with ThreadPoolExecutor(2) as engine, pytest.raises(CombineError, match=text) as caught:
        insitu.open_mfdataset(paths, parallel=engine if workers else None, **how)
    assert "join='outer'" in str(caught.value)
    assert str(paths[2]) in str(caught.value)
    assert str(paths[0]) in str(caught.value)


def test_labels_are_aligned_where_that_is_asked_for(tmp_path: Path) -> None:
    paths = write_series(tmp_path, size=(40, 36))
    parts = [insitu.open_dataset(path).load() for path in paths]
    for join in ("outer", "inner"):
        found = insitu.open_mfdataset(paths, **NESTED, join=join)
        expected = xr.concat(parts, "time", join=join, combine_attrs="override")  # type: ignore[call-overload]
        np.testing.assert_array_equal(found.band_data, expected.band_data)


@pytest.mark.parametrize("how", [NESTED, BY_NAME, {**NESTED, "join": "outer"}, {**NESTED, "concat_dim": "x"}], ids=str)
@pytest.mark.parametrize("workers", [0, 2])
def test_other_reference_systems_are_named(tmp_path: Path, how: dict[str, Any], workers: int) -> None:
    paths = write_series(tmp_path, crs="EPSG:32633")
    text = r"zone 33N \(EPSG:32633\) here, .*zone 32N \(EPSG:32632\) in"
    with ThreadPoolExecutor(2) as engine, pytest.raises(CombineError, match=text):
        insitu.open_mfdataset(paths, parallel=engine if workers else None, **how)
    assert insitu.open_mfdataset(paths, **how, drop_variables="spatial_ref").sizes["band"] == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_a_mosaic_of_images(tmp_path: Path, workers: int) -> None:
    paths, values = [], {}
    for row in range(2):
        for column in range(3):
            paths.append(tmp_path / f"{row}{column}.tif")
            corner = (500000.0 + 350 * column, 10.0 - 400 * row)
            values[row, column] = write_image(paths[-1], len(paths), corner=corner)
    with ThreadPoolExecutor(2) as engine:
        found = insitu.open_mfdataset(paths, parallel=engine if workers else None)
    expected = np.concatenate([np.concatenate([values[r, c] for c in range(3)], 2) for r in range(2)], 1)
    np.testing.assert_array_equal(found.band_data, expected)


def test_rows_of_a_grid_of_images_are_compared(tmp_path: Path) -> None:
    for tile, corner in (("a", 500000.0), ("b", 500005.0)):
        for day in DAYS[:2]:
            write_image(tmp_path / f"{tile}_{day}.tif", corner=(corner, 10.0))
    how = {"concat_dim": {"tile": r"(\w)_\d", "time": r"_(\d{8})"}}
    with pytest.raises(CombineError, match="images of different grids cannot follow each other along 'tile'"):
        insitu.open_mfdataset(sorted(tmp_path.glob("*.tif")), **how)
