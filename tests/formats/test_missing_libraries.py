"""Does a library that is not installed name what to install?

Each case runs in a process of its own, in which the library cannot be imported.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import netCDF4
import numpy as np
import pytest

PREAMBLE = """
import sys, warnings
for name in {hidden!r}:
    sys.modules[name] = None
warnings.simplefilter("ignore")
import insitu
try:
    {code}
except insitu.errors.InsituError as problem:
    print(problem)
else:
    print("fine")
"""


def _without(hidden: list[str], code: str) -> str:
    command = [sys.executable, "-c", PREAMBLE.format(hidden=hidden, code=code)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format="NETCDF3_CLASSIC") as made:
        made.createDimension("time", 3)
        time = made.createVariable("time", "f8", ("time",))
        time.units, time.calendar = "days since 2000-01-01", "noleap"
        time[:] = [1, 2, 3]
        made.createVariable("v", "f4", ("time",))[:] = 1
    return tmp_path / "a.nc"


def test_grib(tmp_path: Path) -> None:
    eccodes = pytest.importorskip("eccodes")
    handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
    (tmp_path / "a.grib2").write_bytes(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    told = _without(["eccodes", "gribapi"], f"insitu.scan({str(tmp_path / 'a.grib2')!r})")
    assert 'pip install "insitu[grib]"' in told


def test_fits(tmp_path: Path) -> None:
    fits = pytest.importorskip("astropy.io.fits")
    values = np.random.default_rng(0).integers(0, 99, (32, 32)).astype("i2")
    fits.CompImageHDU(values, compression_type="HCOMPRESS_1", name="IMAGE").writeto(tmp_path / "a.fits")
    told = _without(["astropy"], f"insitu.read({str(tmp_path / 'a.fits')!r}, 'IMAGE')")
    assert 'pip install "insitu[fits]"' in told


@pytest.mark.parametrize(
    ("hidden", "code", "expected"),
    [
        ("icechunk", "insitu.open_dataset({file!r}, decode_times=False).insitu.save({file!r} + '.icechunk')",
        "insitu[icechunk]"),
        ("zarr", "insitu.zarr_store({file!r})", "insitu[zarr]"),
        ("dask", "insitu.open_dataset({file!r}, decode_times=False, chunks={{}})", "insitu[dask]"),
        ("cbor2",
        "insitu.open_dataset({file!r}, decode_times=False, active='http://127.0.0.1:9', "
        "active_required=True).v.mean().values", "insitu[serve]"),
        ("cftime", "insitu.open_dataset({file!r})", "cftime"),
        ("fsspec", "insitu.scan('sftp://nowhere/a.nc')", "fsspec"),
    ],
)  # fmt: skip
def test_what_to_install_is_named(file: Path, hidden: str, code: str, expected: str) -> None:
    assert expected in _without([hidden], code.format(file=str(file)))


@pytest.mark.parametrize("hidden", [["imagecodecs"], ["zarr", "pyproj", "h5py", "netCDF4", "kerchunk"]])
def test_what_is_not_needed_may_be_missing(tmp_path: Path, hidden: list[str]) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as made:
        made.createDimension("x", 30)
        made.createVariable("v", "f4", ("x",), zlib=True)[:] = np.arange(30)
    code = f"assert insitu.open_dataset({str(tmp_path / 'a.nc')!r}).v.values.sum() == 435"
    assert _without(hidden, code) == "fine"
