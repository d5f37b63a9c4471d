"""Weighted and grouped reductions in one pass: what xarray gives, here and next to the data, in one
request for each array.

Modules: xarray_bridge/template_dataset.py, xarray_bridge/weighted_accessor.py
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import insitu
from insitu.active.transport import client_for
from insitu.errors import ActiveWarning
from insitu.sources.retry_policy import RetryPolicy
from ports import free_port
from server.serving import Server


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(4)
    time = pd.date_range("2001-01-03", periods=430, freq="D").delete(slice(60, 130))
    values = rng.normal(280, 5, (len(time), 6, 8)).astype("f4")
    values[rng.random(values.shape) < 0.1] = np.nan
    values[:, 2, 3] = np.nan
    made = xr.Dataset(
        {
            "t": (("time", "lat", "lon"), values, {"units": "K"}),
            "turned": (("lon", "time"), values[:, 0].T.astype("f8"), {"units": "m"}),
            "n": (("time", "lat"), rng.integers(-9, 9, (len(time), 6)).astype("i4")),
            "still": (("lat", "lon"), values[0]),
        },
        coords={
            "time": time,
            "lat": ("lat", np.linspace(-80, 80, 6), {"axis": "Y"}),
            "lon": np.arange(8) * 45.0,
            "area": (("lat", "lon"), rng.random((6, 8))),
            "season": ("time", time.month // 4),
            "height": 2.0,
        },
        attrs={"title": "made"},
    )
    made.t.encoding = {"zlib": True, "chunksizes": (50, 4, 8), "_FillValue": np.float32(1e20)}
    found: Path = tmp_path_factory.mktemp("groups") / "groups.nc"
    made.to_netcdf(found, engine="netcdf4")
    return found


GROUPED: dict[str, Any] = {
    "month": lambda ds: ds.groupby("time.month").mean(),
    "all of it": lambda ds: ds[["t", "turned", "n"]].groupby("time.month").mean(...),
    "two dimensions": lambda ds: ds[["t", "turned"]].groupby("time.month").max(("time", "lon")),
    "a coordinate": lambda ds: ds.groupby("season").sum(),
    "attributes": lambda ds: ds.groupby("season").std(keep_attrs=True),
    "no attributes": lambda ds: ds.groupby("season").var(keep_attrs=False, ddof=1),
    "min_count": lambda ds: ds.groupby("time.dayofyear").sum(min_count=2),
    "not skipped": lambda ds: ds.groupby("season").mean(skipna=False),
    "count": lambda ds: ds.groupby("time.month").count(),
    "bins": lambda ds: ds.groupby_bins("season", [0, 1, 2]).mean(),
    "along lat": lambda ds: ds[["t", "n"]].drop_vars("area").groupby("lat").min(),
    "bins of lat": lambda ds: ds[["t"]].groupby_bins("lat", [-50, 0, 10, 20, 90]).mean(),
    "resample": lambda ds: ds.resample(time="MS").mean(),
    "resample, empty": lambda ds: ds[["t", "turned"]].resample(time="10D").max(),
    "resample, sum": lambda ds: ds[["n"]].resample(time="10D").sum(),
    "all": lambda ds: ds[["n"]].groupby("season").all(),
}


class Plain:
    """Gives xarray's own methods by the accessor's names."""

    def __init__(self, ds: xr.Dataset) -> None:
        self.ds = ds

    def __getitem__(self, names: Any) -> Plain:
        return Plain(self.ds[names])

    def drop_vars(self, names: Any) -> Plain:
        return type(self)(self.ds.drop_vars(names))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ds, name)


class Ours(Plain):
    def __getitem__(self, names: Any) -> Ours:
        return Ours(self.ds[names])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ds.insitu, name)


def assert_same_dataset(found: xr.Dataset, expected: xr.Dataset) -> None:
    assert list(found.data_vars) == list(expected.data_vars)
    assert set(found.coords) == set(expected.coords)
    assert found.attrs == expected.attrs
    for name in expected.variables:
        one, other = found[name], expected[name]
        assert one.dims == other.dims, name
        assert one.dtype == other.dtype, name
        assert one.attrs == other.attrs, name
        if name in expected.coords:
            xr.testing.assert_identical(one.variable, other.variable)
        else:
            np.testing.assert_allclose(one.values, other.values, rtol=3e-5, atol=1e-4, err_msg=str(name))


@pytest.mark.parametrize("name", GROUPED)
def test_groups_like_xarray(path: Path, server: Server, plain: xr.Dataset, name: str) -> None:
    operation = GROUPED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, of slices that are all missing
        expected = operation(Plain(plain))
    assert_same_dataset(operation(Ours(insitu.open_dataset(path))).load(), expected)
    there = insitu.open_dataset(path, active=server.url, active_required=True)
    before = client_for(server.url).traffic.requests
    assert_same_dataset(operation(Ours(there)).load(), expected)
    assert 1 <= client_for(server.url).traffic.requests - before <= 4  # no more than one for a variable


def test_what_is_not_reduced_in_groups_is_xarrays(path: Path, plain: xr.Dataset) -> None:
    actual = insitu.open_dataset(path)[["t"]].insitu.groupby("season")
    xr.testing.assert_allclose(actual.median().load(), plain[["t"]].groupby("season").median())
    assert "season" in repr(actual)
    assert {"mean", "median"} <= set(dir(actual))
    with pytest.raises(AttributeError):
        actual.nonsense  # noqa: B018


WEIGHTS: dict[str, Any] = {
    "lat": lambda ds: np.cos(np.deg2rad(ds.lat)),
    "area": lambda ds: ds.area,
    "turned area": lambda ds: ds.area.T,
    "time": lambda ds: xr.DataArray(np.arange(ds.sizes["time"]), dims="time"),
    "floats": lambda ds: ds.area.astype("f4"),
    "zero": lambda ds: xr.zeros_like(ds.lat),
    "other labels": lambda ds: xr.DataArray([1.0, 2.0, 3.0], coords={"lat": ds.lat.values[[1, 2, 5]]}, dims="lat"),
}


@pytest.mark.parametrize("dim", [None, ("lat", "lon"), ("time", "lat", "lon"), "lat"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_like_xarray(path: Path, server: Server, plain: xr.Dataset, name: str, dim: Any) -> None:
    there = insitu.open_dataset(path, active=server.url, active_required=True)
    for names in (["t"], ["t", "turned", "n"]):
        for method in ("mean", "sum", "sum_of_weights", "std", "var"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                try:
                    expected = getattr(plain[names].weighted(WEIGHTS[name](plain)), method)(dim)
                except ValueError:  # a variable without the dimension
                    with pytest.raises(ValueError, match=r"do not exist|not found"):
                        getattr(there[names].insitu.weighted(WEIGHTS[name](there)), method)(dim)
                    continue
                assert_same_dataset(
                    getattr(insitu.open_dataset(path)[names].insitu.weighted(WEIGHTS[name](plain)), method)(dim).load(),
                    expected,
                )
                assert_same_dataset(
                    getattr(there[names].insitu.weighted(WEIGHTS[name](there)), method)(dim).load(), expected
                )


def test_weights_keep_attributes(path: Path, plain: xr.Dataset) -> None:
    actual, weights = insitu.open_dataset(path), np.cos(np.deg2rad(plain.lat))
    for keep in (True, False):
        expected = plain.weighted(weights).mean("lat", keep_attrs=keep)
        assert_same_dataset(actual.insitu.weighted(weights).mean("lat", keep_attrs=keep).load(), expected)
    expected = plain[["t"]].weighted(weights).mean("lat", skipna=False)
    assert_same_dataset(actual[["t"]].insitu.weighted(weights).mean("lat", skipna=False).load(), expected)
    with pytest.raises(ValueError, match="missing values"):
        actual.insitu.weighted(weights.where(weights > 0.5))


@pytest.mark.parametrize("dim", [None, ("lat", "lon"), ("time", "lat", "lon"), "lat"])
@pytest.mark.parametrize("name", ["lat", "area", "turned area", "floats"])
def test_plain_weighted_means_run_there(path: Path, server: Server, plain: xr.Dataset, name: str, dim: Any) -> None:
    there = insitu.open_dataset(path, active=server.url, active_required=True)
    weights = WEIGHTS[name](plain)
    there.t.mean()
    fits = dim is None or set(weights.dims) <= set(np.atleast_1d(dim))
    for method in ("sum_of_weights", "mean", "sum"):
        expected = getattr(plain[["t"]].weighted(weights), method)(dim)
        before = client_for(server.url).traffic.requests
        found = getattr(there[["t"]].weighted(weights), method)(dim)
        assert not fits or client_for(server.url).traffic.requests - before == 1
        assert_same_dataset(found.load(), expected)


def test_plain_groups_run_there(path: Path, server: Server, plain: xr.Dataset) -> None:
    there = insitu.open_dataset(path, active=server.url, active_required=True)
    before = client_for(server.url).traffic.requests
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = plain[["t"]].groupby("season").mean()
    assert_same_dataset(there[["t"]].groupby("season").mean().load(), expected)
    assert client_for(server.url).traffic.requests - before <= 4  # one for a group


def test_without_the_server_a_word_and_the_same(path: Path, plain: xr.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("insitu.active.transport.RETRIES", RetryPolicy(attempts=5, first_pause=0.001))
    url = f"http://127.0.0.1:{free_port()}"
    there = insitu.open_dataset(path, active=url)[["t"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = plain[["t"]].groupby("season").mean()
    with pytest.warns(ActiveWarning, match="t is read and reduced here"):
        found = there.insitu.groupby("season").mean().load()
    assert_same_dataset(found, expected)
    assert_same_dataset(
        there.weighted(plain.area).mean().load(), plain[["t"]].weighted(plain.area).mean()
    )  # once is enough
    with pytest.raises(insitu.errors.InsituError, match=r"unreachable|cannot connect"):
        insitu.open_dataset(path, active=url, active_required=True)[["t"]].insitu.groupby("season").mean()
