"""Does xarray show the same of a copy as of its source?

Modules: copying/stored_forms.py, copying/target_arrays.py, copying/zarr_target.py, copying/copy_boxes.py,
copying/two_passes.py, copying/verify.py, copying/repacking.py, copying/copy_plan.py, copying/open_target.py,
copying/object_writers.py
"""

from __future__ import annotations

import glob
import json
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

import insitu
import insitu.xarray_bridge.accessor  # registers itself
from copying.archives import JOIN, archive_of, contents_of
from copying.conftest import write_year
from insitu.errors import (
    AccessError,
    ChecksumError,
    InsituError,
    SelectionError,
    SelectionSizeError,
    UnsupportedError,
    VariableError,
)

WAYS: list[dict[str, Any]] = [
    {},
    {"chunks": "series"},
    {"chunks": "maps", "codec": "zlib:2"},
    {"chunks": "both", "codec": "none"},
    {"chunks": "auto", "codec": "blosc:lz4"},
    {"chunks": {"time": 40, "lat": 4}},
    {"codec": "source"},
    {"chunks": {"time": 10, "lat": 3, "lon": 6}, "shards": {"time": 30, "lat": 9}, "codec": "zstd:1"},
    {"chunks": {"time": -1, "lat": 2, "lon": 3}, "memory": 20_000},
    {"chunks": {"time": 7}, "memory": 8_000},
]


def opened(path: Path | str, **how: Any) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr's codecs of numcodecs
        return xr.open_zarr(str(path), **how).load()


def expected(files: str) -> xr.Dataset:
    return xr.open_mfdataset(sorted(glob.glob(files)), **JOIN).load()


@pytest.mark.parametrize("zarr_format", [3, 2])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_xarray_shows_the_same(files: str, tmp_path: Path, way: dict[str, Any], zarr_format: int) -> None:
    if zarr_format == 2 and "shards" in way:
        pytest.skip("Zarr V2 has no shards")
    target = tmp_path / "t.zarr"
    report = archive_of(files).copy(target, zarr_format=zarr_format, verify=True, **way)
    assert report.verified == report.objects > 0
    found = opened(target)
    xr.testing.assert_identical(found, expected(files))
    assert found.pr.encoding["scale_factor"] == 0.001
    assert found.pr.encoding["dtype"] == np.dtype("i2")  # packed as it was
    assert sorted(os.listdir(tmp_path)) == ["archive", "t.zarr"]
    again = insitu.open_dataset(target)
    xr.testing.assert_identical(again.load(), expected(files))


def test_the_chunks_and_shards_are_those_asked_for(files: str, tmp_path: Path) -> None:
    archive_of(files).copy(tmp_path / "t.zarr", chunks={"time": 10, "lat": 3, "lon": 6}, shards={"time": 30, "lat": 9})
    array = zarr.open(tmp_path / "t.zarr")["tas"]
    assert (array.chunks, array.shards) == ((10, 3, 6), (30, 9, 6))


def test_bytes_pass_through_where_grid_and_codecs_agree(files: str, tmp_path: Path) -> None:
    plan = archive_of(files).copy(tmp_path / "t.zarr", variables="tas", codec="source", dry_run=True)
    assert plan.as_dict()["variables"]["tas"]["passes_through"]
    archive_of(files).copy(tmp_path / "t.zarr", variables="tas", codec="source")
    usual = archive_of(files).copy(tmp_path / "u.zarr", variables="tas", dry_run=True)
    assert not usual.as_dict()["variables"]["tas"]["passes_through"]  # Zarr V3 specifies no zlib
    first = sorted(glob.glob(files))[0]
    with h5py.File(first) as file:
        _, stored = file["tas"].id.read_direct_chunk((0, 0, 0))
    assert (tmp_path / "t.zarr/tas/c/0/0/0").read_bytes() == stored


def test_each_source_chunk_is_fetched_once(tmp_path: Path) -> None:
    """Chunks that straddle boxes are kept from one to the next."""
    values = np.random.default_rng(0).random((40, 64, 64), "f4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(5, 64, 64), compression="gzip", compression_opts=1)
    archive = insitu.Archive.open(tmp_path / "a.h5")
    assert archive.tree.arrays  # scanned
    stored = archive.dataset().insitu.nbytes_stored
    for memory in (1_600_000, 4_000_000):  # two boxes and what straddles them; all at once
        with insitu.trace() as cost:
            how = {"chunks": {"phony_dim_0": 7, "phony_dim_1": 16, "phony_dim_2": 64}, "overwrite": True}
            archive.copy(tmp_path / "t.zarr", memory=memory, **how)
            (array,) = archive.copy(tmp_path / "t.zarr", memory=memory, dry_run=True, **how).arrays
            assert (array.passes.count, array.passes.last.cache_bytes > 0) == (1, memory < 2_000_000)
        assert stored <= cost.bytes <= 1.05 * stored
    np.testing.assert_array_equal(opened(tmp_path / "t.zarr").x, values)


def test_selections_and_formulas_stream(files: str, tmp_path: Path) -> None:
    ds, want = archive_of(files).dataset(), expected(files)

    def change(given: xr.Dataset) -> xr.Dataset:
        part = given[["tas", "rank"]].isel(time=slice(3, 80), lat=slice(None, None, 2))
        return part.assign(warm=part.tas > 280, celsius=part.tas - 273.15, twice=part["rank"] * 2)

    made = change(ds)
    made.insitu.copy(tmp_path / "t.zarr", chunks={"time": 20}, verify=True)
    assert "celsius" in made.insitu.virtual  # nothing was loaded
    xr.testing.assert_identical(opened(tmp_path / "t.zarr"), change(want))


def test_labels_select(files: str, tmp_path: Path) -> None:
    archive_of(files).copy(tmp_path / "t.zarr", variables=["tas"], sel={"lat": slice(0, 50)}, isel={"time": [4, 2]})
    want = expected(files)[["tas"]].sel(lat=slice(0, 50)).isel(time=[4, 2])
    xr.testing.assert_identical(opened(tmp_path / "t.zarr"), want)


def test_values_in_memory(tmp_path: Path) -> None:
    times = xr.date_range("2020-01-01", periods=4, freq="90min")
    ds = xr.Dataset(
        {
            "x": ("t", np.array([1.0, np.nan, 3.0, 4.0])),
            "flag": ("t", np.array([True, False, True, True])),
            "words": ("t", np.array(["a", "", "übung", "d"], object)),
            "waits": ("t", np.array([1, 2, 3, 4], "m8[ns]") * 10**9),
            "big": ((), np.uint64(2**63)),
            "half": ("t", np.arange(4, dtype="f2")),
            "z": ("t", np.array([1 + 2j] * 4)),
            "none": (("t", "empty"), np.zeros((4, 0))),
        },
        coords={"t": times},
    )
    ds.insitu.copy(tmp_path / "t.zarr", verify=True)
    xr.testing.assert_identical(opened(tmp_path / "t.zarr"), ds)


def test_files_that_are_packed_differently_are_stored_unpacked_or_packed_anew(tmp_path: Path) -> None:
    for year in range(2):
        write_year(tmp_path / f"y{year}.nc", year, scale=0.001 * (year + 1))
    pattern = f"{tmp_path}/y*.nc"
    want = expected(pattern)
    report = archive_of(pattern).copy(tmp_path / "plain.zarr", chunks="series")
    assert "pr: stored unpacked: its files are packed differently" in str(report)
    xr.testing.assert_identical(opened(tmp_path / "plain.zarr"), want)

    plan = archive_of(pattern).copy(tmp_path / "packed.zarr", repack=True, dry_run=True)
    assert "packed anew, with an error of up to" in str(plan)
    report = archive_of(pattern).copy(tmp_path / "packed.zarr", repack=True)
    found = opened(tmp_path / "packed.zarr")
    assert found.pr.encoding["dtype"] == np.dtype("i2")
    error = float(np.abs(found.pr - want.pr).max())
    assert report.errors["pr"] == pytest.approx(error)
    assert 0 < error <= found.pr.encoding["scale_factor"] / 2 * 1.0001
    np.testing.assert_array_equal(np.isnan(found.pr), np.isnan(want.pr))


def test_times_get_one_unit_in_which_all_are_exact(tmp_path: Path) -> None:
    write_year(tmp_path / "y0.nc", 0)
    with xr.open_dataset(tmp_path / "y0.nc") as first:
        later = first.load().assign_coords(time=first.time.values + np.timedelta64(40, "D").astype("m8[us]").item())
        shifted = later.assign_coords(time=[t + np.timedelta64(90, "m").item() for t in later.time.values])
    shifted.to_netcdf(tmp_path / "y1.nc", encoding={"time": {"units": "minutes since 2001-01-01"}})
    pattern = f"{tmp_path}/y*.nc"
    archive_of(pattern).copy(tmp_path / "t.zarr")
    found = opened(tmp_path / "t.zarr")
    np.testing.assert_array_equal(found.time.values, expected(pattern).time.values)
    assert np.issubdtype(zarr.open(tmp_path / "t.zarr")["time"].dtype, np.integer)


def test_float32_scales_that_json_cannot_keep(tmp_path: Path) -> None:
    """JSON would make a float64 of the scale, and xarray another type of the values."""
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file.create_dataset("x", data=np.arange(10, dtype="i2"))
        file["x"].attrs["scale_factor"] = np.float32(0.1)
        file["x"].make_scale("x")
        file.create_dataset("y", data=np.arange(10, dtype="i2"), chunks=(3,)).attrs["scale_factor"] = np.float32(0.1)
        file["y"].dims[0].attach_scale(file["x"])
    insitu.Archive.open(tmp_path / "a.nc").copy(tmp_path / "t.zarr")
    want = xr.open_dataset(tmp_path / "a.nc").load()
    found = opened(tmp_path / "t.zarr")
    assert found.y.dtype == want.y.dtype == np.float32
    xr.testing.assert_identical(found, want)


def test_gaps_between_files(tmp_path: Path) -> None:
    """Places that no file covers are missing in the copy too."""
    for number, (rows, first) in enumerate([(slice(0, 2), 0), (slice(2, 4), 3)]):
        values = np.arange(12, dtype="i2").reshape(3, 4)[:, rows]
        xr.Dataset({"x": (("t", "y"), values)}, coords={"t": first + np.arange(3), "y": np.arange(4)[rows]}).to_netcdf(
            tmp_path / f"{number}.nc"
        )
    pattern = sorted(glob.glob(f"{tmp_path}/*.nc"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = xr.open_mfdataset(pattern, combine="by_coords").load()
        insitu.Archive.open(pattern).copy(tmp_path / "t.zarr", chunks={"t": 4})
    xr.testing.assert_identical(opened(tmp_path / "t.zarr"), want)


def test_groups(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file.attrs["title"] = "top"
        inner = file.create_group("one/two")
        inner.attrs["level"] = 2
        inner.create_dataset("x", data=np.arange(6.0), chunks=(4,))
        file.create_dataset("y", data=np.arange(3))
    insitu.Archive.open(tmp_path / "a.nc").copy(tmp_path / "t.zarr", chunks="auto")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = xr.open_datatree(tmp_path / "t.zarr", engine="zarr").load()
    assert found.attrs == {"title": "top"}
    assert found["one/two"].attrs == {"level": 2}
    np.testing.assert_array_equal(found["one/two/x"], np.arange(6.0))


@pytest.mark.parametrize("engine", ["threads", "dask"])
def test_engines_give_the_same_bits(files: str, tmp_path: Path, engine: str) -> None:
    way = {"chunks": {"time": 11, "lat": 4}, "memory": 20_000}
    archive_of(files).copy(tmp_path / "here.zarr", **way)
    with ThreadPoolExecutor(2) as pool:
        archive_of(files).copy(tmp_path / "there.zarr", engine=pool if engine == "threads" else "dask", **way)
    assert contents_of(tmp_path / "there.zarr") == contents_of(tmp_path / "here.zarr")


def test_the_plan_says_what_is_needed(files: str, tmp_path: Path) -> None:
    archive = archive_of(files)
    small = archive.copy(tmp_path / "t.zarr", chunks={"time": -1, "lat": 2, "lon": 3}, memory=20_000, dry_run=True)
    large = archive.copy(tmp_path / "t.zarr", chunks={"time": -1, "lat": 2, "lon": 3}, dry_run=True)
    assert (small.passes, large.passes) == (2, 1)
    assert small.memory <= 20_000
    assert small.disk > 0 == large.disk
    assert large.bytes_read == archive.dataset().insitu.nbytes_stored
    assert json.loads(json.dumps(small.as_dict()))["passes"] == 2
    assert "in two passes" in str(small)
    raw = archive.copy(tmp_path / "t.zarr", chunks={"time": 40, "lat": 5, "lon": 7}, codec="none", dry_run=True)
    assert archive.copy(tmp_path / "raw.zarr", chunks={"time": 40, "lat": 5, "lon": 7}, codec="none").nbytes == (
        pytest.approx(raw.bytes_written, rel=0.01)  # chunks at the end are filled up
    )
    assert sorted(os.listdir(tmp_path)) == ["archive", "raw.zarr"]


def test_progress_counts_all_bytes(files: str, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    archive_of(files).copy(
        tmp_path / "t.zarr", chunks="series", progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1][0] == seen[-1][1] == max(done for done, _ in seen)


def test_a_target_is_replaced_only_if_that_is_wanted(files: str, tmp_path: Path) -> None:
    archive = archive_of(files)
    archive.copy(tmp_path / "t.zarr", variables="tas")
    before = contents_of(tmp_path / "t.zarr")
    with pytest.raises(UnsupportedError, match="there is something already"):
        archive.copy(tmp_path / "t.zarr", variables="rank")
    assert contents_of(tmp_path / "t.zarr") == before
    archive.copy(tmp_path / "t.zarr", variables="rank", overwrite=True)
    assert set(opened(tmp_path / "t.zarr").data_vars) == {"rank"}


def test_nothing_but_a_store_is_replaced(files: str, tmp_path: Path) -> None:
    (tmp_path / "t.zarr").mkdir()
    (tmp_path / "t.zarr" / "letter.txt").write_text("dear")
    with pytest.raises(UnsupportedError, match="something else than a Zarr store"):
        archive_of(files).copy(tmp_path / "t.zarr", overwrite=True)
    assert (tmp_path / "t.zarr" / "letter.txt").read_text() == "dear"


@pytest.mark.parametrize(
    ("way", "kind", "reason"),
    [
        ({"chunks": {"time": 0}}, SelectionError, "of length 0 along 'time'"),
        ({"chunks": {"depth": 3}}, SelectionError, "'depth', which is no dimension"),
        ({"chunks": "columns"}, UnsupportedError, "is unknown"),
        ({"codec": "rar"}, UnsupportedError, "no codec 'rar'"),
        ({"chunks": {"time": 90}, "memory": 500}, SelectionSizeError, "one chunk of the target has"),
        ({"memory": 0}, SelectionSizeError, "0 bytes of memory"),
        ({"memory": "much"}, UnsupportedError, "no amount of memory"),
        ({"zarr_format": 4}, UnsupportedError, "no format 4"),
        ({"zarr_format": 2, "shards": {"time": 10}}, UnsupportedError, "only Zarr V3 has shards"),
        ({"chunks": {"time": 10}, "shards": {"time": 15}}, UnsupportedError, "cannot be divided"),
        ({"sel": {"time": "1990"}}, SelectionError, "cannot select .*1990"),
        ({"isel": {"depth": 1}}, SelectionError, "cannot select .*depth"),
        ({"variables": ["tos"], "isel": {"time": 1}}, VariableError, "no variable 'tos'"),
    ],
    ids=str,
)
def test_bad_input_is_refused_before_anything_is_written(
    files: str, tmp_path: Path, way: dict[str, Any], kind: type[InsituError], reason: str
) -> None:
    with pytest.raises(kind, match=reason):
        archive_of(files).copy(tmp_path / "t.zarr", **way)
    assert os.listdir(tmp_path) == ["archive"]


def test_places_that_are_refused(files: str, tmp_path: Path) -> None:
    archive = archive_of(files)
    with pytest.raises(UnsupportedError, match="names no format"):
        archive.copy(tmp_path / "t.tiff")
    archive.copy(tmp_path / "t.zarr", variables="tas")
    with pytest.raises(UnsupportedError, match="inside of the store"):
        archive.copy(tmp_path / "t.zarr" / "u.zarr")
    with pytest.raises(UnsupportedError, match="the source lies inside of the target"):
        insitu.Archive.open(tmp_path / "t.zarr").copy(tmp_path / "t.zarr", overwrite=True)
    with pytest.raises(UnsupportedError, match="is a file"):
        archive.copy(sorted(glob.glob(files))[0] + "/t.zarr")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permissions do not hold for the superuser")
def test_a_folder_that_cannot_be_written(files: str, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    with pytest.raises(AccessError, match="no permission to write"):
        archive_of(files).copy(folder / "t.zarr")


@pytest.mark.parametrize("name", ["__x", "zarr.json"])
def test_names_that_zarr_cannot_hold(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot have an array of the name"):
        xr.Dataset({name: ("t", np.zeros(3))}).insitu.copy(tmp_path / "t.zarr")
    assert os.listdir(tmp_path) == []


def test_types_that_cannot_be_copied(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("pair", data=np.zeros(3, [("a", "i4"), ("b", "f4")]))
    with pytest.raises(UnsupportedError, match=r"cannot be copied .*variable pair"):
        insitu.Archive.open(tmp_path / "a.h5").copy(tmp_path / "t.zarr")


@pytest.mark.parametrize("name", ["t.zarr", "t.nc", "t.icechunk"])
def test_one_text(tmp_path: Path, name: str) -> None:
    """… of any length, and of a fixed one."""
    ds = xr.Dataset({"word": ((), np.array("übung", object)), "code": ((), np.array(b"abc"))})
    ds.to_netcdf(tmp_path / "a.nc")
    insitu.Archive.open(tmp_path / "a.nc").copy(tmp_path / name, verify=True)
    xr.testing.assert_identical(insitu.open_dataset(tmp_path / name).load(), ds)


@pytest.mark.parametrize("text", [np.array(["a", "bc"], object), np.array([b"a", b"bc"])])
def test_texts_that_some_files_lack(tmp_path: Path, text: np.ndarray[Any, Any]) -> None:
    """xarray shows NaN between texts there, which no target can hold."""
    for number in range(2):
        given = {"x": ("t", np.arange(2.0))} | ({} if number else {"word": ("t", text)})
        xr.Dataset(given, {"t": 2 * number + np.arange(2)}).to_netcdf(tmp_path / f"{number}.nc", engine="h5netcdf")
    archive = insitu.Archive.open(f"{tmp_path}/*.nc")
    with pytest.raises(UnsupportedError, match=r"no file covers some places, and texts .*word"):
        archive.copy(tmp_path / "t.zarr")
    assert not list(tmp_path.glob("t.zarr*"))
    if text.dtype.kind == "S":  # shown as objects that are bytes
        with pytest.raises(UnsupportedError, match=r"cannot be copied .*word"):
            archive.copy(tmp_path / "t.zarr", variables="word", isel={"t": [0, 1]})
    else:
        archive.copy(tmp_path / "t.zarr", variables="word", isel={"t": [0, 1]})
        assert opened(tmp_path / "t.zarr").word.values.tolist() == text.tolist()


def test_what_is_wrong_on_disk_is_noticed(files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from insitu.copying.object_writers import FolderWriter

    put = FolderWriter.put

    def put_wrong(self: FolderWriter, key: str, data: bytes) -> None:
        put(self, key, data[:-1] + bytes([data[-1] ^ 1]) if key.startswith("tas/c") else data)

    monkeypatch.setattr(FolderWriter, "put", put_wrong)
    with pytest.raises(ChecksumError, match="what was read back of tas/c"):
        archive_of(files).copy(tmp_path / "t.zarr", chunks="series", codec="none", verify=True)
    assert not (tmp_path / "t.zarr").exists()
