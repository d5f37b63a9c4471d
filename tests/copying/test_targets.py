"""Does a target appear whole or not at all, and does an interrupted copy go on where it was?

Modules: copying/journal.py, copying/check_target.py, copying/copy_options.py
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from copying.archives import archive_of, contents_of
from copying.conftest import write_year
from copying.killing import Killed
from insitu.copying.copy_options import parse_memory
from insitu.copying.journal import Finished, Journal
from insitu.copying.object_writers import FolderWriter
from insitu.errors import SourceError, UnsupportedError


@pytest.mark.parametrize("memory", [None, 20_000], ids=["one pass", "two passes"])
def test_an_interrupted_copy_goes_on(
    files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int | None
) -> None:
    way = {"chunks": {"time": -1, "lat": 3, "lon": 4}, "memory": memory}
    archive_of(files).copy(tmp_path / "whole.zarr", **way)
    put, written = FolderWriter.put, []

    def put_some(self: FolderWriter, key: str, data: bytes) -> None:
        if len(written) == 12:
            raise Killed
        written.append(key)
        put(self, key, data)

    for _ in range(40):
        written.clear()
        monkeypatch.setattr(FolderWriter, "put", put_some)
        try:
            report = archive_of(files).copy(tmp_path / "t.zarr", **way)
            break
        except Killed:
            assert not (tmp_path / "t.zarr").exists()
    assert report.continued > 0
    assert contents_of(tmp_path / "t.zarr") == contents_of(tmp_path / "whole.zarr")
    assert sorted(os.listdir(tmp_path)) == ["archive", "t.zarr", "whole.zarr"]


def stop_after(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    put, written = FolderWriter.put, []

    def put_some(self: FolderWriter, key: str, data: bytes) -> None:
        if len(written) >= count:
            raise Killed
        written.append(key)
        put(self, key, data)

    monkeypatch.setattr(FolderWriter, "put", put_some)


def test_another_copy_does_not_go_on_with_it(files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        stop_after(patch, 6)
        with pytest.raises(Killed):
            archive_of(files).copy(tmp_path / "t.zarr", chunks={"time": 20})
    report = archive_of(files).copy(tmp_path / "t.zarr", chunks={"time": 21})
    assert report.continued == 0


def test_a_source_that_changed_is_copied_anew(files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        stop_after(patch, 6)
        with pytest.raises(Killed):
            archive_of(files).copy(tmp_path / "t.zarr", chunks={"time": 20})
    changed = Path(files).parent / "y0.nc"
    changed.unlink()
    write_year(changed, 0, scale=0.001)
    with xr.open_dataset(changed) as ds:
        new = ds.load()
    new["tas"] += 1
    new.to_netcdf(changed)
    report = archive_of(files).copy(tmp_path / "t.zarr", chunks={"time": 20})
    assert report.continued == 0
    found = xr.open_zarr(tmp_path / "t.zarr").tas[:30].values
    np.testing.assert_array_equal(found, new.tas.values)


def test_a_source_that_changes_meanwhile_is_an_error(files: str, tmp_path: Path) -> None:
    archive = archive_of(files)
    assert archive.member().variables
    path = Path(files).parent / "y1.nc"
    data = path.read_bytes()
    path.write_bytes(data + b"more")
    with pytest.raises(SourceError, match="not the one that was scanned"):
        archive.copy(tmp_path / "t.zarr", chunks="series")
    assert not (tmp_path / "t.zarr").exists()


def test_what_an_interrupted_copy_has_left_is_checked(
    files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure may leave files shorter than they were, or of zeros."""
    with monkeypatch.context() as patch:
        stop_after(patch, 30)
        with pytest.raises(Killed):
            archive_of(files).copy(tmp_path / "t.zarr", chunks={"time": 5})
    left = [path for path in (tmp_path / "t.zarr.copying/content/tas").rglob("*") if path.is_file()]
    for number, path in enumerate(left):
        data = path.read_bytes()
        path.write_bytes(data[:-3] if number % 2 else bytes(len(data)))
    archive_of(files).copy(tmp_path / "t.zarr", chunks={"time": 5})
    archive_of(files).copy(tmp_path / "whole.zarr", chunks={"time": 5})
    assert contents_of(tmp_path / "t.zarr") == contents_of(tmp_path / "whole.zarr")


def test_killed_after_it_was_published(files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from insitu.copying import zarr_target

    replace = zarr_target.replace_directory

    def replace_and_die(path: str, other: str) -> None:
        replace(path, other)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(zarr_target, "replace_directory", replace_and_die)
        with pytest.raises(Killed):
            archive_of(files).copy(tmp_path / "t.zarr")
    whole = contents_of(tmp_path / "t.zarr")
    archive_of(files).copy(tmp_path / "t.zarr")  # the same command only tidies up
    assert contents_of(tmp_path / "t.zarr") == whole
    assert sorted(os.listdir(tmp_path)) == ["archive", "t.zarr"]
    with pytest.raises(UnsupportedError, match="there is something already"):
        archive_of(files).copy(tmp_path / "t.zarr")


def test_a_full_disk_is_an_error_after_which_the_copy_goes_on(
    files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, written = FolderWriter.put, []

    def put_some(self: FolderWriter, key: str, data: bytes) -> None:
        if len(written) == 9:
            raise SourceError("writing failed: No space left on device", url=key)
        written.append(key)
        put(self, key, data)

    with monkeypatch.context() as patch:
        patch.setattr(FolderWriter, "put", put_some)
        with pytest.raises(SourceError, match="No space left"):
            archive_of(files).copy(tmp_path / "t.zarr", chunks={"time": 5})
    assert not (tmp_path / "t.zarr").exists()
    assert archive_of(files).copy(tmp_path / "t.zarr", chunks={"time": 5}).continued > 0


@pytest.mark.parametrize("cut", [1, 20, 36, 37])
def test_a_journal_that_was_cut_off(tmp_path: Path, cut: int) -> None:
    question = bytes(range(32))
    journal = Journal(tmp_path / "journal", question)
    journal.add([Finished(0, number, 100, 1, 2, 0.5) for number in range(3)])
    journal.close()
    data = (tmp_path / "journal").read_bytes()
    (tmp_path / "journal").write_bytes(data[:-cut])
    again = Journal(tmp_path / "journal", question)
    assert sorted(again.of_array(0)) == ([0, 1] if cut <= 40 else [0])
    again.add([Finished(0, 2, 7, 1, 2, 0.0)])
    again.close()
    last = Journal(tmp_path / "journal", question)
    assert last.of_array(0)[2].nbytes == 7
    last.close()
    other = Journal(tmp_path / "journal", bytes(32))
    assert not other.is_continued
    assert not other.finished
    other.close()


def test_amounts_of_memory() -> None:
    assert [parse_memory(text) for text in ("1000", "64 MiB", "1.5gb")] == [1000, 64 << 20, 1_500_000_000]
    with pytest.raises(UnsupportedError, match="no amount of memory"):
        parse_memory("a lot")
