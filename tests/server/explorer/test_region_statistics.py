"""Statistics of regions compared with xarray's weighted reductions, and polygons with Matplotlib's."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from insitu.server.explorer.region import polygon_mask
from server.explorer.client import Explorer
from server.serving import serving

pyproj = pytest.importorskip("pyproj")
pytestmark = pytest.mark.servers

POLYGON = [[35.0, -50.0], [301.7, -20.0], [203.1, 70.0], [151.3, 10.0], [58.9, 60.0]]


def _climate() -> xr.Dataset:
    random = np.random.default_rng(5)
    shape = (7, 18, 24)
    tas = random.normal(280, 10, shape).astype("f4")
    tas[random.random(shape) < 0.1] = np.nan
    tas[3, :9] = np.nan
    lat = np.linspace(85, -85, 18)
    edges = np.stack([lat + 5, lat - 5], axis=1)
    dims = ("time", "lat", "lon")
    return xr.Dataset(
        {
            "tas": (dims, tas, {"units": "K", "long_name": "Air temperature"}),
            "turned": (("lon", "time", "lat"), tas.transpose(2, 0, 1), {"units": "K"}),
            "count": (dims, random.integers(-5, 90, shape, dtype="i2")),
            "measured": (dims, tas, {"units": "K", "cell_measures": "area: areacella"}),
            "areacella": (("lat", "lon"), random.random(shape[1:]), {"units": "m2"}),
            "bounded": (("time", "lat_b", "lon"), tas),
            "lat_b_bnds": (("lat_b", "nv"), edges),
            "plain": (("time", "row", "column"), tas),
            "curved": (("time", "j", "i"), tas),
        },
        {
            "time": ("time", np.arange(7), {"units": "days since 2001-01-01"}),
            "lat": ("lat", lat, {"units": "degrees_north", "standard_name": "latitude"}),
            "lon": ("lon", np.arange(24) * 15.0, {"units": "degrees_east", "standard_name": "longitude"}),
            "lat_b": ("lat_b", lat, {"units": "degrees_north", "bounds": "lat_b_bnds"}),
            "nav_lat": (("j", "i"), lat[:, None] + np.zeros(24), {"units": "degrees_north"}),
            "nav_lon": (("j", "i"), np.zeros((18, 1)) + np.arange(24) * 15.0, {"units": "degrees_east"}),
        },
    )


@pytest.fixture(scope="module")
def climate() -> xr.Dataset:
    return xr.decode_cf(_climate())


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    folder = tmp_path_factory.mktemp("regions")
    encoding = {"tas": {"chunksizes": (2, 7, 24), "zlib": True}, "turned": {"chunksizes": (5, 7, 6)}}
    _climate().to_netcdf(folder / "climate.nc", engine="h5netcdf", encoding=encoding)
    with serving([folder], folder / "serve.log") as running:
        yield Explorer(running, str(folder / "climate.nc"))


def _inside(x: Any, y: Any) -> Any:
    path = pytest.importorskip("matplotlib.path", reason="no Matplotlib here").Path
    points = np.stack(np.broadcast_arrays(x[None, :], y[:, None]), axis=-1).reshape(-1, 2)
    return path(np.array([*POLYGON, POLYGON[0]]), closed=True).contains_points(points).reshape(len(y), len(x))


def _check(found: Any, values: xr.DataArray, weights: Any, inside: Any, dims: tuple[str, str]) -> None:
    """Compare with xarray: what lies outside has no weight and is missing."""
    mask = xr.DataArray(inside, dims=dims)
    weighted = values.astype("f8").weighted(xr.DataArray(weights, dims=dims) * mask)
    chosen = values.where(mask)
    for name, expected in {
        "values": weighted.mean(dims),
        "std": weighted.std(dims),
        "low": chosen.min(dims),
        "high": chosen.max(dims),
        "count": chosen.count(dims),
    }.items():
        np.testing.assert_allclose(
            found.arrays[name], np.atleast_1d(expected.values), rtol=1e-12, atol=1e-9, err_msg=name
        )


@pytest.mark.parametrize("name", ["tas", "turned", "count"])
def test_a_polygon_along_time(api: Explorer, climate: xr.Dataset, name: str) -> None:
    values = climate[name].transpose("time", "lat", "lon")
    inside = _inside(climate.lon.values, climate.lat.values)
    weights = np.broadcast_to(np.cos(np.deg2rad(climate.lat.values))[:, None], inside.shape)
    for _ in range(2):
        found = api.picture("region", variable=name, y="lat", x="lon", polygon=POLYGON, along="time")
        _check(found, values, weights, inside, ("lat", "lon"))
    assert found.header["cells"] == int(inside.sum())
    assert found.header["weights"] == "cosine of latitude"
    np.testing.assert_array_equal(found.arrays["position"], climate.time.values.astype("M8[ms]").astype("f8"))


def test_a_box_at_one_position(api: Explorer, climate: xr.Dataset) -> None:
    found = api.picture("region", variable="tas", box=[2, 11, 5, 20], index={"time": 4})
    part = climate.tas[4, 2:11, 5:20]
    weights = np.broadcast_to(np.cos(np.deg2rad(part.lat.values))[:, None], part.shape)
    _check(found, part, weights, np.ones(part.shape, bool), ("lat", "lon"))
    assert found.header["text"] == "time 2001-01-05T00:00:00"
    assert found.header["position"] is None


def test_areas_from_the_bounds_of_cells(api: Explorer, climate: xr.Dataset) -> None:
    found = api.picture("region", variable="bounded", along="time")
    edges = np.sin(np.deg2rad(climate.lat_b_bnds.values))
    weights = np.broadcast_to(np.abs(edges[:, 1] - edges[:, 0])[:, None], (18, 24))
    _check(found, climate.bounded, weights, np.ones((18, 24), bool), ("lat_b", "lon"))
    assert found.header["weights"] == "cell bounds (lat_b_bnds)"


def test_areas_that_the_variable_names(api: Explorer, climate: xr.Dataset) -> None:
    found = api.picture("region", variable="measured", along="time")
    _check(found, climate.measured, climate.areacella.values, np.ones((18, 24), bool), ("lat", "lon"))
    assert found.header["weights"] == "cell areas (areacella)"


def test_latitudes_of_two_dimensions_and_none(api: Explorer, climate: xr.Dataset) -> None:
    found = api.picture("region", variable="curved", along="time", box=[3, 9, 2, 8])
    part = climate.curved[:, 3:9, 2:8]
    # Cells between great circles, here: those of 15 by 10 degrees differ from boxes by up to some per mille.
    ball = pyproj.Geod("+a=1 +b=1")
    lat, lon = np.linspace(90, -90, 19)[3:10], np.arange(2, 9) * 15 - 7.5
    areas = [
        [abs(ball.polygon_area_perimeter([w, e, e, w], [n, n, s, s])[0]) for w, e in pairwise(lon)]
        for n, s in pairwise(lat)
    ]
    weighted = part.astype("f8").weighted(xr.DataArray(areas, dims=("j", "i"))).mean(("j", "i"))
    np.testing.assert_allclose(found.arrays["values"], weighted, rtol=2e-4)
    assert found.header["weights"] == "areas between the corners of cells"
    found = api.picture("region", variable="plain", along="time")
    _check(found, climate.plain, np.ones((18, 24)), np.ones((18, 24), bool), ("row", "column"))
    assert found.header["weights"] == "every cell counts the same"


def test_a_region_of_a_formula_and_one_by_index(api: Explorer, climate: xr.Dataset) -> None:
    inside = np.zeros((18, 24), bool)
    inside[5:9, 3:7] = True
    weights = np.broadcast_to(np.cos(np.deg2rad(climate.lat.values))[:, None], inside.shape)
    square = [[2.5, 4.5], [6.5, 4.5], [6.5, 8.5], [2.5, 8.5]]
    found = api.picture("region", variable="=tas - 273.15", polygon=square, axes="index", along="time")
    _check(found, climate.tas - 273.15, weights, inside, ("lat", "lon"))


def test_a_vertical_section_has_regions_too(api: Explorer, climate: xr.Dataset) -> None:
    """Sides may be any two dimensions; a latitude among them weighs."""
    found = api.picture("region", variable="tas", y="time", x="lat", along="lon", box=[0, 3, 9, 18])
    part = climate.tas[:3, 9:]
    weights = np.broadcast_to(np.cos(np.deg2rad(part.lat.values))[None, :], (3, 9))
    _check(found, part.transpose("lon", "time", "lat"), weights, np.ones((3, 9), bool), ("time", "lat"))


def test_files_of_a_region(api: Explorer, climate: xr.Dataset) -> None:
    about = {"variable": "tas", "along": "time", "box": [0, 18, 0, 24]}
    expected = climate.tas.astype("f8").weighted(np.cos(np.deg2rad(climate.lat))).mean(("lat", "lon"))
    with xr.open_dataset(io.BytesIO(api.ask("region", format="netcdf", **about).body), engine="h5netcdf") as found:
        np.testing.assert_allclose(found["mean"], expected, rtol=1e-12)
        np.testing.assert_array_equal(found.time, climate.time)
        assert found["mean"].attrs["units"] == "K"
        assert found.attrs["weights"] == "cosine of latitude"
    rows = list(csv.reader(io.StringIO(api.ask("region", format="csv", **about).body.decode())))
    assert rows[0] == ["time", "mean", "std", "min", "max", "count"]
    assert [float(row[1]) for row in rows[1:]] == pytest.approx(expected.values.tolist(), rel=1e-12)
    assert rows[1][0] == "2001-01-01T00:00:00"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"polygon": [[0, 0], [1, 1]]}, "three or more pairs"),
        ({"polygon": [[0, 0], [1, "a"], [2, 2]]}, "three or more pairs"),
        ({"polygon": [[0.1, 0.1], [0.2, 0.1], [0.1, 0.2]]}, "the centre of no cell"),
        ({"polygon": [[i, i % 2] for i in range(1500)]}, "1,500 vertices; 1,000 are allowed"),
        ({"box": [0, 99, 0, 3]}, "must lie within"),
        ({"along": "lat"}, "another dimension than those of the region"),
        ({"along": "level"}, "no dimension 'level'"),
        ({"statistic": "mean", "over": "time"}, "takes no other statistic"),
    ],
)
def test_what_is_refused(api: Explorer, fields: dict[str, Any], message: str) -> None:
    assert message in api.refusal("region", variable="tas", **fields)


def test_an_enormous_region_is_refused_by_its_size(tmp_path_factory: pytest.TempPathFactory) -> None:
    zarr = pytest.importorskip("zarr")
    folder = tmp_path_factory.mktemp("enormous")
    group = zarr.open_group(str(folder / "sparse.zarr"), mode="w", zarr_format=3)
    for name, shape in (("wide", (4, 200_000, 200_000)), ("deep", (100_000_000, 1000, 1000))):
        group.create_array(name, shape=shape, chunks=(1, 1000, 1000), dtype="f4", dimension_names=["time", "y", "x"])
    with serving([folder], folder / "serve.log") as running:
        api = Explorer(running, str(folder / "sparse.zarr"))
        assert "covers 40,000,000,000 cells" in api.refusal("region", 413, variable="wide")
        corners = [[0, 0], [200_000, 0], [200_000, 200_000]]
        assert "draw a smaller one" in api.refusal("region", 413, variable="wide", polygon=corners)
        assert "follows up to 200,000" in api.refusal("region", 413, variable="deep", along="time")


def test_polygons_of_many_shapes() -> None:
    path = pytest.importorskip("matplotlib.path", reason="no Matplotlib here").Path
    random = np.random.default_rng(9)
    xs, ys = random.permutation(np.linspace(0, 10, 41)), np.linspace(9, -1, 37)
    for count in (3, 4, 7, 20):
        turns = np.sort(random.random(count)) * 2 * np.pi
        radius = random.uniform(1, 5, count)
        polygon = np.stack([5 + radius * np.cos(turns), 4 + radius * np.sin(turns)], axis=1)
        points = np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)
        expected = path(np.vstack([polygon, polygon[:1]]), closed=True).contains_points(points).reshape(37, 41)
        np.testing.assert_array_equal(polygon_mask(xs, ys, polygon), expected)


def test_a_small_polygon_on_the_map_of_a_huge_field(tmp_path: Path) -> None:
    """Only the rows and columns that come near it count, also across the seam of the longitudes."""
    lat, lon = np.linspace(89.95, -89.95, 4000), np.arange(5000) * 0.072
    coords = {"lat": ("lat", lat, {"units": "degrees_north"}), "lon": ("lon", lon, {"units": "degrees_east"})}
    values = np.broadcast_to((np.arange(5000) % 251).astype("u1"), (4000, 5000))
    dataset = xr.Dataset({"v": (("lat", "lon"), values)}, coords)
    dataset.to_netcdf(tmp_path / "huge.nc", engine="h5netcdf", encoding={"v": {"zlib": True, "chunksizes": (400, 500)}})
    with serving([tmp_path], tmp_path / "serve.log") as running:
        api = Explorer(running, str(tmp_path / "huge.nc"))
        found = api.picture("region", variable="v", polygon=[[-2, 1], [2, 1], [2, 3], [-2, 3]], axes="map")
        near = (lon + 180) % 360 - 180
        part = dataset.v.values[np.ix_((lat > 1) & (lat < 3), np.abs(near) < 2)]
        weights = np.broadcast_to(np.cos(np.deg2rad(lat[(lat > 1) & (lat < 3)]))[:, None], part.shape)
        assert found.header["cells"] == part.size
        assert found.arrays["values"] == pytest.approx(np.average(part, weights=weights), rel=1e-9)
        assert "the region covers" in api.refusal(
            "region", 413, variable="v", polygon=[[-170, -85], [170, -85], [170, 85], [-170, 85]], axes="map"
        )
