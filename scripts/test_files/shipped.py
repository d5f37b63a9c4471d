"""Files that other projects ship with their tests inside their wheels, under licences that allow
copying (`tests/files/LICENSES`).
"""

from __future__ import annotations

import shutil
from importlib.metadata import distribution
from importlib.resources import as_file, files
from pathlib import Path

from registry import Write, by

SHIPPED = {
    ("astropy", "BSD-3-Clause", "fits"): (
        "io/fits/tests/data",
        (
            "btable.fits",
            "group.fits",
            "logical_null.fits",
            "random_groups.fits",
            "scale.fits",
            "stddata.fits",
            "table.fits",
            "tdim.fits",
            "test0.fits",
            "theap-gap.fits",
            "variable_length_table.fits",
            "zerowidth.fits",
            "compressed_float_bzero.fits",
            "compressed_image.fits",
        ),
    ),
    ("h5py", "BSD-3-Clause", "hdf5"): (
        "tests/data_files",
        ("compound-dtype-complex.h5", "vlen_string_dset.h5", "vlen_string_dset_utc.h5", "vlen_string_s390x.h5"),
    ),
    ("scipy", "BSD-3-Clause", "netcdf3"): (
        "io/tests/data",
        ("example_1.nc", "example_2.nc", "example_3_maskedvals.nc"),
    ),
    ("xarray", "Apache-2.0", "netcdf3"): ("tests/data", ("bears.nc",)),
    ("xarray", "Apache-2.0", "grib"): ("tests/data", ("example.grib",)),
}
LICENCE_FILES = ("LICENSE", "LICENSE.rst", "LICENSE.txt")


def _copy(package: str, inner: str) -> Write:
    def write(path: Path) -> None:
        with as_file(files(package).joinpath(inner)) as found:
            shutil.copyfile(found, path)

    return write


def copy_licence(package: str, folder: Path) -> None:
    """Copy a package's licence text."""
    found = [
        path for path in distribution(package).files or [] if path.name in LICENCE_FILES and "dist-info" in str(path)
    ]
    top = min(found, key=lambda path: len(path.parts))
    (folder / f"{package}.txt").write_bytes(Path(str(top.locate())).read_bytes())


for (_package, _licence, _kind), (_folder, _names) in SHIPPED.items():
    for _name in _names:
        by(f"{_kind}/{_package}_{_name}", _package, licence=_licence)(_copy(_package, f"{_folder}/{_name}"))
