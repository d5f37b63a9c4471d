"""`insitu reduce`: here and by a server the same words.

Modules: active/remote_expression.py, active/wire_folding.py, scanning/conventions.py, scanning/formula_variables.py
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import insitu
import insitu.cli
from insitu.sources.retry_policy import RetryPolicy
from server.serving import Server, serving

Run = Callable[..., tuple[str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object, code: int = 0) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["insitu", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")
        status = 0
        try:
            insitu.cli.main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        printed = capfd.readouterr()
        assert status == code, printed.err
        return printed.out, printed.err

    return call


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = tmp_path_factory.mktemp("reduce") / "t.nc"
    values = np.random.default_rng(1).normal(280, 5, (20, 6, 8)).astype("f4")
    values[3, 2, :4] = np.nan
    made = xr.Dataset({"t": (("time", "y", "x"), values), "n": ("time", np.arange(20, dtype="i2"))})
    made.t.encoding = {"zlib": True, "chunksizes": (7, 6, 8), "_FillValue": None}
    made.to_netcdf(found, engine="netcdf4")
    return found


@pytest.fixture(scope="module")
def server(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving([path.parent], tmp_path_factory.mktemp("log") / "log") as running:
        yield running


@pytest.fixture(params=["here", "there"])
def where(request: pytest.FixtureRequest, server: Server) -> list[str]:
    return [] if request.param == "here" else ["--active", server.url]


def test_one_number(run: Run, path: Path, where: list[str]) -> None:
    values = xr.load_dataset(path, engine="netcdf4").t.values
    out, _ = run("reduce", path, "t", "mean", *where)
    assert float(out) == pytest.approx(np.nanmean(values, dtype="f8"), rel=1e-6)
    out, printed = run("reduce", path, "t[0, :, ::2]", "max", "--axes", "0", "-v", *where)
    np.testing.assert_allclose(np.fromstring(out.strip().strip("[]"), sep=" "), values[0, :, ::2].max(0), rtol=1e-5)
    assert "float32 | 1 chunk" in printed
    out, _ = run("reduce", path, "t", "mean", "--no-skipna", *where)
    assert out.strip() == "nan"


def test_several_as_a_table_and_as_json(run: Run, path: Path, where: list[str]) -> None:
    values = xr.load_dataset(path, engine="netcdf4").t.values
    out, _ = run("reduce", path, "t", "min, max,count", *where)
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["statistic", "value"]
    assert [line[0] for line in lines[1:]] == ["min", "max", "count"]
    assert int(lines[3][1]) == np.count_nonzero(~np.isnan(values))
    out, _ = run("reduce", path, "t", "min,tdigest", "--q", "0.5,1", "--as", "json", *where)
    found = json.loads(out)
    assert found["variable"] == "t"
    assert found["q"] == [0.5, 1]
    assert found["min"] == pytest.approx(np.nanmin(values))
    assert found["tdigest"][1] == pytest.approx(np.nanmax(values))
    out, _ = run("reduce", path, "t[3, 2]", "min", "--no-skipna", "--as", "json", *where)
    assert json.loads(out) == {"variable": "t", "min": None}


def test_histograms(run: Run, path: Path, where: list[str]) -> None:
    values = xr.load_dataset(path, engine="netcdf4").t.values
    expected = np.histogram(values[~np.isnan(values)], np.linspace(260, 300, 9))[0].tolist()
    out, _ = run("reduce", path, "t", "histogram", "--edges", "260:300:8", *where)
    assert [int(line.split()[2]) for line in out.splitlines()[1:]] == expected
    assert out.splitlines()[1].split()[:2] == ["260", "265"]
    out, _ = run("reduce", path, "t", "histogram", "--edges", "260,280,300", "--as", "json", *where)
    assert json.loads(out)["histogram"] == [sum(expected[:4]), sum(expected[4:])]


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["nonsense"], "nonsense"),
        (["histogram"], "edges"),
        (["histogram", "--edges", "3,2,1"], "increase"),
        (["histogram", "--edges", "1:2"], "first:last:bins"),
        (["quantile"], "needs q"),
        (["tdigest", "--q", "x"], "not a list of numbers"),
        (["mean", "--axes", "5"], "out of bounds"),
        (["mean", "--as", "xml"], "one of text, table, json"),
        (["mean", "--option", "x"], "NAME=VALUE"),
    ],
)
def test_what_is_wrong_is_said(run: Run, path: Path, arguments: list[str], printed: str) -> None:
    code = 2 if printed in ("first:last:bins", "not a list of numbers", "one of text, table, json", "NAME=VALUE") else 1
    assert printed in run("reduce", path, "t", *arguments, code=code)[1].replace("\n", " ")


def test_a_server_that_is_not_there(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("insitu.active.transport.RETRIES", RetryPolicy(attempts=5, first_pause=0.001))
    assert (
        "cannot connect to the server" in run("reduce", path, "t", "mean", "--active", "http://127.0.0.1:9", code=1)[1]
    )


FORMULAS = {
    "=t - 273.15": lambda ds: ds.t - 273.15,
    "=(t * n)[2, :, ::2]": lambda ds: (ds.t * ds.n)[2, :, ::2],
    "=where(t > 280, t, nan)": lambda ds: xr.where(ds.t > 280, ds.t, np.nan),
    "=sqrt(t ** 2 + n) > 280": lambda ds: np.sqrt(ds.t**2 + ds.n) > 280,
}


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_has_the_bits_that_it_has_in_python(run: Run, path: Path, where: list[str], formula: str) -> None:
    with insitu.open_dataset(path) as ds, np.errstate(invalid="ignore"):
        array = FORMULAS[formula](ds)
        expected = {name: getattr(array, name)() for name in ("mean", "max", "count")}
    out, _ = run("reduce", path, formula, "mean,max,count", "--as", "json", *where)
    found = json.loads(out)
    for name, value in expected.items():
        assert found[name] == value.item(), name
    loaded = FORMULAS[formula](xr.load_dataset(path, engine="netcdf4"))
    assert found["max"] == loaded.max().item()
    assert found["mean"] == pytest.approx(loaded.astype("f8").mean().item(), rel=1e-6)


def test_a_formula_along_a_dimension_and_in_python(run: Run, path: Path) -> None:
    with insitu.open_dataset(path) as ds:
        expected = (ds.t - 273.15).max("time").values
    np.testing.assert_array_equal(insitu.reduce(path, "=t - 273.15", "max", dim="time"), expected)
    out, printed = run("reduce", path, "=t - 273.15", "max", "-d", "time", "--as", "json", "-v")
    np.testing.assert_array_equal(np.array(json.loads(out)["max"], "f4"), expected)
    assert "float32 | 3 chunks" in printed


def test_variables_of_groups_and_of_many_files(run: Run, path: Path, tmp_path: Path) -> None:
    whole = xr.load_dataset(path, engine="netcdf4")
    for begin in (0, 10):
        part = whole.isel(time=slice(begin, begin + 10)).assign_coords(time=np.arange(begin, begin + 10))
        part[["n"]].to_netcdf(tmp_path / f"part{begin}.nc", engine="netcdf4")
        part[["t"]].drop_vars("time").to_netcdf(
            tmp_path / f"part{begin}.nc", engine="netcdf4", mode="a", group="air/surface"
        )
    out, _ = run("reduce", tmp_path / "part0.nc", "=`air/surface/t` + n", "max")
    assert float(out) == pytest.approx((whole.t + whole.n)[:10].max().item(), rel=1e-6)
    out, _ = run("reduce", tmp_path / "part*.nc", "=t + n", "max")
    assert float(out) == pytest.approx((whole.t + whole.n).max().item(), rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["=t - wrong"], "there is no variable 'wrong' (character 5 of the formula). There are: t, n"),
        (["=t - n[0]"], "Positions are selected outside of the formula"),
        (["=t - 1", "--raw"], "a formula is computed of decoded values"),
        (["=t - 1", "-d", "lon"], "no dimension 'lon'"),
        (["=1 + 2"], "the formula has no variable in it"),
    ],
)
def test_formulas_that_are_refused(run: Run, path: Path, arguments: list[str], message: str) -> None:
    _, printed = run("reduce", path, arguments[0], "mean", *arguments[1:], code=1)
    assert message in " ".join(printed.split())
