"""Small packed chunks are unpacked together: the values are xarray's, whatever the grid and the selection."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.errors import InsituError
from insitu.reading import ReadContext, ReadStatistics, read_array

SHAPE = (40, 12, 15)
MISSING = 101


def _write(path: Path, chunks: tuple[int, ...], dtype: str = "i2", scale: float = 0.1, **how: Any) -> Path:
    rng = np.random.default_rng(7)
    with netCDF4.Dataset(path, "w") as file:
        for name, length in zip(("time", "y", "x"), SHAPE, strict=True):
            file.createDimension(name, length)
        made = file.createVariable("v", dtype, ("time", "y", "x"), chunksizes=chunks, fill_value=MISSING, **how)
        made.setncatts({"scale_factor": scale, "add_offset": 3.5})
        made.set_auto_maskandscale(False)
        values = rng.integers(0, 100, SHAPE).astype(dtype)
        values[rng.random(SHAPE) < 0.1] = MISSING
        made[:] = values
        times = file.createVariable("when", "f8", ("time", "x"), chunksizes=(1, 5))
        times.setncatts({"units": "hours since 1999-12-31", "calendar": "noleap"})
        times[:] = np.arange(40 * 15).reshape(40, 15) * 5.25
    return path


@pytest.mark.parametrize("chunks", [(1, 12, 15), (1, 4, 15), (3, 5, 4), (40, 1, 1), (7, 12, 15)])
@pytest.mark.parametrize("dtype", ["i2", "i4", "u1", "f4"])
def test_values_are_those_of_xarray(tmp_path: Path, chunks: tuple[int, ...], dtype: str) -> None:
    path = _write(tmp_path / "a.nc", chunks, dtype, zlib=True)
    with xr.open_dataset(path, engine="netcdf4") as expected, insitu.open_dataset(path) as found:
        xr.testing.assert_identical(found.load(), expected.load())


@pytest.mark.parametrize(
    "key",
    [
        {"time": slice(3, 31)},
        {"time": slice(None, None, -1)},
        {"time": slice(2, None, 3), "y": slice(1, 11)},
        {"x": [3, 3, 1]},
        {"time": 5, "x": slice(4, 9)},
    ],
)
def test_selections(tmp_path: Path, key: dict[str, Any]) -> None:
    path = _write(tmp_path / "a.nc", (1, 5, 4))
    with xr.open_dataset(path, engine="netcdf4") as expected, insitu.open_dataset(path) as found:
        xr.testing.assert_identical(found.isel(key).load(), expected.isel(key).load())
        transposed = found.isel(key).transpose(..., "y").load()
        xr.testing.assert_identical(transposed, expected.isel(key).transpose(..., "y").load())


def test_files_packed_in_their_own_way(tmp_path: Path) -> None:
    paths = [_write(tmp_path / f"{i}.nc", (1, 12, 15), scale=0.1 * (i + 1)) for i in range(3)]
    how: dict[str, Any] = {"combine": "nested", "concat_dim": "time"}
    with xr.open_mfdataset(paths, engine="netcdf4", **how) as expected, insitu.open_mfdataset(paths, **how) as found:
        xr.testing.assert_identical(found.load(), expected.load())


def test_an_error_names_its_chunk(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.nc", (1, 12, 15), zlib=True)
    group = insitu.scan(path)
    place = group.arrays["v"].tiles[0].chunks[(17, 0, 0)]
    data = bytearray(path.read_bytes())
    data[place.offset : place.offset + place.length] = b"\xff" * place.length
    path.write_bytes(data)
    with pytest.raises(InsituError) as problem:
        insitu.open_dataset(path)["v"].load()
    assert problem.value.place["chunk"] == (17, 0, 0)
    assert problem.value.place["offset"] == place.offset


@pytest.mark.parametrize("packed", [True, False])
def test_one_record_chunks_are_fetched_together(tmp_path: Path, packed: bool) -> None:
    """Chunks that lie apart by less than a page are one range, and one call places them all."""
    path = tmp_path / "records.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time")
        file.createDimension("x", 3)
        made = [file.createVariable(name, "i4", ("time", "x"), chunksizes=(1, 3)) for name in "ab"]
        for one in made:
            if packed:
                one.scale_factor = 0.5
            one.set_auto_maskandscale(False)
        for step in range(900):
            for number, one in enumerate(made):
                one[step] = np.arange(3) + 10 * step + number
    statistics = ReadStatistics()
    array = insitu.scan(path).arrays["b"]
    values = read_array(array, ..., ReadContext(tally=statistics))
    expected_values = np.arange(3) + 10 * np.arange(900)[:, None] + 1
    assert (values == expected_values * (0.5 if packed else 1)).all()
    assert statistics.chunks == 900
    assert statistics.requests < 90
    with xr.open_dataset(path, engine="netcdf4") as expected, insitu.open_dataset(path) as found:
        xr.testing.assert_identical(found.load(), expected.load())


@pytest.mark.parametrize("share", [0.5, 0.99])
def test_a_file_that_was_cut_after_the_scan(tmp_path: Path, share: float) -> None:
    path = _write(tmp_path / "a.nc", (1, 4, 5))
    group = insitu.scan(path)
    os.truncate(path, int(path.stat().st_size * share))
    with pytest.raises(InsituError, match="not the one that was scanned"):
        insitu.read(group, "v")
