"""`insitu copy`: what a stranger types, and what it says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

from insitu.cli import app
from insitu.cli.copy import parse_chunks, parse_lengths


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for year in range(2):
        times = np.datetime64("2000-01-01") + np.timedelta64(1, "D") * (365 * year + np.arange(6))
        xr.Dataset(
            {"x": (("time", "y"), np.random.default_rng(year).random((6, 4)))}, coords={"time": times.astype("M8[ns]")}
        ).to_netcdf(tmp_path / f"{year}.nc", encoding={"x": {"chunksizes": (1, 4), "zlib": True}})
    return [str(tmp_path / f"{year}.nc") for year in range(2)]


def run(*words: str, code: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(app, ["copy", *words])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout, result.stderr


def test_files_become_a_store(files: list[str], tmp_path: Path) -> None:
    _, output = run(*files, str(tmp_path / "t.zarr"), "--chunks", "series", "--verify")
    assert "objects" in output
    assert "verified" in output
    found, want = xr.open_zarr(tmp_path / "t.zarr").load(), xr.open_mfdataset(files).load()
    xr.testing.assert_identical(found, want)


def test_a_dry_run_writes_nothing(files: list[str], tmp_path: Path) -> None:
    output, _ = run(files[0], str(tmp_path / "t.zarr"), "--chunks", "time=3,y=-1", "--dry-run", "--memory", "1GiB")
    assert "in 1 pass" in output
    assert "x: [6, 4] in chunks [3, 4]" in output
    assert not (tmp_path / "t.zarr").exists()


def test_json_lines(files: list[str], tmp_path: Path) -> None:
    output, _ = run(files[0], str(tmp_path / "t.zarr"), "--json", "--sel", "time=2000-01-02..2000-01-04")
    lines = [json.loads(line) for line in output.splitlines()]
    assert [line["event"] for line in lines][-2:] == ["progress", "done"]
    assert lines[-2]["bytes"] == lines[-2]["total"]
    assert xr.open_zarr(tmp_path / "t.zarr").sizes["time"] == 3
    output, _ = run(files[0], str(tmp_path / "u.zarr"), "--json", "--dry-run")
    assert json.loads(output.splitlines()[-1])["event"] == "plan"


@pytest.mark.parametrize("text", ["time", "time=x", "=3", "time=1,time=2"])
def test_chunks_that_are_not_understood(files: list[str], tmp_path: Path, text: str) -> None:
    _, output = run(files[0], str(tmp_path / "t.zarr"), "--chunks", text, code=2)
    assert "--chunks" in output


def test_a_target_alone_is_not_enough() -> None:
    assert "SOURCE... TARGET" in run("t.zarr", code=2)[1]


def test_parsing() -> None:
    assert parse_chunks("maps") == "maps"
    assert parse_chunks(None) is None
    assert parse_lengths("time=365, lat=-1", "--chunks") == {"time": 365, "lat": -1}
