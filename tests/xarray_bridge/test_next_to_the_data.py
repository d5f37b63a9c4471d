"""Reductions on a server after any selection: the same values, one request for each statistic,
nothing read here.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import insitu
from insitu.active.transport import client_for
from insitu.errors import ActiveWarning, UnsupportedError
from server.serving import Server


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    values = rng.normal(280, 5, (60, 18, 24)).astype("f4")
    values[rng.random(values.shape) < 0.1] = np.nan
    values[7, 3] = np.inf
    made = xr.Dataset(
        {"t": (("time", "lat", "lon"), values)},
        coords={
            "time": pd.date_range("2001-01-01", periods=60),
            "lat": np.linspace(-85, 85, 18),
            "lon": np.arange(24) * 15.0,
        },
    )
    made.t.encoding = {"zlib": True, "chunksizes": (10, 9, 12), "_FillValue": np.float32(1e20)}
    found: Path = tmp_path_factory.mktemp("next") / "a.nc"
    made.to_netcdf(found, engine="netcdf4")
    return found


POINTS = xr.DataArray([1, 5, 7], dims="p")
THERE: dict[str, tuple[int, Any]] = {
    "steps": (1, lambda d: d.t.isel(time=slice(3, 50, 4)).mean()),
    "backwards": (1, lambda d: d.t.isel(time=slice(50, 3, -3)).argmax("time")),
    "lists": (1, lambda d: d.t.isel(lat=[6, 8, 8], lon=[0, 5]).mean("time")),
    "marks": (1, lambda d: d.t.isel(lat=np.arange(18) % 2 == 0).max("lat")),
    "labels": (1, lambda d: d.t.sel(lat=slice(-30, 30), time="2001-02").min()),
    "nearest": (1, lambda d: d.t.sel(lat=[-10, 20], method="nearest").mean()),
    "points": (1, lambda d: d.t.isel(lat=POINTS, lon=POINTS).mean("time")),
    "turned": (1, lambda d: d.t.transpose("lon", ...).count("time")),
    "sorted": (1, lambda d: d.t.sortby("lat", ascending=False).sum("time")),
    "rolled": (1, lambda d: d.t.roll(lon=5).mean("time")),
    "shifted": (1, lambda d: d.t.shift(time=2).max("time")),
    "padded": (1, lambda d: d.t.pad(time=2).min("time")),
    "twice": (1, lambda d: xr.concat([d.t, d.t], "m").max("m")),
    "wider": (1, lambda d: d.t.astype("f8").isel(lat=5).std()),
    "how many are missing": (1, lambda d: d.t.isnull().sum("time")),
    "is one missing": (1, lambda d: d.t.isnull().any("time")),
    "are all there": (1, lambda d: d.t.notnull().all()),
    "part that is there": (1, lambda d: d.t.notnull().mean("lon")),
    "with a least number": (2, lambda d: d.t.sum("lon", min_count=22)),
    "label of the largest": (2, lambda d: d.t.idxmax("time")),
    "quantiles": (1, lambda d: d.t.isel(lat=slice(4, 9)).quantile([0.1, 0.5], "time")),
    "a mask that is a grid": (1, lambda d: d.t.where(d.lat > 0).mean()),
    "only where": (1, lambda d: d.t.where(d.lat > 0, drop=True).mean("time")),
    "a mask along kept dimensions": (1, lambda d: d.t.where((d.lat > 0) & (d.lon > 100) | (d.lat < -60)).mean("time")),
    "the same, summed": (1, lambda d: d.t.where((d.lat > 0) & (d.lon > 100) | (d.lat < -60)).sum("time")),
    "the same, counted": (1, lambda d: d.t.where((d.lat > 0) & (d.lon > 100) | (d.lat < -60)).count("time")),
    "a mask along reduced dimensions": (
        1,
        lambda d: d.t[8:].where((d.lat > 0) & (d.lon > 100) | (d.lat > 60)).mean(("lat", "lon")),
    ),
    "that, summed": (1, lambda d: d.t[8:].where((d.lat > 0) & (d.lon > 100) | (d.lat > 60)).sum(("lat", "lon"))),
    "that, counted": (1, lambda d: d.t.where((d.lat > 0) & (d.lon > 100) | (d.lat > 60)).count(("lat", "lon"))),
    "groups": (2, lambda d: d.t.isel(time=slice(0, 45)).groupby("time.month").max()),
    "of a dataset": (1, lambda d: d.mean("time")),
    "filled": (1, lambda d: d.t.fillna(0).mean("time")),
    "a mask along all dimensions": (1, lambda d: d.t.where((d.time.dt.day > 5) | (d.lat > 20)).mean(("time", "lon"))),
    "extremes of a mask": (1, lambda d: d.t.where((d.lat > 0) & (d.lon > 100) | (d.lat < -60)).max(("lat", "lon"))),
    "an infinity behind the mask": (1, lambda d: d.t.where((d.lat > 0) & (d.lon > 100) | (d.lat > 60)).mean()),
    "arithmetic": (1, lambda d: (d.t * 2 + 1).max()),
    "narrower": (1, lambda d: d.t.astype("f2").max("time")),
    "counted above": (1, lambda d: (d.t > 283).sum("time")),
    "any above": (1, lambda d: (d.t > 299).any(("lat", "lon"))),
    "product": (1, lambda d: (d.t / 280).prod("time", skipna=True)),
    "deviation": (1, lambda d: np.sqrt(d.t.clip(270, 290)).std("time", ddof=1)),
    "label of the largest difference": (2, lambda d: (d.t.fillna(0) - d.lat).idxmax("time")),
    "quantiles of differences": (1, lambda d: (d.t - d.lat).quantile([0.1, 0.5], "time")),
    "median of differences": (1, lambda d: (d.t - d.lat).median("time")),
    "weighted differences": (2, lambda d: (d.t[8:] - 273.15).weighted(np.cos(np.deg2rad(d.lat))).mean(("lat", "lon"))),
    "weighted variance": (3, lambda d: d.t[8:].weighted(np.cos(np.deg2rad(d.lat))).var(("lat", "lon"))),
    "weights along a kept dimension": (1, lambda d: xr.dot(d.t[8:].fillna(0), np.cos(np.deg2rad(d.lat)), dim="time")),
    "an outer product": (1, lambda d: xr.dot(d.t[8:].fillna(0), xr.DataArray([1.0, 2.0], dims="two"), dim="time")),
    "a matrix": (
        1,
        lambda d: xr.dot(d.t[8:].fillna(0), xr.DataArray(np.eye(18, 3) + 1, dims=("lat", "three")), dim="lat"),
    ),
    "a product of three": (1, lambda d: xr.dot(d.t[8:].fillna(0), d.lat, d.lon, dim="time")),
    "a product of two stored": (1, lambda d: xr.dot(d.t[8:].fillna(0), d.t[8:].fillna(1) - 273, dim=("lat", "time"))),
    "groups of differences": (2, lambda d: (d.t - 273.15).isel(time=slice(0, 45)).groupby("time.month").max()),
    "by month": (3, lambda d: (d.t > 280).resample(time="MS").sum()),
    "where another holds": (1, lambda d: d.t.where(d.t.isel(time=0) > 280).mean("time")),
    "with a climatology": (1, lambda d: ((d.t - d.t.isel(time=slice(3)).load().mean("time")) ** 2).mean("time")),
    "one point of a formula": (1, lambda d: np.hypot(d.t, d.t[::-1].data).isel(lat=3, lon=[2, 7]).max("time")),
}
HERE: dict[str, Any] = {
    "coarser": lambda d: d.t.coarsen(time=10).mean(),
    "stacked": lambda d: d.t.stack(z=("lat", "lon")).mean("z"),
    "cumulative": lambda d: d.t.cumsum("time"),
    "a matrix of two": lambda d: xr.dot(d.t[8:].fillna(0), d.t[8:, :5].fillna(0).rename(lat="other"), dim="time"),
    "cumulative differences": lambda d: (d.t - 273.15).cumsum("time"),
    "stacked differences": lambda d: (d.t - 273.15).stack(z=("lat", "lon")).mean("z"),
}


def assert_close(found: Any, expected: Any) -> None:
    xr.testing.assert_allclose(found.load(), expected, rtol=1e-4)
    assert tuple(found.sizes) == tuple(expected.sizes)
    for name in getattr(expected, "data_vars", [None]):
        assert (found[name] if name else found).dtype == (expected[name] if name else expected).dtype


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, of infinities and of slices that are all missing
        yield


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("name", THERE)
def test_done_there(
    path: Path, server: Server, plain: xr.Dataset, name: str, pieces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests, operation = THERE[name]
    if pieces:
        monkeypatch.setattr("insitu.reducing.portions.PORTION_CHUNKS", 5)
    there = insitu.open_dataset(path, active=server.url, active_required=True)
    before = client_for(server.url).traffic.requests
    found = operation(there)
    made = client_for(server.url).traffic.requests - before
    assert made >= requests if pieces else made == requests, made
    assert_close(found, operation(plain))


@pytest.mark.parametrize("name", HERE)
def test_done_here_with_a_word(
    path: Path, server: Server, plain: xr.Dataset, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("insitu.active.fallback._warned", set())
    operation = HERE[name]
    with pytest.raises(UnsupportedError, match=r"servers do not compute.*\[variable .*t.*\].*load\(\) first"):
        operation(insitu.open_dataset(path, active=server.url, active_required=True))
    there = insitu.open_dataset(path, active=server.url)
    with pytest.warns(ActiveWarning, match=r"t.* is read and reduced here, not by"):
        found = operation(there)
    assert_close(found, operation(plain))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ActiveWarning)
        assert_close(operation(there), operation(plain))  # once is enough


def test_reading_needs_no_server(path: Path, server: Server, plain: xr.Dataset) -> None:
    there = insitu.open_dataset(path, active=server.url, active_required=True)
    before = client_for(server.url).traffic.requests
    np.testing.assert_array_equal(there.t.isel(time=3).values, plain.t.isel(time=3).values)
    np.testing.assert_array_equal((there.t * 2).isel(lat=5).values, (plain.t * 2).isel(lat=5).values)
    assert client_for(server.url).traffic.requests == before
