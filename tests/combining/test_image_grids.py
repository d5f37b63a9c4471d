"""Series of GeoTIFF files: one dataset with dates, if they are of one grid; else an error says what differs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import rasterio
import rioxarray  # noqa: F401  (registers the engine)
import xarray as xr

import insitu
from fixtures.images import write_image
from insitu.errors import CombineError, UnsupportedError

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


def test_dates_that_no_image_has(tmp_path: Path) -> None:
    """Expected dates are missing values; files, what they have and what is missing are known, also after a change."""
    paths, target = [str(path) for path in write_series(tmp_path)], str(tmp_path / "series.insitu")
    plain = insitu.open_mfdataset(paths, **BY_NAME).load()
    dates = pandas.date_range("2020-01-31", "2020-02-20", freq="5D")
    opened = insitu.open_mfdataset(paths[::-1], **BY_NAME, expect="5D")
    opened.insitu.save(target)
    for found in (opened, insitu.open_dataset(target)):
        table = found.insitu.files
        assert table.time_first.dt.strftime("%Y%m%d").tolist() == [*DAYS[::-1]]
        assert (table.labels.tolist(), table.shadowed.tolist()) == ([1, 1, 1], [0, 0, 0])
        np.testing.assert_array_equal(found.insitu.missing["time"], dates[[1, 3]])
        assert found.band_data.dtype == plain.reindex(time=dates).band_data.dtype
        np.testing.assert_array_equal(found.band_data, plain.reindex(time=dates).band_data)
    with pytest.raises(CombineError, match=r"2020-02-10 of 'time' is off the grid of expect='4D'.*scene_20200210"):
        insitu.open_mfdataset(paths, **BY_NAME, expect="4D")
    with pytest.raises(CombineError, match=r"2020-01-31 of 'time' is off .*expect='MS', which begins at 2020-02-01"):
        insitu.open_mfdataset(paths, **BY_NAME, expect="MS")
    again = tmp_path / "again_20200210_B.tif"
    write_image(again, 7)
    with pytest.raises(CombineError, match=r"both have .*time 2020-02-10.*again_20200210.*overlap="):
        insitu.open_mfdataset([*paths, again], **BY_NAME, expect="5D")
    with pytest.raises(UnsupportedError, match="labelled by their names"):
        insitu.Archive.open(target).append([again], overlap="last")
    assert insitu.Archive.open(target).drop(keep_last={"time": 3}) == (paths[0],)
    np.testing.assert_array_equal(insitu.open_dataset(target).time, dates[2:])
    insitu.Archive.open(target).append(paths[:1])
    assert insitu.open_dataset(target).identical(opened)


def test_dates_of_tags(tmp_path: Path) -> None:
    paths = []
    for number, day in enumerate((20, 3)):
        paths.append(tmp_path / f"scene_{number}.tif")
        write_image(
            paths[-1],
            number,
            tags={"TIFFTAG_DATETIME": f"2020:01:{day:02d} 10:11:12", "ACQUIRED": f"2020-01-{day:02d}"},
        )
    found = insitu.open_mfdataset(paths, concat_dim={"time": "attr:TIFFTAG_DATETIME"})
    expected = np.array(["2020-01-20T10:11:12", "2020-01-03T10:11:12"], "M8[ns]")
    np.testing.assert_array_equal(found.time, expected)
    assert found.time.dtype == expected.dtype
    found.insitu.save(tmp_path / "series.insitu")
    xr.testing.assert_identical(insitu.open_dataset(tmp_path / "series.insitu").load(), found.load())
    other = insitu.open_mfdataset(paths, concat_dim={"time": "attr:ACQUIRED"})
    assert other.time.dt.day.values.tolist() == [20, 3]
    with pytest.raises(CombineError, match=r"no attribute 'TIFFTAG_DATE'.*Do you mean 'TIFFTAG_DATETIME'"):
        insitu.open_mfdataset(paths, concat_dim={"time": "attr:TIFFTAG_DATE"})


@pytest.mark.parametrize(
    ("names", "pattern", "days"),
    [
        (("A2020031.h18", "A2020366.h18"), r"(A\d{7})", ("2020-01-31", "2020-12-31")),
        (("v_2021060", "v_2021001"), r"_(\d{7})", ("2021-03-01", "2021-01-01")),
        (
            ("LC08_20200131T101112", "LC08_20200201T101112"),
            r"_(\d{8}T\d{6})",
            ("2020-01-31T10:11:12", "2020-02-01T10:11:12"),
        ),
    ],
)
def test_dates_as_products_write_them(
    tmp_path: Path, names: tuple[str, ...], pattern: str, days: tuple[str, ...]
) -> None:
    paths = [tmp_path / f"{name}.tif" for name in names]
    for path in paths:
        write_image(path)
    found = insitu.open_mfdataset(paths, concat_dim={"time": pattern})
    np.testing.assert_array_equal(found.time, np.array(days, "M8[ns]"))


def test_a_series_by_tags_is_refreshed(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.tif" for number in range(3)]
    for number, path in enumerate(paths):
        write_image(path, number, tags={"TIFFTAG_DATETIME": f"2020:01:0{number + 1} 00:00:00"})
    how: dict[str, Any] = {"concat_dim": {"time": "attr:TIFFTAG_DATETIME"}}
    store = tmp_path / "series.insitu"
    insitu.open_mfdataset(paths, **how).insitu.save(store)
    write_image(paths[1], 7, tags={"TIFFTAG_DATETIME": "2020:01:09 00:00:00"})
    insitu.refresh(store)
    xr.testing.assert_identical(insitu.open_dataset(store).load(), insitu.open_mfdataset(paths, **how).load())


def test_overviews_of_a_series_are_groups(tmp_path: Path) -> None:
    paths = [tmp_path / f"scene_{day}.tif" for day in DAYS]
    for number, path in enumerate(paths):
        write_image(path, number, size=(64, 96), overviews=(2, 4))
    tree = insitu.open_mfdatatree(paths, concat_dim={"time": r"_(\d{8})"})
    for name, how in {
        "full_resolution": {},
        "overview_0": {"overview_level": 0},
        "overview_1": {"overview_level": 1},
    }.items():
        expected = []
        for path in paths:
            with rasterio.open(path, **how) as file:
                expected.append(file.read())
        np.testing.assert_array_equal(tree[name].band_data, np.stack(expected))
        assert tree[name].time.dt.strftime("%Y%m%d").values.tolist() == [*DAYS]


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
