"""Files with all their groups on the command line: scan, append, drop, refresh, read and reduce.

Modules: cli/scan.py, cli/append.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import insitu
from fixtures.tree_products import write_cfradial2, write_odim, write_swath_product
from forked_commands import run_insitu

FIT = "PRODUCT/SUPPORT_DATA/DETAILED_RESULTS/fit"


@pytest.fixture
def swaths(tmp_path: Path) -> list[Path]:
    return [write_swath_product(tmp_path / f"{number}.nc", number) for number in range(4)]


def assert_holds(target: Path, files: list[Path]) -> None:
    xr.testing.assert_identical(insitu.open_datatree(target).load(), insitu.open_mfdatatree(files).load())


@pytest.mark.parametrize("workers", [(), ("--workers", 2)])
def test_scan_append_drop_refresh(swaths: list[Path], tmp_path: Path, workers: tuple[object, ...]) -> None:
    target = tmp_path / "x.insitu"
    run_insitu("scan", *swaths[:2], "--tree", "-o", target, *workers)
    assert_holds(target, swaths[:2])
    assert "added 1 step of time" in run_insitu("append", target, swaths[2]).stderr
    assert "1 file skipped" in run_insitu("append", target, swaths[2]).stderr
    assert_holds(target, swaths[:3])
    run_insitu("drop", target, swaths[0])
    assert_holds(target, swaths[1:3])
    write_swath_product(swaths[1], 1, False)
    os.utime(swaths[1], (2e9, 2e9))
    run_insitu("refresh", target)
    assert_holds(target, swaths[1:3])
    assert "2 sources: 2 ok" in run_insitu("check", target).stdout
    assert "PRODUCT/SUPPORT_DATA/DETAILED_RESULTS/" in run_insitu("info", target).stdout
    rows = json.loads(run_insitu("info", target, "--files", "--json").stdout)
    assert list(rows) == ["PRODUCT", FIT.rpartition("/")[0]]
    assert [(row["url"], row["time_first"]) for row in rows["PRODUCT"]] == [(str(swaths[1]), 1), (str(swaths[2]), 2)]
    assert [(row["url"], row["time_first"]) for row in rows[FIT.rpartition("/")[0]]] == [(str(swaths[2]), 2)]
    assert "/PRODUCT\n" in run_insitu("info", target, "--files").stdout


def test_options_by_group(tmp_path: Path) -> None:
    files = [write_cfradial2(tmp_path / f"{number}.nc", number) for number in range(2)]
    refused = run_insitu("scan", *files, "--tree", "-o", tmp_path / "x.insitu", code=1).stderr
    assert "group '/'" in refused
    run_insitu("scan", *files, "--tree", "--by-group", "/:concat_dim=volume", "-o", tmp_path / "x.insitu")
    assert insitu.open_datatree(tmp_path / "x.insitu").sizes["volume"] == 2
    run_insitu("scan", *files, "--tree", "--by-group", "/:concat_dim=sweep", "-o", tmp_path / "x.insitu", "--overwrite")
    assert insitu.open_datatree(tmp_path / "x.insitu").sizes["sweep"] == 4
    for wrong in ("/concat_dim=time", "/:concat_dims=time"):
        assert "by-group" in run_insitu("scan", *files, "--tree", "--by-group", wrong, "-o", "y.insitu", code=2).stderr
    assert "--tree" in run_insitu("scan", *files, "--by-group", "/:join=inner", "-o", "y.insitu", code=2).stderr
    assert "--drop-variables" in run_insitu("scan", *files, "--tree", "-V", "DBZ", "-o", "y.insitu", code=2).stderr


def test_new_dimensions_of_one_file_and_more(tmp_path: Path) -> None:
    files = [write_odim(tmp_path / f"{number}.h5", number) for number in range(2)]
    run_insitu("scan", files[0], "--tree", "--concat-dim", "volume", "-o", tmp_path / "x.insitu")
    run_insitu("append", tmp_path / "x.insitu", files[1], "--dim", "volume")
    found = insitu.open_datatree(tmp_path / "x.insitu").load()
    expected = insitu.open_mfdatatree(files, combine="nested", concat_dim="volume")
    xr.testing.assert_identical(found, expected.load())


def test_values_of_many_files(swaths: list[Path], tmp_path: Path) -> None:
    """A group that has the labels of groups above it is found by its path, in a pattern as in a list."""
    expected = insitu.open_mfdatatree(swaths)[FIT].values
    pattern = str(tmp_path / "*.nc")
    np.testing.assert_array_equal(insitu.read(pattern, FIT), expected)
    np.testing.assert_allclose(insitu.reduce(pattern, FIT, "mean", dim="time"), expected.mean(0), rtol=1e-15)
    assert f"{float(expected.max()):.6f}"[:6] in run_insitu("reduce", pattern, FIT, "max").stdout
    assert "(4, 4, 3)" in repr(insitu.scan(pattern, tree=True)[FIT].shape)
