"""Pinned parts of an archive are read from chunks inside the store, and have the values of the files.

Modules: cli/pin.py, cli/unpin.py, copying/native_chunks.py, maintenance/adopt_chunks.py, maintenance/carry_pinned.py,
maintenance/select_boxes.py, maintenance/unused_chunks.py, model/overlay.py,
references/store/native_names.py
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import insitu
from copying.killing import Killed, die_at
from forked_commands import run_command
from insitu.cli import app
from insitu.copying.object_writers import FolderWriter
from insitu.errors import (
    ChecksumError,
    FormatError,
    InsituWarning,
    NotFoundError,
    SelectionError,
    StaleSourceError,
    UnsupportedError,
    VariableError,
)
from insitu.maintenance import compact
from insitu.maintenance.unused_chunks import remove_unused_chunks
from insitu.model import VirtualArray
from insitu.model.overlay import overlay, without_box
from insitu.references.file_systems import hold_file_lock
from insitu.references.store.native_names import inner_url, native_url, outer_url
from insitu.server.app import create_app
from insitu.server.settings import Settings
from server.in_process import Request, ask_app

pytestmark = pytest.mark.usefixtures("without_syncing")

DAYS = 6


def write_file(path: Path, number: int, shift: float = 0.0) -> str:
    """One file: every variable in other chunks, `pr` with a scale of its own."""
    rng = np.random.default_rng(number)
    shape = (DAYS, 5, 8)
    tas = rng.normal(size=shape).astype("f4") + np.float32(shift)
    tas[1, 2, 3] = np.nan
    dims = ("time", "lat", "lon")
    ds = xr.Dataset(
        {
            "tas": (dims, tas),
            "pr": (dims, rng.normal(size=shape)),
            "flag": (dims, rng.integers(0, 99, shape).astype("i2")),
            "seen": (("time", "lat"), rng.integers(0, 10**6, shape[:2]).astype("M8[s]").astype("M8[ns]")),
        },
        {
            "time": xr.date_range(f"200{number}-01-01", periods=DAYS),
            "lat": np.linspace(60, -60, 5),
            "lon": np.arange(8.0),
        },
    )
    ds.to_netcdf(
        path,
        engine="h5netcdf",
        encoding={
            "tas": {"chunksizes": (4, 3, 8), "zlib": True, "shuffle": True},
            "pr": {"dtype": "i2", "scale_factor": 0.001 * (number + 1), "_FillValue": -9, "chunksizes": (3, 5, 8)},
            "flag": {"chunksizes": (2, 5, 4)},
            "seen": {"units": f"seconds since 19{70 + number}-01-01", "dtype": "i8", "chunksizes": (6, 5)},
        },
    )
    return str(path)


def values_of(files: list[str]) -> xr.Dataset:
    with xr.open_mfdataset(files, engine="h5netcdf") as ds:
        return ds.load()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files, and the archive that was made of them."""
    folder = tmp_path_factory.mktemp("template")
    files = [write_file(folder / f"f{number}.nc", number) for number in range(3)]
    insitu.open_mfdataset(files).insitu.save(folder / "x.insitu", relative=True)
    return folder


@pytest.fixture
def files(template: Path, tmp_path: Path) -> list[str]:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return [str(tmp_path / f"f{number}.nc") for number in range(3)]


@pytest.fixture
def store(files: list[str], tmp_path: Path) -> Path:
    return tmp_path / "x.insitu"


def archive_of(store: Path) -> insitu.Archive:
    return insitu.Archive.open(str(store))


def check_values(store: Path, want: xr.Dataset) -> None:
    """Everything, twice, and a selection with steps."""
    opened = insitu.open_dataset(store)
    for _ in range(2):
        xr.testing.assert_identical(opened.compute(), want)
    way = {"time": slice(1, None, 3), "lat": slice(None, None, -2), "lon": [7, 0, 3]}
    xr.testing.assert_identical(insitu.open_dataset(store).isel(way).compute(), want.isel(way))


def boxes(store: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for part in archive_of(store).pinned_parts():
        found.setdefault(part.variable, []).append(part.box)
    return found


def folders(store: Path) -> set[str]:
    return set(os.listdir(store / "native")) if (store / "native").exists() else set()


def test_a_pinned_archive_has_the_values_of_the_files(store: Path, files: list[str], tmp_path: Path) -> None:
    want = values_of(files)
    report = archive_of(store).pin("tas", sel={"time": slice("2000-01-03", "2001-01-04")}, isel={"lat": slice(1, 4)})
    assert boxes(store) == {"tas": [((2, 10), (1, 4), (0, 8))]}
    assert report.copy is not None
    assert report.copy.nbytes == sum(part.nbytes for part in report.parts) > 0
    check_values(store, want)
    archive_of(store).pin(["pr", "flag", "seen"], isel={"time": slice(4, 15)}, chunks={"time": 5, "lat": 2})
    check_values(store, want)
    assert run_command(["copy", store, tmp_path / "whole.zarr"]).returncode == 0  # another process reads all
    with xr.open_zarr(tmp_path / "whole.zarr") as copied:
        xr.testing.assert_equal(copied.load(), want)
    for name in ("tas", "pr"):
        found = insitu.reduce(store, name, "max", dim="time")
        np.testing.assert_array_equal(found, want[name].max("time").values)
    assert insitu.check(store).ok


def test_pinned_values_need_no_files(store: Path, files: list[str], tmp_path: Path) -> None:
    """… also at another place, under another name, where nothing is left of the old one."""
    want = values_of(files)
    archive_of(store).pin()
    shutil.copytree(store, tmp_path / "elsewhere" / "other.insitu")
    shutil.rmtree(store)
    for file in files:
        os.unlink(file)
    check_values(tmp_path / "elsewhere" / "other.insitu", want)


def test_what_is_not_pinned_is_read_from_the_files(store: Path, files: list[str]) -> None:
    archive_of(store).pin("tas", isel={"time": slice(0, DAYS)})
    want = values_of(files)
    os.unlink(files[0])
    ds = insitu.open_dataset(store)
    np.testing.assert_array_equal(ds.tas[:DAYS].values, want.tas[:DAYS].values)
    with pytest.raises(NotFoundError):
        _ = ds.flag[:DAYS].values
    assert [finding.source.url for finding in insitu.check(store).stale] == [files[0]]


@pytest.mark.parametrize("seed", range(3))
def test_random_parts(store: Path, files: list[str], seed: int) -> None:
    """Parts that overlap older ones, in any chunks and codecs."""
    rng = np.random.default_rng(seed)
    want = values_of(files)

    def choose(dims: tuple[str, ...]) -> dict[str, slice]:
        ends = {dim: np.sort(rng.choice(want.sizes[dim] + 1, 2, replace=False)) for dim in dims if rng.random() < 0.7}
        return {dim: slice(*pair.tolist()) for dim, pair in ends.items()}

    for _ in range(3):
        name = str(rng.choice(["tas", "pr", "flag", "seen"]))
        dims = tuple(map(str, want[name].dims))
        chunks = {dim: int(rng.integers(1, 7)) for dim in dims if rng.random() < 0.7} or None
        codec = rng.choice(["zstd:1", "zlib:1", "none", "blosc:lz4", ""]) or None
        archive_of(store).pin(name, isel=choose(dims), chunks=chunks, codec=codec)
    check_values(store, want)
    for _ in range(2):
        way = {
            dim: slice(part.start, part.stop, int(rng.integers(1, 4))) for dim, part in choose(("time", "lat")).items()
        }
        xr.testing.assert_identical(insitu.open_dataset(store).isel(way).compute(), want.isel(way))


def test_the_same_again_writes_nothing(store: Path) -> None:
    way: dict[str, Any] = {"isel": {"time": slice(3, 9)}, "chunks": {"time": 4}}
    archive_of(store).pin(["tas", "pr"], **way)
    before = (store / "root.json").read_bytes()
    assert archive_of(store).pin(["tas", "pr"], **way).copy is None
    assert (store / "root.json").read_bytes() == before
    assert archive_of(store).pin(["tas", "pr"], isel={"time": slice(3, 9)}, chunks={"time": 3}).copy is not None


def test_a_dry_run_writes_nothing(store: Path) -> None:
    plan = archive_of(store).pin("tas", dry_run=True)
    assert plan.nbytes == 3 * DAYS * 5 * 8 * 4
    assert not folders(store)
    assert not boxes(store)


def test_unpinned_chunks_stay_for_a_rollback(store: Path, files: list[str]) -> None:
    want = values_of(files)
    archive_of(store).pin(["tas", "flag"])
    archive_of(store).unpin("tas")
    assert list(boxes(store)) == ["flag"]
    check_values(store, want)
    archive_of(store).rollback()
    assert sorted(boxes(store)) == ["flag", "tas"]
    check_values(store, want)
    archive_of(store).unpin()
    assert not boxes(store)
    check_values(store, want)
    with pytest.raises(VariableError, match="no part of 'tas' is pinned"):
        archive_of(store).unpin("tas")


def test_compact_removes_what_nothing_refers_to(store: Path, files: list[str]) -> None:
    want = values_of(files)
    archive_of(store).pin("tas")
    (first,) = folders(store)
    archive_of(store).pin("flag")
    archive_of(store).unpin("tas")
    assert compact(str(store)).unpinned_bytes > 0
    assert len(folders(store)) == 1
    assert first not in folders(store)
    check_values(store, want)
    archive_of(store).rollback()  # to the state before `compact`
    assert list(boxes(store)) == ["flag"]
    check_values(store, want)


def test_compact_leaves_what_is_being_written(store: Path) -> None:
    archive_of(store).pin("tas")
    archive_of(store).unpin()
    (name,) = folders(store)
    staging = store / "native" / f"{name}.copying"
    staging.mkdir()
    with hold_file_lock(str(staging / "lock")):
        compact(str(store))
        assert folders(store) == {name, f"{name}.copying"}
    assert remove_unused_chunks(str(store)) > 0  # the process has died
    assert not folders(store)


def test_an_append_keeps_what_is_pinned(store: Path, files: list[str], tmp_path: Path) -> None:
    archive_of(store).pin(["tas", "pr", "seen"], isel={"time": slice(2, 14)}, chunks={"time": 5})
    before = boxes(store)
    more = [write_file(tmp_path / "f4.nc", 4)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", InsituWarning)
        archive_of(store).append(more)
    assert boxes(store) == before
    check_values(store, values_of([*files, *more]))


def test_a_drop_moves_what_is_pinned_and_takes_its_part(store: Path, files: list[str]) -> None:
    archive_of(store).pin(["tas", "pr"], isel={"time": slice(2, 14)}, chunks={"time": 5})
    with pytest.warns(InsituWarning, match="no longer pinned"):
        archive_of(store).drop([files[0]])
    assert boxes(store) == {name: [((0, 8), (0, 5), (0, 8))] for name in ("tas", "pr")}
    check_values(store, values_of(files[1:]))
    with pytest.warns(InsituWarning, match="80 of 320 pinned values"):
        archive_of(store).drop([files[2]])
    assert boxes(store) == {name: [((0, 6), (0, 5), (0, 8))] for name in ("tas", "pr")}
    check_values(store, values_of(files[1:2]))


def test_a_changed_file_drops_its_part(store: Path, files: list[str]) -> None:
    archive_of(store).pin("tas")
    write_file(Path(files[1]), 1, shift=10.0)
    os.utime(files[1], (1e9, 1e9))
    assert [finding.source.url for finding in insitu.check(store).stale] == [files[1]]
    with pytest.warns(InsituWarning, match=r"tas: 240 of 720 pinned values are no longer pinned"):
        insitu.refresh(store)
    assert boxes(store) == {"tas": [((0, 6), (0, 5), (0, 8)), ((12, 18), (0, 5), (0, 8))]}
    check_values(store, values_of(files))
    assert insitu.check(store).ok


def test_an_archive_whose_files_moved_keeps_what_is_pinned(store: Path, files: list[str], tmp_path: Path) -> None:
    from insitu.maintenance import rename_sources

    want = values_of(files)
    archive_of(store).pin("tas", isel={"lat": slice(1, 3)})
    (tmp_path / "new").mkdir()
    for file in files:
        shutil.move(file, tmp_path / "new")
    rename_sources(str(store), {f"{tmp_path}/f": f"{tmp_path}/new/f"})
    assert boxes(store) == {"tas": [((0, 18), (1, 3), (0, 8))]}
    check_values(store, want)


def test_another_writer_meanwhile(
    store: Path, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are dropped and added while values are copied: what was copied of the others counts."""
    more = write_file(tmp_path / "f4.nc", 4)
    sync = FolderWriter.sync

    def sync_and_lose(self: FolderWriter) -> None:
        monkeypatch.setattr(FolderWriter, "sync", sync)
        sync(self)
        archive_of(store).append([more])
        archive_of(store).drop([files[0]])

    monkeypatch.setattr(FolderWriter, "sync", sync_and_lose)
    with pytest.warns(InsituWarning, match="tas: 240 of 720"):
        archive_of(store).pin("tas")
    assert boxes(store) == {"tas": [((0, 12), (0, 5), (0, 8))]}
    check_values(store, values_of([*files[1:], more]))


def test_an_interrupted_pin_goes_on(store: Path, files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    put, written = FolderWriter.put, []

    def put_some(self: FolderWriter, key: str, data: bytes) -> None:
        if len(written) == 5:
            raise Killed
        written.append(key)
        put(self, key, data)

    before = (store / "root.json").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(FolderWriter, "put", put_some)
        with pytest.raises(Killed):
            archive_of(store).pin("tas", chunks={"time": 2})
    assert (store / "root.json").read_bytes() == before
    report = archive_of(store).pin("tas", chunks={"time": 2})
    assert report.copy is not None
    assert report.copy.continued > 0
    check_values(store, values_of(files))


def test_killed_at_any_write(store: Path, files: list[str], tmp_path: Path) -> None:
    """The store is the old one or the new one, the same command completes it, and nothing else is left then."""
    want, deaths = values_of(files), 0
    way: dict[str, Any] = {"isel": {"time": slice(3, 9)}, "chunks": {"time": 4}}
    shutil.copytree(store, tmp_path / "plain.insitu")
    for number in range(1, 400, 6):
        with die_at(number) as has_died:
            try:
                archive_of(store).pin("flag", **way)
            except Killed:
                assert has_died()
        assert boxes(store) in ({}, {"flag": [((3, 9), (0, 5), (0, 8))]}), f"killed at action {number}"
        np.testing.assert_array_equal(insitu.read(store, "flag"), want.flag)
        if not has_died():
            break
        deaths += 1
        archive_of(store).pin("flag", **way)
        np.testing.assert_array_equal(insitu.read(store, "flag"), want.flag)
        compact(str(store))
        assert len({name.removesuffix(".copying") for name in folders(store)}) == 1, f"after a kill at action {number}"
        shutil.rmtree(store)
        shutil.copytree(tmp_path / "plain.insitu", store)
    check_values(store, want)
    assert 6 < deaths < 66


def test_a_file_that_changes_while_it_is_copied_is_an_error(store: Path, files: list[str]) -> None:
    before = (store / "root.json").read_bytes()
    archive = archive_of(store)
    archive.member()
    Path(files[1]).write_bytes(Path(files[1]).read_bytes() + b"more")
    with pytest.raises(StaleSourceError):
        archive.pin("tas")
    assert (store / "root.json").read_bytes() == before


def test_damaged_chunks_are_noticed(store: Path) -> None:
    archive_of(store).pin("tas", chunks={"time": 9})
    paths = sorted(path for path in (store / "native").rglob("*") if path.is_file())
    data = paths[0].read_bytes()
    paths[0].write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    with pytest.raises(ChecksumError, match="damaged"):
        _ = insitu.open_dataset(store).tas.values
    paths[0].write_bytes(data[:-1])
    assert "its size was" in str(insitu.check(store))
    with pytest.raises(StaleSourceError):
        _ = insitu.open_dataset(store).tas.values
    paths[0].unlink()
    assert not insitu.check(store).ok
    with pytest.raises(NotFoundError):
        _ = insitu.open_dataset(store).tas.values


def test_other_forms_have_the_right_values_or_refuse(store: Path, files: list[str], tmp_path: Path) -> None:
    want = values_of(files)
    archive_of(store).pin("flag", isel={"time": slice(3, 9)}, chunks={"time": 3})
    with xr.open_zarr(insitu.zarr_store(store), consolidated=False, zarr_format=3) as view:
        xr.testing.assert_equal(view.load(), want)
    one = insitu.open_dataset(store)[["flag"]]
    for name in ("x.json", "x.parq"):
        with pytest.raises(UnsupportedError, match=f"chunks are pinned inside {store}.*flag"):
            one.insitu.save(tmp_path / name)
    # Converted is what lies in the files: native chunks belong to their store.
    runner = CliRunner().invoke(app, ["convert", str(store), str(tmp_path / "y.insitu")])
    assert runner.exit_code == 0, runner.output
    assert not boxes(tmp_path / "y.insitu")
    check_values(tmp_path / "y.insitu", want)
    insitu.open_dataset(store).insitu.save(store)  # over itself: its chunks are files like others
    compact(str(store))
    compact(str(store))
    check_values(store, want)


def test_what_is_saved_elsewhere_has_chunks_of_its_own(store: Path, files: list[str], tmp_path: Path) -> None:
    """Unpinning or deleting the first store breaks nothing, and the second may be moved."""
    want = values_of(files)
    archive_of(store).pin(["tas", "flag"], isel={"time": slice(3, 9)}, chunks={"time": 3})
    archive_of(store).pin("tas", isel={"time": slice(9, 12)}, chunks={"time": 3})
    opened = insitu.open_dataset(store)
    opened.insitu.save(tmp_path / "second.insitu")
    opened[["flag"]].isel(time=slice(3, 6)).insitu.save(tmp_path / "part.json", native="where needed")
    assert sum(len(names) for *_, names in os.walk(tmp_path / "second.insitu" / "native")) == 4 + 4 + 2
    assert len(folders(tmp_path / "second.insitu")) == 1
    shutil.rmtree(store)
    shutil.move(tmp_path / "second.insitu", tmp_path / "moved.insitu")
    check_values(tmp_path / "moved.insitu", want)
    compact(str(tmp_path / "moved.insitu"))
    check_values(tmp_path / "moved.insitu", want)
    found = insitu.open_dataset(tmp_path / "part.json").flag
    np.testing.assert_array_equal(found.values, want.flag[3:6].values)


def test_appended_elsewhere_are_the_files_not_what_is_pinned(store: Path, files: list[str], tmp_path: Path) -> None:
    """Chunks that the first store may unpin are not named by a second one: refused, and nothing changes."""
    more = [write_file(tmp_path / f"f{number}.nc", number) for number in (4, 5)]
    other, repository = tmp_path / "other.insitu", tmp_path / "x.icechunk"
    insitu.open_mfdataset(more).insitu.save(other)
    insitu.open_dataset(more[0])[["flag"]].insitu.save(repository)
    archive_of(store).pin("flag", isel={"time": slice(3, 9)})
    appends: list[Callable[[], object]] = [
        lambda: insitu.open_dataset(store).insitu.append(other, "time"),
        lambda: insitu.open_dataset(store).isel(time=slice(4, 7)).insitu.append(other, "time"),
        lambda: archive_of(other).append([str(store)]),
        lambda: insitu.open_dataset(store)[["flag"]].insitu.append(repository, "time"),
    ]
    for append in appends:
        with pytest.raises(UnsupportedError, match=f"chunks are pinned inside {store}.*flag"):
            append()
    check_values(other, values_of(more))
    insitu.open_dataset(store).isel(time=slice(9, None)).insitu.append(other, "time")  # shows nothing of it
    archive_of(other).append(files[:1])
    archive_of(store).unpin()
    archive_of(other).append([str(store)])
    compact(str(store))
    shutil.rmtree(store)
    check_values(other, values_of([*files, *more]))


def test_a_save_that_fails_leaves_no_chunks(store: Path, tmp_path: Path) -> None:
    archive_of(store).pin("flag")
    next(path for path in sorted((store / "native").rglob("*")) if path.is_file()).unlink()
    with pytest.raises(NotFoundError, match="native"):
        insitu.open_dataset(store).insitu.save(tmp_path / "second.insitu")
    assert not folders(tmp_path / "second.insitu")


def test_shards(store: Path, files: list[str]) -> None:
    way: dict[str, Any] = {"isel": {"time": slice(2, 17)}, "chunks": {"time": 2, "lat": 2, "lon": 3}}
    archive_of(store).pin(["tas", "pr"], **way, shards={"time": 6, "lat": 4, "lon": 9})
    assert sum(len(names) for *_, names in os.walk(store / "native")) == 2 * 3 * 2
    assert [part.chunks for part in archive_of(store).pinned_parts()] == [8 * 3 * 3] * 2
    check_values(store, values_of(files))
    assert insitu.check(store).ok
    assert archive_of(store).pin(["tas", "pr"], **way, shards={"time": 6, "lat": 4, "lon": 9}).copy is None


def test_the_same_again_in_other_shards_is_written(store: Path, files: list[str]) -> None:
    """Also without any, and in shards of which the last one has the same number."""
    way: dict[str, Any] = {"isel": {"time": slice(2, 17)}, "chunks": {"time": 2, "lat": 5, "lon": 8}}
    shards: list[Any] = [None, {"time": 6}, {"time": 4}, {"time": 8}, {"time": 14}, None]
    for size in shards:
        assert archive_of(store).pin("tas", **way, shards=size).copy is not None, size
        assert archive_of(store).pin("tas", **way, shards=size).copy is None, size
    check_values(store, values_of(files))


def test_a_server_shows_what_is_pinned(store: Path, files: list[str], tmp_path: Path) -> None:
    """… from the chunks in the store: the files are gone."""
    want = values_of(files)
    archive_of(store).pin(["tas", "pr"], chunks={"time": 2, "lat": 2})
    for file in files:
        os.unlink(file)
    place = {"time": 8, "lat": 2, "lon": 3}
    requests = [
        Request("GET", "/explorer/api/point", query={"url": str(store), "variable": name, "index": json.dumps(place)})
        for name in ("tas", "pr", "flag")
    ]
    tas, pr, flag = ask_app(create_app(Settings(roots=(str(tmp_path),))), *requests)
    assert [answer.json["number"] for answer in (tas, pr)] == [want[name].isel(place).item() for name in ("tas", "pr")]
    assert flag.status == 404


def test_native_chunks_are_one_row_of_the_files(store: Path, files: list[str]) -> None:
    archive_of(store).pin(["tas", "flag"], isel={"time": slice(2, 9)})
    found = insitu.open_dataset(store).insitu.files.set_index("url")
    assert sorted(found.index) == sorted([*files, str(store / "native")])
    native = found.loc[str(store / "native")]
    assert native["size"] == sum(path.stat().st_size for path in (store / "native").rglob("*") if path.is_file())
    assert (native.time_first, native.time_last) == tuple(values_of(files).time.values[[2, 8]])


def test_what_cannot_be_pinned(tmp_path: Path, store: Path) -> None:
    archive = archive_of(store)
    with pytest.raises(SelectionError, match="no range"):
        archive.pin("tas", isel={"time": slice(0, 9, 2)})
    with pytest.raises(SelectionError, match="empty"):
        archive.pin("tas", isel={"time": slice(4, 4)})
    with pytest.raises(SelectionError, match="has the dimension 'depth'"):
        archive.pin("tas", isel={"depth": 0})
    with pytest.raises(SelectionError, match="cannot select"):
        archive.pin("tas", sel={"lat": 1234.0})
    with pytest.raises(VariableError, match="no variable 'ta'"):
        archive.pin("ta")
    assert "in the store already" in str(archive.pin("lat"))
    xr.Dataset({"name": ("x", np.array(["a", "bc"] * 40000, object)), "v": ("x", np.arange(80000))}).to_netcdf(
        tmp_path / "t.nc", engine="h5netcdf"
    )
    insitu.open_dataset(tmp_path / "t.nc").insitu.save(tmp_path / "t.insitu")
    with pytest.raises(UnsupportedError, match=r"values of type .* cannot"):
        archive_of(tmp_path / "t.insitu").pin("name")
    assert "cannot be pinned" in str(archive_of(tmp_path / "t.insitu").pin())
    assert list(boxes(tmp_path / "t.insitu")) == ["v"]
    insitu.open_dataset(tmp_path / "t.nc")[["v"]].insitu.save(tmp_path / "t.json")
    with pytest.raises(UnsupportedError, match="only an insitu store"):
        insitu.Archive.open(tmp_path / "t.json").pin()
    with pytest.raises(UnsupportedError, match="not saved"):
        insitu.Archive.open([tmp_path / "t.nc"], many=True).pin()


def test_one_label_and_absent_places(files: list[str], tmp_path: Path) -> None:
    """Where no file covers a place, integers have no value of their own: what is meant is stored."""
    days = xr.date_range("2000-01-01", "2000-01-09")
    store = tmp_path / "absent.insitu"
    insitu.open_dataset(files[0]).reindex(time=days).insitu.save(store)
    want = values_of(files[:1]).reindex(time=days)
    archive_of(store).pin(["flag", "pr", "tas"], isel={"time": slice(4, 8)})
    assert "in the store already" in str(archive_of(store).pin("flag", sel={"time": "2000-01-09"}))
    assert boxes(store)["flag"] == [((4, 8), (0, 5), (0, 8))]
    archive_of(store).pin("flag", sel={"time": "2000-01-02"})
    check_values(store, want)


def test_variables_in_groups(tmp_path: Path, files: list[str]) -> None:
    path = tmp_path / "t.nc"
    xr.Dataset({"a": ("x", np.arange(50000))}, {"x": np.arange(50000)}).to_netcdf(path, engine="h5netcdf")
    xr.Dataset({"b": ("x", np.arange(50000.0))}).to_netcdf(path, group="deep/er", mode="a", engine="h5netcdf")
    store = tmp_path / "t.insitu"
    insitu.Archive.open(path).save(store)
    archive_of(store).pin("deep/er/b", isel={"x": slice(10, 30000)}, chunks={"x": 7000})
    insitu.Archive.open(str(store), group="deep").pin("er/b", isel={"x": slice(40000, None)})
    assert boxes(store) == {"deep/er/b": [((10, 30000),), ((40000, 50000),)]}
    os.unlink(path)
    found = insitu.read(store, "deep/er/b", np.s_[10:30000])
    np.testing.assert_array_equal(found, np.arange(10.0, 30000))


def test_the_commands(store: Path, files: list[str]) -> None:
    want = values_of(files)
    words = ["pin", store, "tas", "--sel", "time=2001..2001", "--chunks", "time=3", "--codec", "zlib:2"]
    done = run_command(words)
    assert done.returncode == 0, done.stderr
    assert "tas [time 6:12, lat 0:5, lon 0:8]: 4 chunks" in done.stderr
    info = run_command(["info", store])
    assert "pinned: tas [time 6:12" in info.stdout
    parts = json.loads(run_command(["info", store, "--json"]).stdout)["pinned"]
    assert parts[0]["box"]["time"] == [6, 12]
    assert run_command(["info", store, "--files"]).stdout.count(".nc") == 3
    check_values(store, want)
    plan = json.loads(run_command(["pin", store, "pr", "--dry-run", "--json"]).stdout.splitlines()[-1])
    assert plan["event"] == "plan"
    done = run_command(["unpin", store, "tas"])
    assert "nothing is pinned" in done.stderr
    check_values(store, want)


def test_names_of_native_chunks_do_not_lead_out_of_the_store(tmp_path: Path) -> None:
    store = str(tmp_path / "x.insitu")
    url = f"{native_url(store)}/ab/t/c/0"
    name = inner_url(url, store)
    assert name == "store://ab/t/c/0"
    assert outer_url(name, store) == url
    for bad in ("store://../x", "store://a//b", "store://", "store:///etc/passwd", "store://a/..\\b"):
        with pytest.raises(FormatError, match="not a valid name"):
            outer_url(bad, store)


@pytest.mark.parametrize("seed", range(5))
def test_boxes_are_cut_out_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 7, 3).tolist())
    below, above = rng.normal(size=shape), rng.normal(size=shape)
    low, high = VirtualArray.from_values(below), VirtualArray.from_values(above)
    want = below.copy()
    found = low
    for _ in range(4):
        ends = [np.sort(rng.integers(0, length + 1, 2)).tolist() for length in shape]
        box = tuple(slice(*pair) for pair in ends)
        part = high[box]
        placed = VirtualArray(shape, high.dtype, high.dims, part.tiles, np.array([[b for b, _ in ends]]))
        if part.size:
            want[box] = above[box]
            found = overlay(found, placed)
            gap = without_box(found, [tuple(pair) for pair in ends])
            covered = sum(int(np.prod(tile.shape)) for tile in gap.tiles)
            assert covered == np.prod(shape) - part.size
    np.testing.assert_array_equal(insitu.read(found), want)
