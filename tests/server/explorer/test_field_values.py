"""The numbers that the explorer shows are those of xarray: fields, means of blocks, statistics, lines, points, tables,
downloads, coordinates.

Modules: server/explorer/answers/archive_summary.py, server/explorer/answers/coordinate_values.py,
server/explorer/answers/field_download.py, server/explorer/answers/line_values.py,
server/explorer/answers/point_value.py, server/explorer/answers/value_table.py, server/explorer/field_query.py,
server/explorer/shown_values.py, server/explorer/side_labels.py, server/explorer/spatial_dimensions.py
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

from server.explorer.client import Explorer
from server.serving import Server

TIMES = np.arange("2000-01-30", "2000-02-05", dtype="M8[D]").astype("M8[ns]")


def dataset(first: int = 0) -> xarray.Dataset:
    random = np.random.default_rng(first)
    shape = (6, 3, 47, 61)
    values = random.normal(280, 10, shape).astype("f4")
    values[:, :, :9, :13] = np.nan
    values[0, 0, 20, 30] = np.inf
    lat, lon = np.linspace(-46, 46, 47), np.arange(0, 122, 2.0)
    return xarray.Dataset(
        {
            "tas": (("time", "level", "lat", "lon"), values, {"units": "K", "long_name": "air temperature"}),
            "packed": (("time", "lat", "lon"), np.round(random.normal(5, 2, (6, 47, 61)), 2), {"units": "m"}),
            "count": (("lat", "lon"), random.integers(-(2**40), 2**40, (47, 61))),
            "mask": (("lat", "lon"), random.random((47, 61)) < 0.5),
            "seen": (("lat", "lon"), TIMES[random.integers(0, 6, (47, 61))]),
            "turned": (("lon", "lat", "time"), random.random((61, 47, 6))),
            "station_name": (("station",), np.array(["Kew", "Ytterøya", "<script>alert(1)</script>"], object)),
            "station_height": (("station",), np.array([3.5, np.nan, -1]), {"units": "m"}),
            "crs": ((), np.int32(7)),
            "curved": (("row", "column"), random.random((5, 4))),
        },
        {
            "time": TIMES + np.timedelta64(first, "D"),
            "level": ("level", [1000.0, 850.0, 500.0], {"units": "hPa"}),
            "lat": ("lat", lat, {"units": "degrees_north"}),
            "lon": ("lon", lon, {"units": "degrees_east"}),
            "glat": (("row", "column"), random.random((5, 4)), {"standard_name": "latitude"}),
            "glon": (("row", "column"), random.random((5, 4)), {"standard_name": "longitude"}),
            "label": ("member", ["a", "b"]),
        },
    )


@pytest.fixture(scope="session")
def path(root: Path) -> Path:
    place = root / "explored.nc"
    encoding: dict[str, Any] = {
        "tas": {"chunksizes": (2, 1, 16, 20), "zlib": True},
        "packed": {"dtype": "i2", "scale_factor": 0.01, "add_offset": 5.0, "_FillValue": -32768, "zlib": True},
        "turned": {"chunksizes": (10, 47, 6), "zlib": True},
    }
    dataset().to_netcdf(place, engine="netcdf4", encoding=encoding)
    return place


@pytest.fixture(scope="module")
def truth(path: Path) -> xarray.Dataset:
    with xarray.open_dataset(path, engine="netcdf4") as found:
        return found.load()


@pytest.fixture
def explorer(server: Server, path: Path) -> Explorer:
    return Explorer(server, str(path))


@pytest.mark.parametrize("index", [{"time": 0, "level": 0}, {"time": 5, "level": 2}, {"level": 1}])
def test_a_field_is_what_xarray_has(explorer: Explorer, truth: xarray.Dataset, index: dict[str, int]) -> None:
    found = explorer.picture("field", variable="tas", y="lat", x="lon", index=index)
    expected = truth.tas.isel({"time": 0, **index})
    np.testing.assert_array_equal(found.arrays["values"], expected.values)
    np.testing.assert_array_equal(found.arrays["y"], truth.lat.values)
    np.testing.assert_array_equal(found.arrays["x"], truth.lon.values)
    assert found.arrays["values"].dtype == np.dtype("<f4")
    header = found.header
    assert header["sampling"] == {"method": "all", "step": [1.0, 1.0], "share": 1.0}
    assert (header["units"], header["long_name"], header["kind"]) == ("K", "air temperature", "number")
    assert header["missing"] == int(expected.isnull().sum())
    finite = expected.values[np.isfinite(expected.values)].astype("f8")
    assert header["range"]["min"] == finite.min()
    assert header["range"]["max"] == finite.max()
    np.testing.assert_allclose([header["range"]["low"], header["range"]["high"]], np.percentile(finite, [2, 98]))
    expected_side = {"dim": "lat", "kind": "number", "units": "degrees_north", "name": "lat"}
    assert header["y"] == {**expected_side, "labels": None, "calendar": None}
    assert f"level {truth.level.values[index.get('level', 0)]} hPa" in header["text"]


def test_sides_and_boxes(explorer: Explorer, truth: xarray.Dataset) -> None:
    """Any two dimensions, in any order, and any part of them."""
    found = explorer.picture("field", variable="tas", y="lon", x="time", index={"level": 1, "lat": 40})
    expected = truth.tas.isel(level=1, lat=40).transpose("lon", "time")
    np.testing.assert_array_equal(found.arrays["values"], expected.values)
    np.testing.assert_array_equal(found.arrays["x"], truth.time.values.astype("M8[ms]").astype("f8"))
    assert found.header["x"]["kind"] == "time"
    found = explorer.picture("field", variable="turned", index={"time": 3}, box=[5, 20, 50, 61])
    np.testing.assert_array_equal(
        found.arrays["values"], truth.turned.isel(time=3, lat=slice(5, 20), lon=slice(50, 61)).T.values
    )
    np.testing.assert_array_equal(found.arrays["y"], truth.lat.values[5:20])
    assert (found.header["y"]["dim"], found.header["x"]["dim"]) == ("lat", "lon")
    assert found.header["box"] == [5, 20, 50, 61]


@pytest.mark.parametrize(("name", "index"), [("tas", {"time": 2, "level": 1}), ("packed", {"time": 4}), ("count", {})])
@pytest.mark.parametrize("box", [None, [3, 44, 1, 60]])
def test_means_of_blocks(explorer: Explorer, truth: xarray.Dataset, name: str, index: Any, box: Any) -> None:
    found = explorer.picture("field", variable=name, index=index, rows=7, columns=10, **({"box": box} if box else {}))
    top, bottom, left, right = box or [0, 47, 0, 61]
    steps = {"lat": -(-(bottom - top) // 7), "lon": -(-(right - left) // 10)}
    part = truth[name].isel(index).isel(lat=slice(top, bottom), lon=slice(left, right)).astype("f8")
    expected = part.where(np.isfinite(part)).coarsen(steps, boundary="pad").mean()
    np.testing.assert_allclose(found.arrays["values"], expected.values, rtol=2e-7)
    assert found.header["sampling"]["method"] == "mean"
    assert found.header["sampling"]["step"] == [steps["lat"], steps["lon"]]
    np.testing.assert_allclose(found.arrays["y"], expected.lat.values)
    np.testing.assert_allclose(found.arrays["x"], expected.lon.values)


def test_nearest(explorer: Explorer, truth: xarray.Dataset) -> None:
    found = explorer.picture("field", variable="tas", index={"time": 1}, rows=6, columns=9, sampling="nearest")
    rows, columns = np.minimum(np.arange(6) * 8 + 3, 47), np.minimum(np.arange(9) * 7 + 3, 60)
    rows[-1], columns[-1] = (40 + 46) // 2, (56 + 60) // 2
    np.testing.assert_array_equal(found.arrays["values"], truth.tas.values[1, 0][np.ix_(rows, columns)])
    assert found.header["sampling"]["method"] == "nearest"
    assert 0 < found.header["sampling"]["share"] <= 1


def test_a_picture_that_may_read_little_only(explorer: Explorer, truth: xarray.Dataset) -> None:
    """Fewer chunks are read, or none at all."""
    free = explorer.picture("field", variable="tas", rows=4, columns=4)
    assert free.header["sampling"]["method"] == "mean"
    decoded = 8 * truth.tas[0].size
    found = explorer.picture("field", variable="tas", rows=4, columns=4, most_bytes=16 * decoded)
    np.testing.assert_array_equal(found.arrays["values"], free.arrays["values"])
    assert "bytes of decoded chunks, more than 1" in explorer.refusal("field", 413, variable="tas", most_bytes=1)


def test_times_and_flags_are_not_averaged(explorer: Explorer, truth: xarray.Dataset) -> None:
    found = explorer.picture("field", variable="seen")
    np.testing.assert_array_equal(found.arrays["values"], truth.seen.values.astype("M8[ms]").astype("f8"))
    assert found.header["kind"] == "time"
    found = explorer.picture("field", variable="mask", rows=5)
    assert found.header["sampling"]["method"] == "nearest"
    assert set(np.unique(found.arrays["values"])) <= {0.0, 1.0}
    assert found.header["kind"] == "bool"


@pytest.mark.parametrize("statistic", ["mean", "min", "max", "std"])
@pytest.mark.parametrize("over", [("time",), ("level", "time")])
def test_statistics(explorer: Explorer, truth: xarray.Dataset, statistic: str, over: tuple[str, ...]) -> None:
    index = {"level": 1} if "level" not in over else {}
    requested: dict[str, Any] = {"variable": "tas", "index": index, "statistic": statistic, "over": ",".join(over)}
    found = explorer.picture("field", **requested)
    part = truth.tas.isel(index).astype("f8")
    with np.errstate(invalid="ignore"):  # of infinity
        expected = getattr(part, statistic)(over).transpose("lat", "lon").values
    np.testing.assert_allclose(found.arrays["values"], expected, rtol=1e-6)
    assert found.header["text"].endswith(f"{statistic} over {', '.join(over)}")
    small = explorer.picture("field", **requested, rows=10, columns=10, box=[10, 40, 20, 50])
    assert small.header["sampling"]["method"] == "mean"
    cut = xarray.DataArray(expected, dims=("lat", "lon"))[10:40, 20:50]
    means = cut.where(np.isfinite(cut)).coarsen(lat=3, lon=3).mean()
    np.testing.assert_allclose(small.arrays["values"], means.values, rtol=1e-6)


def test_lines(explorer: Explorer, truth: xarray.Dataset) -> None:
    found = explorer.picture("line", variable="tas", dim="time", index={"level": 1, "lat": 30, "lon": 40})
    np.testing.assert_array_equal(found.arrays["values"], truth.tas.values[:, 1, 30, 40])
    np.testing.assert_array_equal(found.arrays["position"], truth.time.values.astype("M8[ms]").astype("f8"))
    assert set(found.arrays) == {"values", "position"}
    assert found.header["text"] == "level 850.0 hPa, lat 14.0 degrees_north, lon 80.0 degrees_east"
    thin = explorer.picture("line", variable="tas", dim="lon", index={"time": 0, "level": 0, "lat": 20}, points=20)
    line = truth.tas[0, 0, 20].astype("f8")
    bins = line.where(np.isfinite(line)).coarsen(lon=4, boundary="pad")
    np.testing.assert_allclose(thin.arrays["values"], bins.mean().values, rtol=1e-6)
    np.testing.assert_array_equal(thin.arrays["low"], bins.min().values)
    np.testing.assert_array_equal(thin.arrays["high"], bins.max().values)
    np.testing.assert_allclose(thin.arrays["position"], bins.mean().lon.values)
    assert thin.header["sampling"] == {"method": "mean", "step": 4, "share": 1.0}
    heights = explorer.picture("line", variable="station_height")
    np.testing.assert_array_equal(heights.arrays["values"], truth.station_height.values)
    np.testing.assert_array_equal(heights.arrays["position"], [0, 1, 2])
    assert heights.header["position"]["kind"] == "index"


def test_a_line_that_may_read_little_has_every_nth_value(explorer: Explorer, truth: xarray.Dataset) -> None:
    index = {"level": 1, "lat": 30, "lon": 40}
    whole = truth.tas.values[:, 1, 30, 40]
    chunk = 4 * 2 * 16 * 20  # two times of it
    found = explorer.picture("line", variable="tas", dim="time", index=index, most_bytes=2 * chunk)
    sampling = found.header["sampling"]
    assert sampling["method"] == "nearest"
    assert sampling["share"] < 1
    np.testing.assert_array_equal(found.arrays["values"], whole[:: sampling["step"]])
    times = truth.time.values.astype("M8[ms]").astype("f8")
    np.testing.assert_array_equal(found.arrays["position"], times[:: sampling["step"]])
    enough = explorer.picture("line", variable="tas", dim="time", index=index, most_bytes=1_000_000)
    np.testing.assert_array_equal(enough.arrays["values"], whole)


def test_points(explorer: Explorer, truth: xarray.Dataset) -> None:
    index = {"time": 2, "level": 2, "lat": 33, "lon": 7}
    found = explorer.json("point", variable="tas", index=index)
    value = truth.tas.isel(index).values
    assert np.float32(found["value"]) == value
    assert np.float32(found["number"]) == value
    assert found["labels"] == {
        "time": "2000-02-01T00:00:00",
        "level": "500.0 hPa",
        "lat": "20.0 degrees_north",
        "lon": "14.0 degrees_east",
    }
    assert not found["missing"]
    nothing = explorer.json("point", variable="tas", index={**index, "lat": 0, "lon": 0})
    assert (nothing["missing"], nothing["number"], nothing["value"]) == (True, None, "nan")
    whole = explorer.json("point", variable="count", index={"lat": 3, "lon": 4})
    assert whole["number"] == int(truth["count"].values[3, 4])
    moment = explorer.json("point", variable="seen", index={"lat": 3, "lon": 4})
    assert np.datetime64(moment["value"]) == truth.seen.values[3, 4]
    flag = explorer.json("point", variable="mask", index={"lat": 3, "lon": 4})
    assert flag["value"] == str(bool(truth.mask.values[3, 4]))


def test_two_dimensional_coordinates(explorer: Explorer, truth: xarray.Dataset) -> None:
    assert explorer.variable("curved")["spatial"] == {"x": "column", "y": "row"}
    found = explorer.json("point", variable="curved", index={"row": 2, "column": 3})
    assert float(found["coordinates"]["glat"]) == truth.glat.values[2, 3]
    assert float(found["coordinates"]["glon"]) == truth.glon.values[2, 3]


def test_tables(explorer: Explorer, truth: xarray.Dataset) -> None:
    names = explorer.json("table", variable="station_name")
    assert [row[-1] for row in names["rows"]] == list(truth.station_name.values)
    assert names["columns"] == ["station", "station_name"]
    single = explorer.json("table", variable="crs")
    assert (single["rows"], single["total"], single["dims"]) == ([["7"]], 1, [])
    labelled = explorer.json("table", variable="level")
    assert labelled["rows"] == [["0", "1000.0"], ["1", "850.0"], ["2", "500.0"]]
    start = 61 * 47 + 60
    flat = explorer.json("table", variable="tas", start=start, count=3)
    places = np.unravel_index(np.arange(start, start + 3), truth.tas.shape)
    assert [[int(number) for number in row[:4]] for row in flat["rows"]] == np.transpose(places).tolist()
    np.testing.assert_array_equal([np.float32(row[4]) for row in flat["rows"]], truth.tas.values[places])
    assert flat["total"] == truth.tas.size
    assert explorer.json("table", variable="tas", start=truth.tas.size)["rows"] == []


def test_coordinates(explorer: Explorer, truth: xarray.Dataset) -> None:
    found = explorer.json("coordinate", variable="lat")
    assert found["values"] == truth.lat.values.tolist()
    assert (found["dim"], found["kind"], found["units"], found["step"]) == ("lat", "number", "degrees_north", 1)
    times = explorer.json("coordinate", dimension="time")
    np.testing.assert_array_equal(np.array(times["values"], "M8[ns]"), truth.time.values)
    assert times["kind"] == "time"
    assert explorer.json("coordinate", dimension="station")["values"] == [0, 1, 2]
    texts = explorer.json("coordinate", dimension="member")
    assert (texts["values"], texts["kind"]) == (["a", "b"], "text")


@pytest.mark.parametrize("how", [{}, {"statistic": "max", "over": "time"}])
def test_downloads(explorer: Explorer, truth: xarray.Dataset, how: dict[str, str]) -> None:
    requested: dict[str, Any] = {"variable": "tas", "index": {"level": 2}, "box": [8, 20, 10, 30], **how}
    answer = explorer.ask("download", format="netcdf", **requested)
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Disposition"] == "attachment; filename*=UTF-8''tas.nc"
    part = truth.tas.isel(level=2, lat=slice(8, 20), lon=slice(10, 30))
    part = part.max("time") if how else part.isel(time=0)
    with xarray.open_dataset(io.BytesIO(answer.body), engine="h5netcdf") as found:
        xarray.testing.assert_equal(found.tas.load(), part)
        assert found.tas.attrs["units"] == "K"
    lines = explorer.ask("download", format="csv", **requested).body.decode().splitlines()
    assert lines[0] == "lat,lon,tas"
    rows = [line.split(",") for line in lines[1:]]
    values = np.array([np.float32(row[2]) if row[2] else np.nan for row in rows]).reshape(12, 20)
    np.testing.assert_array_equal(values, part.values)
    assert [float(rows[0][0]), float(rows[0][1])] == [truth.lat.values[8], truth.lon.values[10]]


def test_the_summary_is_what_xarray_shows(explorer: Explorer, truth: xarray.Dataset) -> None:
    found = explorer.json("archive")
    (group,) = found["groups"]
    assert {one["name"]: one["size"] for one in group["dimensions"]} == dict(truth.sizes)
    about = {one["path"]: one for one in group["variables"]}
    assert set(about) == set(truth.variables)
    for name, variable in truth.variables.items():
        assert about[name]["shape"] == list(variable.shape), name
        assert about[name]["dims"] == list(variable.dims), name
        assert about[name]["is_coordinate"] == (name in truth.coords), name
        if variable.dtype.kind not in "OU":
            assert about[name]["dtype"] == str(variable.dtype), name
    assert {one["kind"] for one in about.values()} == {"number", "time", "bool", "text"}
    tas = about["tas"]
    assert (tas["chunk_shape"], tas["chunks"], tas["files"]) == ([2, 1, 16, 20], 3 * 3 * 3 * 4, 1)
    assert tas["codecs"] == ["shuffle → zlib(4)"]
    assert tas["spatial"] == {"x": "lon", "y": "lat"}
    assert tas["coordinates"] == {"time": "time", "level": "level", "lat": "lat", "lon": "lon"}
    assert 0 < tas["stored_bytes"] < tas["virtual_bytes"] == truth.tas.nbytes
    assert found["files"] == 1
