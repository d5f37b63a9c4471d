"""Copies in Icechunk repositories: one commit, or one for each portion."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Any

import pytest
import xarray as xr

import insitu
from copying.archives import JOIN, archive_of
from copying.killing import Killed
from insitu.copying import icechunk_target
from insitu.errors import SelectionError, UnsupportedError

icechunk = pytest.importorskip("icechunk")


def expected(files: str) -> xr.Dataset:
    return xr.open_mfdataset(sorted(glob.glob(files)), **JOIN).load()


def opened(target: Path) -> Any:
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(target)))


def shown(repository: Any, snapshot: str | None = None) -> xr.Dataset:
    how = {"branch": "main"} if snapshot is None else {"snapshot_id": snapshot}
    return xr.open_zarr(repository.readonly_session(**how).store, consolidated=False).load()


def test_one_commit(files: str, tmp_path: Path) -> None:
    target = tmp_path / "t.icechunk"
    report = archive_of(files).copy(target, chunks={"time": 20}, verify=True)
    assert report.verified == report.objects
    repository = opened(target)
    assert [one.message for one in repository.ancestry(branch="main")][:-1] == ["Copied by insitu"]
    xr.testing.assert_identical(shown(repository), expected(files))
    xr.testing.assert_identical(insitu.open_dataset(target).load(), expected(files))
    assert sorted(os.listdir(tmp_path)) == ["archive", "t.icechunk"]
    with pytest.raises(UnsupportedError, match="there is something already"):
        archive_of(files).copy(target)
    archive_of(files).copy(target, variables="rank", overwrite=True)  # a new version: the one before stays
    assert len(list(opened(target).ancestry(branch="main"))) == 3
    assert set(shown(opened(target)).data_vars) == {"rank"}


def test_every_commit_is_whole(files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, want, commits = tmp_path / "t.icechunk", expected(files), []

    def commit_some(*given: Any) -> str:
        if len(commits) == 2:
            raise Killed
        commits.append(given[1])
        return commit(*given)

    commit = icechunk_target.commit
    with monkeypatch.context() as patch:
        patch.setattr(icechunk_target, "commit", commit_some)
        with pytest.raises(Killed):
            archive_of(files).copy(target, chunks={"time": 20}, commit_every=25)
    archive_of(files).copy(target, chunks={"time": 20}, commit_every=25)
    repository = opened(target)
    versions = [one.id for one in repository.ancestry(branch="main")][-2::-1]
    assert len(versions) == 4
    for snapshot, upto in zip(versions, (25, 50, 75, 90), strict=True):
        xr.testing.assert_identical(shown(repository, snapshot), want.isel(time=slice(0, upto)))


def test_portions_of_nothing(files: str, tmp_path: Path) -> None:
    with pytest.raises(SelectionError, match="every 0 steps"):
        archive_of(files).copy(tmp_path / "t.icechunk", commit_every=0)
