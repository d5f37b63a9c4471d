"""Is the target whole or as it was, whenever a copy is killed, and does the same command complete it?

Modules: copying/journal.py, copying/targets.py, copying/zarr_target.py, copying/append_targets.py,
copying/split_copy.py, references/directory_swap.py
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu.xarray_bridge.accessor  # noqa: F401 - registers itself
from copying.killing import Killed, die_at, fill_disk_at
from insitu.errors import InsituError

pytestmark = pytest.mark.filterwarnings("ignore:.*zarr.*", "ignore:Consolidated")


def dataset(steps: int, offset: float = 0.0) -> xr.Dataset:
    values = np.arange(steps * 4.0).reshape(steps, 4) + offset
    return xr.Dataset({"x": (("t", "y"), values), "n": ("y", np.arange(4))}, {"t": np.arange(steps)})


def opened(folder: Path) -> xr.Dataset | None:
    """Return what readers see; None: nothing."""
    found = []
    for path in sorted(path for path in folder.iterdir() if not path.name.endswith((".copying", ".tmp", ".old"))):
        if path.suffix == ".zarr":
            found.append(xr.open_zarr(path, chunks=None).load())
        elif path.suffix == ".icechunk":
            found += open_commit(path)
        else:
            with xr.open_dataset(path, engine="h5netcdf") as one:
                found.append(one.load())
    return xr.concat(found, "t", data_vars="minimal") if found else None


def open_commit(path: Path) -> list[xr.Dataset]:
    """Return what the last commit of a repository shows; nothing before the first."""
    icechunk = pytest.importorskip("icechunk")
    storage = icechunk.local_filesystem_storage(str(path))
    if not icechunk.Repository.exists(storage):
        return []
    session = icechunk.Repository.open(storage).readonly_session("main")
    try:
        return [xr.open_zarr(session.store, consolidated=False, chunks=None).load()]
    except FileNotFoundError:
        return []


def is_same(found: xr.Dataset | None, wanted: xr.Dataset | None) -> bool:
    return found is wanted if found is None or wanted is None else found.equals(wanted)


def is_complete(folder: Path, names: list[str]) -> bool:
    """Return whether there is what is wanted, and nothing of what was made on the way but files that say so."""
    left = sorted(path for path in folder.iterdir() if path.name not in names)
    return all(path.name.endswith(".copying") and set(os.listdir(path)) <= {"lock", "journal"} for path in left)


def find_refusal(ds: xr.Dataset, target: object, **way: Any) -> str:
    """Copy; return the error of ours that says why not, if there is one."""
    try:
        ds.insitu.copy(target, **way)
    except InsituError as problem:
        return str(problem)
    return ""


COPIES: dict[str, tuple[int | None, str, int, dict[str, Any]]] = {
    "new": (None, "t.zarr", 1, {"chunks": {"t": 3}, "verify": True}),
    "two passes": (None, "t.zarr", 5, {"chunks": {"t": 6, "y": 1}, "memory": 160}),
    "replaced": (3, "t.zarr", 3, {"chunks": {"t": 4}, "overwrite": True}),
    "shards": (None, "t.zarr", 4, {"chunks": {"t": 1}, "shards": {"t": 3}}),
    "appended": (3, "t.zarr", 2, {"append": True, "verify": True}),
    "appended, format 2": (3, "t.zarr", 4, {"append": True}),
    "a file": (None, "t.nc", 2, {"chunks": {"t": 4}, "verify": True}),
    "a repository": (None, "t.icechunk", 2, {"chunks": {"t": 4}, "verify": True}),
    "a repository, commits": (None, "t.icechunk", 2, {"chunks": {"t": 4}, "commit_every": 2}),
    "appended, a repository": (2, "t.icechunk", 3, {"append": True, "commit_every": 3}),
}
"""Steps that are there, the target, how many actions lie between two kills, and the options."""


@pytest.mark.parametrize("name", COPIES)
def test_killed_at_any_write(tmp_path: Path, name: str) -> None:
    before, target, stride, way = COPIES[name]
    start = tmp_path / "start"
    start.mkdir()
    old = None
    if before is not None:
        zarr_format = 2 if "format 2" in name else 3
        dataset(before).insitu.copy(start / target, chunks={"t": 2}, zarr_format=zarr_format)
        old = dataset(before)
    new = dataset(6, 0.5 if name == "replaced" else 0.0)
    states = [old, new]  # whole, or at a commit
    if "commit_every" in way:
        states += [new.isel(t=slice(0, upto)) for upto in range(before or 0, 6, way["commit_every"])][1:]
    deaths = 0
    for number in range(1, 400, stride):
        folder = tmp_path / "here"
        shutil.copytree(start, folder)
        with die_at(number) as has_died:
            try:
                new.insitu.copy(folder / target, **way)
            except Killed:
                assert has_died()
        seen = opened(folder)
        assert any(is_same(seen, state) for state in states), f"killed at action {number}: {seen}"
        if has_died():
            deaths += 1
            refusal = find_refusal(new, folder / target, **way)
            assert not refusal or ("there is something already" in refusal and is_same(seen, new))
            assert is_same(opened(folder), new), f"after a kill at action {number}"
        assert is_complete(folder, [target]), f"after a kill at action {number}"
        shutil.rmtree(folder)
        if not has_died():
            break
    assert 6 < deaths < 399 // stride


@pytest.mark.parametrize("target", ["t.zarr", "{t}.nc", "appended.zarr"])
def test_a_disk_that_is_full(tmp_path: Path, target: str) -> None:
    """An error that says so, nothing half, and the same command goes on once there is room."""
    new, failures = dataset(4), 0
    is_appended = target == "appended.zarr"
    for number in range(2, 200, 6):
        folder = tmp_path / str(number)
        folder.mkdir()
        if is_appended:
            dataset(3).insitu.copy(folder / target)
        with fill_disk_at(number) as is_full:
            refusal = find_refusal(new, f"{folder}/{target}", append=is_appended)
            assert not refusal or ("No space left on device" in refusal and is_full())
        seen = opened(folder)
        assert is_same(seen, dataset(3) if is_appended else None) or is_same(seen, new)
        failures += is_full()
        if not is_same(seen, new):
            new.insitu.copy(f"{folder}/{target}", append=is_appended)
            assert is_same(opened(folder), new)
        if not is_full():
            break
    assert 2 < failures < 33


@pytest.mark.parametrize("before", [0, 1])
def test_files_of_a_pattern_killed_at_any_write(tmp_path: Path, before: int) -> None:
    """New ones, and those that are added to one that is there."""
    folder, count = tmp_path / "here", before + 2
    new, deaths = dataset(2)[["n"]].expand_dims(t=range(count)), 0
    names = [f"{number}.nc" for number in range(count)]
    for number in range(1, 400, 4):
        folder.mkdir()
        if before:
            new.isel(t=slice(0, before)).insitu.copy(f"{folder}/{{t}}.nc")
        with die_at(number) as has_died:
            try:
                new.insitu.copy(f"{folder}/{{t}}.nc", append=bool(before))
            except Killed:
                assert has_died()
        there = sorted(path.name for path in folder.glob("*.nc"))
        listed = list(folder.glob("*.copying/complete"))
        assert there in (names[:before], names) or listed, "a part of the files, and nothing that completes them"
        if has_died():
            deaths += 1
            refusal = find_refusal(new, f"{folder}/{{t}}.nc", append=bool(before))
            assert not refusal or ("there is something already" in refusal and there == names)
        found = opened(folder)
        assert found is not None
        xr.testing.assert_equal(found, new)
        assert is_complete(folder, names), f"after a kill at action {number}"
        shutil.rmtree(folder)
        if not has_died():
            break
    assert 6 < deaths < 99
