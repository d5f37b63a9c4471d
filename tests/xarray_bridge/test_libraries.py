"""Answers do not depend on flox, bottleneck and numbagg, which xarray uses where they are installed."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import insitu
from plain_xarray import LIBRARIES, with_libraries
from waiting import LONG

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(7)
    time = pd.date_range("2001-01-05", periods=400, freq="D")
    values = random.normal(280, 8, (400, 3, 4)).astype("f4")
    values[random.random(values.shape) < 0.1] = np.nan
    made = xr.Dataset(
        {
            "tas": (("time", "lat", "lon"), values, {"units": "K"}),
            "number": (("time", "lat"), random.integers(-9, 9, (400, 3)).astype("i2")),
            "wind": (("time", "lat", "lon"), random.normal(0, 5, values.shape)),
        },
        coords={"time": time, "lat": [-40.0, 10.0, 60.0], "lon": np.arange(4) * 90.0},
    )
    found: Path = tmp_path_factory.mktemp("libraries") / "x.nc"
    made.to_netcdf(found, encoding={"tas": {"zlib": True, "chunksizes": (60, 3, 2)}})
    return found


@pytest.fixture(scope="module")
def loaded(path: Path) -> xr.Dataset:
    return xr.load_dataset(path)


OPERATIONS: dict[str, Any] = {
    "mean of months": lambda ds: ds.tas.groupby("time.month").mean(),
    "deviation of seasons": lambda ds: ds.wind.groupby("time.season").std(),
    "median of months": lambda ds: ds.wind.groupby("time.month").median(),
    "sum of booleans": lambda ds: (ds.tas > 281).groupby("time.year").sum(),
    "months of a dataset": lambda ds: ds.groupby("time.month").max("time"),
    "anomaly": lambda ds: ds.tas.groupby("time.month") - ds.tas.groupby("time.month").mean(),
    "min_count": lambda ds: ds.tas.groupby("time.dayofyear").sum(min_count=2),
    "min_count of integers": lambda ds: ds.number.groupby("time.month").sum(min_count=31),
    "count": lambda ds: ds.tas.groupby("time.month").count(),
    "bins": lambda ds: ds.tas.groupby_bins("lat", [-90, 0, 90]).mean(),
    "monthly maximum": lambda ds: ds.tas.resample(time="MS").max(),
    "weeks": lambda ds: ds.number.resample(time="7D").sum(),
    "yearly days": lambda ds: (ds.tas < 273.15).resample(time="YS").sum(),
    "rolling mean": lambda ds: ds.tas.rolling(time=7).mean(),
    "rolling maximum": lambda ds: ds.tas.rolling(time=5, center=True, min_periods=1).max(),
    "rolling deviation": lambda ds: ds.wind.rolling(time=5).std(),
    "rolling count": lambda ds: ds.number.rolling(time=5, min_periods=2).count(),
    "coarsen": lambda ds: ds.tas.coarsen(time=8).mean(),
    "mean": lambda ds: ds.tas.mean("time"),
    "sum of integers": lambda ds: ds.number.sum("time"),
    "median": lambda ds: ds.tas.median("time"),
    "quantile": lambda ds: ds.wind.quantile([0.1, 0.9], "time"),
    "argmax": lambda ds: ds.wind.argmax("time"),
    "cumulative": lambda ds: ds.wind.cumsum("time"),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_answers_do_not_depend_on_what_is_installed(path: Path, loaded: xr.Dataset, name: str) -> None:
    operation = OPERATIONS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, of slices that are all missing
        as_they_are = operation(loaded)
        exact = operation(loaded.assign(tas=loaded.tas.astype("f8")))
        with insitu.open_dataset(path) as ds:
            without = [operation(ds).load() for _ in range(2)]
        with insitu.open_dataset(path) as ds, with_libraries():
            installed = [operation(ds).load() for _ in range(2)]
    for found in (*without, *installed):
        xr.testing.assert_identical(found, without[0])
    _assert_close(without[0], exact, as_they_are)


def _assert_close(found: Any, exact: Any, as_they_are: Any) -> None:
    """Values are those of float64, types, attributes and labels those that xarray gives for the values as they are."""
    if isinstance(found, xr.Dataset):
        assert list(found) == list(as_they_are)
        for name in found:
            _assert_close(found[name], exact[name], as_they_are[name])
        return
    assert found.dtype == as_they_are.dtype
    assert found.attrs == as_they_are.attrs
    for name in as_they_are.coords:
        xr.testing.assert_identical(found[name].variable, as_they_are[name].variable)
    size = float(np.nanmax(np.abs(exact))) if found.dtype.kind == "f" else 0.0
    tolerance = 4 * np.finfo(found.dtype).eps if found.dtype.kind == "f" else 0.0
    np.testing.assert_allclose(
        found.values, exact.values.astype(found.dtype), tolerance, 300 * tolerance + tolerance * size
    )


@pytest.mark.slow
def test_without_the_libraries() -> None:
    """The tests of groups and windows in a process in which the libraries cannot be imported.

    Few examples of each property: how xarray takes their absence does not depend on the numbers. What has
    neither groups nor windows of xarray has none of the libraries either: weights, and NumPy's functions.
    """
    missing = f"import sys; sys.modules.update(dict.fromkeys({LIBRARIES}))"
    tests = [f"tests/xarray_bridge/{name}.py" for name in ("test_grouped_accessor", "test_windows")]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile=few"]
    options += ["-k", "not (weights_like or weights_keep or plain_weighted or structural_operations)"]
    run = f"import pytest; sys.exit(pytest.main({[*options, *tests]}))"
    absent = "from xarray.core.utils import module_available; assert not any(map(module_available, {LIBRARIES}))"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-c", f"{missing}\n{absent.format(LIBRARIES=LIBRARIES)}\n{run}"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
