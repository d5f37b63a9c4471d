"""The archive of `insitu demo`: files that differ, and open as xarray opens them."""

from __future__ import annotations

from pathlib import Path

import pytest

import insitu
from insitu.cli.demo.sample_archive import make_archive

xr = pytest.importorskip("xarray")
pytest.importorskip("netCDF4")


def test_files_are_written_in_several_ways(tmp_path: Path) -> None:
    files = make_archive(tmp_path)
    assert len(files) == 12
    arrays = [insitu.scan(path, decode=False).array("tas") for path in files]
    assert len({array.tiles[0].encodings for array in arrays}) > 2
    assert len({array.attributes.get("scale_factor") for array in arrays}) > 1
    ours = insitu.open_dataset(files[0]).load()
    with xr.open_dataset(files[0], engine="netcdf4") as theirs:
        xr.testing.assert_identical(ours, theirs.load())
