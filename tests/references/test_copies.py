"""Archives that are copied, moved, renamed or served together with their files.

Modules: references/chunk_places.py
"""

from __future__ import annotations

import os
import shutil
import warnings
import zipfile
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.errors import CodecError, InsituWarning, SelectionError, StaleSourceError
from insitu.maintenance import check, convert, refresh, rename_sources
from insitu.references import open_references, recipe_of
from insitu.references.chunk_places import used_urls
from insitu.sources import open_source


def make(path: Path, number: int, seed: int = 0) -> Path:
    path.parent.mkdir(exist_ok=True)
    values = np.random.default_rng(number + seed).random((4, 50))
    times = ("time", np.arange(4) + 4 * number, {"units": "days since 2000-01-01"})
    xr.Dataset({"t": (("time", "x"), values)}, {"time": times}).to_netcdf(
        path, engine="h5netcdf", encoding={"t": {"zlib": True, "chunksizes": (2, 50)}}
    )
    os.utime(path, (1e9 + number, 1e9 + number))
    return path


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A folder of files and their store, which names them relative to itself."""
    paths = [make(tmp_path / "a" / f"{number}.nc", number) for number in range(3)]
    insitu.open_mfdataset(paths).insitu.save(tmp_path / "a" / "all.insitu", relative=True)
    return tmp_path / "a"


@pytest.fixture
def expected(archive: Path) -> xr.Dataset:
    with xr.open_mfdataset(str(archive / "*.nc"), engine="h5netcdf") as files:
        return files.load()


def copy(archive: Path, name: str = "b") -> Path:
    """Copy an archive as `cp -r` does: the files get new dates."""
    made = archive.parent / name
    shutil.copytree(archive, made, copy_function=shutil.copy)
    for path in made.glob("*.*"):
        os.utime(path, (2e9, 2e9))
    return made


def used(target: Path) -> set[str]:
    tree = open_references(str(target))
    assert tree is not None
    return {url for _, array in tree.all_arrays() for url in used_urls(array)}


def test_a_copy_is_refused_and_mended(archive: Path, expected: xr.Dataset) -> None:
    copied = copy(archive)
    for _ in range(2):
        with pytest.raises(StaleSourceError, match=r"modification date was 2001-.*0\.nc.*insitu refresh"):
            insitu.open_dataset(copied / "all.insitu").load()
    with pytest.raises(StaleSourceError, match="insitu refresh"):
        insitu.open_dataset(copied / "all.insitu", verify="open")
    assert len(refresh(f"{copied / 'all.insitu'}/").stale) == 3
    shutil.rmtree(archive)
    copied = copied.rename(archive.parent / "c")  # and it can be moved, as before
    for _ in range(2):
        xr.testing.assert_identical(insitu.open_dataset(copied / "all.insitu").load(), expected)
    assert check(copied / "all.insitu").ok


def test_a_refresh_reads_no_values(archive: Path) -> None:
    copied = copy(archive)
    for path in copied.glob("*.nc"):
        table = insitu.scan(path, decode=False).array("t").tiles[0].chunks
        with path.open("r+b") as file:
            for chunk in (table[0, 0], table[1, 0]):
                file.seek(chunk.offset)
                file.write(b"\xff" * chunk.length)
        os.utime(path, (2e9, 2e9))
    refresh(copied / "all.insitu")
    assert check(copied / "all.insitu").ok
    with pytest.raises(CodecError):
        insitu.open_dataset(copied / "all.insitu").load()


def etag(path: Path) -> dict[str, str]:
    return {"ETag": '"any"'}


def dated(path: Path) -> dict[str, str]:
    return {"Last-Modified": formatdate(path.stat().st_mtime, usegmt=True)}


def dated_today(path: Path) -> dict[str, str]:
    return {"Last-Modified": formatdate(1.9e9, usegmt=True)}


@pytest.mark.parametrize(
    ("versions", "is_warned"),
    [
        (lambda path: {}, False),  # nothing is said that could be compared
        (etag, True),
        (dated, False),
        (dated_today, True),
        (lambda path: etag(path) | dated(path), False),
        (lambda path: etag(path) | dated_today(path), True),
    ],
)
def test_a_served_archive(
    archive: Path, expected: xr.Dataset, site, versions: Callable[[Path], dict[str, str]], is_warned: bool
) -> None:
    site.versions = versions
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            found = insitu.open_dataset(f"{site.url}/a/all.insitu").load()
            xr.testing.assert_identical(found, expected)
    assert [item.category for item in caught] == [InsituWarning] * is_warned
    if is_warned:
        assert "only the size of http" in str(caught[0].message)
        assert "recorded as a local file" in str(caught[0].message)
    report = check(f"{site.url}/a/all.insitu")
    assert report.ok
    assert ("of 3 only the size was compared" in str(report)) is is_warned


def test_a_served_archive_whose_files_changed(archive: Path, site) -> None:
    site.versions = lambda path: {"ETag": f'"{path.stat().st_mtime_ns}"', **dated(path)}
    dataset = insitu.open_dataset(f"{site.url}/a/all.insitu")
    assert dataset.t[:2].values.shape == (2, 50)
    with (archive / "2.nc").open("ab") as file:
        file.write(b"more")
    with pytest.raises(StaleSourceError, match=r"its size was \d+ and is now \d+.*2\.nc"):
        dataset.t[8:].values  # noqa: B018
    recorded = next(source for source in dataset.t.data.array.sources if source.url.endswith("0.nc"))
    with open_source(recorded.url, expected=recorded) as source:
        source.read(0, 4)
        os.utime(archive / "0.nc", (2e9, 2e9))  # what the server says is compared with what it said before
        with pytest.raises(StaleSourceError, match=r"ETag was.*0\.nc"):
            source.read(4, 4)


def test_an_archive_of_a_server_that_was_downloaded(archive: Path, site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other way round: recorded with ETags, and read from local files."""
    monkeypatch.setattr("insitu.sources.identity._warned_hosts", set())
    site.versions = etag
    paths = sorted(archive.glob("*.nc"))
    dataset = insitu.open_mfdataset([f"{site.url}/a/{path.name}" for path in paths])
    dataset.insitu.save(archive / "web.insitu")
    convert(archive / "web.insitu", archive / "here.insitu", rename={f"{site.url}/a": str(archive)})
    with pytest.warns(InsituWarning, match="now a local file") as caught:
        xr.testing.assert_identical(insitu.open_dataset(archive / "here.insitu").load(), dataset.load())
    assert len(caught) == 1
    assert refresh(archive / "here.insitu").ok  # which records what the local files have
    report = check(archive / "here.insitu")
    assert report.ok
    assert not report.by_size_only


def test_members_of_a_copied_archive(tmp_path: Path) -> None:
    """The recipe names what was scanned, here members of an archive: relative, too."""
    paths = [make(tmp_path / "files" / f"{number}.nc", number) for number in range(2)]
    (tmp_path / "a").mkdir()
    with zipfile.ZipFile(tmp_path / "a" / "runs.zip", "w") as made:
        for path in paths:
            made.write(path, path.name)
    expected = insitu.open_mfdataset(f"{tmp_path / 'a' / 'runs.zip'}::*.nc")
    expected.insitu.save(tmp_path / "a" / "all.insitu", relative=True)
    expected.load()
    copied = copy(tmp_path / "a")
    refresh(copied / "all.insitu")
    shutil.rmtree(tmp_path / "a")
    xr.testing.assert_identical(insitu.open_dataset(copied / "all.insitu").load(), expected)
    assert recipe_of(str(copied / "all.insitu"))["files"] == [f"{copied}/runs.zip::{path.name}" for path in paths]
    (copied / "runs.zip").rename(tmp_path / "files" / "runs.zip")
    assert rename_sources(str(copied / "all.insitu"), {str(copied): str(tmp_path / "files")}) == 1
    os.utime(tmp_path / "files" / "runs.zip", (2.1e9, 2.1e9))
    refresh(copied / "all.insitu")
    xr.testing.assert_identical(insitu.open_dataset(copied / "all.insitu").load(), expected)


@pytest.mark.parametrize("form", ["json", "parq"])
def test_a_refresh_keeps_relative_names_of_kerchunk(archive: Path, form: str) -> None:
    insitu.open_dataset(archive / "all.insitu").insitu.save(archive / f"all.{form}", relative=True)
    make(archive / "0.nc", 0, seed=9)
    refresh(archive / f"all.{form}")
    moved = archive.rename(archive.parent / "moved")
    with xr.open_mfdataset(str(moved / "*.nc"), engine="h5netcdf") as files:
        np.testing.assert_array_equal(insitu.open_dataset(moved / f"all.{form}").t.values, files.t.values)


def test_what_is_added_to_a_relative_archive_is_relative(archive: Path, expected: xr.Dataset) -> None:
    made = make(archive / "3.nc", 3)
    insitu.Archive.open(str(archive / "all.insitu"), many=False).append([str(made)], "time")
    moved = archive.rename(archive.parent / "moved")
    found = insitu.open_dataset(moved / "all.insitu").load()
    xr.testing.assert_identical(found.isel(time=slice(12)), expected)
    assert found.sizes["time"] == 16


def test_renaming_keeps_relative_names(archive: Path, expected: xr.Dataset) -> None:
    (archive / "data").mkdir()
    for path in archive.glob("*.nc"):
        path.rename(archive / "data" / path.name)
    assert rename_sources(f"{archive / 'all.insitu'}/", {str(archive): str(archive / "data")}) == 3
    moved = archive.rename(archive.parent / "moved")
    assert used(moved / "all.insitu") == {str(moved / "data" / f"{number}.nc") for number in range(3)}
    xr.testing.assert_identical(insitu.open_dataset(moved / "all.insitu").load(), expected)
    assert rename_sources(str(moved / "all.insitu"), {str(moved / "data" / "1"): "s3://bucket/1"}) == 1
    assert used(moved / "all.insitu") == {str(moved / "data/0.nc"), "s3://bucket/1.nc", str(moved / "data/2.nc")}


def test_a_prefix_that_matches_nothing(archive: Path, tmp_path: Path) -> None:
    before = (archive / "all.insitu" / "root.json").read_bytes()
    wrong = {str(archive): "/b", "/nowhere": "/b"}
    with pytest.raises(SelectionError, match=r"begins with '/nowhere'.*There are 3 sources, .*0\.nc for example"):
        rename_sources(str(archive / "all.insitu"), wrong)
    assert (archive / "all.insitu" / "root.json").read_bytes() == before
    for rename in (wrong, ("no[w]here", "x")):
        with pytest.raises(SelectionError, match=r"nowhere|no\[w\]here"):
            convert(archive / "all.insitu", tmp_path / "other.insitu", rename=rename)
    assert not (tmp_path / "other.insitu").exists()
    rename_sources(str(archive / "all.insitu"), {str(archive): "/b"})
    with pytest.raises(SelectionError, match="begins with"):  # the old names are gone
        rename_sources(str(archive / "all.insitu"), {str(archive): "/b"})
