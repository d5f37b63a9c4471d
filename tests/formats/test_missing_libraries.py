"""Does a library that is not installed name what to install?

Each case runs in a process of its own, in which the library cannot be imported. `make wheel` asks the
same of an environment in which it is not installed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import netCDF4
import numpy as np
import pytest

from waiting import LONG

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
    found = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
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
    message = _without(["eccodes", "gribapi"], f"insitu.scan({str(tmp_path / 'a.grib2')!r})")
    assert "pip install 'insitu[grib]'" in message


def test_fits(tmp_path: Path) -> None:
    fits = pytest.importorskip("astropy.io.fits")
    values = np.random.default_rng(0).integers(0, 99, (32, 32)).astype("i2")
    fits.CompImageHDU(values, compression_type="HCOMPRESS_1", name="IMAGE").writeto(tmp_path / "a.fits")
    message = _without(["astropy"], f"insitu.read({str(tmp_path / 'a.fits')!r}, 'IMAGE')")
    assert "pip install 'insitu[fits]'" in message


@pytest.mark.parametrize(
    ("hidden", "code", "expected"),
    [
        ("icechunk", "insitu.open_dataset({file!r}, decode_times=False).insitu.save({file!r} + '.icechunk')",
        "insitu[icechunk]"),
        ("icechunk zarr", "insitu.open_dataset({file!r}, decode_times=False).insitu.save({file!r} + '.icechunk')",
        "insitu[icechunk]"),
        ("zarr", "insitu.zarr_store({file!r})", "insitu[zarr]"),
        ("dask", "insitu.open_dataset({file!r}, decode_times=False, chunks={{}})", "insitu[dask]"),
        ("cbor2",
        "insitu.open_dataset({file!r}, decode_times=False, active='http://127.0.0.1:9', "
        "active_required=True).v.mean().values", "insitu[serve]"),
        ("cftime", "insitu.open_dataset({file!r})", "cftime"),
        ("fsspec", "insitu.scan('sftp://nowhere/a.nc')", "pip install fsspec"),
        ("fsspec", "insitu.open_mfdataset('sftp://nowhere/*.nc')", "pip install fsspec"),
        ("dask", "insitu.open_mfdataset([{file!r}], decode_times=False, parallel='dask')", "insitu[dask]"),
        ("dask",
        "from numpy.linalg import norm; insitu.options.read_limit = 1; "
        "norm(insitu.open_dataset({file!r}, decode_times=False).v.data)",
        "insitu[dask]"),
    ],
)  # fmt: skip
def test_what_to_install_is_named(file: Path, hidden: str, code: str, expected: str) -> None:
    assert expected in _without(hidden.split(), code.format(file=str(file)))


@pytest.mark.parametrize("package", ["cbor2", "prometheus_client", "starlette", "uvicorn"])
def test_the_server_names_the_package_that_is_missing(package: str) -> None:
    message = _without([package], "from insitu.cli import serve; serve.serve([])")
    assert f"the server needs the package {package}" in message
    assert "pip install 'insitu[serve]'" in message


def test_the_explorer_names_the_package_that_is_missing() -> None:
    message = _without(["starlette"], "from insitu.cli import explore; explore.explore([])")
    assert "the explorer needs the package starlette" in message
    assert "pip install 'insitu[serve]'" in message


def test_a_scan_on_a_cluster(file: Path, tmp_path: Path) -> None:
    (tmp_path / "b.nc").write_bytes(file.read_bytes())
    arguments = [
        "insitu",
        "scan",
        str(file),
        str(tmp_path / "b.nc"),
        "--dask",
        "local",
        "-o",
        str(tmp_path / "a.insitu"),
    ]
    code = f"sys.argv = {arguments}; from insitu.cli import app; app(standalone_mode=False)"
    assert "pip install 'insitu[dask]'" in _without(["distributed"], code)


def test_a_reference_system_without_a_number_is_missed(tmp_path: Path) -> None:
    """The image is read, and the warning says how to get its system."""
    rasterio = pytest.importorskip("rasterio")
    profile = {
        "driver": "GTiff",
        "width": 4,
        "height": 4,
        "count": 1,
        "dtype": "uint8",
        "transform": rasterio.Affine.scale(9),
    }
    for name, system in {"own.tif": "+proj=laea +lat_0=10 +lon_0=20 +ellps=sphere", "epsg.tif": "EPSG:32633"}.items():
        with rasterio.open(tmp_path / name, "w", crs=system, **profile) as image:
            image.write(np.ones((1, 4, 4), "u1"))
    code = (
        "warnings.simplefilter('always'); warnings.showwarning = lambda message, *_: print(message); "
        "found = insitu.open_dataset({!r}); print(int(found.band_data.sum()), found.spatial_ref.attrs.get('crs_wkt'))"
    )
    assert _without(["pyproj"], code.format(str(tmp_path / "epsg.tif"))) == "16 EPSG:32633\nfine"
    warning, values, _ = _without(["pyproj"], code.format(str(tmp_path / "own.tif"))).splitlines()
    assert "pip install 'insitu[tiff]'" in warning
    assert values == "16 None"


@pytest.mark.parametrize("hidden", [["imagecodecs"], ["zarr", "pyproj", "h5py", "netCDF4", "kerchunk"]])
def test_what_is_not_needed_may_be_missing(tmp_path: Path, hidden: list[str]) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as made:
        made.createDimension("x", 30)
        made.createVariable("v", "f4", ("x",), zlib=True)[:] = np.arange(30)
    code = f"assert insitu.open_dataset({str(tmp_path / 'a.nc')!r}).v.values.sum() == 435"
    assert _without(hidden, code) == "fine"
