"""The archive of `insitu demo`: files that differ, and open as xarray opens them."""

from __future__ import annotations

from pathlib import Path

import pytest

import insitu
from insitu.cli.demo.archive import make_archive

xr = pytest.importorskip("xarray")
pytest.importorskip("netCDF4")


def test_every_month_is_written_in_another_way(tmp_path: Path) -> None:
    files = make_archive(tmp_path)
    assert len(files) == 12
    first, second = (insitu.scan(path, decode=False).array("tas") for path in files[:2])
    assert first.tiles[0].encodings != second.tiles[0].encodings or first.attributes != second.attributes
    ours = insitu.open_dataset(files[0]).load()
    with xr.open_dataset(files[0], engine="netcdf4") as theirs:
        xr.testing.assert_identical(ours, theirs.load())
