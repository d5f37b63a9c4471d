"""Indices of xclim, a library that knows nothing of virtual arrays: xarray's values, and each byte is read once."""

from __future__ import annotations

import datetime
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from insitu import trace

pytestmark = [
    pytest.mark.slow,  # xclim and its compiled functions take seconds to be loaded
    pytest.mark.filterwarnings(r"ignore:::(xclim|numba|pandas|scipy|lmoments3|xarray)\."),
]

YEARS = range(2001, 2005)
CHUNKS = (30, 3, 4)


def _write_year(path: Path, year: int) -> None:
    random = np.random.default_rng(year)
    times = np.arange(datetime.date(year, 1, 1), datetime.date(year + 1, 1, 1)).astype("M8[ns]")
    shape = (len(times), 6, 8)
    season = -12 * np.cos(np.arange(len(times)) / 365 * 2 * np.pi)[:, None, None]
    tas = (278 + season + random.normal(0, 4, shape)).astype("f4")
    tas[random.random(shape) < 0.01] = np.nan
    pr = np.maximum(random.gamma(0.3, 6e-5, shape) - 1e-5, 0).astype("f4")
    dims = ("time", "lat", "lon")
    variables = {
        "tas": (dims, tas, {"units": "K"}),
        "tasmax": (dims, tas + np.float32(4), {"units": "K"}),
        "tasmin": (dims, tas - np.float32(4), {"units": "K"}),
        "pr": (dims, pr, {"units": "kg m-2 s-1"}),
    }
    coords = {"time": times, "lat": np.linspace(40, 60, 6), "lon": np.linspace(0, 30, 8)}
    encoding = {name: {"zlib": True, "chunksizes": CHUNKS} for name in variables}
    xr.Dataset(variables, coords).to_netcdf(path, encoding=encoding)


@pytest.fixture(scope="module", autouse=True)
def _xclim() -> None:
    """Import it where it is needed, not wherever tests are collected: that takes 5 s."""
    global indices, percentile_doy
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries that it imports
        from xclim import indices
        from xclim.core.calendar import percentile_doy


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("xclim")
    paths = [folder / f"{year}.nc" for year in YEARS]
    for path, year in zip(paths, YEARS, strict=True):
        _write_year(path, year)
    return paths


@pytest.fixture(scope="module")
def loaded(paths: list[Path]) -> xr.Dataset:
    return xr.concat([xr.load_dataset(path) for path in paths], "time")


def _warm_days(ds: xr.Dataset) -> Any:
    return indices.tx90p(ds.tasmax, percentile_doy(ds.tasmax, 5, 90).sel(percentiles=90))


INDICES: dict[str, tuple[list[str], int, Any]] = {
    "tg_mean": (["tas"], 1, lambda ds: indices.tg_mean(ds.tas)),
    "tx_days_above": (["tasmax"], 1, lambda ds: indices.tx_days_above(ds.tasmax, "10 degC")),
    "frost_days": (["tasmin"], 1, lambda ds: indices.frost_days(ds.tasmin)),
    "growing_degree_days": (["tas"], 1, lambda ds: indices.growing_degree_days(ds.tas)),
    "daily_temperature_range_variability": (
        ["tasmin", "tasmax"],
        2,  # of a difference of days, of which each is read for itself
        lambda ds: indices.daily_temperature_range_variability(ds.tasmin, ds.tasmax),
    ),
    "heat_wave_frequency": (
        ["tasmin", "tasmax"],
        1,
        lambda ds: indices.heat_wave_frequency(ds.tasmin, ds.tasmax, "2 degC", "10 degC"),
    ),
    "maximum_consecutive_dry_days": (["pr"], 1, lambda ds: indices.maximum_consecutive_dry_days(ds.pr, "1 mm/day")),
    "daily_pr_intensity": (["pr"], 2, lambda ds: indices.daily_pr_intensity(ds.pr)),  # a sum and a count
    "percentile_doy": (["tas"], 1, lambda ds: percentile_doy(ds.tas, 5, [10, 90])),
    "tx90p": (["tasmax"], 2, _warm_days),
    "max_n_day_precipitation_amount": (["pr"], 1, lambda ds: indices.max_n_day_precipitation_amount(ds.pr, 5)),
}
"""By name: the variables that an index needs, how often it asks for their values, and the index."""


@pytest.mark.parametrize("name", INDICES)
def test_values_are_read_once_and_equal_xarrays(paths: list[Path], loaded: xr.Dataset, name: str) -> None:
    """Each question is asked twice. What is used year by year is kept after the first quarter, which is read again."""
    variables, _, index = INDICES[name]
    with insitu.open_mfdataset(paths) as ds:
        stored = _count_bytes(paths, variables)
        for most in (1.3 * stored, 0):
            with trace() as cost:
                found = index(ds).load()
            _assert_same(found, loaded, index)
            assert cost.bytes <= most


@pytest.mark.parametrize("name", INDICES)
def test_without_a_cache_each_question_reads_once(paths: list[Path], loaded: xr.Dataset, name: str) -> None:
    variables, questions, index = INDICES[name]
    with insitu.open_mfdataset(paths, cache=False) as ds:
        with trace() as cost:
            found = index(ds).load()
        _assert_same(found, loaded, index)
        assert cost.bytes <= 1.1 * questions * _count_bytes(paths, variables)


def _count_bytes(paths: list[Path], variables: list[str]) -> int:
    """Return the bytes that reading some variables takes."""
    with insitu.open_mfdataset(paths, cache=False) as ds, trace() as cost:
        ds[variables].load()
    return cost.bytes


def _assert_same(found: xr.DataArray, loaded: xr.Dataset, index: Any) -> None:
    """Compare with xarray's: types and attributes of the values as they are, numbers of sums in double precision."""
    expected = index(loaded)
    assert found.dtype == expected.dtype
    assert {**found.attrs, "history": ""} == {**expected.attrs, "history": ""}  # that has the time of day
    with xr.set_options(keep_attrs=True):
        exact = index(loaded.astype("f8"))
    xr.testing.assert_allclose(found, exact, rtol=2e-6, atol=2e-6 * float(abs(exact).max()))
