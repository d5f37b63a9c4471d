"""An archive like those of models: several files, packed variables, a calendar, labels."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

TIMES = 30
"""Steps of a file."""


def write_year(path: Path, year: int, steps: int = TIMES, scale: float = 0.001, unit: str = "days") -> None:
    """Write one file of the archive."""
    rng = np.random.default_rng(year)
    begin = year * TIMES * (24 if unit == "hours" else 1)
    step = 24 if unit == "hours" else 1
    dims = ("time", "lat", "lon")
    tas = rng.normal(280, 5, (steps, 9, 12)).astype("f4")
    pr = np.where(rng.random((steps, 9, 12)) < 0.1, np.nan, rng.random((steps, 9, 12)))
    ds = xr.Dataset(
        {
            "tas": (dims, tas, {"units": "K", "flag_values": np.array([1, 2], "i2"), "valid": np.float32(0.1)}),
            "pr": (dims, pr, {"units": "kg m-2 s-1"}),
            "rank": (("time", "lat"), rng.integers(-5, 5, (steps, 9)).astype("i4")),
            "orog": (("lat", "lon"), np.arange(108.0).reshape(9, 12), {"coordinates": "area"}),
            "crs": ((), np.int32(0), {"grid_mapping_name": "latitude_longitude"}),
        },
        coords={
            "time": (
                "time",
                begin + step * np.arange(steps),
                {"units": f"{unit} since 2001-01-01", "calendar": "noleap"},
            ),
            "lat": ("lat", np.linspace(-80, 80, 9), {"units": "degrees_north"}),
            "lon": ("lon", np.arange(12) * 30.0),
            "area": (("lat", "lon"), np.ones((9, 12))),
            "name": ("lat", np.array([f"row {number}" for number in range(9)], object)),
        },
        attrs={"title": "a test", "version": np.int32(3)},
    )
    packed = {"dtype": "i2", "scale_factor": scale, "add_offset": 0.5, "_FillValue": -32768}
    filters = {"zlib": True, "complevel": 1}
    ds.to_netcdf(
        path,
        engine="netcdf4",
        encoding={
            "tas": {"chunksizes": (1, 9, 12), "shuffle": True, **filters},
            "pr": {"chunksizes": (7, 5, 12), **packed, **filters},
        },
    )


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(without_syncing: None) -> None:
    """Copies synchronise everything that they write."""


@pytest.fixture(scope="session")
def written_years(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files, written once."""
    folder: Path = tmp_path_factory.mktemp("years")
    for year in range(4):
        write_year(folder / f"y{year}.nc", year)
    return folder


def copy_years(source: Path, target: Path, count: int) -> list[str]:
    """Copy some of the files for a test, which may change them."""
    target.mkdir()
    return [shutil.copy(source / f"y{year}.nc", target) for year in range(count)]


@pytest.fixture
def files(written_years: Path, tmp_path: Path) -> str:
    """A pattern of three files."""
    copy_years(written_years, tmp_path / "archive", 3)
    return f"{tmp_path}/archive/y*.nc"
