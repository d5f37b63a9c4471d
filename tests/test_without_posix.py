"""Nothing needs what only POSIX systems have: reading, saving, appending, the scan cache and the
settings of a server work without `pread`, `preadv`, `fork`, `fcntl` and the like, with equal values.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from insitu.errors import AccessError, UnsupportedError
from insitu.references import file_systems
from insitu.references.atomic_write import LocalFolder, lock_directory, open_atomic
from insitu.references.directory_swap import replace_directory
from insitu.references.file_systems import check_names, hold_file_lock
from insitu.scanning import scan_cache
from insitu.scanning.scan_cache import ScanCache, ScanRecorder
from waiting import LONG
from windows import WITHOUT_POSIX, FileLocks, WindowsOs

PROGRAM = """
sys.path.insert(0, {tests!r})
from windows import FileLocks
sys.modules["msvcrt"] = FileLocks()

import numpy as np
import insitu
from insitu.combining import cached_archive
from insitu.scanning import scan_cache
from insitu.sources import local

assert not local._HAS_PREAD and not local._HAS_PREADV and local._read_ranges is None
assert scan_cache.fcntl is None
cached_archive.MIN_SCAN_SECONDS = scan_cache.RECENT_NS = 0  # keep it, however fast the scan was

files = sorted(str(path) for path in __import__("pathlib").Path("archive").glob("*.nc"))
first = insitu.open_mfdataset(files[:2])
again = insitu.open_mfdataset(files[:2])
assert len(scan_cache.default_scan_cache().entries()) == 1
np.save("point.npy", again.plain[:, 3, 4].values)
np.save("strided.npy", again.plain[::3, 1:4, ::2].values)
np.save("packed.npy", again.packed.values)
np.save("mean.npy", again.packed.mean("time").values)

for form in ("insitu", "json", "parq"):
    insitu.open_mfdataset(files[:2]).insitu.save(f"saved.{{form}}")
archive = insitu.Archive.open("saved.insitu")
archive.append(files[2:])
np.save("grown.npy", insitu.open_dataset("saved.insitu").packed.values)
archive.rollback()
for form in ("insitu", "json", "parq"):
    np.save(f"{{form}}.npy", insitu.open_dataset(f"saved.{{form}}").packed.values)
first.insitu.save("saved.parq")  # replaces the directory

from insitu.server.roots import Roots
from insitu.server.settings import Settings
settings = Settings(roots=(os.path.abspath("archive"),))
assert Settings.from_json(settings.to_json()) == settings
Roots(settings.roots).check(os.path.abspath(files[0]))
from insitu.reading.thread_pools import count_cores
assert count_cores() >= 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of a variable without compression and a compressed, packed one."""
    pytest.importorskip("netCDF4")
    pytest.importorskip("starlette")
    folder = tmp_path_factory.mktemp("posix")
    (folder / "archive").mkdir()
    dice = np.random.default_rng(0)
    for number in range(3):
        values = dice.random((12, 10, 16))
        data = dict.fromkeys(("plain", "packed"), (("time", "lat", "lon"), values))
        file = xr.Dataset(data, {"time": np.arange(12.0) + 12 * number})
        how: dict[str, dict[str, Any]] = {
            "plain": {"chunksizes": (12, 10, 16)},
            "packed": {"dtype": "i2", "scale_factor": 1e-4, "zlib": True, "chunksizes": (6, 5, 8), "_FillValue": -1},
        }
        file.to_netcdf(folder / f"archive/{number}.nc", engine="netcdf4", encoding=how)
    return folder


def test_equal_values(folder: Path) -> None:
    program = WITHOUT_POSIX + PROGRAM.format(tests=str(Path(__file__).parent))
    environment = {**os.environ, "INSITU_SCAN_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, timeout=LONG
    )
    assert done.returncode == 0, done.stderr[-3000:]
    files = sorted((folder / "archive").glob("*.nc"))
    with (
        xr.open_mfdataset(files[:2], engine="netcdf4", data_vars="minimal") as two,
        xr.open_mfdataset(files, engine="netcdf4", data_vars="minimal") as three,
    ):
        expected = {
            "point": two.plain[:, 3, 4], "strided": two.plain[::3, 1:4, ::2], "packed": two.packed,
            "insitu": two.packed, "json": two.packed, "parq": two.packed, "grown": three.packed,
        }  # fmt: skip
        for name, values in expected.items():
            np.testing.assert_array_equal(np.load(folder / f"{name}.npy"), values.values, name)
        np.testing.assert_allclose(np.load(folder / "mean.npy"), two.packed.mean("time").values)


def test_a_lock_of_windows_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long another process holds it: `LK_LOCK` of the system would give up after ten seconds."""
    locks = FileLocks()
    monkeypatch.setitem(sys.modules, "msvcrt", locks)
    monkeypatch.setattr(file_systems, "fcntl", None)
    monkeypatch.setattr(file_systems, "LOCK_PAUSE", 0.001)
    path, order = str(tmp_path / "lock"), list[str]()
    within = threading.Event()

    def second() -> None:
        within.set()
        with hold_file_lock(path):
            order.append("second")

    thread = threading.Thread(target=second)
    with hold_file_lock(path):
        thread.start()
        within.wait(LONG)
        while not locks.refusals:
            thread.join(0.001)
        order.append("first")
    thread.join(LONG)
    assert order == ["first", "second"]
    assert locks.locked == {}


def test_a_directory_of_windows_has_its_lock_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locks = FileLocks()
    monkeypatch.setitem(sys.modules, "msvcrt", locks)
    monkeypatch.setattr(file_systems, "fcntl", None)
    monkeypatch.setattr("insitu.references.atomic_write.os", WindowsOs())
    (tmp_path / "x.icechunk").mkdir()
    with lock_directory(str(tmp_path / "x.icechunk")):
        assert len(locks.locked) == 1
    assert locks.locked == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.icechunk", "x.icechunk.lock"]


class Refusals:
    """Functions of `os` that are refused a few times, as Windows does while a file is open."""

    def __init__(self, times: int) -> None:
        self.left = times

    def wrap(self, action: Any) -> Any:
        def refuse(*paths: Any, **how: Any) -> None:
            if self.left:
                self.left -= 1
                raise PermissionError(13, "another process has it open")
            action(*paths, **how)

        return refuse


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_systems, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(file_systems, "os", WindowsOs())


def test_a_file_that_is_open_for_a_moment_is_replaced(
    tmp_path: Path, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.json").write_bytes(b"old")
    monkeypatch.setattr(os, "replace", Refusals(2).wrap(os.replace))
    with open_atomic(str(tmp_path / "x.json")) as file:
        file.write(b"new")
    assert (tmp_path / "x.json").read_bytes() == b"new"
    monkeypatch.setattr(os, "unlink", Refusals(2).wrap(os.unlink))
    LocalFolder(str(tmp_path)).remove(["x.json"])
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_stays_open_keeps_its_content(
    tmp_path: Path, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.json").write_bytes(b"old")
    monkeypatch.setattr(os, "replace", Refusals(99).wrap(os.replace))
    with (
        pytest.raises(AccessError, match="whether a program has it open"),
        open_atomic(str(tmp_path / "x.json")) as file,
    ):
        file.write(b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert (tmp_path / "x.json").read_bytes() == b"old"


def test_a_directory_that_is_read_for_a_moment_is_replaced(
    tmp_path: Path, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    monkeypatch.setattr("insitu.references.directory_swap._exchange", lambda path, other: False)
    monkeypatch.setattr(os, "rename", Refusals(2).wrap(os.rename))
    replace_directory(str(tmp_path / "old"), str(tmp_path / "new"))
    assert [path.name for path in (tmp_path / "old").iterdir()] == ["new"]


def test_an_entry_of_the_scan_cache_that_is_open_stays_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows refuses to delete its lock file, and then no other file of it may be gone."""
    monkeypatch.setattr(scan_cache, "fcntl", None)
    monkeypatch.setattr(scan_cache, "_descriptors", {})
    data = tmp_path / "a.nc"
    data.write_bytes(b"data")
    os.utime(data, (1, 1))
    monkeypatch.setattr(scan_cache, "RECENT_NS", 0)
    cache = ScanCache(tmp_path / "cache")
    assert cache.put("key", ScanRecorder(), [str(data)], lambda path: Path(path).mkdir(), {"a": 1})
    found = cache.find("key", [str(data)])
    assert found is not None
    assert found.notes == {"a": 1}
    (descriptor,) = scan_cache._descriptors.values()
    unlink = os.unlink

    def refuse(path: Any, **how: Any) -> None:
        if Path(path).name == "lock":
            raise PermissionError(13, "another process has it open")
        unlink(path, **how)

    monkeypatch.setattr(os, "unlink", refuse)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert cache.clear() > 0
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
    os.close(descriptor)
    monkeypatch.setattr(os, "unlink", unlink)
    assert cache.clear() == 0
    assert cache.find("key", [str(data)]) is None


def test_names_that_a_file_system_does_not_tell_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The references of `T` must not replace those of `t`, without a word."""
    check_names(["t", "T", "a:b"], str(tmp_path))  # here they are different
    with monkeypatch.context() as patch:
        patch.setattr(os.path, "exists", lambda path: True)  # also with its letters in the other case
        check_names(["t", "u/T", "u/v"], str(tmp_path))
        with pytest.raises(UnsupportedError, match=r"does not tell 'u/t' from 'U/T'.*\*\.insitu"):
            check_names(["u/t", "U/T"], str(tmp_path))


@pytest.mark.parametrize("name", ["a:b", "CON", "nul.nc", "group/x?", "what.", "with space "])
def test_names_that_windows_reserves(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_systems, "os", WindowsOs())
    check_names(["tas", "group/console", "v1.2"], str(tmp_path))
    with pytest.raises(UnsupportedError, match="Windows allows no file"):
        check_names([name], str(tmp_path))


def test_output_in_a_code_page_that_lacks_letters(folder: Path) -> None:
    """What `insitu info --map > file` gives on Windows: its boxes are not in the code page 1252."""
    command = [sys.executable, "-c", "import insitu.cli; insitu.cli.main()", "info", "--map", "archive/0.nc"]
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=LONG)
    assert done.returncode == 0, done.stderr[-2000:]
    assert rb"\u2588" in done.stdout
