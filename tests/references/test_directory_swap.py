"""A directory is replaced in one step; where the file system cannot do that, what a dead writer
leaves is found again.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from insitu.model import Axis, Columns, Encoding, Source, Tile, VirtualArray, VirtualGroup
from insitu.references import directory_swap, open_references, save


def tree(number: int) -> VirtualGroup:
    table = Columns((2,), (Source("s3://b/x"),), np.asarray(0), np.array([1, 2]) + 1000 * number, np.asarray(5))
    tile = Tile((Axis.regular(4, 2),), (Encoding(np.dtype("<i2")),), table)
    return VirtualGroup({"t": VirtualArray.of(tile, dims=("x",))})


def number_at(path: Path) -> int:
    group = open_references(str(path))
    assert group is not None
    return int(group.array("t").tiles[0].chunks[0].offset) // 1000  # type: ignore[union-attr]


@pytest.fixture(params=["one step", "two steps"])
def exchange(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    if request.param == "two steps":
        monkeypatch.setattr(directory_swap, "_exchange", lambda path, other: False)
    else:
        for name in ("one", "two"):
            (tmp_path / "probe" / name).mkdir(parents=True)
        if not directory_swap._exchange(str(tmp_path / "probe" / "one"), str(tmp_path / "probe" / "two")):
            pytest.skip("this file system cannot exchange directories")
    return str(request.param)


def test_whatever_lay_there_is_replaced(exchange: str, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    path = folder / "x.parq"
    save(tree(1), path)
    assert number_at(path) == 1
    save(tree(2), path)
    assert number_at(path) == 2
    save(tree(3), f"file://{path}/")
    assert number_at(path) == 3
    assert os.listdir(folder) == ["x.parq"]
    path.rename(folder / "elsewhere.parq")
    path.symlink_to(folder / "elsewhere.parq")
    save(tree(4), path)  # the link is replaced, what it led to stays
    assert number_at(path) == 4
    assert not path.is_symlink()
    assert number_at(folder / "elsewhere.parq") == 3
    other = folder / "y.parq"
    other.write_text("a file")
    save(tree(5), other)
    assert number_at(other) == 5
    assert sorted(os.listdir(folder)) == ["elsewhere.parq", "x.parq", "y.parq"]


def test_what_a_dead_writer_left_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.parq"
    save(tree(1), path)
    path.rename(tmp_path / "x.parq.0123abcd.old")
    assert number_at(path) == 1
    with pytest.raises(Exception, match="already"):
        save(tree(2), path, mode="x")
    save(tree(2), path)
    assert number_at(path) == 2
    assert os.listdir(tmp_path) == ["x.parq"]
    # Nobody else's directory is taken for it.
    path.rename(tmp_path / "x.parq.backup.old")
    assert open_references(str(path)) is None


def test_writers_at_the_same_time(exchange: str, tmp_path: Path) -> None:
    path = tmp_path / "d" / "x.parq"
    save(tree(0), path)
    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(5):
                save(tree(number), path)
        except BaseException as problem:
            problems.append(problem)
            raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert number_at(path) in range(1, 5)
    assert [name for name in os.listdir(path.parent) if name.endswith(".old")] == []


def test_another_writer_gets_in_between_the_two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was moved aside is removed if another writer's directory took its place meanwhile."""
    folder = tmp_path / "d"
    for name in ("x", "made", "other"):
        (folder / name).mkdir(parents=True)
        (folder / name / "name").write_text(name)
    monkeypatch.setattr(directory_swap, "_exchange", lambda path, other: False)
    rename, other_writer = os.rename, [True]

    def fail_midway(source: str, target: str) -> None:
        if target.endswith("/x") and source.endswith("/made") and other_writer:
            other_writer.clear()
            rename(folder / "other", folder / "x")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail_midway)
    directory_swap.replace_directory(str(folder / "x"), str(folder / "made"))
    assert (folder / "x" / "name").read_text() == "made"
    assert (folder / "made" / "name").read_text() == "other"
    assert sorted(os.listdir(folder)) == ["made", "x"]


def test_another_writer_is_done_before_its_old_directory_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live writer between its two steps looks like a dead one; it may go on at any moment."""
    folder = tmp_path / "d"
    for name in ("x.0123abcd.old", "made", "other"):
        (folder / name).mkdir(parents=True)
        (folder / name / "name").write_text(name)
    monkeypatch.setattr(directory_swap, "_exchange", lambda path, other: False)
    find = directory_swap.find_interrupted_swap

    def other_writer_goes_on(path: str) -> str | None:
        old = find(path)
        if old is not None:
            (folder / "other").rename(folder / "x")
            (folder / "x.0123abcd.old").rename(folder / "other")
        return old

    monkeypatch.setattr(directory_swap, "find_interrupted_swap", other_writer_goes_on)
    directory_swap.replace_directory(str(folder / "x"), str(folder / "made"))
    assert (folder / "x" / "name").read_text() == "made"
    assert (folder / "made" / "name").read_text() == "other"
    assert sorted(os.listdir(folder)) == ["made", "other", "x"]


def test_other_writers_come_and_go_between_the_two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of what was moved aside, however often the path is taken and free again."""
    folder = tmp_path / "d"
    for name in ("x", "made", "one", "two"):
        (folder / name).mkdir(parents=True)
        (folder / name / "name").write_text(name)
    monkeypatch.setattr(directory_swap, "_exchange", lambda path, other: False)
    rename, events = os.rename, ["one comes", "one goes, two comes"]

    def with_other_writers(source: str, target: str) -> None:
        event = events.pop(0) if events and os.fspath(target).endswith("/x") else None
        if event == "one comes":
            rename(folder / "one", folder / "x")
            try:
                rename(source, target)
            finally:
                rename(folder / "x", folder / "one")
        elif event is not None:
            rename(folder / "two", folder / "x")
        rename(source, target)

    monkeypatch.setattr(os, "rename", with_other_writers)
    directory_swap.replace_directory(str(folder / "x"), str(folder / "made"))
    assert not events
    assert (folder / "x" / "name").read_text() == "made"
    assert sorted(os.listdir(folder)) == ["made", "one", "x"]


def test_an_old_directory_stays_if_the_new_one_fails(
    exchange: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "d" / "x.parq"
    save(tree(1), path)

    def fails(path: str, made: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("insitu.references.atomic_write.replace_directory", fails)
    with pytest.raises(OSError, match="Input/output"):
        save(tree(2), path)
    assert number_at(path) == 1
    assert os.listdir(path.parent) == ["x.parq"]
