"""Appending is idempotent: the cron job that runs twice, files that changed, labels that overlap,
writers at the same time.

Modules: maintenance/append_along.py, maintenance/append_to_saved.py
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import insitu
from forked_commands import run_command
from insitu.errors import InsituWarning, ModelError, StaleSourceError
from insitu.maintenance import append_tree as append
from insitu.maintenance import check
from insitu.references import AppendReport, save
from waiting import LONG

xr = pytest.importorskip("xarray")
pytest.importorskip("netCDF4")
pytestmark = pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr", "ignore:.*Zarr V3 specification")

FORMS = ["x.insitu", "x.icechunk"]
DAYS = 4


def make(path: Path, first: int, *, days: int = DAYS, x: float = 0.0, label: bool = True, chunk: int = 2) -> Path:
    """A file of some days, counted from the first day of 2000."""
    values = np.arange(days * 3.0).reshape(days, 3) + 100 * first
    time = {"time": np.datetime64("2000-01-01", "ns") + np.arange(first, first + days) * np.timedelta64(1, "D")}
    made = xr.Dataset({"t": (("time", "x"), values)}, {"x": np.arange(3.0) + x, **(time if label else {})})
    encoding: dict[str, Any] = {"t": {"chunksizes": (chunk, 3), "zlib": True}}
    if label:
        encoding["time"] = {"units": "days since 2000-01-01", "dtype": "i4", "chunksizes": (chunk,)}
    made.to_netcdf(path, engine="netcdf4", encoding=encoding)
    return path


@pytest.fixture(params=FORMS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "x.icechunk":
        pytest.importorskip("icechunk")
    return tmp_path / request.param


def start(tmp_path: Path, target: Path) -> Path:
    """A store of one file."""
    first = make(tmp_path / "0.nc", 0)
    insitu.open_dataset(first).insitu.save(target)
    return first


def days_of(target: Path) -> list[int]:
    time = insitu.open_dataset(target).time.values
    return ((time - np.datetime64("2000-01-01")) // np.timedelta64(1, "D")).astype(int).tolist()


def test_a_second_append_is_skipped_and_said_so(tmp_path: Path, target: Path) -> None:
    start(tmp_path, target)
    second = make(tmp_path / "1.nc", 4)
    report = insitu.open_dataset(second).insitu.append(target, "time")
    assert report == AppendReport(str(target), "time", 4, (str(second),), ())
    again = insitu.open_dataset(second).insitu.append(target, "time")
    assert again == AppendReport(str(target), "time", 0, (), (str(second),))
    assert f"skipped, already there: {second}" in str(again)
    assert days_of(target) == list(range(8))
    assert check(target).ok
    expected = insitu.open_mfdataset([tmp_path / "0.nc", second]).load()
    xr.testing.assert_equal(insitu.open_dataset(target).load(), expected)


def test_of_several_files_only_the_new_one_is_added(tmp_path: Path, target: Path) -> None:
    first = start(tmp_path, target)
    paths = [first, make(tmp_path / "1.nc", 4), make(tmp_path / "2.nc", 8)]
    insitu.open_dataset(paths[1]).insitu.append(target, "time")
    report = insitu.open_mfdataset(paths).insitu.append(target, "time")
    assert (report.steps, report.added, report.skipped) == (4, (str(paths[2]),), tuple(map(str, paths[:2])))
    xr.testing.assert_equal(insitu.open_dataset(target).load(), insitu.open_mfdataset(paths).load())


def test_a_changed_file_is_refused(tmp_path: Path, target: Path) -> None:
    start(tmp_path, target)
    second = make(tmp_path / "1.nc", 4)
    insitu.open_dataset(second).insitu.append(target, "time")
    make(second, 4, days=6)
    os.utime(second, (2e9, 2e9))
    before = days_of(target) if target.suffix == ".insitu" else None
    with pytest.raises(StaleSourceError, match=r"earlier version of this file.*1\.nc.*(insitu refresh|save the rep)"):
        insitu.open_dataset(second).insitu.append(target, "time")
    if before is not None:
        assert days_of(target) == before


def test_labels_that_are_there_are_refused(tmp_path: Path, target: Path) -> None:
    start(tmp_path, target)
    copy = make(tmp_path / "copy.nc", 2)
    with pytest.raises(
        ModelError,
        match=r"holds (2000-01-03T.*, 2000-01-04T.*|2, 3 days since 2000-01-01.*) of 'time' "
        r"already.*copy\.nc.*(Leave|Combine)",
    ):
        insitu.open_dataset(copy).insitu.append(target, "time")
    assert days_of(target) == [0, 1, 2, 3]


def test_labels_between_others(tmp_path: Path, target: Path) -> None:
    """A store takes them where they belong; a repository can only grow at its end."""
    start(tmp_path, target)
    insitu.open_dataset(make(tmp_path / "2.nc", 8)).insitu.append(target, "time")
    if target.suffix == ".insitu":
        insitu.open_dataset(make(tmp_path / "1.nc", 4)).insitu.append(target, "time")
        assert days_of(target) == [*range(12)]
        return
    with pytest.raises(
        ModelError,
        match=r"(2000-01-05T|4, 5, 6 and 1 more).* out of order: (2000-01-12T|11).*1\.nc.*Combine",
    ):
        insitu.open_dataset(make(tmp_path / "1.nc", 4)).insitu.append(target, "time")
    assert days_of(target) == [0, 1, 2, 3, 8, 9, 10, 11]


def test_other_labels_along_another_dimension_are_refused(tmp_path: Path, target: Path) -> None:
    start(tmp_path, target)
    with pytest.raises(ModelError, match=r"(labels of 'x' differ|monotonic global indexes along dimension x).*1\.nc"):
        insitu.open_dataset(make(tmp_path / "1.nc", 4, x=0.5)).insitu.append(target, "time")
    assert days_of(target) == [0, 1, 2, 3]


def test_values_that_were_copied_are_known_too(tmp_path: Path) -> None:
    """An Icechunk repository whose array ends within a chunk takes a copy: no reference names the
    file.
    """
    pytest.importorskip("icechunk")
    target = tmp_path / "x.icechunk"
    insitu.open_dataset(make(tmp_path / "0.nc", 0, days=3)).insitu.save(target)
    second = make(tmp_path / "1.nc", 3)
    assert insitu.open_dataset(second).insitu.append(target, "time").steps == 4
    again = insitu.open_dataset(second).insitu.append(target, "time")
    assert (again.steps, again.skipped) == (0, (str(second),))
    assert days_of(target) == list(range(7))
    make(second, 3, days=6)
    os.utime(second, (2e9, 2e9))
    with pytest.raises(StaleSourceError, match="earlier version"):
        insitu.open_dataset(second).insitu.append(target, "time")


def test_halves_of_one_file_are_no_duplicates(tmp_path: Path) -> None:
    whole = insitu.open_dataset(make(tmp_path / "0.nc", 0, days=9))
    target = tmp_path / "x.insitu"
    whole.isel(time=slice(0, 3)).insitu.save(target)
    for _ in range(2):
        whole.isel(time=slice(3, 9)).insitu.append(target, "time")
    xr.testing.assert_equal(insitu.open_dataset(target).load(), whole.load())
    assert check(target).ok


def test_without_labels(tmp_path: Path) -> None:
    """What identifies a step is then where its bytes lie."""
    target = tmp_path / "x.insitu"
    insitu.open_dataset(make(tmp_path / "0.nc", 0, label=False)).insitu.save(target)
    second = insitu.open_dataset(make(tmp_path / "1.nc", 4, label=False))
    assert [second.insitu.append(target, "time").steps for _ in range(3)] == [4, 0, 0]
    assert insitu.open_dataset(target).sizes["time"] == 8


def test_stored_values_with_another_packing_are_refused(tmp_path: Path) -> None:
    """A store of stored values has one scale_factor: another file's values would be scaled by it in
    silence.
    """
    import h5py

    for number, scale in enumerate((0.1, 0.2)):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file["t"] = np.arange(4, dtype="i2")
            file["t"].attrs["scale_factor"] = scale
    target = tmp_path / "x.insitu"
    group = insitu.scan(tmp_path / "0.h5", decode=False)
    save(group, target)
    with pytest.raises(ModelError, match=r"scale_factor of 't' is .*0\.1.*0\.2.*Save the archive from decoded files"):
        append(insitu.scan(tmp_path / "1.h5", decode=False), target, group.array("t").dims[0])


def test_check_names_sources_that_are_there_twice(tmp_path: Path) -> None:
    """Stores that were written before appending was idempotent."""
    target = tmp_path / "x.insitu"
    paths = [start(tmp_path, target), *[make(tmp_path / "1.nc", 4)] * 2]
    insitu.open_mfdataset(paths, combine="nested", concat_dim="time").insitu.save(target)
    report = check(target)
    assert not report.ok
    assert not report.stale
    (double,) = report.duplicates
    assert double.url == str(tmp_path / "1.nc")
    assert double.reason == "'t' shows its steps twice along 'time', starting at 4 and at 8"
    assert "duplicated: " in str(report)
    done = run_command(["check", target])
    assert done.returncode == 1
    assert "duplicated" in done.stdout
    assert "1.nc" in done.stdout


def test_check_names_duplicates_of_other_formats(tmp_path: Path) -> None:
    path = make(tmp_path / "0.nc", 0)
    for name in ("x.json", "x.parq", "x.parquet"):
        both = insitu.open_mfdataset([path, path], combine="nested", concat_dim="time")
        both.insitu.save(tmp_path / name)
        assert [double.url for double in check(tmp_path / name).duplicates] == [str(path)]
        insitu.open_dataset(path).insitu.save(tmp_path / f"one-{name}")
        assert check(tmp_path / f"one-{name}").ok


def test_a_directory_that_cannot_be_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The append was committed: it is told as a warning, and trying again adds nothing."""
    target = tmp_path / "x.insitu"
    start(tmp_path, target)
    second = insitu.open_dataset(make(tmp_path / "1.nc", 4))
    real = os.fsync

    def fails(handle: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(errno.EIO, "Input/output error")
        real(handle)

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.warns(InsituWarning, match="saved, but .*Input/output error"):
        report = second.insitu.append(target, "time")
    assert report.steps == 4
    assert second.insitu.append(target, "time").steps == 0
    assert days_of(target) == list(range(8))


def test_files_that_cannot_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for the files that only the root before the previous one named."""
    target = tmp_path / "x.insitu"
    start(tmp_path, target)
    insitu.open_dataset(make(tmp_path / "1.nc", 4, chunk=3)).insitu.append(target, "time")
    insitu.open_dataset(make(tmp_path / "2.nc", 8, chunk=3)).insitu.append(target, "time")
    last = insitu.open_dataset(make(tmp_path / "3.nc", 12, chunk=3))
    real = os.unlink

    def fails(path: Any, *given: Any, **named: Any) -> None:
        if str(path).endswith(".parquet"):
            raise OSError(errno.EIO, "Input/output error")
        real(path, *given, **named)

    monkeypatch.setattr(os, "unlink", fails)
    with pytest.warns(InsituWarning, match="saved, but files .*Input/output error"):
        assert last.insitu.append(target, "time").steps == 4
    monkeypatch.undo()
    assert days_of(target) == list(range(16))


# Real processes. A round: two of them append at the same moment.

_WRITER = """
import sys, warnings
import insitu
from insitu.errors import InsituError
for line in sys.stdin:
    target, path = line.rstrip("\\n").split("\\t")
    try:
        report = insitu.open_dataset(path).insitu.append(target, "time")
        print("done", report.steps, flush=True)
    except InsituError as problem:
        print("refused", str(problem).replace("\\n", " "), flush=True)
"""


Writers = list["subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def writers() -> Iterator[Writers]:
    """Two processes that append what they are told to; what they import takes longer than twenty rounds."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-W", "ignore", "-c", _WRITER]
    made = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    yield made
    for writer in made:
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdin.close()
        writer.stdout.close()
        writer.wait(LONG)


def ask(writers: Writers, target: Path, paths: list[Path]) -> list[str]:
    for writer, path in zip(writers, paths, strict=True):
        assert writer.stdin is not None
        writer.stdin.write(f"{target}\t{path}\n")
        writer.stdin.flush()
    answers = []
    for writer in writers:
        assert writer.stdout is not None
        line = writer.stdout.readline()
        while line and not line.startswith(("done", "refused")):
            line = writer.stdout.readline()
        answers.append(line.strip())
    return answers


def test_two_processes_append_different_files(tmp_path: Path, target: Path, writers: Writers) -> None:
    """Both may land, in order; or the one whose days would come too late is refused. Never out of
    order, never lost.
    """
    start(tmp_path, target)
    last = 4
    for round_ in range(20):
        paths = [make(tmp_path / f"{round_}-{n}.nc", last + 4 * n) for n in range(2)]
        answers = ask(writers, target, paths if round_ % 2 else paths[::-1])
        early, late = answers if round_ % 2 else answers[::-1]
        assert late == "done 4"
        assert early == "done 4" or "out of order" in early
        expected = ([*range(last, last + 4)] if early == "done 4" else []) + [*range(last + 4, last + 8)]
        assert days_of(target)[-len(expected) :] == expected
        last += 8
    found = days_of(target)
    assert found == sorted(set(found))


def test_two_processes_append_the_same_file(tmp_path: Path, target: Path, writers: Writers) -> None:
    start(tmp_path, target)
    for round_ in range(20):
        path = make(tmp_path / f"round-{round_}.nc", 4 + 4 * round_)
        assert sorted(ask(writers, target, [path, path])) == ["done 0", "done 4"]
    assert days_of(target) == list(range(84))
    assert check(target).ok
