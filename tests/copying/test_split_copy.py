"""Does each target of a pattern get its part, and do they appear together?

Modules: copying/target_pattern.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
import insitu.xarray_bridge.accessor  # registers itself
from copying.killing import Killed
from insitu.copying import SplitPlan, split_copy
from insitu.copying.target_pattern import TargetPattern
from insitu.errors import InsituError, SelectionError, UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore:.*zarr.*", "ignore:Consolidated")


def dataset(months: int = 5) -> xr.Dataset:
    rng = np.random.default_rng(0)
    times = xr.date_range("2000-11-01", periods=30 * months, freq="D")
    return xr.Dataset(
        {
            "tas": (("time", "x"), rng.random((len(times), 4)), {"grid_mapping": "crs"}),
            "pr": (("time", "x"), rng.integers(0, 9, (len(times), 4)).astype("i2")),
            "orog": ("x", np.arange(4.0)),
            "crs": ((), np.int32(1), {"grid_mapping_name": "latitude_longitude"}),
        },
        {"time": times, "x": np.arange(4)},
        {"title": "daily"},
    )


@pytest.fixture
def source(tmp_path: Path) -> insitu.Archive:
    dataset().to_netcdf(tmp_path / "source.nc", encoding={"tas": {"chunksizes": (7, 4)}})
    return insitu.Archive.open(tmp_path / "source.nc")


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def opened(path: Path) -> xr.Dataset:
    with xr.open_dataset(path) as found:
        return found.load()


def test_a_file_for_each_year(source: insitu.Archive, tmp_path: Path) -> None:
    report = source.copy(f"{tmp_path}/out/y_{{time:%Y}}.nc", verify=True, chunks={"time": 20})
    assert report.verified == report.objects > 0
    assert files(tmp_path / "out") == ["y_2000.nc", "y_2001.nc"]
    want = opened(tmp_path / "source.nc")
    for year in ("2000", "2001"):
        xr.testing.assert_identical(opened(tmp_path / f"out/y_{year}.nc"), want.sel(time=year))
    together = insitu.open_mfdataset(f"{tmp_path}/out/*.nc", data_vars="minimal", coords="minimal", compat="override")
    xr.testing.assert_identical(together.load(), want)
    with pytest.raises(UnsupportedError, match=r"there is something already .*y_2000.nc"):
        source.copy(f"{tmp_path}/out/y_{{time:%Y}}.nc")


def test_a_folder_for_each_variable(source: insitu.Archive, tmp_path: Path) -> None:
    source.copy(f"{tmp_path}/out/{{variable}}/{{time:%Y%m}}.nc", sel={"time": slice("2000-12", "2001-01")})
    assert files(tmp_path / "out") == [
        "orog/200012.nc", "orog/200101.nc", "pr/200012.nc", "pr/200101.nc", "tas/200012.nc", "tas/200101.nc",
    ]  # fmt: skip
    want = opened(tmp_path / "source.nc").sel(time="2001-01")
    xr.testing.assert_identical(opened(tmp_path / "out/tas/200101.nc"), want[["tas", "crs"]])
    xr.testing.assert_identical(opened(tmp_path / "out/pr/200101.nc"), want[["pr"]])


def test_stores_and_formulas(source: insitu.Archive, tmp_path: Path) -> None:
    ds = source.dataset()[["tas"]]
    ds.assign(twice=ds.tas * 2).insitu.copy(f"{tmp_path}/{{variable}}_{{x:02d}}.zarr")
    assert sorted(path.name for path in tmp_path.glob("*.zarr")) == [
        f"{name}_{number:02d}.zarr" for name in ("tas", "twice") for number in range(4)
    ]
    want = opened(tmp_path / "source.nc").isel(x=[3])
    np.testing.assert_array_equal(xr.open_zarr(tmp_path / "twice_03.zarr").twice, want.tas * 2)


def test_append_adds_files_and_makes_grown_ones_anew(source: insitu.Archive, tmp_path: Path) -> None:
    target = f"{tmp_path}/out/{{time:%Y%m}}.nc"
    ds = source.dataset()
    ds.isel(time=slice(0, 45)).insitu.copy(target)
    before = {name: (tmp_path / "out" / name).read_bytes() for name in files(tmp_path / "out")}
    assert sorted(before) == ["200011.nc", "200012.nc"]
    report = source.copy(target, append=True)
    assert "1 targets are there" in str(report)
    assert (tmp_path / "out/200011.nc").read_bytes() == before["200011.nc"]
    want = opened(tmp_path / "source.nc")
    for month in ("2000-12", "2001-03"):
        xr.testing.assert_identical(opened(tmp_path / f"out/{month.replace('-', '')}.nc"), want.sel(time=month))
    after = {name: (tmp_path / "out" / name).read_bytes() for name in files(tmp_path / "out")}
    assert "nothing is new" in str(source.copy(target, append=True))
    assert {name: (tmp_path / "out" / name).read_bytes() for name in files(tmp_path / "out")} == after
    with pytest.raises(SelectionError, match=r"the target has 30 labels of 'time', and the source 0 of them and new"):
        dataset(6).isel(time=slice(150, None)).insitu.copy(target, append=True)


@pytest.mark.parametrize("where", ["execute_copy", "retry_while_open"])
def test_killed_between_two_files(
    source: insitu.Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    target, calls = f"{tmp_path}/out/{{time:%Y%m}}.nc", []
    action = getattr(split_copy, where)

    def do_some(*given: Any) -> Any:
        if calls:
            raise Killed
        calls.append(given)
        return action(*given)

    with monkeypatch.context() as patch:
        patch.setattr(split_copy, where, do_some)
        with pytest.raises(Killed):
            source.copy(target)
    there = [one for one in files(tmp_path / "out") if ".copying" not in one]
    assert there == ([] if where == "execute_copy" else ["200011.nc"])
    source.copy(target)
    assert files(tmp_path / "out") == ["200011.nc", "200012.nc", "200101.nc", "200102.nc", "200103.nc"]
    want = opened(tmp_path / "source.nc")
    for month in ("2000-11", "2001-03"):
        xr.testing.assert_identical(opened(tmp_path / f"out/{month.replace('-', '')}.nc"), want.sel(time=month))
    with pytest.raises(UnsupportedError, match="there is something already"):
        source.copy(target)


def test_a_dry_run_shows_every_target(source: insitu.Archive, tmp_path: Path) -> None:
    plan = source.copy(f"{tmp_path}/out/{{time:%Y}}.nc", dry_run=True)
    assert isinstance(plan, SplitPlan)
    assert list(plan.as_dict()["targets"]) == [f"{tmp_path}/out/2000.nc", f"{tmp_path}/out/2001.nc"]
    assert f"{tmp_path}/out/2001.nc: " in str(plan)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("{time:%d}.nc", r"labels of 'time' that give '01' are not one behind another"),
        ("{time}.nc", "does not say how to write times"),
        ("{time:%Y/%m}.nc", "cannot be a part of a name"),
        ("{depth}.nc", r"'depth', which is no dimension with labels .*There are: time, x"),
        ("{x:%Y}.nc", r"the label 0 cannot be written as '%Y'"),
        ("{time:%Y}_{x}.nc", "several dimensions: time, x"),
        ("{time:%Y}.icechunk", "for .nc and .zarr on this machine"),
        ("{time:%Y}.tif", "names no format"),
    ],
)
def test_patterns_that_are_refused(source: insitu.Archive, tmp_path: Path, pattern: str, reason: str) -> None:
    with pytest.raises(InsituError, match=reason):
        source.copy(f"{tmp_path}/out/{pattern}")
    assert files(tmp_path) == ["source.nc"]


def test_times_of_other_calendars() -> None:
    times = xr.date_range("2001-02-27", periods=4, calendar="noleap", use_cftime=True)
    ds = xr.Dataset({"x": ("time", np.arange(4.0))}, {"time": times})
    pattern = TargetPattern.find("{time:%Y-%m}.nc")
    assert pattern is not None
    parts = pattern.parts(ds.insitu.tree(), {}, lambda arrays: [times.values for _ in arrays])
    assert [(part.url, part.tree.arrays["x"].shape) for part in parts] == [("2001-02.nc", (2,)), ("2001-03.nc", (2,))]
