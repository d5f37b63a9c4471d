"""Scanning many files, and reading in every form, from the command line.

Modules: cli/access.py, cli/info.py, cli/progress.py, cli/tree.py, combining/portion.py,
scanning/scan_estimate.py, sources/user_folders.py, xarray_bridge/archive_dataset.py
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import insitu
import insitu.cli
from insitu.combining.scan_journal import Journal, identity_of, journal_for
from insitu.errors import AccessError
from waiting import LONG, wait_until

Run = Callable[..., tuple[str, str]]


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> Callable[..., tuple[str, str]]:
    """Run a command in this process: what it said on standard output and standard error."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def call(*arguments: object, code: int = 0) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["insitu", *map(str, arguments)])
        status = 0
        try:
            insitu.cli.main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        printed = capsysbinary.readouterr()
        out, err = printed.out.decode("latin-1"), printed.err.decode()
        assert status == code, err
        return out, err

    return call


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Six months, no two packed alike, one with other chunks."""
    folder = tmp_path / "archive"
    folder.mkdir()
    for month in range(1, 7):
        days = np.arange(f"2010-{month:02}-01", f"2010-{month + 1:02}-01", dtype="M8[D]")
        values = 280 + np.arange(len(days) * 12.0).reshape(-1, 3, 4) / 7
        made = xr.Dataset(
            {"tas": (("time", "lat", "lon"), values, {"units": "K"})},
            {"time": days.astype("M8[ns]"), "lat": [-10.0, 0.0, 10.0], "lon": [0.0, 1.0, 2.0, 3.0]},
        )
        packing = {"dtype": "i2", "scale_factor": 0.01 * month, "add_offset": 280.0, "_FillValue": -9, "zlib": True}
        made.to_netcdf(
            folder / f"tas_2010{month:02}.nc",
            engine="netcdf4",
            encoding={
                "tas": {**packing, "chunksizes": (10, 3, 2 if month == 4 else 4)},
                "time": {"units": "days since 2000-01-01"},
            },
        )
    return folder


def reference(archive: Path) -> xr.Dataset:
    with xr.open_mfdataset(
        sorted(archive.glob("*.nc")), engine="netcdf4", data_vars="minimal", combine_attrs="override"
    ) as found:
        return found.load()


def test_scan_of_a_pattern_is_saved(run: Run, archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "all.insitu"
    out, err = run("scan", f"{archive}/*.nc", "-o", target, "-v")
    assert out == ""
    assert "6 files" in err
    assert "storage | files" in err
    xr.testing.assert_equal(insitu.open_dataset(target).load(), reference(archive))
    _, err = run("scan", f"{archive}/*.nc", "-o", target, code=1)
    assert "--overwrite" in err
    run("scan", f"{archive}/", "-o", target, "--overwrite")
    listing = tmp_path / "files.txt"
    listing.write_text("".join(f"{path}\n" for path in sorted(archive.glob("*.nc"))))
    run("scan", f"@{listing}", "-o", target, "--overwrite", "--workers", 2)
    xr.testing.assert_equal(insitu.open_dataset(target).load(), reference(archive))
    assert not list((tmp_path / "cache" / "insitu" / "scans").iterdir())


def test_scan_of_one_file_keeps_its_groups(run: Run, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["g/h/v"] = np.arange(5)
    run("scan", tmp_path / "x.h5", "-o", tmp_path / "x.json", "--inline", 100, "-v")
    np.testing.assert_array_equal(insitu.read(tmp_path / "x.json", "g/h/v", decode=False), np.arange(5))


def test_scan_along_a_new_dimension(run: Run, archive: Path, tmp_path: Path) -> None:
    files = [tmp_path / f"tas_r{n}i1.nc" for n in (1, 2)]
    for path in files:
        path.write_bytes((archive / "tas_201001.nc").read_bytes())
    target = tmp_path / "members.insitu"
    run("scan", *files, "-o", target, "--concat-dim", r"member=_(r\d)i1")
    assert insitu.open_dataset(target).member.values.tolist() == ["r1", "r2"]
    run("scan", *files, "-o", target, "--overwrite", "--concat-dim", "run")
    assert insitu.open_dataset(target).sizes["run"] == 2


def test_scan_of_uneven_files(run: Run, tmp_path: Path) -> None:
    for number in range(3):
        xr.Dataset({"t": ("level", np.arange(number + 1.0))}).to_netcdf(tmp_path / f"{number}.nc")
    target = tmp_path / "profiles.insitu"
    run("scan", *sorted(tmp_path.glob("*.nc")), "-o", target, "--concat-dim", "profile", "--pad")
    nan = np.nan
    np.testing.assert_array_equal(insitu.open_dataset(target).t, [[0, nan, nan], [0, 1, nan], [0, 1, 2]])
    xr.Dataset({"t": ("level", np.arange(4.0))}).to_netcdf(tmp_path / "3.nc")
    run("append", target, tmp_path / "3.nc", "--dim", "profile")
    assert insitu.open_dataset(target).t[:, 3].values.tolist()[3] == 3.0


def test_scan_along_several_new_dimensions(run: Run, archive: Path, tmp_path: Path) -> None:
    """The second one replaced the first."""
    files = [tmp_path / f"tas_{model}_r{n}i1.nc" for model in "ab" for n in (1, 2)]
    for path in files:
        path.write_bytes((archive / "tas_201001.nc").read_bytes())
    target, model, member = (
        tmp_path / "members.insitu",
        ("--concat-dim", "model=tas_(.)_"),
        ("--concat-dim", r"r=r(\d)"),
    )
    run("scan", *files, "-o", target, *model, *member)
    found = insitu.open_dataset(target)
    assert (found.model.values.tolist(), found.r.values.tolist()) == (["a", "b"], [1, 2])
    assert {"model", "r", "time"} <= set(found.tas.dims)
    _, err = run("scan", *files, "-o", target, "--overwrite", *model, "--concat-dim", "run", code=2)
    assert "NAME=REGEX" in err
    _, err = run("scan", *files, "-o", target, "--overwrite", *model, *model, code=2)
    assert "each name once" in err


def test_bad_files_are_left_out(run: Run, archive: Path, tmp_path: Path) -> None:
    (archive / "tas_201003.nc").write_bytes(b"not a file of anything")
    _, err = run("scan", f"{archive}/*.nc", "-o", tmp_path / "x.insitu", code=1)
    assert "tas_201003.nc" in err
    _, err = run("scan", f"{archive}/*.nc", "-o", tmp_path / "x.insitu", "--errors", "skip")
    assert insitu.open_dataset(tmp_path / "x.insitu").sizes["time"] == 31 + 28 + 30 + 31 + 30
    out, err = run("scan", f"{archive}/*.nc", "--errors", "warn", code=1)
    assert "1 file left out" in err
    assert out.count("tas_2010") == 5
    run("scan", f"{archive}/*.nc", "--errors", "never", code=2)


def kept_in(scans: Path) -> int:
    """Batches that were written down; those being written have other names."""
    return len([path for path in scans.glob("*/*") if len(path.name) == 32])


def test_a_killed_scan_goes_on(archive: Path, tmp_path: Path) -> None:
    """Killed in the middle of it, the same command does the rest only."""
    target = tmp_path / "all.insitu"
    first = (
        "import time, insitu.cli, insitu.scanning.scan_member as s\n"
        "one, begun = s.Job.one, []\n"
        "def hang(job, url, memory=None):\n"
        "    begun.append(url)\n"
        "    return one(job, url, memory) if len(begun) <= COUNT else time.sleep(10_000)\n"
        "s.Job.one = hang\n"
        "insitu.cli.main()"
    )
    command = [sys.executable, "-c", first.replace("COUNT", "3"), "scan", f"{archive}/*.nc", "-o", str(target)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    scans = tmp_path / "cache" / "insitu" / "scans"
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    wait_until(lambda: kept_in(scans))
    process.send_signal(signal.SIGKILL)
    process.wait(LONG)
    saved = kept_in(scans)
    assert 1 <= saved < 6
    assert not target.exists()
    done = subprocess.run(
        [sys.executable, "-c", first.replace("COUNT", "10_000"), *command[3:]],
        env=environment, capture_output=True, text=True, timeout=LONG, check=True,
    )  # fmt: skip
    assert f"{saved} file{'s' if saved > 1 else ''} had been scanned before" in done.stderr
    xr.testing.assert_equal(insitu.open_dataset(target).load(), reference(archive))
    assert not [*scans.iterdir()]


def test_a_journal_of_others_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    journal = journal_for("x.insitu", "question")
    journal.keep(["a"], b"result", identity_of(["a"]))
    assert journal.load(["a"]) == b"result"
    assert journal.load(["b"]) is None
    (path,) = journal.folder.iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    assert journal.load(["a"]) is None
    journal.folder.chmod(0o777)
    with pytest.raises(AccessError, match="other users may write"):
        Journal(journal.folder)


def test_dry_run(run: Run, archive: Path) -> None:
    """Nothing is written, and of files that are alike the estimate is the sum."""
    out, _ = run("scan", f"{archive}/*.nc", "--dry-run")
    rows = dict(line.rsplit("  ", 1) for line in out.splitlines() if "  " in line)
    rows = {name.strip(): value.strip() for name, value in rows.items()}
    assert rows["files"].startswith("6 (6 were scanned")
    chunks = sum(int(line.split()[2].replace(",", "")) for line in run("scan", f"{archive}/*.nc")[0].splitlines()[1:])
    assert rows["chunks"] == f"{chunks:,}"
    assert int(rows["requests"].replace(",", "")) >= 6
    (archive / "tas_201003.nc").write_bytes(b"broken")
    run("scan", f"{archive}/*.nc", "--dry-run", code=1)
    _, err = run("scan", f"{archive}/*.nc", "--dry-run", "--errors", "skip", code=1)
    assert "tas_201003.nc" in err


def test_scan_on_dask(run: Run, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    target = tmp_path / "all.insitu"
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
    ) as cluster:
        run("scan", f"{archive}/*.nc", "-o", target, "--dask", cluster.scheduler_address)
    xr.testing.assert_equal(insitu.open_dataset(target).load(), reference(archive))
    monkeypatch.setitem(sys.modules, "distributed", None)
    _, err = run("scan", f"{archive}/*.nc", "-o", tmp_path / "y.insitu", "--dask", "local", code=1)
    assert "insitu[dask]" in err


def test_read_by_label(run: Run, archive: Path, tmp_path: Path) -> None:
    run("scan", f"{archive}/*.nc", "-o", tmp_path / "x.insitu")
    source = tmp_path / "x.insitu"
    expected = reference(archive).tas
    out, _ = run("read", source, "tas", "--sel", "time=2010-02", "--sel", "lat=0..10", "-s", "lon=2", "--as", "csv")
    lines = out.splitlines()
    assert lines[0] == "time,lat,tas"
    assert len(lines) == 1 + 28 * 2
    assert lines[1].startswith("2010-02-01,0.0,")
    assert float(lines[1].rpartition(",")[2]) == float(expected.sel(time="2010-02-01", lat=0, lon=2))
    run("read", source, "tas[0]", "-s", "time=2010-03..2010-04", "-o", tmp_path / "x.nc")
    with xr.open_dataset(tmp_path / "x.nc") as written:
        xr.testing.assert_allclose(written.tas, expected.sel(time="2010-03-01"))
    out, _ = run(
        "read", source, "tas", "-s", "time=2010-01-01", "-s", "lat=7", "-s", "lon=1.2", "--nearest", "--as", "table"
    )
    assert f"{float(expected.sel(time='2010-01-01', lat=10, lon=1)):.6g}" in out
    out, _ = run("read", source, "tas", "--as", "table")
    assert "rows more" in out
    _, err = run("read", source, "tas", "-s", "lat=7", code=1)
    assert "--nearest" in err
    _, err = run("read", source, "tas", "-s", "height=7", code=1)
    assert "no labels along 'height'" in err
    run("read", source, "tas", "-s", "lat", code=2)
    _, err = run("read", source, "tos", "--as", "csv", code=1)
    assert "There are: tas" in err


def test_read_in_every_form(run: Run, archive: Path, tmp_path: Path) -> None:
    source = archive / "tas_201001.nc"
    with xr.open_dataset(source) as dataset:
        shown = dataset.tas.values[0, :, ::2]
    with xr.open_dataset(source, decode_cf=False) as dataset:
        stored = dataset.tas.values[0, :, ::2]
    out, err = run("read", source, "tas[0, :, ::2]", "--raw", "-v")
    assert out == f"{stored}\n"
    assert "tas | hdf5 | int16 | 31×3×4 | chunks 10×3×4 | codecs" in err
    out, err = run("read", source, "tas[0, :, ::2]", "-v")
    assert out == f"{shown}\n"
    for printed in ("tas | hdf5 | float64 | 31×3×4 | chunks 10×3×4 | codecs", "| 1 chunk |", "storage | files |"):
        assert printed in err
    out, _ = run("read", source, "tas[0, :, ::2]", "--as", "npy")
    np.testing.assert_array_equal(np.load(BytesIO(out.encode("latin-1"))), shown)
    out, _ = run("read", source, "tas[0, :, ::2]", "--as", "npy", "--raw")
    np.testing.assert_array_equal(np.load(BytesIO(out.encode("latin-1"))), stored)
    run("read", source, "tas[0, :, ::2]", "-o", tmp_path / "x.txt")
    assert (tmp_path / "x.txt").read_text() == f"{shown}\n"
    run("read", source, "tas[0, 0]", "-o", tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text().startswith("lon,tas\n0.0,280.0\n")
    for wrong in (["-o", "x.xyz"], ["--as", "nc"], ["--as", "odd"], ["-O", "anon"]):
        run("read", source, "tas", *wrong, code=2)
    _, err = run("read", source, "tas[0]", "-o", tmp_path / "no" / "x.npy", code=1)
    assert "No such file or directory" in err


def test_errors_that_nobody_foresaw(run: Run, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **named: object) -> None:
        raise RuntimeError("odd")

    monkeypatch.setattr("insitu.cli.info.as_table", broken)
    _, err = run("info", archive / "tas_201001.nc", code=3)
    assert "RuntimeError: odd" in err
    assert "defect of insitu" in err
    assert "in broken" in err  # the traceback
    monkeypatch.setattr(sys, "argv", ["insitu", "--debug", "info", str(archive / "tas_201001.nc")])
    with pytest.raises(RuntimeError):
        insitu.cli.main()


def test_help_names_every_verb(run: Run) -> None:
    out, _ = run("--help")
    for verb in ("scan", "info", "read", "reduce", "convert", "append", "check", "refresh", "serve"):
        assert verb in out
    out, _ = run("info", "--help")
    assert "--json" in out


def test_info_of_references_and_icechunk(run: Run, archive: Path, tmp_path: Path) -> None:
    pytest.importorskip("icechunk")
    run("scan", archive / "tas_201001.nc", "-o", tmp_path / "x.icechunk")
    out, err = run("info", tmp_path / "x.icechunk", "--json")
    assert json.loads(out)["variables"]["tas"]["shape"] == [31, 3, 4]
    assert err == ""
