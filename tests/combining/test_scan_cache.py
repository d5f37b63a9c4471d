"""The second time that an archive is opened it is not scanned, and never shows what it was before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.combining import cached_archive
from insitu.scanning import scan_cache
from insitu.scanning.scan_cache import ScanCache, ScanRecorder
from insitu.sources.opened_urls import record_opened_urls

HOW: dict[str, Any] = {"combine": "nested", "concat_dim": "time"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScanCache:
    """Make a cache of its own, which keeps everything at once."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("INSITU_SCAN_CACHE", str(folder))
    monkeypatch.setattr(scan_cache, "RECENT_NS", 0)
    monkeypatch.setattr(cached_archive, "MIN_SCAN_SECONDS", 0.0)
    return ScanCache(folder)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = []
    for number in range(3):
        paths.append(str(tmp_path / f"{number}.nc"))
        values = {"tas": (("time", "x"), np.full((2, 3), float(number))), "x": [1.0, 2.0, 3.0]}
        xr.Dataset(values, {"time": [2 * number, 2 * number + 1]}, {"title": "a"}).to_netcdf(paths[-1])
    return paths


def _opened(paths: Any, **how: Any) -> tuple[xr.Dataset, set[str]]:
    with record_opened_urls() as found:
        ds = insitu.open_mfdataset(paths, **{**HOW, **how})
    return ds, {url for url in found if url.endswith((".nc", ".h5"))}


def test_found_again_without_opening_a_file(cache: ScanCache, files: list[str]) -> None:
    first, scanned = _opened(files)
    again, opened = _opened(files)
    assert scanned == set(files)
    assert not opened
    assert len(cache.entries()) == 1
    with xr.open_mfdataset(files, engine="netcdf4", **HOW) as expected:
        xr.testing.assert_identical(again.load(), expected.load())
    assert again.encoding == first.encoding
    assert {name: sorted(v.encoding) for name, v in again.variables.items()} == {
        name: sorted(v.encoding) for name, v in first.variables.items()
    }
    assert "3 files combined" in str(again.insitu.report())


@pytest.mark.parametrize("change", ["values", "size", "replaced", "gone"])
def test_a_change_is_noticed(cache: ScanCache, files: list[str], change: str) -> None:
    _opened(files)
    before = os.stat(files[1])
    if change == "values":
        with h5py.File(files[1], "r+") as file:
            file["tas"][...] = 77.0
        os.utime(files[1], ns=(before.st_atime_ns, before.st_mtime_ns))  # the same size and modification time
    elif change == "size":
        xr.Dataset({"tas": (("time", "x"), np.zeros((4, 3)))}, {"time": range(4)}).to_netcdf(files[1])
    elif change == "replaced":
        os.replace(files[2], files[1])
        files.pop()
    else:
        os.unlink(files[1])
        with pytest.raises(FileNotFoundError):
            _opened(files)
        return
    again, opened = _opened(files)
    assert opened == set(files)
    with xr.open_mfdataset(files, engine="netcdf4", **HOW) as expected:
        xr.testing.assert_equal(again.load(), expected.load())


def test_recent_files_are_not_kept(cache: ScanCache, files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_cache, "RECENT_NS", 3600 * 10**9)
    _opened(files)
    assert not cache.entries()


def test_other_options_are_another_entry(cache: ScanCache, files: list[str]) -> None:
    _opened(files)
    for paths, how in (
        (files, {"concat_dim": "other"}),
        (files, {"variables": "tas"}),
        (files[::-1], {}),
        (files, {"data_vars": "all"}),
        (files, {"verify": False}),
    ):
        _, opened = _opened(paths, **how)
        assert opened == set(paths), how


def test_what_is_not_the_same_every_time_is_not_kept(cache: ScanCache, files: list[str]) -> None:
    _opened(files, preprocess=lambda ds: ds)
    _opened(files, errors="warn")
    _opened(files, mask_and_scale=False)
    assert not cache.entries()


def test_a_file_that_another_one_names(cache: ScanCache, tmp_path: Path) -> None:
    """A virtual dataset whose source does not exist yet: that it appears is noticed."""
    path, other = tmp_path / "virtual.h5", tmp_path / "other.h5"
    layout = h5py.VirtualLayout((4,), "f8")
    layout[:] = h5py.VirtualSource(str(other), "v", (4,))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("v", layout, fillvalue=-1.0)
    how: dict[str, Any] = {"combine": "nested", "concat_dim": "new"}
    assert insitu.open_mfdataset([path], **how)["v"].values.tolist() == [[-1.0] * 4]
    assert len(cache.entries()) == 1
    assert insitu.open_mfdataset([path], **how)["v"].values.tolist() == [[-1.0] * 4]
    with h5py.File(other, "w") as file:
        file["v"] = np.arange(4.0)
    assert insitu.open_mfdataset([path], **how)["v"].values.tolist() == [[0.0, 1.0, 2.0, 3.0]]
    with h5py.File(other, "r+") as file:
        file["v"][0] = 9.0
    assert insitu.open_mfdataset([path], **how)["v"].values.tolist() == [[9.0, 1.0, 2.0, 3.0]]


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
def test_a_folder_that_others_may_write_to_is_not_used(cache: ScanCache, files: list[str]) -> None:
    cache.folder.mkdir()
    cache.folder.chmod(0o777)
    _opened(files)
    assert not cache.entries()
    cache.folder.chmod(0o700)
    _opened(files)
    cache.folder.chmod(0o770)
    assert _opened(files)[1] == set(files)


def test_switched_off(cache: ScanCache, files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSITU_SCAN_CACHE", "off")
    _opened(files)
    monkeypatch.setenv("INSITU_SCAN_CACHE", str(cache.folder))
    monkeypatch.setattr(insitu.options, "scan_cache", False)
    _opened(files)
    assert not cache.entries()


def test_damaged_entries_are_scanned_again(cache: ScanCache, files: list[str]) -> None:
    _opened(files)
    for path in cache.folder.rglob("*"):
        if path.is_file() and path.name != "lock":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    again, _ = _opened(files)
    assert again["tas"].values[:, 0].tolist() == [0, 0, 1, 1, 2, 2]


def _put(cache: ScanCache, key: str, files: list[str], size: int) -> bool:
    def write(path: str) -> None:
        os.mkdir(path)
        Path(path, "rows").write_bytes(bytes(size))

    return cache.put(key, ScanRecorder(), files, write, {})


def test_it_is_bounded(cache: ScanCache, files: list[str]) -> None:
    small = ScanCache(cache.folder, 25_000)
    for number in range(5):
        assert _put(small, f"{number:032x}", files, 10_000)
    assert 0 < sum(size for _, size, _ in small.entries()) <= 25_000
    assert small.find(f"{4:032x}", files) is not None
    assert small.find(f"{0:032x}", files) is None


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be deleted there")
def test_an_entry_that_is_open_is_not_deleted(cache: ScanCache, files: list[str]) -> None:
    ds, _ = _opened(files)
    ds, opened = _opened(files)
    assert not opened
    code = "import sys; from insitu.scanning.scan_cache import ScanCache; print(ScanCache(sys.argv[1]).clear())"
    left = subprocess.run([sys.executable, "-c", code, str(cache.folder)], capture_output=True, text=True, check=True)
    assert int(left.stdout) > 0
    assert ds["tas"].values[:, 0].tolist() == [0, 0, 1, 1, 2, 2]


def test_processes_at_the_same_time(cache: ScanCache, files: list[str]) -> None:
    code = (
        "import sys, insitu\n"
        "from insitu.scanning import scan_cache\n"
        "from insitu.combining import cached_archive\n"
        "scan_cache.RECENT_NS, cached_archive.MIN_SCAN_SECONDS = 0, 0.0\n"
        "for _ in range(5):\n"
        "    ds = insitu.open_mfdataset(sys.argv[1:], combine='nested', concat_dim='time')\n"
        "    assert ds.tas.values[:, 0].tolist() == [0, 0, 1, 1, 2, 2]\n"
    )
    runs = [subprocess.Popen([sys.executable, "-c", code, *files]) for _ in range(3)]
    assert [run.wait(120) for run in runs] == [0, 0, 0]
    assert len(cache.entries()) == 1
    assert not list(cache.folder.glob("part-*"))
