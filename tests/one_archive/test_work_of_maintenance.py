"""What appending, refreshing and stored values take grows with the files, not with their square, and
files far away are opened together.

Modules: combining/file_ranges.py, scanning/stored_view.py
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import total_ordering
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.combining.file_ranges import FileLayout
from insitu.errors import ModelError, UnsupportedError
from insitu.maintenance import append_files
from insitu.model import Axis, Columns, Encoding, Packing, Source, Tile, VirtualArray, VirtualGroup
from insitu.references import check as check_tree
from insitu.references import zarr_blocks
from insitu.references.plan_append import check_new_labels
from insitu.scanning.stored_view import stored_view

TOGETHER = 4
WAIT = 120.0


def write(folder: Path, number: int) -> str:
    path = folder / f"{number:03d}.nc"
    steps = np.arange(2) + 2 * number
    xr.Dataset({"v": (("time", "x"), steps[:, None] * np.ones(3))}, {"time": steps, "x": [0, 1, 2]}).to_netcdf(path)
    return str(path)


def joined(files: int, packings: int = 1) -> VirtualArray:
    """An array of `files` files along its first axis, two cells of each."""
    sources = tuple(Source(f"/archive/{number}.nc") for number in range(files))
    count = 2 * files
    shape = (count, 1)
    number = (np.arange(count) // 2).reshape(shape)
    table = Columns(shape, sources, number, number * 0 + 10, number * 0 + 8, packing=number % packings)
    axes = (Axis.regular(count, 1), Axis.regular(2, 2))
    known = tuple(Packing(scale=np.float64(1 + row)) for row in range(packings))
    return VirtualArray.of(Tile(axes, (Encoding(np.dtype("<f4")),), table, known), dims=("time", "x"))


@contextmanager
def counted(patch: pytest.MonkeyPatch, owner: type, name: str) -> Iterator[list[int]]:
    """Count the calls of a method."""
    calls = [0]
    original = getattr(owner, name)

    def count(self: Any, *args: Any, **how: Any) -> Any:
        calls[0] += 1
        return original(self, *args, **how)

    with patch.context() as here:
        here.setattr(owner, name, count)
        yield calls


def test_stored_values_of_files_that_are_packed_differently(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    for files in (10, 200):
        array = joined(files, files)
        with (
            counted(monkeypatch, Columns, "locate") as calls,
            pytest.raises(
                UnsupportedError, match=r"scale_factor 1 in /archive/0\.nc, scale_factor 2 in /archive/1\.nc"
            ),
        ):
            stored_view(array, "v")
        taken.append(calls[0])
    assert taken[0] == taken[1] <= 3


def test_where_files_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    for files in (10, 200):
        group = VirtualGroup({"v": joined(files)})
        with counted(monkeypatch, Axis, "begin") as calls:
            layout = FileLayout.of(group)
        taken.append(calls[0])
        wanted = {f"/archive/{n}.nc": {"time": (2 * n, 2 * n + 2), "x": (0, 2)} for n in range(files)}
        assert layout.spans == wanted
        assert layout.joined_dim() == "time"
    assert taken[0] == taken[1]


def test_the_last_bytes_that_references_need() -> None:
    """Files without a recorded size must reach as far as their last chunk."""
    found = check_tree(VirtualGroup({"v": joined(3)}))
    assert [finding.status for finding in found.findings] == ["missing"] * 3


@total_ordering
class Label:
    """A label like a date of cftime, which counts how often it is looked up."""

    looked_up = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        Label.looked_up += 1
        return hash(self.number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Label) and self.number == other.number

    def __lt__(self, other: Label) -> bool:
        return self.number < other.number

    def __str__(self) -> str:
        return f"label {self.number}"


def labels(numbers: range) -> np.ndarray[Any, Any]:
    return np.array([Label(number) for number in numbers], object)


def test_labels_that_are_objects_are_looked_up_once() -> None:
    Label.looked_up = 0
    check_new_labels(labels(range(500)), labels(range(500, 800)), {}, "time", "x.insitu")
    assert Label.looked_up == 800
    with pytest.raises(ModelError, match="holds label 499 of 'time' already"):
        check_new_labels(labels(range(500)), labels(range(499, 600)), {}, "time", "x.insitu")


@pytest.fixture
def opened_together(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Let sources of a module be opened only when several are opened at once."""

    def patch(module: Any) -> None:
        barrier, original = threading.Barrier(TOGETHER), module.open_source

        def wait(*args: Any, **how: Any) -> Any:
            barrier.wait(WAIT)
            return original(*args, **how)

        monkeypatch.setattr(module, "open_source", wait)

    return patch


def test_known_files_are_looked_at_together(tmp_path: Path, opened_together: Callable[[Any], None]) -> None:
    paths = [write(tmp_path, number) for number in range(TOGETHER)]
    insitu.open_mfdataset(paths).insitu.save(tmp_path / "x.insitu")
    opened_together(append_files)
    done = insitu.Archive.open(tmp_path / "x.insitu").append(paths)
    assert (done.steps, list(done.skipped)) == (0, paths)


def test_small_chunks_are_read_together(tmp_path: Path, opened_together: Callable[[Any], None]) -> None:
    paths = [write(tmp_path, number) for number in range(TOGETHER)]
    ds = insitu.open_mfdataset(paths)
    opened_together(zarr_blocks)
    ds[["v"]].insitu.save(tmp_path / "x.json", inline_threshold=1000)
    np.testing.assert_array_equal(insitu.open_dataset(tmp_path / "x.json").v.values, ds.v.values)
