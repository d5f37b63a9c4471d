"""On which machine, with which libraries, were these numbers measured?"""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["describe"]

LIBRARIES = [
    "insitu",
    "numpy",
    "h5py",
    "netCDF4",
    "h5netcdf",
    "xarray",
    "hidefix",
    "pyfive",
    "kerchunk",
    "virtualizarr",
    "icechunk",
    "zarr",
    "zarrs",
    "tensorstore",
    "fsspec",
    "obstore",
    "numcodecs",
    "imagecodecs",
    "hdf5plugin",
]


def describe() -> str:
    """The machine in a few lines, for the head of a table."""
    return (
        f"{_processor()}, {os.cpu_count()} cores, {_memory() / 2**30:.0f} GiB, {platform.system()} "
        f"{platform.machine()}, Python {platform.python_version()}\n" + _libraries()
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    with suppress(OSError, StopIteration):  # on ARM only lscpu knows the name
        told = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout.splitlines()
        return next(line.partition(":")[2].strip() for line in told if line.startswith("Model name"))
    return platform.processor() or "unknown processor"


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _libraries() -> str:
    found = []
    for name in LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} -")
    return ", ".join(found) + f"; linked into insitu: {_linked()}"


def _linked() -> str:
    try:
        from insitu.codecs.linked_libraries import linked_libraries
    except ImportError:  # the peers' own environment
        return "-"
    return ", ".join(linked_libraries().values()) or "nothing"


if __name__ == "__main__":
    print(describe())
