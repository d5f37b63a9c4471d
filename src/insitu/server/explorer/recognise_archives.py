"""Which locations are archives, and of which format, for listings: by suffix, first bytes, marks of stores.

A file is an archive by its suffix; a local file without a known one by its first bytes. A folder that
holds the marks of a store (`zarr.json`, `root.json`, …) is an archive. Opening an archive does not
depend on this: there the bytes decide.
"""

from __future__ import annotations

import os

from insitu.combining.file_names import is_many
from insitu.formats.registry import FORMATS
from insitu.server.roots import local_path

__all__ = ["format_by_signature", "format_by_suffix", "is_folder", "store_format"]

HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
SIGNED_FORMATS = ("netcdf3", "tiff", "fits", "hdf4")
"""Formats whose first bytes are beyond doubt."""
FORMAT_BY_SUFFIX = {
    ".nc": "netcdf", ".nc3": "netcdf", ".nc4": "netcdf", ".cdf": "netcdf", ".netcdf": "netcdf",
    ".h5": "hdf5", ".hdf5": "hdf5", ".he5": "hdf5", ".h4": "hdf4", ".hdf": "hdf", ".mat": "hdf5",
    ".grib": "grib", ".grib2": "grib", ".grb": "grib", ".grb2": "grib", ".idx": "grib_index", ".index": "grib_index",
    ".tif": "tiff", ".tiff": "tiff", ".fits": "fits", ".fit": "fits", ".fts": "fits", ".dmrpp": "dmrpp",
    ".zarr": "zarr", ".insitu": "insitu", ".icechunk": "icechunk", ".parq": "kerchunk", ".parquet": "kerchunk",
    ".zip": "zip", ".tar": "tar",
}  # fmt: skip
STORE_FORMATS = {
    "zarr.json": "zarr", ".zgroup": "zarr", ".zarray": "zarr", ".zmetadata": "zarr", "root.json": "insitu",
    "repo": "icechunk",
}  # fmt: skip
"""Names in a folder that make it a store, and of which format."""


def is_folder(url: str) -> bool:
    """Return whether a location holds archives rather than being one."""
    path = local_path(url)
    if path is None:
        return url.endswith("/") and format_by_suffix(url.rstrip("/")) is None and not is_many(url)
    return os.path.isdir(path) and format_by_suffix(path) is None and store_format(path) is None


def format_by_suffix(name: str) -> str | None:
    """Return the format that a name shows; None if its suffix is not known."""
    return FORMAT_BY_SUFFIX.get(os.path.splitext(name.partition("?")[0].rstrip("/").lower())[1])


def store_format(path: str) -> str | None:
    """Return the format of the store that a local folder is; None if it is none."""
    return next((kind for mark, kind in STORE_FORMATS.items() if os.path.exists(os.path.join(path, mark))), None)


def format_by_signature(path: str) -> str | None:
    """Return the format that the first bytes of a file show; None if it is not one of the unmistakable ones."""
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        head = file.read(16)
    if head.startswith(HDF5_SIGNATURE):
        return "hdf5"
    if head.startswith(b"GRIB"):
        return "grib"
    return next((name for name in SIGNED_FORMATS if FORMATS[name].signature.match(head)), None)
