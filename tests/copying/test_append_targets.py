"""Is what is new added to a target, and nothing else changed?

Modules: copying/append_plan.py, copying/append_forms.py, copying/append_documents.py
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr

import insitu
import insitu.xarray_bridge.accessor  # registers itself
from copying.archives import JOIN, archive_of, contents_of
from copying.conftest import copy_years, write_year
from copying.killing import Killed
from insitu.copying import append_targets
from insitu.copying.append_targets import ZarrAppend
from insitu.errors import InsituError, SelectionError, SourceError, UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore:.*zarr.*", "ignore:Consolidated")

WAYS: dict[str, dict[str, Any]] = {
    "maps.zarr": {},
    "series.zarr": {"chunks": "series", "memory": 60_000},
    "v2.zarr": {"zarr_format": 2, "chunks": {"time": 7, "lat": 4}, "codec": "zlib:2"},
    "shards.zarr": {"chunks": {"time": 10, "lat": 3, "lon": 6}, "shards": {"time": 40, "lat": 9}},
    "aligned.zarr": {"chunks": {"time": 10}},
    "repository.icechunk": {"chunks": {"time": 20}},
}


@pytest.fixture
def years(written_years: Path, tmp_path: Path) -> list[str]:
    """Four files of 30 steps."""
    return copy_years(written_years, tmp_path / "archive", 4)


def expected(files: list[str]) -> xr.Dataset:
    return xr.open_mfdataset(files, **JOIN).load()


def opened(target: Path) -> xr.Dataset:
    if target.suffix == ".icechunk":
        icechunk = pytest.importorskip("icechunk")
        repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(target)))
        return xr.open_zarr(repository.readonly_session("main").store, consolidated=False).load()
    return xr.open_zarr(str(target)).load()


@pytest.mark.parametrize("name", WAYS)
def test_what_is_new_is_added(years: list[str], tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    first = archive_of(years[:2]).copy(target, append=True, **WAYS[name])
    assert first.objects > 0  # nothing was there yet
    for files in (years[1:3], years):  # the source may have what the target has, or not
        report = archive_of(files).copy(target, append=True, verify=True, memory=WAYS[name].get("memory"))
        assert report.verified == report.objects > 0
        assert "30 new labels of time" in str(report)
        xr.testing.assert_identical(opened(target), expected(years[: 3 if files != years else 4]))
    again = archive_of(years).copy(target, append=True)
    assert again.objects == 0
    assert "nothing is new: time goes up to 2001-04-30" in str(again)
    found = opened(target)
    assert found.pr.encoding["dtype"] == np.dtype("i2")  # packed as it was
    xr.testing.assert_identical(insitu.open_dataset(target).load(), found)
    assert sorted(os.listdir(tmp_path)) == sorted(["archive", name])


@pytest.mark.parametrize("engine", ["threads", "dask"])
def test_engines_append_the_same_bits(years: list[str], tmp_path: Path, engine: str) -> None:
    way = {"chunks": {"time": 25}, "memory": 30_000}
    archive_of(years[:1]).copy(tmp_path / "here.zarr", **way)
    shutil.copytree(tmp_path / "here.zarr", tmp_path / "there.zarr")
    archive_of(years[:2]).copy(tmp_path / "here.zarr", append=True, **way)
    with ThreadPoolExecutor(2) as pool:
        how = {"engine": pool if engine == "threads" else "dask", **way}
        report = archive_of(years[:2]).copy(tmp_path / "there.zarr", append=True, verify=True, **how)
    assert report.verified == report.objects > 0
    assert contents_of(tmp_path / "there.zarr") == contents_of(tmp_path / "here.zarr")


def test_chunks_that_are_whole_stay_untouched(years: list[str], tmp_path: Path) -> None:
    target = tmp_path / "t.zarr"
    archive_of(years[:2]).copy(target, chunks={"time": 25})
    before = contents_of(target)
    archive_of(years).copy(target, append=True)
    after = contents_of(target)
    changed = {key for key in before if before[key] != after[key]}
    assert {key for key in changed if "/c/" in key and not key.startswith("time")} == {
        key for key in before if key.startswith(("tas/c/2/", "pr/c/2/", "rank/c/2/"))
    }
    assert not any(key.startswith(("lat", "lon", "orog", "crs")) for key in changed)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("consolidated", [False, True])
def test_stores_of_other_writers(tmp_path: Path, zarr_format: int, consolidated: bool) -> None:
    """xarray appends to one, insitu to another, which xarray has written: both show the same."""
    rng = np.random.default_rng(1)
    times = xr.date_range("2000-01-01", periods=25, freq="6h")
    ds = xr.Dataset(
        {
            "x": (("y", "t"), rng.random((5, 25)), {"units": "m"}),
            "n": ("t", rng.integers(0, 200, 25).astype("u1")),
            "is_wet": ("t", rng.random(25) < 0.5),
            "fixed": ("y", np.arange(5.0)),
            "word": ("t", np.array([f"w{number}" for number in range(25)], object)),
        },
        coords={"t": times, "y": np.arange(5)},
        attrs={"title": "expected"},
    )
    encoding: dict[str, Any] = {"x": {"chunks": (2, 10), "dtype": "i2", "scale_factor": 2.0**-10, "_FillValue": -1}}
    if zarr_format == 2:
        encoding["n"] = {"compressors": numcodecs.Zstd(2)}
    for name in ("theirs.zarr", "ours.zarr"):
        part = ds.isel(t=slice(0, 14))
        part.to_zarr(tmp_path / name, zarr_format=zarr_format, consolidated=consolidated, encoding=encoding)
    ds.isel(t=slice(14, None)).drop_vars("fixed").to_zarr(
        tmp_path / "theirs.zarr", append_dim="t", consolidated=consolidated
    )
    report = ds.insitu.copy(tmp_path / "ours.zarr", append=True, verify=True)
    assert "11 new labels of t" in str(report)
    found, want = (xr.open_zarr(tmp_path / name).load() for name in ("ours.zarr", "theirs.zarr"))
    xr.testing.assert_identical(found, want)
    for name in ds.variables:
        ours, expected = (zarr.open(tmp_path / store)[name] for store in ("ours.zarr", "theirs.zarr"))
        np.testing.assert_array_equal(ours[...], expected[...])  # the stored values, too
        assert (ours.shape, ours.dtype, ours.chunks) == (expected.shape, expected.dtype, expected.chunks)


def test_formulas_and_selections_are_appended(years: list[str], tmp_path: Path) -> None:
    def make(ds: xr.Dataset) -> xr.Dataset:
        part = ds[["tas", "rank"]].isel(lat=slice(None, None, 2))
        return part.assign(celsius=part.tas - 273.15)

    target = tmp_path / "t.zarr"
    make(archive_of(years).dataset().isel(time=slice(0, 50))).insitu.copy(target, chunks={"time": 20})
    make(archive_of(years).dataset()).insitu.copy(target, append="time")
    xr.testing.assert_identical(opened(target), make(expected(years)))


def test_files_that_are_packed_otherwise_get_the_packing_of_the_target(tmp_path: Path) -> None:
    files = [str(tmp_path / f"y{year}.nc") for year in range(2)]
    write_year(Path(files[0]), 0)
    write_year(Path(files[1]), 1, scale=0.002, unit="hours")
    target = tmp_path / "t.zarr"
    archive_of(files[:1]).copy(target)
    archive_of(files[1:]).copy(target, append=True)
    found = opened(target)
    with xr.open_dataset(files[1]) as later:
        want = later.load()
    new = found.isel(time=slice(30, None))
    np.testing.assert_array_equal(new.time.values, want.time.values)
    np.testing.assert_array_equal(new.tas.values, want.tas.values)
    np.testing.assert_allclose(new.pr.values, want.pr.values, rtol=0, atol=0.00051)
    assert found.time.encoding["units"] == "days since 2001-01-01"
    with xr.open_dataset(files[0]) as first:
        xr.testing.assert_identical(found.isel(time=slice(0, 30)), first.load())  # what was there stays as it was


def series(first: int, values: Any, **more: Any) -> xr.Dataset:
    data = np.asarray(values)
    return xr.Dataset({"x": ("t", data)}, {"t": first + np.arange(len(data))}, **more)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (series(0, np.arange(3, dtype="i2")), series(3, np.array([1, 40_000], "i4")), "value 40000 does not fit int16"),
        (series(0, np.arange(3, dtype="u1")), series(3, np.array([1, -1], "i8")), "value -1 does not fit uint8"),
        (series(0, np.arange(3)), series(3, [1.0, 2.5]), "value 2.5 is no whole number"),
        (series(0, np.arange(3)), series(3, [1.0, np.nan]), "value nan is missing, and the target has no value"),
        (series(0, np.arange(3, dtype="f4")), series(3, [1e300]), "out of the range of float32"),
        (series(0, np.array(["a", "b"], object)), series(2, [1.0, 2.0]), "the target has texts"),
        (series(0, [1.0, 2.0]), series(2, np.array(["a"], object)), "the target numbers"),
        (series(0, [1.0, 2.0]), series(2, [1j]), "complex"),
        (series(0, [1.0]), series(1, [1.0]).assign(y=("t", [1])), r"no such variable .*variable y"),
        (series(0, [1.0]).assign(y=("t", [1])), series(1, [1.0]), r"the source lacks .*variable y"),
        (series(0, [1.0]), series(1, [1.0]).drop_vars("x").assign(x=("u", [1.0])), "the dimensions"),
        (series(0, [1.0, 2.0, 3.0]).isel(t=[0, 2]), series(0, [1.0, 2.0, 3.0, 4.0]), "label 1 lies before 2"),
        (series(5, [1.0]), series(3, [1.0]), "label 3 does not lie behind 5"),
        (series(0, [1.0]), series(1, [1.0, 1.0]).isel(t=[1, 0]), "label 1 does not lie behind 2"),
        (series(0, [1.0]).drop_vars("t"), series(0, [1.0]).drop_vars("t"), "not clear"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_and_changes_nothing(
    tmp_path: Path, old: xr.Dataset, new: xr.Dataset, reason: str
) -> None:
    target = tmp_path / "t.zarr"
    old.insitu.copy(target)
    before = contents_of(target)
    for _ in range(2):
        with pytest.raises(InsituError, match=reason):
            new.insitu.copy(target, append=True)
        assert contents_of(target) == before


def test_values_beyond_the_packing(tmp_path: Path) -> None:
    packed = series(0, [1.0, np.nan, 3.0])
    packed.x.encoding = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -32768}
    packed.to_zarr(tmp_path / "t.zarr")
    with pytest.raises(UnsupportedError, match=r"20000.0 is out of the range .* -16384 to 16383.5 .*variable x"):
        series(3, [20_000.0]).insitu.copy(tmp_path / "t.zarr", append=True)
    with pytest.raises(UnsupportedError, match=r"-16384.0 would be stored as -32768, which means missing"):
        series(3, [-16384.0]).insitu.copy(tmp_path / "t.zarr", append=True)
    series(3, [16383.5, np.nan, -0.5]).insitu.copy(tmp_path / "t.zarr", append=True)
    np.testing.assert_array_equal(opened(tmp_path / "t.zarr").x, [1, np.nan, 3, 16383.5, np.nan, -0.5])


def test_times_that_are_not_exact_in_the_targets_unit(tmp_path: Path) -> None:
    def make(first: str, frequency: str) -> xr.Dataset:
        return xr.Dataset({"x": ("t", np.arange(4.0))}, {"t": xr.date_range(first, periods=4, freq=frequency)})

    old = make("2000-01-01", "D")
    old.t.encoding = {"units": "days since 2000-01-01", "dtype": "int64"}
    old.to_zarr(tmp_path / "t.zarr")
    with pytest.raises(UnsupportedError, match=r"not all of its times are exact .*'days since 2000-01-01' as int64"):
        make("2000-02-01", "6h").insitu.copy(tmp_path / "t.zarr", append=True)
    make("2000-02-01", "2D").insitu.copy(tmp_path / "t.zarr", append=True)
    assert str(opened(tmp_path / "t.zarr").t.values[-1]).startswith("2000-02-07")


def test_another_calendar_or_unit_is_refused(years: list[str], tmp_path: Path) -> None:
    archive_of(years[:1]).copy(tmp_path / "t.zarr")
    with xr.open_dataset(years[1]) as later:
        new = later.load()
    with pytest.raises(UnsupportedError, match="labels are times, and those of the target times of the calendar"):
        new.assign_coords(time=xr.date_range("2001-02-01", periods=30)).insitu.copy(tmp_path / "t.zarr", append=True)
    new.tas.attrs["units"] = "degC"
    with pytest.raises(UnsupportedError, match=r"its unit is 'degC', and the target's is 'K' .*variable tas"):
        new.insitu.copy(tmp_path / "t.zarr", append=True)


def test_other_labels_are_refused_by_name(years: list[str], tmp_path: Path) -> None:
    archive_of(years[:1]).copy(tmp_path / "t.zarr")
    ds = archive_of(years).dataset()
    with pytest.raises(SelectionError, match=r"labels are -80.0 to 60.0, and those of the target -80.0 to 80.0"):
        ds.isel(lat=slice(0, -1)).insitu.copy(tmp_path / "t.zarr", append=True)
    with pytest.raises(SelectionError, match=r"its labels are 0.5 to 330.5, .*variable lon"):
        ds.assign_coords(lon=ds.lon + 0.5).insitu.copy(tmp_path / "t.zarr", append=True)


def test_targets_that_cannot_be_appended_to(years: list[str], tmp_path: Path) -> None:
    archive_of(years[:1]).copy(tmp_path / "t.nc", append=True)
    with pytest.raises(UnsupportedError, match="NetCDF file cannot be appended to"):
        archive_of(years).copy(tmp_path / "t.nc", append=True)
    with pytest.raises(UnsupportedError, match="either appended to or replaced"):
        archive_of(years).copy(tmp_path / "t.zarr", append=True, overwrite=True)
    store = zarr.open_group(tmp_path / "bits.zarr", mode="w", zarr_format=2)
    store.create_array("x", shape=3, chunks=2, dtype="i4", filters=[numcodecs.Delta("i4")])[...] = 1
    store["x"].attrs["_ARRAY_DIMENSIONS"] = ["t"]
    store.create_array("t", data=np.arange(3), fill_value=-1).attrs["_ARRAY_DIMENSIONS"] = ["t"]
    with pytest.raises(UnsupportedError, match=r"no encoder for the codec 'delta' .*variable x"):
        series(3, np.array([1], "i4")).insitu.copy(tmp_path / "bits.zarr", append=True)


def test_a_dry_run_writes_nothing(years: list[str], tmp_path: Path) -> None:
    archive_of(years[:2]).copy(tmp_path / "t.zarr", chunks={"time": 25})
    before = contents_of(tmp_path)
    plan = archive_of(years).copy(tmp_path / "t.zarr", append=True, dry_run=True)
    assert plan.as_dict()["new_labels"] == 60
    assert "60 new labels of time, 2001-03-02 00:00:00 to 2001-04-30 00:00:00" in str(plan)
    assert contents_of(tmp_path) == before


def test_a_target_that_changes_meanwhile_is_an_error(
    years: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "t.zarr"
    archive_of(years[:1]).copy(target)
    publish = ZarrAppend.publish

    def publish_late(self: ZarrAppend) -> None:
        document = json.loads((target / "zarr.json").read_text())
        (target / "zarr.json").write_text(json.dumps({**document, "attributes": {"title": "another"}}))
        publish(self)

    with monkeypatch.context() as patch:
        patch.setattr(ZarrAppend, "publish", publish_late)
        with pytest.raises(SourceError, match="the target has changed since the append began"):
            archive_of(years).copy(target, append=True)
    assert opened(target).sizes["time"] == 30
    archive_of(years).copy(target, append=True)
    xr.testing.assert_equal(opened(target), expected(years))


def test_commits_of_portions(years: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    icechunk = pytest.importorskip("icechunk")

    target, commits = tmp_path / "t.icechunk", []
    commit = append_targets.commit

    def commit_some(*given: Any) -> str:
        if len(commits) == 2:
            raise Killed
        commits.append(given[1])
        return commit(*given)

    archive_of(years[:1]).copy(target, chunks={"time": 20})
    with monkeypatch.context() as patch:
        patch.setattr(append_targets, "commit", commit_some)
        with pytest.raises(Killed):
            archive_of(years).copy(target, append=True, commit_every=25)
    archive_of(years).copy(target, append=True, commit_every=25)
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(target)))
    versions = [one.id for one in repository.ancestry(branch="main")][-2::-1]
    want = expected(years)
    for snapshot, upto in zip(versions, (30, 55, 80, 105, 120), strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = xr.open_zarr(repository.readonly_session(snapshot_id=snapshot).store, consolidated=False).load()
        xr.testing.assert_identical(found, want.isel(time=slice(0, upto)))


def test_groups(tmp_path: Path) -> None:
    def write(path: Path, first: int) -> None:
        xr.Dataset({"x": ("t", np.arange(3.0) + first)}, {"t": first + np.arange(3)}).to_netcdf(path, group="one")

    for number in range(2):
        write(tmp_path / f"{number}.nc", 3 * number)
    insitu.Archive.open(tmp_path / "0.nc").copy(tmp_path / "t.zarr")
    insitu.Archive.open(tmp_path / "1.nc").copy(tmp_path / "t.zarr", append=True)
    found = xr.open_zarr(tmp_path / "t.zarr", group="one").load()
    np.testing.assert_array_equal(found.x, np.arange(6.0))
    np.testing.assert_array_equal(found.t, np.arange(6))
