"""Files that the tests of the bridge open: small, and of every kind of variable that an archive
has.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

from server.serving import Server, serving


@pytest.fixture(scope="session")
def varied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file: floats with gaps, packed integers, integers, times, texts, booleans, a contiguous
    and a never-written variable.
    """
    path = tmp_path_factory.mktemp("bridge") / "varied.nc"
    random = np.random.default_rng(0)
    with netCDF4.Dataset(path, "w") as file:
        for name, length in (("time", None), ("lat", 6), ("lon", 8), ("letters", 5)):
            file.createDimension(name, length)
        time = file.createVariable("time", "f8", ("time",))
        time.setncatts({"units": "hours since 2001-01-01", "calendar": "standard"})
        time[:] = np.arange(10) * 6
        file.createVariable("lat", "f4", ("lat",))[:] = np.linspace(-50, 50, 6)
        file.createVariable("lon", "f4", ("lon",))[:] = np.linspace(0, 350, 8)
        tas = file.createVariable(
            "tas", "f4", ("time", "lat", "lon"), zlib=True, shuffle=True, chunksizes=(3, 4, 5), fill_value=-999.0
        )
        values = random.normal(280, 10, (10, 6, 8)).astype("f4")
        values[random.random(values.shape) < 0.1] = -999
        tas[:] = values
        tas.units = "K"
        packed = file.createVariable(
            "packed", "i2", ("time", "lat", "lon"), zlib=True, chunksizes=(4, 6, 8), fill_value=-32768
        )
        packed.set_auto_maskandscale(False)
        packed.setncatts({"scale_factor": 0.01, "add_offset": 273.15})
        packed[:] = random.integers(-1000, 1000, (10, 6, 8))
        file.createVariable("number", "i4", ("time", "lat"), chunksizes=(3, 6))[:] = random.integers(-9, 9, (10, 6))
        file.createVariable("height", "f8", ("lat", "lon"), contiguous=True)[:] = random.random((6, 8))
        file.createVariable("empty", "f4", ("time", "lon"), chunksizes=(2, 8))
        flag = file.createVariable("flag", "i1", ("time",))
        flag.setncattr("dtype", "bool")
        flag[:] = np.arange(10) % 2
        file.createVariable("code", "S1", ("lat", "letters"))[:] = netCDF4.stringtochar(
            np.array([b"aa", b"b", b"ccccc", b"d", b"e", b"ff"], "S5")
        )
        texts = file.createVariable("name", str, ("lat",))
        for number in range(6):
            texts[number] = "name " * number
        file.createVariable("scalar", "f8", ())[...] = 2.5
        tas.coordinates = "height scalar"
    return path


@pytest.fixture(scope="module")
def server(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server beside the file that a module of tests has made as `path`."""
    with serving([path.parent], tmp_path_factory.mktemp("log") / "log") as running:
        yield running


@pytest.fixture(scope="module")
def plain(path: Path) -> xr.Dataset:
    """What xarray makes of that file."""
    return xr.load_dataset(path, engine="netcdf4")
