"""A statistic is declared in one place, and is then everywhere: here, by an engine, of groups, on a
server, in xarray and on the command line.

Modules: reducing/statistic.py
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
import insitu.cli
from insitu.errors import UnsupportedError
from insitu.expressions.nodes import Stored
from insitu.reducing import ReductionQuery, ReductionRules, portions
from insitu.reducing.reduce_expression import fold_expression
from insitu.reducing.statistic import FIELDS, Statistic
from insitu.reducing.statistics import STATISTICS
from insitu.reducing.weighted_statistics import WeightedFolding
from reducing.root_mean_square import declare, remove
from server.serving import Server, serving

NAMES = [
    *("sum", "mean", "min", "max", "std", "var", "count", "any", "all", "argmin", "argmax", "prod"),
    *("median", "quantile", "histogram", "tdigest", "sum_of_weights"),
]
TESTS = Path(__file__).parents[1]


def test_the_names_are_pinned() -> None:
    """Users and servers know them."""
    assert list(STATISTICS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_declaration_is_consistent(name: str) -> None:
    statistic = STATISTICS[name]
    options = {option.name for option in fields(ReductionRules)}
    assert statistic.name == name
    assert set(statistic.options) <= options
    assert statistic.required is None or statistic.required in statistic.options
    assert all(callable(getattr(np, function)) for function in statistic.numpy)
    assert callable(statistic.fields) or set(statistic.fields) <= set(FIELDS)
    assert statistic.is_streamed == bool(statistic.fields)
    assert statistic.is_plain or statistic.weighted is not None
    assert statistic.is_streamed or not statistic.groups
    owner: Any = xr.Variable if statistic.is_plain else xr.Dataset().weighted(xr.DataArray(1))
    assert statistic.xarray is None or callable(getattr(owner, statistic.xarray))


def test_a_name_is_declared_once() -> None:
    with pytest.raises(ValueError, match="there is a statistic 'mean' already"):
        STATISTICS.add(Statistic(name="mean"))
    with pytest.raises(UnsupportedError, match=r"'mode' is not a known reduction.*Use one of all, any, "):
        _ = STATISTICS["mode"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_quantiles_of_columns_with_gaps_are_those_of_numpy(dtype: str) -> None:
    """NumPy takes the columns one by one; here those with as many values are taken at once."""
    random = np.random.default_rng(3)
    values = random.normal(280, 30, (19, 7, 5)).astype(dtype)
    values[random.random(values.shape) < 0.3] = np.nan
    values[:, 2, 1], values[4, 3, 3], values[5, 3, 3] = np.nan, np.inf, -np.inf
    compute = STATISTICS["quantile"].compute
    assert compute is not None
    for given in (values, values[:, 2:], values[:, 2:, 1:], np.where(np.isnan(values), np.float16(1), values)):
        for q in (0.9, [0.0, 0.25, 0.5, 1.0]):
            for axes in ((0,), (1, 2), (2, 0), (0, 1, 2)):
                found = compute(given, axes, ReductionRules(q=q), True)
                expected = np.nanquantile(given, np.asarray(q), axis=axes, keepdims=True)
                assert found.dtype == expected.dtype
                np.testing.assert_array_equal(found, expected)


@pytest.fixture
def rms() -> Iterator[None]:
    """The root mean square, for one test."""
    declare()
    yield
    remove()


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    rng = np.random.default_rng(5)
    made = rng.normal(280, 10, (60, 6, 8)).astype("f4")
    made[rng.random(made.shape) < 0.1] = np.nan
    return made


@pytest.fixture(scope="module")
def path(values: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = tmp_path_factory.mktemp("statistics") / "t.nc"
    time = np.datetime64("2001-01-10", "ns") + np.arange(60) * np.timedelta64(1, "D")
    numbers = np.arange(60 * 48, dtype="i4").reshape(60, 6, 8)
    dims = ("time", "lat", "lon")
    made = xr.Dataset({"t": (dims, values), "n": (dims, numbers)}, {"time": time, "lat": np.linspace(-50, 50, 6)})
    made.t.attrs["units"] = "K"
    encoding = {name: {"zlib": True, "chunksizes": (7, 6, 8)} for name in ("t", "n")}
    made.to_netcdf(found, engine="h5netcdf", encoding=encoding)
    return found


@pytest.fixture(scope="module")
def server(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose code has the declaration, too."""
    folder = tmp_path_factory.mktemp("declared")
    setup = f"import sys; sys.path.append({str(TESTS)!r}); from reducing.root_mean_square import declare; declare()"
    with serving([path.parent], folder / "log", setup=setup) as running:
        yield running


def expected(values: np.ndarray, axis: Any = None) -> Any:
    return np.sqrt(np.nanmean(np.square(values.astype("f8")), axis=axis))


@pytest.mark.usefixtures("rms")
def test_a_new_statistic_of_a_file(path: Path, values: np.ndarray) -> None:
    found = insitu.reduce(path, "t", "rms", dim="time")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected(values, 0), rtol=1e-6)
    assert np.isnan(insitu.reduce(path, "t", "rms", skipna=False))
    several = insitu.Archive.open(path).reduce("n", ["rms", "mean"], selection=np.s_[3:50, 2])
    chosen = np.arange(60 * 48).reshape(60, 6, 8)[3:50, 2]
    assert several["rms"].dtype == np.float64
    np.testing.assert_allclose(several["rms"], expected(chosen))
    np.testing.assert_allclose(several["mean"], chosen.mean())


@pytest.mark.usefixtures("rms")
def test_a_new_statistic_by_an_engine(path: Path, values: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "PORTION_BYTES", 6_000)
    here = insitu.reduce(path, "t", "rms", dim="time")
    with ThreadPoolExecutor(2) as pool, insitu.options(engine=pool):
        there = insitu.reduce(path, "t", "rms", dim="time")
    np.testing.assert_array_equal(here, there)
    np.testing.assert_allclose(here, expected(values, 0), rtol=1e-6)


@pytest.mark.usefixtures("rms")
def test_a_new_statistic_in_xarray(path: Path, values: np.ndarray) -> None:
    with insitu.open_dataset(path) as ds:
        stored = ds.insitu.stats(["rms", "max"], "time")
        formula = (ds * 2).insitu.stats("rms", ["time", "lat"])
        assert "rms of t" in repr(ds.insitu.explain(ds.t, "rms", "time"))
        loaded = ds.load().insitu.stats("rms", "time", skipna=True)
    np.testing.assert_allclose(stored.t_rms, expected(values, 0), rtol=1e-6)
    np.testing.assert_array_equal(stored.t_max, np.nanmax(values, axis=0))
    np.testing.assert_allclose(formula.t_rms, 2 * expected(values, (0, 1)), rtol=1e-6)
    np.testing.assert_allclose(loaded.t_rms, stored.t_rms, rtol=1e-6)


@pytest.mark.usefixtures("rms")
@pytest.mark.parametrize("where", ["here", "there"])
def test_a_new_statistic_of_groups(path: Path, values: np.ndarray, where: str, server: Server) -> None:
    how = {} if where == "here" else {"active": server.url, "active_required": True}
    with insitu.open_dataset(path, **how) as ds:
        ds["in_memory"] = ("time", np.arange(60.0))
        ds["name"] = ("time", np.full(60, "a"))
        groups = ds.insitu.groupby("time.month")
        assert "rms" in dir(groups)
        found, mean = groups.rms(keep_attrs=True), groups.mean(keep_attrs=True)
        months = ds.time.dt.month.values
        with xr.set_options(keep_attrs=True):
            by_xarray = ds.load().insitu.groupby("time.month").rms()
    wanted = np.stack([expected(values[months == month], 0) for month in (1, 2, 3)])
    np.testing.assert_allclose(found.t, wanted, rtol=1e-6)
    numbers = np.arange(60.0)
    np.testing.assert_allclose(found.in_memory, [expected(numbers[months == month]) for month in (1, 2, 3)])
    # Names, dimensions, attributes and types are those of a mean.
    assert {name: (v.dims, v.dtype, v.attrs) for name, v in found.variables.items()} == {
        name: (v.dims, v.dtype, v.attrs) for name, v in mean.variables.items()
    }
    xr.testing.assert_allclose(found, by_xarray, rtol=1e-6)


@pytest.mark.usefixtures("rms")
def test_a_new_statistic_with_weights(path: Path, values: np.ndarray) -> None:
    weights = np.linspace(1, 3, 6)
    array = insitu.scan(path).array("t")
    query = ReductionQuery.of("rms", (0, 1))
    found = fold_expression(Stored(array), lambda values: WeightedFolding(values, query, {1: weights}))["rms"]
    there = np.isfinite(values) * weights[:, None]
    wanted = np.sqrt(np.nansum(np.square(values.astype("f8")) * there, axis=(0, 1)) / there.sum(axis=(0, 1)))
    np.testing.assert_allclose(found, wanted)


@pytest.mark.usefixtures("rms")
def test_a_new_statistic_on_a_server(path: Path, server: Server) -> None:
    here = insitu.reduce(path, "t", "rms", dim="time")
    there = insitu.reduce(path, "t", "rms", dim="time", active=server.url, active_required=True)
    np.testing.assert_array_equal(here, there)
    described = server.get("/openapi.json").json["components"]["schemas"]["ReduceJob"]["properties"]
    assert described["methods"]["items"]["enum"] == [*NAMES, "rms"]


@pytest.mark.usefixtures("rms")
@pytest.mark.parametrize("where", ["here", "there"])
def test_a_new_statistic_on_the_command_line(
    path: Path,
    values: np.ndarray,
    where: str,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    place = [] if where == "here" else ["--active", server.url]
    monkeypatch.setattr(sys, "argv", ["insitu", "reduce", str(path), "t", "rms,count", "--as", "json", *place])
    with pytest.raises(SystemExit) as ended:
        insitu.cli.main()
    assert not ended.value.code
    found = json.loads(capfd.readouterr().out)
    assert found["rms"] == pytest.approx(float(expected(values)), rel=1e-6)
    assert found["count"] == np.isfinite(values).sum()


def test_it_is_gone_again(path: Path) -> None:
    with pytest.raises(UnsupportedError, match="'rms' is not a known reduction"):
        insitu.reduce(path, "t", "rms")
