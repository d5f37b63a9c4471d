"""What the explorer shows of forecasts: run, lead time, and the time that one is about; views of a collection.

Modules: server/explorer/forecast_view.py, server/explorer/side_labels.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from server.explorer.client import AppServer, Explorer
from server.serving import Server, serving

pytestmark = pytest.mark.servers

RUNS = np.array(["2024-01-01", "2024-01-02", "2024-01-03"], "M8[ns]")
HOURS = np.arange(4) * 6


def _forecasts(leads: Any, attributes: dict[str, str]) -> xr.Dataset:
    return xr.Dataset(
        {"t2m": (("run", "lead", "lat", "lon"), np.zeros((3, 4, 5, 6), "f4"))},
        {
            "run": ("run", RUNS, {"standard_name": "forecast_reference_time"}),
            "lead": ("lead", leads, {"standard_name": "forecast_period", **attributes}),
            "lat": ("lat", np.linspace(-50, 50, 5), {"units": "degrees_north"}),
            "lon": ("lon", np.arange(6.0), {"units": "degrees_east"}),
        },
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("forecasts")
    hours = _forecasts(HOURS.astype("f8"), {"units": "hours"})
    hours.to_netcdf(made / "hours.nc", engine="h5netcdf")
    _forecasts(HOURS * np.timedelta64(1, "h").astype("m8[ns]"), {}).to_netcdf(made / "durations.nc", engine="h5netcdf")
    valid = RUNS[:, None] + HOURS * np.timedelta64(1, "h").astype("m8[ns]")
    plain = hours.assign_coords(valid_time=(("run", "lead"), valid))
    for name in ("run", "lead"):
        del plain[name].attrs["standard_name"]
    plain.to_netcdf(made / "joint.nc", engine="h5netcdf")
    hours.isel(run=1).to_netcdf(made / "single.nc", engine="h5netcdf")
    plain.drop_vars("valid_time").to_netcdf(made / "none.nc", engine="h5netcdf")
    hours.assign_coords(lead=("lead", HOURS, {**hours.lead.attrs, "units": "steps"})).to_netcdf(
        made / "steps.nc", engine="h5netcdf"
    )
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with serving([folder], folder / "serve.log") as running:
        yield running


@pytest.mark.parametrize("name", ["hours", "durations", "joint", "single"])
def test_the_time_that_a_forecast_is_about(server: Server, folder: Path, name: str) -> None:
    index = {"lead": 3} if name == "single" else {"run": 1, "lead": 3}
    header = Explorer(server, str(folder / f"{name}.nc")).picture("field", variable="t2m", index=index).header
    assert header["text"].endswith(", valid 2024-01-02T18:00:00")
    assert header["text"].startswith("lead " if name == "single" else "run 2024-01-02T00:00:00, lead ")


def test_nothing_is_said_where_it_is_not_known(server: Server, folder: Path) -> None:
    for name in ("none", "steps"):
        text = Explorer(server, str(folder / f"{name}.nc")).picture("field", variable="t2m").header["text"]
        assert "valid" not in text
        assert text.startswith("run 2024-01-01T00:00:00, lead 0")
    # Along all lead times there is no one time.
    line = Explorer(server, str(folder / "hours.nc")).picture(
        "line", variable="t2m", dim="lead", index={"run": 1, "lat": 0, "lon": 0}
    )
    assert "valid" not in line.header["text"]


@pytest.mark.parametrize(("units", "leads"), [(" hours", ["0", "12", "24", "36"]), ("", ["0h", "12h", "24h", "36h"])])
def test_views_of_a_collection(tmp_path: Path, units: str, leads: list[str]) -> None:
    """The newest forecast of each time, and one lead time of all runs, as xarray selects them."""
    hours = 2 * HOURS  # runs are a day apart: each but the last is followed after two lead times
    numbers = hours if units else hours * np.timedelta64(1, "h").astype("m8[ns]")
    dataset = _forecasts(numbers, {"units": "hours"} if units else {})
    dataset["t2m"] = dataset.t2m + np.arange(dataset.t2m.size, dtype="f4").reshape(dataset.t2m.shape)
    dataset.to_netcdf(tmp_path / "runs.nc", engine="h5netcdf")
    values = dataset.t2m.values
    api = Explorer(AppServer((str(tmp_path),)), str(tmp_path / "runs.nc"))
    views = {one["text"]: one["url"] for one in api.json("archive")["forecasts"]}
    of_leads = [f"lead time {lead}{units}" for lead in leads]
    assert list(views) == ["all runs and lead times", "the newest of each time", *of_leads]
    best = Explorer(api.server, views["the newest of each time"])
    summary = best.json("archive")
    assert (summary["python"], summary["urls"]) == (".insitu.best()", [api.url])
    assert [one["url"] for one in summary["forecasts"]] == list(views.values())
    expected = np.concatenate([values[0, :2], values[1, :2], values[2]])
    assert best.variable("t2m")["shape"] == list(expected.shape)
    for valid in range(8):
        found = best.picture("field", variable="t2m", index={"valid_time": valid})
        np.testing.assert_array_equal(found.arrays["values"], expected[valid])
    third = Explorer(api.server, views[of_leads[3]])
    line = third.picture("line", variable="t2m", dim="valid_time", index={"lat": 2, "lon": 1})
    np.testing.assert_array_equal(line.arrays["values"], values[:, 3, 2, 1])
    assert third.json("archive")["python"] == f".insitu.constant_lead({leads[3] if units else repr(leads[3])})"
    with insitu.open_dataset(api.url) as opened:  # what the snippet says
        found = opened.insitu.constant_lead(int(leads[3]) if units else leads[3])
        np.testing.assert_array_equal(found.t2m.values, values[:, 3])
    assert "lead time 7" in Explorer(api.server, f"forecast:7:{api.url}").refusal("archive")


def test_what_is_no_collection_of_forecasts(server: Server, folder: Path) -> None:
    for name in ("none", "single"):
        assert Explorer(server, str(folder / f"{name}.nc")).json("archive")["forecasts"] == []
    url = f"forecast:best:{folder / 'none.nc'}"
    assert "forecast_reference_time" in Explorer(server, url).refusal("archive", 404)
    assert Explorer(server, "forecast:best:/etc/passwd").ask("archive").status == 403


def test_lead_times_have_the_units_of_the_file(server: Server, folder: Path) -> None:
    api = Explorer(server, str(folder / "hours.nc"))
    header = api.picture("field", variable="t2m", index={"lead": 3}).header
    assert ", lead 18.0 hours, " in header["text"]
    api = Explorer(server, str(folder / "durations.nc"))
    header = api.picture("field", variable="t2m", index={"lead": 3}).header
    assert ", lead 18 h, " in header["text"]
    found = api.json("coordinate", variable="lead")
    assert (found["kind"], found["units"], found["values"]) == ("number", "h", [0, 6, 12, 18])
    assert (
        api.json("point", variable="t2m", index=dict.fromkeys(("run", "lead", "lat", "lon"), 1))["labels"]["lead"]
        == "6 h"
    )


def test_dates_that_are_numbers(server: Server, folder: Path) -> None:
    """ICON's time axis, which xarray leaves as it is."""
    days = np.array([20231231.75, 20240101.0, 20240101.25])
    time = ("time", days, {"units": "day as %Y%m%d.%f", "calendar": "proleptic_gregorian"})
    dataset = xr.Dataset({"t": (("time", "x"), np.zeros((3, 2), "f4"))}, {"time": time})
    dataset.to_netcdf(folder / "icon.nc", engine="h5netcdf")
    api = Explorer(server, str(folder / "icon.nc"))
    found = api.json("coordinate", variable="time")
    assert (found["kind"], found["units"]) == ("time", None)
    texts = ["2023-12-31T18:00:00", "2024-01-01T00:00:00", "2024-01-01T06:00:00"]
    assert found["values"] == texts
    line = api.picture("line", variable="t", dim="time", index={"x": 0})
    assert line.header["position"]["kind"] == "time"
    assert line.arrays["position"].tolist() == np.array(texts, "M8[ms]").astype("i8").tolist()
    header = api.picture("region", variable="t", y="time", x="x", box=[0, 3, 0, 2]).header
    assert header["cells"] == 6
    thirty = dataset.assign_coords(time=("time", days, {**time[2], "calendar": "360_day"}))
    thirty.to_netcdf(folder / "thirty.nc", engine="h5netcdf")
    assert Explorer(server, str(folder / "thirty.nc")).json("coordinate", variable="time")["kind"] == "number"
