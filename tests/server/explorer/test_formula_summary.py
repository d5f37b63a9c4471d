"""Formulas in the explorer's API compared with xarray: fields, lines, points, tables, downloads, refusals.

Modules: server/explorer/find_array.py, server/explorer/formula_array.py
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import numpy as np
import pytest
import xarray as xr

from insitu.server.explorer.shown_values import to_text
from server.explorer.client import Explorer
from server.serving import serving

pytestmark = pytest.mark.servers


def _weather() -> xr.Dataset:
    random = np.random.default_rng(4)
    shape = (6, 20, 30)
    tas = random.normal(280, 10, shape).astype("f4")
    tas[random.random(shape) < 0.05] = np.nan
    dims = ("time", "lat", "lon")
    return xr.Dataset(
        {
            "tas": (dims, tas, {"units": "K", "long_name": "Air temperature"}),
            "dew": (dims, (tas - random.random(shape).astype("f4")), {"units": "K"}),
            "lsm": (("lat", "lon"), random.random(shape[1:]).astype("f4"), {"units": "1"}),
        },
        {
            "time": ("time", np.arange(6), {"units": "days since 2001-01-01"}),
            "lat": ("lat", np.linspace(-80, 80, 20), {"units": "degrees_north", "standard_name": "latitude"}),
            "lon": ("lon", np.arange(30) * 12.0, {"units": "degrees_east", "standard_name": "longitude"}),
        },
    )


@pytest.fixture(scope="module")
def weather() -> xr.Dataset:
    return xr.decode_cf(_weather())


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    folder = tmp_path_factory.mktemp("formulas")
    encoding = {"tas": {"chunksizes": (2, 20, 30), "zlib": True}, "dew": {"chunksizes": (6, 5, 30)}}
    _weather().to_netcdf(folder / "weather.nc", engine="h5netcdf", encoding=encoding)
    xr.Dataset({"depth": ("k", np.arange(3.0)), "tas": ("lat", np.zeros(7))}).to_netcdf(
        folder / "weather.nc", engine="h5netcdf", mode="a", group="model/run"
    )
    with serving([folder], folder / "serve.log") as running:
        yield Explorer(running, str(folder / "weather.nc"))


def test_a_formula_is_described_as_a_variable_is(api: Explorer) -> None:
    about = api.json("formula", formula="tas - dew")
    assert about["path"] == "=tas - dew"
    assert (about["dims"], about["shape"]) == (["time", "lat", "lon"], [6, 20, 30])
    assert (about["units"], about["kind"], about["dtype"]) == ("K", "number", "float32")
    assert about["spatial"] == {"y": "lat", "x": "lon"}
    assert about["coordinates"] == {"time": "time", "lat": "lat", "lon": "lon"}
    assert about["variables"] == ["tas", "dew"]
    assert about["python"] == "ds['tas'] - ds['dew']"


@pytest.mark.parametrize(
    ("formula", "units"),
    [
        ("tas - 273.15", None),
        ("tas / dew", "1"),
        ("tas > dew", "1"),
        ("where(lsm > 0.5, tas, nan)", "K"),
        ("max(tas, dew)", "K"),
        ("abs(tas - dew)", "K"),
        ("tas * lsm", None),
    ],
)
def test_units_that_follow_from_the_formula(api: Explorer, formula: str, units: str | None) -> None:
    assert api.json("formula", formula=formula)["units"] == units


FORMULAS = {
    "=tas - 273.15": lambda ds: ds.tas - 273.15,
    "=tas / dew": lambda ds: ds.tas / ds.dew,
    "=where(lsm > 0.5, tas, nan)": lambda ds: xr.where(ds.lsm > 0.5, ds.tas, np.nan),
    "=sqrt(tas ** 2 + dew ** 2)": lambda ds: np.sqrt(ds.tas**2 + ds.dew**2),
}


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_field_of_a_formula(api: Explorer, weather: xr.Dataset, formula: str) -> None:
    expected = FORMULAS[formula](weather).transpose("time", "lat", "lon")
    for _ in range(2):
        found = api.picture("field", variable=formula, index={"time": 3}, box=[2, 18, 1, 29])
        np.testing.assert_array_equal(found.arrays["values"], expected[3, 2:18, 1:29].values)
    np.testing.assert_array_equal(found.arrays["y"], weather.lat[2:18])
    assert found.header["sampling"]["method"] == "all"
    assert found.header["text"] == "time 2001-01-04T00:00:00"
    section = api.picture("field", variable=formula, y="time", x="lon", index={"lat": 7})
    np.testing.assert_array_equal(section.arrays["values"], expected[:, 7].values)


@pytest.mark.parametrize("formula", FORMULAS)
def test_means_and_statistics_of_a_formula(api: Explorer, weather: xr.Dataset, formula: str) -> None:
    expected = FORMULAS[formula](weather).transpose("time", "lat", "lon").astype("f8")
    coarse = api.picture("field", variable=formula, index={"time": 0}, rows=10, columns=15)
    assert coarse.header["sampling"]["method"] == "mean"
    wanted = expected[0].coarsen(lat=2, lon=2).mean()
    np.testing.assert_allclose(coarse.arrays["values"], wanted, rtol=1e-6)
    reduced = api.picture("field", variable=formula, statistic="max", over="time")
    np.testing.assert_array_equal(reduced.arrays["values"], expected.max("time"))


def test_a_line_and_a_point_of_a_formula(api: Explorer, weather: xr.Dataset) -> None:
    line = api.picture("line", variable="=tas - dew", dim="time", index={"lat": 4, "lon": 5})
    np.testing.assert_array_equal(line.arrays["values"], (weather.tas - weather.dew)[:, 4, 5])
    assert line.header["units"] == "K"
    point = api.json("point", variable="=tas - dew", index={"time": 1, "lat": 4, "lon": 5})
    assert point["value"] == to_text((weather.tas - weather.dew)[1, 4, 5].values[()])
    assert point["labels"]["lon"] == "60.0 degrees_east"


def test_a_table_of_a_formula(api: Explorer, weather: xr.Dataset) -> None:
    found = api.json("table", variable="=lat * 2", count=3)
    assert [row[-1] for row in found["rows"]] == [to_text(value) for value in weather.lat.values[:3] * 2]
    assert "one dimension" in api.refusal("table", variable="=tas - dew")


def test_downloads_of_a_formula(api: Explorer, weather: xr.Dataset) -> None:
    expected = (weather.tas - weather.dew)[2]
    body = api.ask("download", variable="=tas - dew", index={"time": 2}, format="netcdf").body
    with xr.open_dataset(io.BytesIO(body), engine="h5netcdf") as found:
        np.testing.assert_array_equal(found.formula, expected)
        np.testing.assert_array_equal(found.lat, weather.lat)
        assert (found.formula.attrs["units"], found.formula.attrs["long_name"]) == ("K", "tas - dew")
    text = api.ask("download", variable="=tas - dew", index={"time": 2}, format="csv").body.decode()
    assert text.splitlines()[0] == "lat,lon,formula"


def test_variables_of_groups(api: Explorer) -> None:
    about = api.json("formula", formula="`model/run/depth` * 2")
    assert about["python"] == "tree['model/run/depth'] * 2"
    assert api.json("formula", formula="depth * 2")["variables"] == ["model/run/depth"]
    line = api.picture("line", variable="=depth * 2")
    assert line.arrays["values"].tolist() == [0, 2, 4]


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("tas -", "at character 6: it ends where"),
        ("tas + snow", "no variable 'snow' \\(character 7 .*There are: "),
        ("__import__('os').system('true')", "no function '__import__'|not part of a formula"),
        ("tas + `model/run/tas`", "'lat' is labelled by lat .* nothing for model/run/tas"),
        ("3 * 4", "no variable in it"),
        ("(" * 50 + "tas" + ")" * 50, "nested more than 40 deep"),
    ],
)
def test_what_is_refused(api: Explorer, formula: str, message: str) -> None:
    assert re.search(message, api.refusal("formula", formula=formula))
    assert re.search(message, api.refusal("field", variable=f"={formula}"))
