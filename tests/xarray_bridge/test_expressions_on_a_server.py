"""Expressions next to the data: random trees equal NumPy's values, everyday formulas equal xarray's,
and only the result travels.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import insitu
from insitu.active.answer import answer
from insitu.active.client import Active
from insitu.active.transport import ServerError, client_for
from insitu.active.wire_expression import expression_to_wire
from insitu.errors import ActiveWarning, UnsupportedError
from insitu.lazy_array import LazyArray
from insitu.reading import ReadContext
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reduce_expression import reduce_expression
from insitu.reducing.statistics import STATISTICS
from server.serving import Server, serving
from xarray_bridge.test_expressions import assert_same, expressions

METHODS = ["sum", "mean", "min", "max", "std", "count", "any", "all", "argmin", "argmax", "median", "prod"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working directory: the sources of random arrays are paths relative to it."""
    before, made = Path.cwd(), tmp_path_factory.mktemp("mosaics")
    os.chdir(made)
    yield made
    os.chdir(before)


@pytest.fixture(scope="module")
def near(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving([folder], tmp_path_factory.mktemp("log") / "serve.log") as running:
        yield running


@settings(max_examples=30)
@given(data=st.data())
def test_random_trees_equal_numpy(near: Server, data: st.DataObject) -> None:
    active = Active(near.url, required=True)
    lazy, expected = data.draw(expressions(access=ReadContext(name="x", active=active)))
    if not isinstance(lazy, LazyArray):
        return
    items = client_for(near.url).ask("read", {"jobs": [{"expression": expression_to_wire(lazy.node)}], "options": {}})
    values = np.frombuffer(b"".join(items[1:-2]), items[0]["dtype"]).reshape(items[0]["shape"])
    assert_same(values, expected.astype(expected.dtype.newbyteorder("=")))
    if lazy.is_stored or not expected.size:
        return
    method = data.draw(st.sampled_from([m for m in METHODS if expected.dtype.kind in _kinds(m)]))
    axes = tuple(data.draw(st.sets(st.integers(0, expected.ndim - 1), min_size=1))) if expected.ndim else ()
    if not axes or (method.startswith("arg") and len(axes) > 1):
        return
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        skipna = data.draw(st.booleans())
        query = ReductionQuery.of(method, axes, skipna=skipna)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("insitu.reducing.portions.PORTION_CHUNKS", data.draw(st.sampled_from([3, 100])))
            here = reduce_expression(lazy.node, query)[method]
            found = answer(lazy.node, query)
        assert found[method].dtype == here.dtype
        np.testing.assert_array_equal(found[method], here)
        if method in ("min", "max", "any", "all") and not skipna:
            np.testing.assert_array_equal(found[method], getattr(np, method)(expected, axis=axes))


def _kinds(method: str) -> str:
    return "biuf" if method == "median" else STATISTICS[method].kinds


@pytest.fixture(scope="module")
def path(folder: Path) -> Path:
    """Winds, rain and temperature of a year, each with chunks of its own, and a mask of land."""
    random = np.random.default_rng(0)
    time = np.arange("2001-01-01", "2002-01-01", dtype="M8[D]").astype("M8[ns]")
    shape = len(time), 30, 40
    names = ("time", "lat", "lon")
    ds = xr.Dataset(
        {
            "tas": (names, random.normal(280, 12, shape).astype("f4")),
            "pr": (names, random.gamma(0.1, 2e-3, shape).astype("f4")),
            "u": (names, random.normal(0, 5, shape).astype("f4")),
            "v": (names, random.normal(0, 5, shape).astype("f4")),
            "lsm": (names[1:], random.random(shape[1:])),
        },
        coords={"time": time, "lat": np.linspace(-60, 60, 30), "lon": np.arange(40.0)},
    )
    ds.tas[5:9, 2] = np.nan
    chunks = {"tas": (100, 30, 40), "pr": (365, 3, 4), "u": (1, 30, 40), "v": (50, 10, 40)}
    ds.to_netcdf(folder / "x.nc", encoding={n: {"zlib": True, "chunksizes": sizes} for n, sizes in chunks.items()})
    return folder / "x.nc"


EVERYDAY: dict[str, Any] = {
    "heavy rain days": lambda ds: (ds.pr * 86400 > 20).sum("time"),
    "frost days": lambda ds: (ds.tas < 273.15).resample(time="YS").sum(),
    "degree days": lambda ds: (ds.tas - 278.15).clip(min=0).sum("time"),
    "root mean square of anomalies": lambda ds: ((ds.tas - ds.u.isel(time=0).load()) ** 2).mean("time") ** 0.5,
    "root mean square difference": lambda ds: ((ds.tas - ds.u) ** 2).mean("time") ** 0.5,
    "mean wind speed": lambda ds: np.hypot(ds.u, ds.v).mean("time"),
    "land mean": lambda ds: ds.tas.where(ds.lsm > 0.5).weighted(np.cos(np.deg2rad(ds.lat))).mean(("lat", "lon")),
    "masked maximum": lambda ds: ds.tas.where(ds.lsm.load() > 0.5).max(),
    "correlation of a year": lambda ds: ((ds.u - 1) * (ds.v + 1)).mean() / (ds.u.std() * ds.v.std()),
    "quantile of a difference": lambda ds: (ds.tas - 273.15).quantile([0.1, 0.9], "time"),
    "day of the largest": lambda ds: np.hypot(ds.u, ds.v).argmax("time"),
}


@pytest.mark.parametrize("name", EVERYDAY)
def test_everyday_formulas_move_their_result_only(path: Path, near: Server, name: str) -> None:
    formula = EVERYDAY[name]
    traffic = client_for(near.url).traffic
    with xr.open_dataset(path) as reference:
        expected = formula(reference.load())
    with insitu.open_dataset(path, active=near.url, active_required=True) as ds, insitu.trace() as cost:
        start = traffic.received
        found = formula(ds).load()
        received = traffic.received - start
        xr.testing.assert_allclose(found, expected, rtol=1e-4)
        assert found.dtype == expected.dtype
        # 8 bytes a value at most, twice where a mean needs its weights, and a few for each response.
        assert received <= 16 * found.size + 1500
        assert cost.bytes <= received + 30 * 40 * 8  # one step or a mask that a formula loads itself
    assert received < ds.tas.nbytes / 20


def test_explain_says_where(path: Path, near: Server) -> None:
    with insitu.open_dataset(path, active=near.url) as ds:
        assert ds.insitu.explain(np.hypot(ds.u, ds.v)).server is None  # values are computed here
        found = ds.insitu.explain(np.hypot(ds.u, ds.v), "mean", "time")
        assert found.server == near.url
        assert f"runs on the server {near.url}" in repr(found)
        windows = ds.insitu.explain(ds.u.rolling(time=3).mean(), "max")
        assert windows.server is None
        assert "windows" in repr(windows)
        with insitu.open_dataset(path) as other:
            mixed = ds.insitu.explain(ds.u - other.v.rename("other"), "mean")
        assert mixed.server is None
        assert mixed.reason is not None
        assert "v is not read by the server" in mixed.reason
        assert mixed.reason in repr(mixed)
    with insitu.open_dataset(path) as ds:
        assert ds.insitu.explain(ds.u * 2).reason is None
        assert "runs here" in repr(ds.insitu.explain(ds.u * 2, "mean"))


def test_all_arrays_must_have_the_server(path: Path, near: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("insitu.active.fallback._warned", set())
    with insitu.open_dataset(path) as plain:
        with insitu.open_dataset(path, active=near.url) as there, pytest.warns(ActiveWarning, match="u - v"):
            found = (there.u - plain.v).max()
        assert float(found) == float((plain.u - plain.v).max())
        with insitu.open_dataset(path, active=near.url, active_required=True) as there:
            for difference in (there.u - plain.v, plain.v - there.u):
                with pytest.raises(UnsupportedError, match=r"v is not read by the server .*\[variable .* - .*\]"):
                    difference.max()
            with insitu.open_dataset(path, active="http://127.0.0.1:9") as elsewhere:
                # Servers may read what others have: the one with most of the bytes is asked.
                difference = (there.u - elsewhere.v.isel(time=0)).max()
                assert float(difference) == float((plain.u - plain.v.isel(time=0)).max())
                with pytest.raises(ServerError, match="cannot connect"):
                    (there.u.isel(time=0) - elsewhere.v).max()
            assert float((there.u - plain.v.load()).max()) == float((plain.u - plain.v).max())


def test_warnings_and_errors_are_those_of_numpy(path: Path, near: Server) -> None:
    with insitu.open_dataset(path, active=near.url, active_required=True) as ds:
        array = ds.lsm.variable._data
        with pytest.warns(RuntimeWarning, match="divide by zero encountered in divide"):
            assert np.isinf(np.max(1 / (array * 0)))
        with np.errstate(divide="ignore"):
            quiet = 1 / (array * 0)
        with np.errstate(divide="raise"):
            loud = 1 / (array * 0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert np.isinf(np.max(quiet))
        with pytest.raises(UnsupportedError, match="divide by zero encountered in divide"):
            np.max(loud)
    with insitu.open_dataset(path, active=near.url) as ds:
        with np.errstate(divide="raise"):
            loud = 1 / (ds.lsm.variable._data * 0)
        with pytest.warns(ActiveWarning), pytest.raises(FloatingPointError):
            np.max(loud)


def test_shared_parts_travel_once(path: Path) -> None:
    with insitu.open_dataset(path) as ds:
        difference = (ds.tas - ds.u).variable._data
        mask = np.random.default_rng(1).random((30, 40)) > 0.5
        tree = difference**2 + np.where(mask, difference, 0) + np.where(mask, difference**2, 0)
        sent = expression_to_wire(tree.node)
    names = [node.get("operation", node.get("step", "array")) for node in sent["nodes"]]
    assert len(sent["arrays"]) == names.count("array") == 2
    assert names.count("subtract") == names.count("power") == 1
    assert len(sent["constants"]) == 1


AT_ONCE: dict[str, Any] = {
    "groups": lambda ds: ds.insitu.groupby("time.month").mean(),
    "groups and a dimension": lambda ds: ds.insitu.groupby("time.month").std(("time", "lon"), ddof=1),
    "months": lambda ds: ds.insitu.resample(time="MS").max(),
    "weights": lambda ds: ds.insitu.weighted(np.cos(np.deg2rad(ds.lat))).var(("lat", "lon")),
    "a histogram": lambda ds: ds.insitu.histogram([0, 2, 5, 9, 50], "time"),
}


@pytest.mark.parametrize("name", AT_ONCE)
@pytest.mark.parametrize("there", [False, True])
def test_groups_weights_and_histograms_of_formulas_in_one_pass(
    path: Path, near: Server, name: str, there: bool
) -> None:
    formula, traffic = AT_ONCE[name], client_for(near.url).traffic

    def speeds(ds: xr.Dataset) -> xr.Dataset:
        return xr.Dataset({"speed": np.hypot(ds.u, ds.v.fillna(0))})

    server = {"active": near.url, "active_required": True} if there else {}
    with insitu.open_dataset(path, **server) as ds, insitu.open_dataset(path) as plain:
        start = traffic.requests
        found = formula(speeds(ds)).load()
        assert traffic.requests - start == there
        loaded = speeds(plain.load())
        if name == "a histogram":
            counts = [((loaded.speed >= a) & (loaded.speed < b)).sum("time") for a, b in ((0, 2), (2, 5), (5, 9))]
            np.testing.assert_array_equal(found.speed[..., :3], np.stack(counts, -1))
        else:
            xr.testing.assert_allclose(found, formula(loaded).load(), rtol=1e-4)
            xr.testing.assert_identical(found, formula(speeds(ds)).load())
