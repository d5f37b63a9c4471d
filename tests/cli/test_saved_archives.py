"""The verbs that keep references, as a stranger would use them.

Modules: cli/append.py, cli/check.py, cli/compact.py, cli/convert.py, cli/drop.py, cli/refresh.py, cli/rollback.py
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from forked_commands import run_insitu
from insitu import open_dataset, scan
from insitu.references import save
from waiting import wait_until


def make(path: Path, begin: int) -> Path:
    with h5py.File(path, "w") as file:
        file.create_dataset("t", data=np.arange(12.0).reshape(4, 3) + begin, chunks=(2, 3), compression=1)
        file.create_dataset("time", data=np.arange(4) + begin)
        file["time"].make_scale("time")
        file["t"].dims[0].attach_scale(file["time"])
    return path


def test_convert(tmp_path: Path) -> None:
    make(tmp_path / "a.h5", 0)
    run_insitu("convert", tmp_path / "a.h5", tmp_path / "x.json", "--relative")
    assert '["a.h5",' in (tmp_path / "x.json").read_text()
    done = run_insitu("convert", tmp_path / "x.json", tmp_path / "x.parq", "--rename", f"{tmp_path}=s3://bucket")
    assert "2 variables" in done.stderr
    chunk = scan(tmp_path / "x.parq", decode=False).array("t").tiles[0].chunks[0, 0]
    assert chunk.source.url == "s3://bucket/a.h5"
    run_insitu("convert", tmp_path / "x.parq", tmp_path / "y.insitu", "--regex", "^s3://([a-z]*)", r"https://\1.org")
    assert (
        scan(tmp_path / "y.insitu", decode=False).array("t").tiles[0].chunks[0, 0].source.url
        == "https://bucket.org/a.h5"
    )
    assert "already" in run_insitu("convert", tmp_path / "x.json", tmp_path / "x.parq", code=1).stderr
    run_insitu("convert", tmp_path / "x.json", tmp_path / "x.parq", "--overwrite")
    assert "OLD=NEW" in run_insitu("convert", tmp_path / "x.json", tmp_path / "z.json", "--rename", "x", code=2).stderr


def test_check_and_refresh(tmp_path: Path) -> None:
    path = make(tmp_path / "a.h5", 0)
    save(scan(path), tmp_path / "x.insitu")
    assert run_insitu("check", tmp_path / "x.insitu").stdout.strip() == "1 source: 1 ok"
    assert "nothing changed" in run_insitu("refresh", tmp_path / "x.insitu").stdout
    make(path, 100)
    os.utime(path, (2e9, 2e9))
    assert "changed" in run_insitu("check", tmp_path / "x.insitu", code=1).stdout
    found = json.loads(run_insitu("check", tmp_path / "x.insitu", "--json", code=1).stdout)
    assert [row["status"] for row in found["sources"]] == ["changed"]
    assert "stale" in run_insitu("read", tmp_path / "x.insitu", "t", code=1).stderr.lower()
    assert "1 changed" in run_insitu("refresh", tmp_path / "x.insitu").stdout
    assert "100" in run_insitu("read", tmp_path / "x.insitu", "t").stdout
    assert "no such" in run_insitu("check", tmp_path / "nothing.insitu", code=1).stderr.lower()


def test_rename_and_rollback(tmp_path: Path) -> None:
    open_dataset(make(tmp_path / "a.h5", 0)).insitu.save(tmp_path / "x.insitu", relative=True)
    (tmp_path / "files").mkdir()
    (tmp_path / "a.h5").rename(tmp_path / "files" / "a.h5")
    target = f"{tmp_path}/x.insitu/"  # as a shell completes it
    wrong = run_insitu("refresh", target, "--rename", f"{tmp_path}/b={tmp_path}/files", code=1).stderr
    assert f"begins with '{tmp_path}/b'" in " ".join(wrong.split())
    saved = int(time.time())
    wait_until(lambda: int(time.time()) > saved)  # a state is named by the second in which it was saved
    done = run_insitu("refresh", target, "--rename", f"{tmp_path}={tmp_path}/files")
    assert done.stdout.splitlines() == ["1 source renamed", "1 source: nothing changed"]
    tmp_path.joinpath("moved").mkdir()
    for name in ("x.insitu", "files"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    assert open_dataset(tmp_path / "moved" / "x.insitu").t.values[0, 0] == 0
    messages = [run_insitu("rollback", tmp_path / "moved" / "x.insitu").stderr.split(": ", 1)[1] for _ in range(3)]
    assert messages[0] == messages[2] != messages[1]
    assert messages[0].startswith("now in the state of 2")


def test_append(tmp_path: Path) -> None:
    first = open_dataset(make(tmp_path / "a.h5", 0))
    first.insitu.save(tmp_path / "x.insitu")
    make(tmp_path / "b.h5", 4)
    make(tmp_path / "c.h5", 8)
    done = run_insitu("append", tmp_path / "x.insitu", tmp_path / "b.h5", tmp_path / "c.h5", "--dim", "time")
    assert "8 steps" in done.stderr
    saved = open_dataset(tmp_path / "x.insitu")
    assert saved.time.values.tolist() == list(range(12))
    assert saved.t.values[:, 0].tolist() == [0, 3, 6, 9, 4, 7, 10, 13, 8, 11, 14, 17]
    assert "no dimension" in run_insitu("append", tmp_path / "x.insitu", tmp_path / "b.h5", "-d", "z", code=2).stderr


@pytest.mark.parametrize("errors", ["skip", "warn"])
def test_append_leaves_out_what_is_damaged(tmp_path: Path, errors: str) -> None:
    first = open_dataset(make(tmp_path / "0.h5", 0))
    first.insitu.save(tmp_path / "x.insitu")
    for number in range(1, 5):
        make(tmp_path / f"{number}.h5", 4 * number)
    cut = tmp_path / "4.h5"
    whole = cut.read_bytes()
    cut.write_bytes(whole[:1000])
    assert "truncated" in run_insitu("append", tmp_path / "x.insitu", f"{tmp_path}/*.h5", code=1).stderr
    assert open_dataset(tmp_path / "x.insitu").sizes["time"] == 4
    done = run_insitu("append", tmp_path / "x.insitu", f"{tmp_path}/*.h5", "--errors", errors, "-v")
    assert "added 12 steps of time; 1 file skipped, already there; 1 file left out" in done.stderr
    assert f"left out: {cut}: FormatError: the file is truncated" in done.stderr
    assert open_dataset(tmp_path / "x.insitu").time.values.tolist() == [*range(16)]
    # Nothing but a damaged file is new: that is no error either, night after night.
    for _ in range(2):
        done = run_insitu("append", tmp_path / "x.insitu", f"{tmp_path}/*.h5", "--errors", errors)
        assert "nothing new; 4 files skipped, already there; 1 file left out" in done.stderr
        assert ("truncated" in done.stderr) is (errors == "warn")
    cut.write_bytes(whole)
    assert "added 4 steps" in run_insitu("append", tmp_path / "x.insitu", f"{tmp_path}/*.h5", "--errors", errors).stderr
    assert open_dataset(tmp_path / "x.insitu").time.values.tolist() == [*range(20)]


def test_append_that_runs_twice(tmp_path: Path) -> None:
    """A cron job: the same pattern every night."""
    for name in ("x.insitu", "x.icechunk"):
        folder = tmp_path / name.partition(".")[2]
        folder.mkdir()
        target = tmp_path / name
        open_dataset(make(folder / "a.h5", 0)).insitu.save(target)
        make(folder / "b.h5", 4)
        assert "4 steps" in run_insitu("append", target, f"{folder}/*.h5", "--dim", "time").stderr
        done = run_insitu("append", target, f"{folder}/*.h5", "--dim", "time")
        assert "nothing new" in done.stderr
        assert "2 files skipped, already there" in done.stderr
        make(folder / "c.h5", 8)
        done = run_insitu("append", target, f"{folder}/*.h5", "--dim", "time", "--verbose")
        assert "4 steps" in done.stderr
        assert f"skipped, already there: {folder}/b.h5" in done.stderr
        assert open_dataset(target).time.values.tolist() == list(range(12))
        assert run_insitu("check", target).returncode == 0
    make(tmp_path / "insitu" / "b.h5", 5)
    os.utime(tmp_path / "insitu" / "b.h5", (2e9, 2e9))
    changed = run_insitu("append", tmp_path / "x.insitu", tmp_path / "insitu" / "b.h5", code=1)
    assert "insitu refresh" in " ".join(changed.stderr.split())
    # As a fresh scan does, an insitu store puts earlier labels in front; an Icechunk repository can
    # only grow at its end.
    earlier = make(tmp_path / "d.h5", -9)
    assert "4 steps" in run_insitu("append", tmp_path / "x.insitu", earlier).stderr
    assert open_dataset(tmp_path / "x.insitu").time.values.tolist() == [*range(-9, -5), *range(12)]
    assert "out of order" in run_insitu("append", tmp_path / "x.icechunk", earlier, code=1).stderr


def test_archives_that_overlap(tmp_path: Path) -> None:
    """Scan with a rule, append a correction and a late file, list the files and what is missing."""
    folder, target = tmp_path / "files", tmp_path / "x.insitu"
    folder.mkdir()
    for name, begin in (("a.h5", 0), ("b.h5", 2), ("late.h5", 9)):
        make(folder / name, begin)
    scanned = run_insitu("scan", folder / "a.h5", folder / "b.h5", "--overlap", "last", "--expect", "1", "-o", target)
    assert scanned.returncode == 0
    assert "4 steps" in run_insitu("append", target, folder / "late.h5").stderr
    assert "nothing new" in run_insitu("append", target, folder / "late.h5").stderr
    table = run_insitu("info", target, "--files").stdout
    assert "time (modified)" in table
    assert "3 files, 1 shadowed by others" in table
    rows = json.loads(run_insitu("info", target, "--files", "--json").stdout)
    assert [row["shadowed"] for row in rows] == [2, 0, 0]
    assert "time: 3 of 13 labels are in no file: 6, 7, 8" in run_insitu("info", target).stdout.replace(".0", "")
    assert (
        "must be error, first" in run_insitu("scan", folder / "a.h5", "--overlap", "best", "-o", target, code=2).stderr
    )
