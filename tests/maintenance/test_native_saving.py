"""What a form of references cannot hold is saved as native chunks: the values are those of the files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from copying.killing import Killed
from forked_commands import run_command
from insitu.copying.object_writers import FolderWriter
from insitu.errors import UnsupportedError
from maintenance.test_pinning import values_of, write_file

NAMES = ["x.json", "x.parq", "x.parquet", "x.icechunk"]
NATIVE = {"native": "where needed"}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    for number in range(2):
        write_file(folder / f"f{number}.nc", number)
    return folder


@pytest.fixture
def files(template: Path, tmp_path: Path) -> list[str]:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return [str(tmp_path / f"f{number}.nc") for number in range(2)]


def skip_without_library(name: str) -> None:
    if name.endswith(".icechunk"):
        pytest.importorskip("icechunk")


def check_values(target: Path, want: xr.Dataset) -> None:
    for _ in range(2):
        found = insitu.open_dataset(target).compute()
        xr.testing.assert_equal(found, want)
        assert {name: found[name].dtype for name in found.variables} == {
            name: want[name].dtype for name in want.variables
        }


@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_the_files(files: list[str], tmp_path: Path, name: str) -> None:
    skip_without_library(name)
    want, ds = values_of(files), insitu.open_mfdataset(files)
    with pytest.raises(UnsupportedError, match="cannot hold 3 of the arrays"):
        ds.insitu.save(tmp_path / name)
    messages: list[str] = []
    ds.insitu.save(tmp_path / name, announce=messages.append, **NATIVE)
    assert "3 variables of 6.24 kB are copied" in messages[0]
    assert [line.partition(":")[0] for line in messages[1:]] == ["tas", "pr", "seen"]
    check_values(tmp_path / name, want)
    before = native_folders(tmp_path / name)
    ds.insitu.save(tmp_path / name, **NATIVE)  # over itself
    check_values(tmp_path / name, want)
    assert len(native_folders(tmp_path / name)) == (0 if name == "x.icechunk" else 1)
    assert not before or native_folders(tmp_path / name) != before, "chunks that references name were written again"


def native_folders(target: Path) -> set[str]:
    folder = target.with_name(f"{target.name}.native")
    return set(os.listdir(folder)) if folder.exists() else set()


def test_what_the_form_holds_stays_in_the_files(files: list[str], tmp_path: Path) -> None:
    ds = insitu.open_mfdataset(files)
    ds.insitu.save(tmp_path / "x.json", **NATIVE)
    opened = insitu.open_dataset(tmp_path / "x.json")
    sources = {name: array.sources for name, array in opened.insitu.group().arrays.items() if array.ndim == 3}
    assert {source.url for source in sources["flag"]} == set(files)
    assert all(f"{tmp_path}/x.json.native/" in source.url for source in sources["tas"])
    ds[["flag"]].insitu.save(tmp_path / "flag.json", **NATIVE)
    assert not native_folders(tmp_path / "flag.json")


def test_the_repository_holds_native_chunks_in_one_commit(files: list[str], tmp_path: Path) -> None:
    icechunk = pytest.importorskip("icechunk")
    insitu.open_mfdataset(files).insitu.save(tmp_path / "x.icechunk", **NATIVE)
    storage = icechunk.local_filesystem_storage(str(tmp_path / "x.icechunk"))
    access = icechunk.containers_credentials({f"file://{tmp_path}/": None})
    repository = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
    assert len([one for one in repository.ancestry(branch="main") if one.parent_id]) == 1
    with xr.open_zarr(repository.readonly_session("main").store, consolidated=False) as found:
        xr.testing.assert_equal(found.load(), values_of(files))
    virtual = repository.readonly_session("main").all_virtual_chunk_locations()
    assert {os.path.basename(path) for path in virtual} == {"f0.nc", "f1.nc"}


def test_moved_together_with_its_chunks(files: list[str], tmp_path: Path) -> None:
    want = values_of(files)
    insitu.open_mfdataset(files).insitu.save(tmp_path / "x.json", relative=True, **NATIVE)
    os.mkdir(tmp_path / "new")
    for name in ("x.json", "x.json.native", "f0.nc", "f1.nc"):
        shutil.move(tmp_path / name, tmp_path / "new")
    check_values(tmp_path / "new" / "x.json", want)


@pytest.mark.parametrize("name", ["x.json", "x.parq", "x.icechunk"])
def test_an_interrupted_save_leaves_the_old_state(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """… killed before any object, or before the references are written; the same save goes on then."""
    skip_without_library(name)
    want, old = values_of(files), values_of(files[:1])
    target = tmp_path / name
    insitu.open_mfdataset(files[:1]).insitu.save(target, **NATIVE)
    ds = insitu.open_mfdataset(files)
    put, sync = FolderWriter.put, FolderWriter.sync

    def save_until(count: int | None) -> int:
        """Save; the process ends before the object of a number, or when all are written."""
        written: list[str] = []

        def put_some(self: FolderWriter, key: str, data: bytes) -> None:
            if len(written) == count:
                raise Killed
            written.append(key)
            put(self, key, data)

        def sync_and_die(self: FolderWriter) -> None:
            sync(self)
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(FolderWriter, "put", put_some)
            patch.setattr(FolderWriter, "sync", sync_and_die)
            with pytest.raises(Killed):
                ds.insitu.save(target, **NATIVE)
        check_values(target, old)
        return len(written)

    assert save_until(0) == 0
    assert save_until(3) == 3
    assert save_until(None) > 0
    assert save_until(None) == 0, "what was written is written again"
    ds.insitu.save(target, **NATIVE)
    check_values(target, want)


def test_groups_and_texts(tmp_path: Path) -> None:
    for number in range(2):
        path = tmp_path / f"t{number}.nc"
        length = 3 + number
        words = xr.Dataset(
            {"word": ("x", np.array([f"w{number}"] * length, object))}, {"x": np.arange(length) + 9 * number}
        )
        words.to_netcdf(path, engine="h5netcdf")
        xr.Dataset({"v": ("x", np.arange(length) * 0.5 + number)}).to_netcdf(
            path, group="deep", mode="a", engine="h5netcdf", encoding={"v": {"chunksizes": (2,), "zlib": True}}
        )
    ds = insitu.open_mfdatatree([tmp_path / "t0.nc", tmp_path / "t1.nc"], concat_dim="x", combine="nested")
    ds.insitu.save(tmp_path / "t.json", **NATIVE)
    found = insitu.open_datatree(tmp_path / "t.json")
    np.testing.assert_array_equal(found["deep/v"].values, np.concatenate([np.arange(3) * 0.5, np.arange(4) * 0.5 + 1]))
    assert found["word"].values.tolist() == ["w0"] * 3 + ["w1"] * 4


def test_the_commands(files: list[str], tmp_path: Path) -> None:
    words: list[Any] = ["scan", *files, "-o", tmp_path / "x.json"]
    refused = run_command(words)
    assert refused.returncode == 1
    done = run_command([*words, "--native-where-needed"])
    assert done.returncode == 0, done.stderr
    assert "3 variables of 6.24 kB are copied" in done.stderr
    check_values(tmp_path / "x.json", values_of(files))
    insitu.open_mfdataset(files).insitu.save(tmp_path / "x.insitu")
    done = run_command(["convert", tmp_path / "x.insitu", tmp_path / "x.parq", "--native-where-needed"])
    assert done.returncode == 0, done.stderr
    check_values(tmp_path / "x.parq", values_of(files))


def test_no_other_word(files: list[str], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="where needed"):
        insitu.open_dataset(files[0]).insitu.save(tmp_path / "x.json", native="always")
