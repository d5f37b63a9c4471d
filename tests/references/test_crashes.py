"""Crashes and full disks at any step of a writer leave the old state or the new one."""

from __future__ import annotations

import builtins
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from insitu.errors import InsituWarning, SourceError
from insitu.maintenance import append_tree as append
from insitu.maintenance import compact
from insitu.model import (
    Axis,
    Columns,
    Encoding,
    Packing,
    PackingKind,
    Packings,
    Source,
    Tile,
    VirtualArray,
    VirtualGroup,
)
from insitu.references import open_references, save
from insitu.references.atomic_write import LocalFolder
from insitu.references.store import file_merging


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def archive(*numbers: int) -> VirtualGroup:
    """Files one after another: irregular axes, packings and inline data, so that every kind of file
    is written.
    """
    axes = (Axis.irregular(np.array([3, 2] * len(numbers)), 0, 1, 4), Axis.regular(4, 2))
    grid = tuple(axis.count for axis in axes)
    files = np.repeat(np.arange(len(numbers)), 2)[:, None]
    offset = 1000 * np.array(numbers)[files] + np.arange(grid[0] * grid[1]).reshape(grid)
    sources = tuple(Source(f"s3://b/{number}.nc", 10**6) for number in numbers)
    packings = Packings.of(
        [Packing(scale=1.5 + n, kind=PackingKind(dtype="float64", scale_dtype="float64")) for n in numbers]
    )
    table = Columns(grid, sources, files, offset, np.asarray(50), packing=files)
    tile = Tile(axes, (Encoding(np.dtype("<i2")),), table, packings)
    return VirtualGroup({"t": VirtualArray.of(tile, dims=("time", "x"))})


def offsets(path: Path) -> list[int]:
    """What a store says, all of it."""
    group = open_references(str(path))
    assert group is not None
    table = group.array("t").tiles[0].chunks
    cells = list(np.unravel_index(np.arange(int(np.prod(table.shape))), table.shape))
    found = table.locate(cells)
    assert {table.sources[int(n)].url for n in found.source} == {
        f"s3://b/{n // 1000}.nc" for n in found.offset.tolist()
    }
    scales = [group.array("t").tiles[0].packings[int(n)].scale for n in found.packing]
    assert scales == [1.5 + n // 1000 for n in found.offset.tolist()]
    result: list[int] = found.offset.tolist()
    return result


class KilledError(BaseException):
    """The process is gone: it does nothing more, not even tidy up."""


class _Steps:
    """Counts what a writer does to the disk, and goes wrong at one step."""

    def __init__(self, at: int | None, failure: Callable[[], BaseException], *, final: bool) -> None:
        self.at, self.failure, self.final, self.done = at, failure, final, 0

    def step(self) -> None:
        now, self.done = self.done, self.done + 1
        if self.at is not None and (now == self.at or (self.final and now > self.at)):
            raise self.failure()


class _File:
    """A file that counts what is written to it."""

    def __init__(self, file: Any, steps: _Steps) -> None:
        self._file, self._steps = file, steps

    def write(self, data: Any) -> Any:
        self._steps.step()
        return self._file.write(data)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def mortal(steps: _Steps) -> Iterator[None]:
    """Where the writer's steps are counted."""

    def count_calls(act: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            steps.step()
            return act(*given, **named)

        return run

    def open_counted(path: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
        if "w" not in mode:
            return original(path, mode, *given, **named)
        steps.step()
        return _File(original(path, mode, *given, **named), steps)

    original = builtins.open
    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace", "rename", "fsync", "unlink", "makedirs"):
            patch.setattr(os, name, count_calls(getattr(os, name)))
        patch.setattr(builtins, "open", open_counted)
        yield


def work(kind: str, target: Path) -> Callable[[], None]:
    return {
        "replace": lambda: save(archive(7, 8), target),
        "append": lambda: append(archive(3), target, "time"),
        "merge": lambda: append(archive(3), target, "time"),
        "compact": lambda: compact(str(target)),
    }[kind]


@pytest.fixture
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A kind of change; "merge" is an append that merges the files that it finds."""
    if request.param == "merge":
        monkeypatch.setattr(file_merging, "MERGED_AT_ONCE", 1)
    name: str = request.param
    return name


def count(kind: str, target: Path) -> tuple[int, list[int]]:
    """How many steps it takes when all goes well, and what is there then."""
    steps = _Steps(None, KilledError, final=True)
    with mortal(steps):
        work(kind, target)()
    return steps.done, offsets(target)


@pytest.mark.parametrize("kind", ["replace", "append", "merge", "compact"], indirect=True)
def test_a_writer_that_dies(tmp_path: Path, kind: str) -> None:
    save(archive(1, 2), tmp_path / "whole.insitu")
    before = offsets(tmp_path / "whole.insitu")
    total, after = count(kind, tmp_path / "whole.insitu")
    assert total > 15
    seen = set()
    for at in range(total):
        target = tmp_path / f"{at}.insitu"
        save(archive(1, 2), target)
        with mortal(_Steps(at, KilledError, final=True)), pytest.raises(KilledError):
            work(kind, target)()
        found = offsets(target)
        assert found in (before, after), f"died at step {at}"
        seen.add(tuple(found))
        # Whatever was left lying around is in nobody's way.
        append(archive(5), target, "time")
        assert offsets(target)[: len(found)] == found
    assert seen == {tuple(before), tuple(after)}


@pytest.mark.parametrize("kind", ["replace", "append", "merge"], indirect=True)
def test_a_disk_that_is_full(tmp_path: Path, kind: str) -> None:
    save(archive(1, 2), tmp_path / "whole.insitu")
    before = offsets(tmp_path / "whole.insitu")
    total, after = count(kind, tmp_path / "whole.insitu")
    for at in range(total):
        target = tmp_path / f"{at}.insitu"
        save(archive(1, 2), target)
        names = {path.name for path in target.iterdir()}
        steps = _Steps(at, lambda: OSError(errno.ENOSPC, "No space left on device"), final=False)
        with mortal(steps), pytest.raises((SourceError, InsituWarning), match="No space left") as caught:
            work(kind, target)()
        found = offsets(target)
        # An error means that nothing was saved; what goes wrong after the commit is a warning.
        assert found == (after if isinstance(caught.value, InsituWarning) else before), f"full at step {at}"
        if found == before:  # and nothing was left behind
            assert {path.name for path in target.iterdir()} == names, f"step {at}"


@pytest.mark.parametrize("name", ["x.json", "x.parquet"])
def test_files_are_replaced_as_a_whole(tmp_path: Path, name: str) -> None:
    def one(number: int) -> VirtualGroup:
        table = Columns((2,), (Source("s3://b/x"),), np.asarray(0), np.array([1, 2]) + 1000 * number, np.asarray(5))
        tile = Tile((Axis.regular(4, 2),), (Encoding(np.dtype("<i2")),), table)
        return VirtualGroup({"t": VirtualArray.of(tile, dims=("x",))})

    def found() -> int:
        group = open_references(str(tmp_path / name))
        assert group is not None
        return int(group.array("t").tiles[0].chunks[0].offset) // 1000  # type: ignore[union-attr]

    steps = _Steps(None, KilledError, final=True)
    with mortal(steps):
        save(one(0), tmp_path / name)
    seen = set()
    for at in range(steps.done):
        save(one(0), tmp_path / name)
        with mortal(_Steps(at, KilledError, final=True)), pytest.raises(KilledError):
            save(one(1), tmp_path / name)
        seen.add(found())
    assert seen <= {0, 1}
    save(one(1), tmp_path / name)
    assert found() == 1


def test_an_answer_that_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The root was put in place, and the writer was told otherwise."""
    target = tmp_path / "x.insitu"
    save(archive(1), target)
    original = LocalFolder.swap

    def fails(self: LocalFolder, name: str, data: bytes, before: bytes | None) -> bool:
        assert original(self, name, data, before)
        raise SourceError("the connection broke", url=self.url)

    def repeats(self: LocalFolder, name: str, data: bytes, before: bytes | None) -> bool:
        assert original(self, name, data, before)
        return original(self, name, data, before)

    monkeypatch.setattr(LocalFolder, "swap", fails)
    with pytest.warns(InsituWarning, match="saved, but .*broke"):
        append(archive(2), target, "time")
    assert {n // 1000 for n in offsets(target)} == {1, 2}
    monkeypatch.setattr(LocalFolder, "swap", repeats)
    append(archive(3), target, "time")
    assert {n // 1000 for n in offsets(target)} == {1, 2, 3}
