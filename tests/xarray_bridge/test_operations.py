"""Operations on a virtual dataset equal those on the loaded one, and stay virtual where they
should.

Modules: expressions/padding.py, expressions/point_selection.py, lazy_array/deferred_values.py, lazy_array/einsum.py,
lazy_array/numpy_functions.py, lazy_array/numpy_operations.py, lazy_array/numpy_reductions.py,
reducing/contraction.py, reducing/partials_by_box.py, reducing/weighted_statistics.py,
xarray_bridge/backend_array.py
"""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.lazy_array.duck_array import LazyArray
from insitu.xarray_bridge import open_dataset

Operation = Callable[[xr.Dataset], Any]

STRUCTURAL: dict[str, Operation] = {
    "isel": lambda ds: ds.isel(time=slice(2, 8, 2), lat=[0, 3, 3], lon=-1),
    "isel backwards": lambda ds: ds.isel(time=slice(None, None, -1)),
    "sel": lambda ds: ds.sel(time=slice("2001-01-01T12", "2001-01-02")),
    "sel nearest": lambda ds: ds.sel(lat=12, lon=[40, 300], method="nearest"),
    "boolean": lambda ds: ds.isel(time=np.arange(10) % 3 == 0),
    "points": lambda ds: ds.isel(lat=xr.DataArray([0, 5, 2], dims="p"), lon=xr.DataArray([1, 1, 7], dims="p")),
    "points of one dimension": lambda ds: ds.isel(lat=xr.DataArray([[0, 5], [2, 2]], dims=("a", "b"))),
    "points that step": lambda ds: ds.isel(
        time=slice(1, None, 3), lat=xr.DataArray([0, -1], dims="p"), lon=xr.DataArray([1, -2], dims="p")
    ),
    "transpose": lambda ds: ds.transpose("lon", "time", "lat", ...),
    "expand_dims": lambda ds: ds.expand_dims(member=[1, 2]),
    "squeeze": lambda ds: ds.isel(lon=[3]).squeeze(),
    "concat": lambda ds: xr.concat(
        [ds.isel(time=slice(0, 4)), ds.isel(time=slice(4, None))],
        "time",
        data_vars="minimal",
        coords="minimal",
        compat="override",
        join="exact",
    ),
    "concat of a new dimension": lambda ds: xr.concat(
        [ds[["tas", "packed"]], ds[["tas", "packed"]]], "member", coords="minimal", compat="override", join="exact"
    ),
    "reindex": lambda ds: ds[["tas", "packed", "number"]].reindex(lat=[-50.0, 1.0, 50.0], time=ds.time[::-2]),
    "reindex with a value": lambda ds: ds[["tas", "number"]].reindex(lat=[-50.0, 1.0, 50.0], fill_value=-1),
    "where": lambda ds: ds[["tas", "packed"]].where(ds.lat > 0),
    "where in two dimensions": lambda ds: ds[["tas", "packed"]].where((ds.lat > 0) | (ds.lon < 200)),
    "where, drop": lambda ds: ds[["tas"]].where(ds.lat > 0, drop=True),
    "pad": lambda ds: ds[["tas", "number"]].pad(time=(2, 1)),
    "shift": lambda ds: ds[["tas", "number"]].shift(time=2),
    "roll": lambda ds: ds[["tas", "number"]].roll(lon=3),
    "sortby": lambda ds: ds.sortby("lat", ascending=False),
    "rename": lambda ds: ds.rename(tas="t", lat="y"),
    "broadcast": lambda ds: xr.broadcast(ds[["tas", "height"]], ds.number)[0],
    "stack": lambda ds: ds[["number"]].isel(time=[0]).stack(cell=("time", "lat")),
    "head": lambda ds: ds.head(time=2),
    "drop_isel": lambda ds: ds.drop_isel(time=[0, 3]),
    "astype": lambda ds: ds[["number", "tas"]].astype("f8"),
    "isnull": lambda ds: ds[["tas", "packed"]].isnull(),
    "notnull": lambda ds: ds[["tas"]].notnull(),
    "copy": lambda ds: ds.copy(deep=True),
    "pickle": lambda ds: pickle.loads(pickle.dumps(ds)),
    "align": lambda ds: xr.align(ds[["tas"]], ds[["tas"]].isel(time=slice(3, None)), join="outer")[1],
    "merge": lambda ds: xr.merge([ds[["tas"]], ds[["packed"]]], join="exact", compat="override"),
    "swap_dims": lambda ds: ds[["tas"]].assign_coords(step=("time", np.arange(10))).swap_dims(time="step"),
}

READING: dict[str, Operation] = {
    "arithmetic": lambda ds: ds[["tas", "number"]] * 2 + ds.height,
    "comparison": lambda ds: ds[["tas"]] > 280,
    "clip": lambda ds: ds[["tas"]].clip(270, 290),
    "fillna": lambda ds: ds[["tas"]].fillna(0),
    "cumsum": lambda ds: ds[["tas"]].cumsum("time"),
    "diff": lambda ds: ds[["tas"]].diff("time"),
    "interp": lambda ds: ds[["packed"]].interp(lat=[1.0, 2.0]),
    "groupby": lambda ds: ds[["tas", "packed"]].groupby("time.day").mean(),
    "resample": lambda ds: ds[["tas"]].resample(time="1D").max(),
    "coarsen": lambda ds: ds[["packed"]].coarsen(lat=2, lon=4).mean(),
    "rolling": lambda ds: ds[["packed"]].rolling(time=3).mean(),
    "weighted": lambda ds: ds[["tas"]].weighted(np.cos(np.deg2rad(ds.lat))).mean(("lat", "lon")),
    "to_dataframe": lambda ds: ds[["number"]].to_dataframe().to_xarray(),
    "differentiate": lambda ds: ds[["packed"]].differentiate("lat"),
    "quantile": lambda ds: ds[["tas"]].quantile([0.1, 0.5], "time"),
    "dot": lambda ds: xr.dot(ds.number, ds.height, dim="lat").to_dataset(name="d"),
    "dot as a matrix": lambda ds: xr.dot(ds.number, ds.number.rename(lat="other"), dim="time").to_dataset(name="d"),
    "polyfit": lambda ds: ds[["packed"]].polyfit("time", 1),
    "map": lambda ds: ds[["tas"]].map(np.sqrt),
    "isin": lambda ds: ds[["number"]].isin([1, 2]),
    "zeros_like": lambda ds: xr.zeros_like(ds[["tas", "number"]]),
    "argmin": lambda ds: ds[["packed"]].argmin("time"),
    "idxmax": lambda ds: ds[["packed"]].idxmax("lat"),
    "unstack": lambda ds: ds[["number"]].stack(cell=("time", "lat")).unstack(),
    "round": lambda ds: ds[["tas", "number"]].round(1),
    "round whole": lambda ds: ds.tas.round(),
    "real": lambda ds: ds.tas.real,
    "imag": lambda ds: ds.tas.imag,
    "conj": lambda ds: ds[["tas"]].conj(),
    "argsort": lambda ds: ds.packed.argsort(),
}


def assert_same_values(virtual: Any, loaded: Any) -> None:
    if isinstance(virtual, xr.DataArray):
        virtual, loaded = virtual.to_dataset(name="x"), loaded.to_dataset(name="x")
    xr.testing.assert_allclose(virtual.load(), loaded, rtol=1e-6)
    for name in loaded.variables:
        assert virtual[name].dtype == loaded[name].dtype, name


@pytest.mark.parametrize("name", STRUCTURAL)
def test_structural_operations_read_nothing(varied: Path, name: str) -> None:
    loaded = open_dataset(varied).load()
    result = STRUCTURAL[name](open_dataset(varied))
    expected = STRUCTURAL[name](loaded)
    lazy = [v for v in result.data_vars if isinstance(result[v].variable._data, LazyArray)]
    in_memory = {"code", "name"}  # texts, known since opening
    assert set(result.data_vars) - set(lazy) <= in_memory
    xr.testing.assert_identical(result.load(), expected)
    for variable in expected.variables:
        assert result[variable].dtype == expected[variable].dtype, variable


@pytest.mark.parametrize("name", READING)
def test_other_operations_give_the_same(varied: Path, name: str) -> None:
    loaded = open_dataset(varied).load()
    assert_same_values(READING[name](open_dataset(varied)), READING[name](loaded))


METHODS = ["sum", "mean", "min", "max", "std", "var", "count", "prod", "median"]


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("dim", [None, "time", ("lat", "lon"), ("time", "lat", "lon")], ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_reductions(varied: Path, method: str, dim: Any) -> None:
    names = ["tas", "packed", "number", "height"]
    loaded = open_dataset(varied).load()[names]
    virtual = open_dataset(varied)[names]
    for keywords in ({}, {"skipna": False}) if method != "count" else ({},):
        for name in names:
            dims = dim if dim is None or isinstance(dim, str) else [d for d in dim if d in loaded[name].dims]
            if isinstance(dims, str) and dims not in loaded[name].dims:
                continue
            assert_same_values(
                getattr(virtual[name], method)(dims, **keywords), getattr(loaded[name], method)(dims, **keywords)
            )


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("keywords", [{"min_count": 3}, {"min_count": 1000}, {"min_count": 0}], ids=str)
@pytest.mark.parametrize("method", ["sum", "prod"])
def test_minimum_count(varied: Path, method: str, keywords: dict[str, int]) -> None:
    loaded, virtual = open_dataset(varied).load().tas, open_dataset(varied).tas
    for dim in (None, "time"):
        assert_same_values(getattr(virtual, method)(dim, **keywords), getattr(loaded, method)(dim, **keywords))


def test_any_all_and_positions(varied: Path) -> None:
    loaded, virtual = open_dataset(varied).load(), open_dataset(varied)
    for method in ("any", "all", "argmin", "argmax"):
        for dim in ("time", "lat"):
            assert_same_values(getattr(virtual.number, method)(dim), getattr(loaded.number, method)(dim))
    assert_same_values(virtual.tas.std("time", ddof=1), loaded.tas.std("time", ddof=1))


def test_reductions_after_slicing(varied: Path) -> None:
    loaded, virtual = open_dataset(varied).load(), open_dataset(varied)
    for ds_v, ds_l in ((virtual, loaded),):
        assert_same_values(ds_v.tas[2:9:2, ::-1, [1, 4, 5]].mean("time"), ds_l.tas[2:9:2, ::-1, [1, 4, 5]].mean("time"))
        assert_same_values(ds_v.tas.where(ds_v.lat > 0).sum(), ds_l.tas.where(ds_l.lat > 0).sum())
        assert_same_values(
            ds_v.tas.where(ds_v.lat + ds_v.lon > 100).mean("lat"), ds_l.tas.where(ds_l.lat + ds_l.lon > 100).mean("lat")
        )


def test_many_points_are_read_at_once(varied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from insitu.xarray_bridge import options

    where = {"lat": xr.DataArray([0, 5, -1], dims="p"), "lon": xr.DataArray([1, 1, 7], dims="p")}
    loaded = open_dataset(varied).load()[["tas", "packed"]]
    monkeypatch.setattr(options, "point_limit", 2)
    virtual = open_dataset(varied)[["tas", "packed"]]
    result = virtual.isel(where)
    with insitu.trace() as trace:
        assert result.tas.variable.values.shape == result.packed.variable.values.shape == (10, 3)
    assert not trace.requests  # the values came with the selection
    xr.testing.assert_identical(result.load(), loaded.isel(where))
    xr.testing.assert_identical(virtual.isnull().isel(where).load(), loaded.isnull().isel(where))


@pytest.mark.parametrize("deep", [True, False])
def test_assignment_is_copy_on_write(varied: Path, deep: bool) -> None:
    ds, plain = open_dataset(varied), open_dataset(varied).load()
    copy = ds.copy(deep=deep)
    before = plain.tas.values.copy()
    for each in (ds, plain):
        each.tas[0] = 5
        each.tas[{"time": [2, 4], "lat": slice(1, 3)}] = -1
        each.tas.loc[{"lat": each.lat[-1]}] = np.nan
    xr.testing.assert_identical(ds.load(), plain)
    wanted = before if deep else plain.tas.values
    np.testing.assert_array_equal(copy.tas.values, wanted)
    np.testing.assert_array_equal(open_dataset(varied).tas.values, before)


@pytest.mark.parametrize(
    "copy",
    [
        lambda array: array.astype(array.dtype),
        lambda array: array.where(xr.ones_like(array, bool)),
        lambda array: array.copy(data=np.copy(array.variable._data)),
    ],
    ids=["astype", "where", "numpy.copy"],
)
def test_what_is_written_to_a_result_stays_there(varied: Path, copy: Any) -> None:
    ds = open_dataset(varied)
    before = open_dataset(varied).tas.values
    other = copy(ds.tas)
    other[0, 0] = 99
    np.testing.assert_array_equal(ds.tas.values, before)


def test_out_is_written_to(varied: Path) -> None:
    ds = open_dataset(varied)
    values, lazy = ds.tas.copy().values, ds.tas.variable._data
    target = np.zeros_like(values)
    np.add(lazy, 1, out=target)
    np.testing.assert_array_equal(target, values + 1)
    alias = target
    target += lazy
    np.testing.assert_array_equal(alias, values + 1 + values)


def test_assignment_reads_no_more_than_the_limit(varied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insitu.options, "read_limit", 10)
    ds = open_dataset(varied)
    with pytest.raises(MemoryError, match="read_limit"):
        ds.tas[0] = 5


def test_loading_reads_all_variables_in_one_batch(varied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import insitu.expressions.evaluate as values

    calls = []
    original = values.read_arrays
    monkeypatch.setattr(
        values, "read_arrays", lambda requests, **how: (calls.append(len(requests)), original(requests, **how))[1]
    )
    ds = open_dataset(varied).drop_vars("height")  # coordinates are xarray's ordinary lazy arrays
    lazy = len(ds.insitu.virtual)
    ds.load()
    assert calls == [lazy - 1]  # texts were read to find out their type, and are not read again


def test_sum_and_count_stream(varied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import insitu.expressions.evaluate as values

    def refuse(*args: Any, **how: Any) -> None:
        raise AssertionError("read")

    expected = open_dataset(varied).load().tas
    monkeypatch.setattr(values, "read_arrays", refuse)
    tas = open_dataset(varied, cache=False).tas
    for method in ("sum", "count", "prod", "mean", "std", "var", "min", "max"):
        np.testing.assert_allclose(
            getattr(tas, method)("time").values, getattr(expected, method)("time").values, rtol=1e-5
        )


@pytest.mark.parametrize(("name", "other"), [("name", 1.5), ("code", 2), ("tas", "a"), ("name", np.arange(6))])
def test_what_cannot_be_compared_is_not_equal(varied: Path, name: str, other: Any) -> None:
    loaded = xr.load_dataset(varied, engine="netcdf4")[name].values
    array = insitu.open_dataset(varied)[name].data
    for compare in (operator.eq, operator.ne):
        np.testing.assert_array_equal(np.asarray(compare(array, other)), compare(loaded, other))
        if np.ndim(other) == 0:
            np.testing.assert_array_equal(np.asarray(compare(other, array)), compare(other, loaded))


def test_empty_selections_backwards(varied: Path) -> None:
    loaded = xr.load_dataset(varied, engine="netcdf4")
    for key in (slice(1, 5, -2), slice(-8, 2, -1), slice(None, -1, -3)):
        found = insitu.open_dataset(varied).isel(lon=key)  # its coordinate `height` is one of xarray's lazy arrays
        xr.testing.assert_identical(found.load(), loaded.isel(lon=key))
        with xr.open_dataset(varied, engine="insitu") as lazy:
            xr.testing.assert_identical(lazy.isel(lon=key).load(), loaded.isel(lon=key))


@pytest.mark.parametrize("fill", [0.5, 3, np.timedelta64(2, "h")])
def test_durations_are_filled_with_numbers(tmp_path: Path, fill: Any) -> None:
    ds = xr.Dataset({"d": ("x", np.arange(4) * np.timedelta64(1, "h").astype("m8[ns]"))})
    ds.to_netcdf(tmp_path / "a.nc")
    for by in (0, 2):
        found = insitu.open_dataset(tmp_path / "a.nc").shift(x=by, fill_value=fill)
        xr.testing.assert_identical(found.load(), ds.shift(x=by, fill_value=fill))


def test_shifts_beyond_the_end_of_references(varied: Path, tmp_path: Path) -> None:
    insitu.open_dataset(varied)[["height", "number"]].insitu.save(tmp_path / "a.json")
    loaded = xr.load_dataset(varied, engine="netcdf4")[["height", "number"]].reset_coords()
    found = insitu.open_dataset(tmp_path / "a.json").reset_coords()
    for by in (20, -20):
        xr.testing.assert_identical(found.shift(lat=by)["number"].load(), loaded.shift(lat=by)["number"])


def test_arrays_of_other_dimensions_cannot_be_concatenated(varied: Path) -> None:
    ds = insitu.open_dataset(varied)
    for other in (ds.height.data, np.float32(5), np.zeros(3)):
        with pytest.raises(ValueError, match="concatenated"):
            np.concatenate([ds.tas.data, other])
