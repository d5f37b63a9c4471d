"""The same question has the same bits as its answer, whichever way it takes: streamed, from values that were kept,
after `.values`, by `Archive.reduce`, the command line, an executor or a server; and it is xarray's in float64.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import insitu
import insitu.cli
from asking import ask_twice, assert_as_in_float64, same_bits, with_numpy_only
from insitu.reducing import portions, reduce_chunks
from insitu.sources import trace
from server.serving import Server, serving

METHODS = ("mean", "sum", "std", "prod", "max", "count", "argmax", "argmin", "any", "median")
SHAPE = (240, 8, 6)
CHUNKS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "small": {"chunksizes": (7, 8, 6), "zlib": True},
    "cut": {"chunksizes": (100, 3, 4), "zlib": True, "shuffle": True},
    "columns": {"chunksizes": (240, 2, 6)},
    "one": {"chunksizes": SHAPE, "zlib": True, "shuffle": True},
}


def _values(dtype: str) -> np.ndarray[Any, Any]:
    """Values with gaps, infinities of both signs, and places where everything is missing or infinite."""
    random = np.random.default_rng(5)
    values = random.normal(280, 30, SHAPE).astype(dtype)
    values[random.random(SHAPE) < 0.1] = np.nan
    values[3, 2, 1], values[40, 4, 4] = np.inf, -np.inf
    values[:, 1, 1] = np.where(random.random(SHAPE[0]) < 0.5, np.nan, -np.inf)
    values[:, 0, 0] = np.nan
    values[:, 0, 1] *= 1e-2
    return values


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file for each way of cutting, with float32, float64 and packed values; one store of float16."""
    made: Path = tmp_path_factory.mktemp("bits")
    dims = ("time", "lat", "lon")
    packed = np.where(np.isfinite(_values("f4")), _values("f4"), np.nan)
    ds = xr.Dataset({"f4": (dims, _values("f4")), "f8": (dims, _values("f8")), "packed": (dims, packed)})
    for name, how in CHUNKS.items():
        encoding: dict[str, dict[str, Any]] = {variable: dict(how) for variable in ds}
        encoding["packed"] |= {"dtype": "i2", "scale_factor": 0.01, "add_offset": 200.0, "_FillValue": -32768}
        encoding["f4"]["_FillValue"] = np.float32(1e20)
        ds.to_netcdf(made / f"{name}.nc", engine="netcdf4", encoding=encoding)
    half = xr.Dataset({"f2": (dims, _values("f4").astype("f2"))})
    half.to_zarr(made / "half.zarr", encoding={"f2": {"chunks": (50, 8, 4)}}, zarr_format=2, consolidated=False)
    return made


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving([folder], tmp_path_factory.mktemp("log") / "log") as running:
        yield running


def _part(array: xr.DataArray, method: str) -> xr.DataArray:
    """Return what a position can be taken of: not where everything is missing."""
    return array.isel(lat=slice(2, None)) if method.startswith("arg") else array


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("method", ["mean", "std", "argmax"])
@pytest.mark.parametrize("name", CHUNKS)
def test_chunks_that_are_reduced_in_slices(
    folder: Path, name: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of some MB are: packed values in the same slices as those that were unpacked and kept."""
    monkeypatch.setattr(reduce_chunks, "STEP_BYTES", 5000)
    monkeypatch.setattr(reduce_chunks, "FUSED_BYTES", 3000)
    monkeypatch.setattr(reduce_chunks, "BLOCK_BYTES", 9000)
    for variable in ("f4", "f8", "packed"):
        for dim in ("time", "lon") if method == "argmax" else ("time", None, ("lat", "lon")):
            with insitu.open_dataset(folder / f"{name}.nc") as ds:
                ask_twice(lambda: getattr(_part(ds[variable], method), method)(dim))  # noqa: B023


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", [*CHUNKS, "half"])
def test_the_first_time_and_the_tenth(folder: Path, name: str, method: str) -> None:
    path = folder / (f"{name}.zarr" if name == "half" else f"{name}.nc")
    with xr.open_dataset(path, engine="zarr" if name == "half" else "netcdf4") as file:
        loaded = file.load()
    dims: list[Any] = ["time", "lon"] if method.startswith("arg") else ["time", ("time", "lat"), None]
    for variable in loaded:
        for dim in dims:
            with insitu.open_dataset(path) as ds, insitu.open_dataset(path, cache=False) as never_kept:
                reduce = lambda given: getattr(_part(given[variable], method), method)(dim)  # noqa: B023, E731
                why = variable, dim
                found = ask_twice(lambda: reduce(ds))  # noqa: B023
                assert same_bits(found.values, reduce(never_kept).values), why
                assert same_bits(found.values, reduce(never_kept).values), why
                with insitu.open_dataset(path) as other:
                    assert other[variable].values.size  # kept from now on
                    assert same_bits(found.values, reduce(other).values), why
                if not method.startswith("arg"):
                    taken = insitu.Archive.open(path).reduce(str(variable), method, dim=dim)
                    assert same_bits(found.values, np.asarray(taken)), why
                with with_numpy_only():
                    assert found.dtype == reduce(loaded).dtype
                    assert_as_in_float64(found.values, reduce(loaded.astype("f8")).values, why)


FORMULAS: dict[str, Any] = {
    "difference": lambda ds: ds.f4 - np.float32(273.15),
    "product": lambda ds: ds.f4 * ds.f8,
    "masked": lambda ds: ds.f4.where(ds.packed > 230),
    "transposed": lambda ds: ds.f4.transpose("lon", "lat", "time") + ds.packed,
    "selected": lambda ds: (ds.f8 / 3).isel(time=slice(None, None, -3), lon=[4, 0, 4]),
    "rolling": lambda ds: ds.packed.rolling(time=5).mean(),
    "wider": lambda ds: ds.f4.astype("f8"),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("formula", FORMULAS)
def test_formulas(folder: Path, formula: str) -> None:
    """Small ones are computed whole and kept, large ones are streamed: the bits are the same."""
    path, make = folder / "cut.nc", FORMULAS[formula]
    with xr.open_dataset(path, engine="netcdf4") as file:
        wanted = make(file.load())
    for method in ("mean", "sum", "std", "prod", "max", "argmax", "median"):
        for dim in ("time",) if method == "argmax" else ("time", None, ("lat", "lon")):
            reduce = lambda given: getattr(_part(make(given), method), method)(dim)  # noqa: B023, E731
            with insitu.open_dataset(path) as ds:
                found = ask_twice(lambda: reduce(ds))  # noqa: B023
                used = make(ds)
                assert same_bits(ask_twice(lambda: getattr(_part(used, method), method)(dim)).values, found.values)  # noqa: B023
            with insitu.open_dataset(path, cache=False) as ds, insitu.options(block_bytes=5000):
                assert same_bits(ask_twice(lambda: reduce(ds)).values, found.values), (method, dim)  # noqa: B023
            with with_numpy_only():
                exact = getattr(_part(wanted.astype("f8"), method), method)(dim)
            assert_as_in_float64(found.values, exact.values, (method, dim))


def test_kept_values_are_not_decoded_again(folder: Path) -> None:
    with insitu.open_dataset(folder / "cut.nc") as ds:
        for method in ("mean", "sum", "std", "count", "median"):
            getattr(ds.f4, method)("time").load()
        with trace() as counted:
            for method in ("mean", "sum", "std", "prod", "count", "median"):
                getattr(ds.f4, method)(("lat", "lon")).load()
                getattr(ds.f4.isel(time=slice(3, 90)), method)("time").load()
        assert not counted.requests


@pytest.mark.parametrize("name", CHUNKS)
def test_the_command_line(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for method in ("mean", "sum", "std"):
        arguments = [
            "insitu",
            "reduce",
            folder / f"{name}.nc",
            "f4[:, 2:4, 2:4]",
            method,
            "--dim",
            "time",
            "--as",
            "json",
        ]
        monkeypatch.setattr(sys, "argv", list(map(str, arguments)))
        with pytest.raises(SystemExit) as ended:
            insitu.cli.main()
        assert not ended.value.code
        printed = np.array(json.loads(capfd.readouterr().out)[method], "f4")
        with insitu.open_dataset(folder / f"{name}.nc") as ds:
            part = ds.f4.isel(lat=slice(2, 4), lon=slice(2, 4))
            assert same_bits(ask_twice(lambda: getattr(part, method)("time")).values, printed)  # noqa: B023


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("method", ["mean", "sum", "std", "prod", "argmax"])
def test_a_server(folder: Path, server: Server, method: str) -> None:
    for name in ("contiguous", "small", "cut"):
        path = folder / f"{name}.nc"
        with (
            insitu.open_dataset(path) as here,
            insitu.open_dataset(path, active=server.url, active_required=True) as there,
        ):
            for variable in ("f4", "f8", "packed"):
                reduce = lambda ds: getattr(_part(ds[variable], method), method)("time")  # noqa: B023, E731
                assert same_bits(ask_twice(lambda: reduce(there)).values, ask_twice(lambda: reduce(here)).values)  # noqa: B023
            for formula in ("difference", "product", "masked", "transposed", "selected"):
                reduce = lambda ds: getattr(_part(FORMULAS[formula](ds), method), method)("time")  # noqa: B023, E731
                found = ask_twice(lambda: reduce(there)).values  # noqa: B023
                assert same_bits(found, ask_twice(lambda: reduce(here)).values), (name, formula)  # noqa: B023


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_portions_and_an_executor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "PORTION_BYTES", 30_000)
    reductions: list[Any] = [lambda ds: ds.f4.mean("time"), lambda ds: (ds.f4 * ds.f8).std(), lambda ds: ds.f8.sum()]
    for reduce in reductions:
        with insitu.open_dataset(folder / "cut.nc") as ds, insitu.options(engine=ThreadPoolExecutor(2)):
            there = reduce(ds).load()
        with insitu.open_dataset(folder / "cut.nc") as ds:
            assert same_bits(there.values, ask_twice(lambda: reduce(ds)).values)  # noqa: B023


def test_a_wider_type_and_positions_in_several_dimensions(folder: Path) -> None:
    """What NumPy is asked for by name: in another order of dimensions, whose values lie otherwise in memory, too."""
    with (
        insitu.open_dataset(folder / "cut.nc") as ds,
        insitu.open_dataset(folder / "cut.nc", cache=False) as never_kept,
    ):
        loaded = ds.f4.values[:, 2:]
        requested = [
            lambda ds: np.nansum(ds.f4[:, 2:].data, axis=0, dtype="f8"),
            lambda ds: np.mean(ds.f4[:, 2:].T.data, axis=2, dtype="f8"),
            lambda ds: np.nanargmax((ds.f4[:, 2:] - 1).data),
            lambda ds: np.nanargmin(ds.f4[:, 2:].data),
        ]
        wanted = [
            np.nansum(loaded, axis=0, dtype="f8"),
            np.mean(loaded.T, axis=2, dtype="f8"),
            np.nanargmax(loaded - 1),
            np.nanargmin(loaded),
        ]
        for question, expected in zip(requested, wanted, strict=True):
            answers = [np.asarray(question(given)) for given in (never_kept, ds, ds, ds)]
            assert all(same_bits(answer, answers[0]) for answer in answers)
            np.testing.assert_allclose(answers[0], expected, rtol=1e-12)


@pytest.mark.parametrize("dim", ["time", None, ("lat", "lon")])
@pytest.mark.parametrize("statistic", [xr.corr, xr.cov])
def test_correlations(tmp_path: Path, statistic: Any, dim: Any) -> None:
    """xarray multiplies deviations in float32 and adds them in float32; here they are added in float64.

    The error is a few roundings of float32 of the product of the standard deviations, however small the result is.
    """
    random = np.random.default_rng(3)
    one, other = random.normal(280, 10, (900, 6, 5)).astype("f4"), random.normal(1e5, 300, (900, 6, 5)).astype("f4")
    one[random.random(one.shape) < 0.1] = np.nan
    values = xr.Dataset({"a": (("time", "lat", "lon"), one), "b": (("time", "lat", "lon"), other)})
    values.to_netcdf(tmp_path / "x.nc", engine="netcdf4")
    wide = values.astype("f8").where(values.a.notnull())
    with with_numpy_only():
        exact = statistic(wide.a, wide.b, dim)
        scale = 1 if statistic is xr.corr else wide.a.std(dim) * wide.b.std(dim)
        dtype = statistic(values.a, values.b, dim).dtype
    with (
        insitu.open_dataset(tmp_path / "x.nc") as ds,
        insitu.open_dataset(tmp_path / "x.nc", cache=False) as never_kept,
    ):
        found = ask_twice(lambda: statistic(ds.a, ds.b, dim))
        assert same_bits(found.values, statistic(never_kept.a, never_kept.b, dim).values)
    assert found.dtype == dtype
    assert (abs(found - exact) <= 4 * 2**-24 * scale).all()


def test_products_with_weights(folder: Path) -> None:
    """xarray's `weighted` and `dot` ask NumPy for `einsum`, which adds float32 in float32."""
    weights = xr.DataArray(np.linspace(0.1, 1, 6, dtype="f4"), dims="lat")
    requested: dict[str, Any] = {
        "mean": lambda ds, weights: ds.weighted(weights).mean(("lat", "lon")),
        "sum": lambda ds, weights: ds.weighted(weights).sum(("lat", "time")),
        "turned": lambda ds, weights: ds.transpose("lon", "lat", "time").fillna(0).dot(weights, dim=("lat", "time")),
    }
    with xr.open_dataset(folder / "cut.nc", engine="netcdf4") as file:
        loaded = file.packed.astype("f4").load().isel(lat=slice(2, None))
    for name, ask in requested.items():
        with insitu.open_dataset(folder / "cut.nc") as ds, insitu.open_dataset(folder / "cut.nc", cache=False) as other:
            found = ask_twice(lambda: ask(ds.packed.astype("f4").isel(lat=slice(2, None)), weights))  # noqa: B023
            again = ask(other.packed.astype("f4").isel(lat=slice(2, None)), weights)
        assert same_bits(found.values, again.values), name
        exact = ask(loaded.astype("f8"), weights.astype("f8"))
        assert found.dtype == ask(loaded, weights).dtype
        np.testing.assert_allclose(found, exact, rtol=3 * 2**-24, err_msg=name)


def _points(*numbers: int) -> xr.DataArray:
    return xr.DataArray(list(numbers), dims="point")


READ: dict[str, Any] = {
    "joined formulas that differ": lambda x: xr.concat([x, x * 2, x + x.lat], "k").mean("k"),
    "joined types that differ": lambda x: xr.concat([x, x.astype("f8") + 1], "time").sum("time"),
    "points of windows": lambda x: (
        x.rolling(time=3).mean().isel(time=_points(7, 3, 9, 2), lat=_points(2, 4, 3, 3)).sum()
    ),
    "points of windows in groups": lambda x: x.rolling(time=3).sum().resample(time="50D", label="right").first(),
    "a part of windows": lambda x: x.rolling(time=7, min_periods=1).std()[::2],
    "one of windows side by side": lambda x: x.coarsen(time=6, boundary="trim").mean()[3:4],
    "some of windows in two dimensions": lambda x: x.rolling(lat=5, lon=4, min_periods=2).mean()[:, ::-2, [5, 0, 3]],
    "padding of nothing": lambda x: x.isel(time=slice(0, 0)).pad(time=(7, 0), constant_values=0.1).sum("time"),
}
"""What reads values to go on, and then has them."""


@pytest.mark.parametrize("name", READ)
def test_what_was_read_and_what_is_at_hand(folder: Path, name: str) -> None:
    """Values that were read for an operation are reduced as those that were kept: in float64, to the same bits."""
    ask = READ[name]
    times = np.arange("2001", "2003", dtype="M8[D]")[: SHAPE[0]]
    with insitu.open_dataset(folder / "cut.nc") as ds, insitu.open_dataset(folder / "cut.nc", cache=False) as other:
        x = ds.f4.assign_coords(time=times, lat=np.arange(8))
        found = ask_twice(lambda: ask(x))
        assert x.values.size
        assert same_bits(ask_twice(lambda: ask(x)).values, found.values)
        assert same_bits(ask(other.f4.assign_coords(time=times, lat=np.arange(8))).values, found.values)


@pytest.mark.parametrize("method", ["mean", "sum", "std", "max"])
def test_a_preprocess_that_reduces(tmp_path: Path, method: str) -> None:
    random = np.random.default_rng(8)
    for number in range(3):
        values = random.normal(280, 10, (4, 40, 50)).astype("f4")
        coords = {"time": np.arange(4) + 4 * number}
        made = xr.Dataset({"tas": (("time", "lat", "lon"), values)}, coords)
        made.to_netcdf(tmp_path / f"{number}.nc", engine="netcdf4")
    urls = str(tmp_path / "*.nc")
    with xr.open_mfdataset(urls, engine="netcdf4") as file, with_numpy_only():
        exact = getattr(file.load().astype("f8"), method)(("lat", "lon"))
    for question in (
        lambda: insitu.open_mfdataset(urls, preprocess=lambda ds: getattr(ds, method)(("lat", "lon"))),
        lambda: getattr(insitu.open_mfdataset(urls), method)(("lat", "lon")),
    ):
        found = ask_twice(question).tas
        assert found.dtype == "f4"
        assert_as_in_float64(found.values, exact.tas.values)


@pytest.fixture(scope="module")
def mosaics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files that are cut alike, files that are not, and a store that lacks chunks."""
    made: Path = tmp_path_factory.mktemp("mosaics")
    random = np.random.default_rng(6)
    for number in range(24):
        values = random.normal(280, 30, (11, 8, 6)).astype("f4")
        ds = xr.Dataset({"x": (("time", "lat", "lon"), values)}, {"time": np.arange(11) + 11 * number})
        ds.to_netcdf(made / f"alike{number:02}.nc", encoding={"x": {"chunksizes": (4, 8, 3), "zlib": True}})
        cut = (3 + number % 5, 8 - number % 3, 6)
        ds.to_netcdf(made / f"unlike{number:02}.nc", encoding={"x": {"chunksizes": cut, "zlib": number % 2 == 0}})
    store = zarr.open_group(made / "holes.zarr", mode="w")
    holes = store.create_array("x", shape=(120, 8, 6), chunks=(7, 8, 3), dtype="f4", fill_value=0.1)
    holes[:50] = random.normal(280, 30, (50, 8, 6)).astype("f4")
    return {name: str(made / f"{name}*.nc") for name in ("alike", "unlike")} | {"holes": str(made / "holes.zarr")}


SELECTIONS: dict[str, Any] = {
    "all": lambda x: x,
    "steps": lambda x: x[100:3:-3, 1:, ::2],
    "listed": lambda x: x[[5, 70, 6, 6, 20]][:, [3, 1, 7]],
    "transposed": lambda x: x.transpose(*x.dims[::-1]),
    "repeated": lambda x: x.expand_dims(member=3),
    "padded": lambda x: x.pad({x.dims[0]: (3, 2)}, constant_values=0.3),
    "joined": lambda x: xr.concat([x[40:60], x[:9], x[41:50]], x.dims[0]),
    "converted": lambda x: x.astype("f8"),
}


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("name", ["alike", "unlike", "holes"])
def test_selections_of_mosaics(mosaics: dict[str, str], name: str, selection: str) -> None:
    def open_array(**how: Any) -> xr.DataArray:
        one = insitu.open_dataset if name == "holes" else insitu.open_mfdataset
        return one(mosaics[name], **how).x

    virtual, never_kept, loaded = open_array(), open_array(cache=False), open_array().load()
    part = SELECTIONS[selection](virtual)
    first = part.dims[0]
    for method in ("mean", "std", "prod", "argmax"):
        for dim in (first,) if method == "argmax" else (first, part.dims[:2], None):
            found = ask_twice(lambda: getattr(part, method)(dim))  # noqa: B023
            again = SELECTIONS[selection](virtual)
            assert same_bits(found.values, getattr(again, method)(dim).values), (method, dim)
            streamed = getattr(SELECTIONS[selection](never_kept), method)(dim)
            assert same_bits(found.values, streamed.values), (method, dim)
            if method != "prod":
                with with_numpy_only():
                    exact = getattr(SELECTIONS[selection](loaded).astype("f8"), method)(dim)
                assert_as_in_float64(found.values, exact.values, (method, dim))
    assert virtual.values.size  # kept from now on
    again = SELECTIONS[selection](virtual)
    for method in ("mean", "std"):
        streamed = getattr(SELECTIONS[selection](never_kept), method)(first)
        assert same_bits(getattr(again, method)(first).values, streamed.values), method
