"""What the explorer says of a forecast that is selected: run, lead time, and the time that it is about.

Modules: server/explorer/side_labels.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from server.explorer.client import Explorer
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
