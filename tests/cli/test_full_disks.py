"""On a disk that is full or may not be written to: no cut file is left behind, and a scan goes on
without its journal.

Modules: cli/values.py
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import insitu
from forked_commands import run_command
from insitu.formats import InsituWarning

pytest.importorskip("resource")

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
from insitu.cli import main
main()
"""
"""The command line on a system where no file may grow beyond 3,000 bytes: writes fail as on a full
disk.
"""


@pytest.fixture
def archive(tmp_path: Path) -> list[Path]:
    paths = []
    for year in range(3):
        data = np.random.default_rng(year).random((5, 400))
        dataset = xr.Dataset({"t": (("time", "x"), data)}, {"time": np.arange(5) + 5 * year, "x": np.arange(400)})
        paths.append(tmp_path / f"{year}.nc")
        dataset.to_netcdf(paths[-1])
    return paths


def limited(*words: object) -> subprocess.CompletedProcess[str]:
    return run_command(words, code=LIMITED)


@pytest.mark.parametrize("suffix", ["npy", "txt", "csv", "nc"])
def test_no_cut_file_is_left(archive: list[Path], tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    target = folder / f"x.{suffix}"
    done = limited("read", archive[0], "t", "-o", target)
    assert done.returncode != 0
    assert os.listdir(folder) == []
    target.write_text("what was there")
    assert limited("read", archive[0], "t", "-o", target).returncode != 0
    assert os.listdir(folder) == [target.name]
    assert target.read_text() == "what was there"
    if suffix in ("npy", "txt", "csv"):
        assert "writing failed" in done.stderr.replace("\n", " ")


def test_what_is_written_replaces_links_and_goes_through_pipes(archive: list[Path], tmp_path: Path) -> None:
    from insitu.cli.values import write_npy, write_text

    (tmp_path / "there").mkdir()
    (tmp_path / "link.npy").symlink_to(tmp_path / "there" / "x.npy")
    write_npy(np.arange(3), tmp_path / "link.npy")
    assert np.load(tmp_path / "there" / "x.npy").tolist() == [0, 1, 2]
    assert (tmp_path / "link.npy").is_symlink()
    write_npy(np.arange(3), tmp_path / "other.dat")  # under the name that was given
    assert np.load(tmp_path / "other.dat").tolist() == [0, 1, 2]
    write_text("x", Path(os.devnull))


def test_a_scan_goes_on_without_its_journal(archive: list[Path], tmp_path: Path) -> None:
    """The directory of the journal cannot be made."""
    (tmp_path / "file").write_text("")
    target = tmp_path / "all.json"
    words = ["scan", *map(str, archive), "-o", str(target), "--overwrite"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "file")}
    done = run_command(words, environment=environment)
    assert done.returncode == 0, done.stderr
    assert "The scan goes on" in done.stderr
    xr.testing.assert_equal(insitu.open_dataset(target).load(), xr.open_mfdataset(archive).load())


def test_a_journal_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from insitu.combining import scan_journal
    from insitu.combining.scan_journal import Journal, identity_of

    messages: list[str] = []
    journal = Journal(tmp_path / "j", messages.append)

    class Full:
        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def write(self, data: bytes) -> int:
            raise OSError(28, "No space left on device")

    def full(handle: int, mode: str) -> Full:
        os.close(handle)
        return Full()

    with monkeypatch.context() as patch:
        patch.setattr(scan_journal.os, "fdopen", full)
        for name in "abc":
            journal.keep([name], b"result", identity_of([name]))
    assert len(messages) == 1
    assert "No space left on device" in messages[0]
    assert os.listdir(tmp_path / "j") == []
    assert journal.load(["a"]) is None


def test_a_journal_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from insitu.combining.scan_journal import Journal, identity_of

    def refused(self: Path, *_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.warns(InsituWarning, match="Read-only file system"):
        journal = Journal(tmp_path / "j")
    journal.keep(["a"], b"result", identity_of(["a"]))
    assert journal.load(["a"]) is None
    journal.done()
