"""`insitu advise`: what a stranger types, and what it says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

from insitu.cli import app


@pytest.fixture
def file(tmp_path: Path) -> str:
    values = np.random.default_rng(0).random((40, 6, 8))
    xr.Dataset({"x": (("time", "lat", "lon"), values)}).to_netcdf(
        tmp_path / "a.nc", encoding={"x": {"chunksizes": (1, 6, 8), "zlib": True}}
    )
    return str(tmp_path / "a.nc")


def run(*words: str, code: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(app, ["advise", *words])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout, result.stderr


def test_a_table(file: str) -> None:
    output, notes = run(file, "--price", "1000000000")
    lines = output.splitlines()
    assert lines[0].split()[:3] == ["variable", "pattern", "wanted"]
    assert lines[0].split()[-1] == "cost"
    grids = ["series", "maps", "both"]
    assert [line.split()[0] for line in lines[1:]] == ["x", *grids, "x", *grids, "x", *grids]
    assert [line.split()[1] for line in lines[1::4]] == ["maps", "series", "boxes"]
    assert "as it is" in lines[1]
    assert "estimate" in notes


def test_json(file: str) -> None:
    words = ["--pattern", "time=1", "--pattern", "lat=1,lon=1", "--chunks", "time=-1,lat=1", "--json"]
    rows = json.loads(run(file, *words, "--variable", "x")[0])["rows"]
    assert [(row["pattern"], row["grid"], row["touched"]) for row in rows] == [
        ("time=1", "as it is", 1),
        ("time=1", "time=-1,lat=1", 6),
        ("lat=1,lon=1", "as it is", 40),
        ("lat=1,lon=1", "time=-1,lat=1", 1),
    ]
    assert rows[0]["bytes_wanted"] == 6 * 8 * 8
    assert "cost" not in rows[0]


@pytest.mark.parametrize("words", [["--pattern", "spheres"], ["--pattern", "lat=x"], ["--chunks", "lat"]], ids=str)
def test_words_that_are_not_understood(file: str, words: list[str]) -> None:
    assert words[0] in run(file, *words, code=2)[1]
