"""Check of an installed insitu: `python scripts/smoke.py --minimal` in the environment that it is installed in.

It reads files of `tests/files` and compares sums that their writers' libraries gave, runs the command
line, looks for the compiled extensions, and uses each extra that is installed. With `--minimal` none may be
installed, and each that is missed must be named by an error of insitu with the command that installs it. It
needs nothing but insitu: `make wheel` and cibuildwheel run it against every wheel.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import insitu
from insitu.codecs.linked_libraries import linked_libraries

FILES = Path(__file__).resolve().parents[1] / "tests" / "files"
EXTENSIONS = ("insitu.codecs._kernels", "insitu.formats.hdf5.structures._metadata", "insitu.sources._scatter")
SUMS = (
    # Of the values that xarray shows, by netCDF4-python and zarr-python.
    ("hdf5/xarray_netcdf4.nc", "t", 35325.91),
    ("hdf5/netcdf4_filters.nc", "zlib", 1140858.0),
    ("hdf5/netcdf4_filters.nc", "zstd", 1140858.0),
    ("hdf5/netcdf4_filters.nc", "blosc_lz4", 1140858.0),
    ("hdf5/netcdf4_filters.nc", "bzip2", 1140858.0),
    ("netcdf3/netcdf4_classic.nc", "short", 4373.0),
    ("netcdf3/netcdf4_cdf5.nc", "short", 4373.0),
    ("zarr/xarray_v2.zarr", "t", 35325.98046875),
    ("zarr/xarray_v3.zarr", "t", 35325.98046875),
)
NOBODY = "http://127.0.0.1:9"
"""No server; the package for requests is missed before one is sent."""
PACKAGES = {
    "codecs": "imagecodecs", "copy": "h5netcdf",
    "dask": "dask", "fits": "astropy", "grib": "eccodes", "icechunk": "icechunk",
    "serve": "starlette", "tiff": "pyproj", "zarr": "zarr",
}  # fmt: skip
"""A package of each extra that no other needs."""


def check_installation() -> None:
    """Whether this is an installed package with all that is compiled, not a checkout."""
    place = Path(insitu.__file__).resolve()
    expected = Path(sysconfig.get_paths()["platlib"]).resolve()
    _expect(place.is_relative_to(expected), f"insitu is imported from {place}, not from {expected}")
    missing = [name for name in EXTENSIONS if find_spec(name) is None]
    _expect(not missing, f"these extensions are missing: {', '.join(missing)}")
    _expect(linked_libraries().keys() == {"zlib", "zstd"}, f"the kernels are linked with {linked_libraries()} only")


def check_values(folder: Path) -> None:
    """Whether files are read, saved and read again from the saved archive."""
    for path, name, expected in SUMS:
        with insitu.open_dataset(str(FILES / path), decode_times=False) as dataset:
            found = float(dataset[name].sum())
        _expect(abs(found - expected) <= 1e-6 * abs(expected), f"{path}: the sum of {name} is {found}, not {expected}")
    path, name, expected = SUMS[0]
    with insitu.open_dataset(str(FILES / path)) as dataset:
        dataset.insitu.save(str(folder / "saved.insitu"))
    found = float(insitu.open_dataset(str(folder / "saved.insitu"))[name].sum())
    _expect(abs(found - expected) <= 1e-6 * abs(expected), f"the saved archive of {path} has the sum {found}")


def check_commands() -> None:
    """Whether the command line is installed and answers."""
    _expect("serve" in _run("--help"), "insitu --help does not list its verbs")
    version = _run("--version").splitlines()[0]
    _expect(version == f"insitu {insitu.__version__}", f"insitu --version begins with {version!r}")
    _expect("blosc_lz4" in _run("info", str(FILES / "hdf5/netcdf4_filters.nc")), "insitu info does not list variables")


def check_missing_extras(folder: Path) -> None:
    """Whether every extra is missing, and named by an error that says how to install it."""
    present = [package for package in PACKAGES.values() if find_spec(package) is not None]
    _expect(not present, f"this is no minimal installation, it has {', '.join(present)}")
    netcdf = str(FILES / "hdf5/xarray_netcdf4.nc")
    for extra, action in _uses_of_extras(netcdf, folder):
        try:
            action()
        except insitu.errors.InsituError as problem:
            _expect(
                f"pip install 'insitu[{extra}]'" in str(problem), f"{extra} is missed, and the error says: {problem}"
            )
        else:
            raise SystemExit(f"{extra} is not installed, and nothing missed it")
    for verb in ("serve", "explore"):
        done = subprocess.run([_program(), verb, netcdf], capture_output=True, text=True, timeout=120)
        hint = "pip install 'insitu[serve]'"
        _expect(done.returncode == 1 and hint in done.stderr, f"insitu {verb} without its extra: {done.stderr}")


def check_present_extras(folder: Path) -> None:
    """Whether the extras that are installed do what they are for."""
    for extra, action in _uses_of_extras(str(FILES / "hdf5/xarray_netcdf4.nc"), folder):
        if find_spec(PACKAGES[extra]) is None:
            continue
        try:
            import_module("insitu.server") if extra == "serve" else action()  # there is no server to ask
        except Exception as problem:
            raise SystemExit(
                f"{extra} is installed, and its use fails: {type(problem).__name__}: {problem}"
            ) from problem


def _uses_of_extras(netcdf: str, folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "codecs", lambda: insitu.read(str(FILES / "hdf5/netcdf4_filters.nc"), "szip")
    yield "codecs", lambda: insitu.open_dataset(str(FILES / "tiff/pillow_lzw.tif")).load()
    yield "codecs", lambda: insitu.read(str(FILES / "fits/astropy_compressed.fits"), "RICE")
    yield "copy", lambda: insitu.open_dataset(netcdf).insitu.copy(str(folder / "copied.nc"))
    yield "dask", lambda: insitu.open_dataset(netcdf, chunks={})
    yield "fits", lambda: insitu.read(str(FILES / "fits/astropy_compressed.fits"), "HCOMPRESS")
    yield "grib", lambda: insitu.scan(str(FILES / "grib/eccodes_edition2.grib2"))
    yield "icechunk", lambda: insitu.open_dataset(netcdf).insitu.save(str(folder / "saved.icechunk"))
    yield "serve", lambda: insitu.open_dataset(netcdf, active=NOBODY, active_required=True).t.mean().values
    yield "zarr", lambda: insitu.zarr_store(netcdf)


def _program() -> str:
    found = shutil.which("insitu", path=sysconfig.get_path("scripts"))
    _expect(found is not None, "the command insitu is not installed")
    return str(found)


def _run(*arguments: str) -> str:
    done = subprocess.run([_program(), *arguments], capture_output=True, text=True, timeout=120)
    _expect(done.returncode == 0, f"insitu {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SystemExit(otherwise)


def main() -> None:
    """Run the checks; the first that fails ends the program with its reason."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minimal", action="store_true", help="insist that no extra is installed, and is named")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        check_installation()
        check_values(Path(folder))
        check_commands()
        (check_missing_extras if wanted.minimal else check_present_extras)(Path(folder))
    print(f"insitu {insitu.__version__} is installed and works{', and names each extra' if wanted.minimal else ''}")


if __name__ == "__main__":
    main()
