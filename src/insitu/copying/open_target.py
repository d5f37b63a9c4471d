"""The target of a URL, by its kind; each is imported when it is needed."""

from __future__ import annotations

from insitu.copying.copy_options import CopyOptions
from insitu.copying.icechunk_target import IcechunkRepository
from insitu.copying.netcdf_target import NetCDFFile
from insitu.copying.targets import Target
from insitu.copying.zarr_target import ZarrFolder, ZarrPrefix
from insitu.sources.listing import local_path

__all__ = ["open_target"]


def open_target(url: str, kind: str, options: CopyOptions) -> Target:
    """Return the target of a URL."""
    if kind == "zarr":
        return ZarrFolder(url, options) if local_path(url) is not None else ZarrPrefix(url, options)
    if kind == "netcdf":
        return NetCDFFile(url, options)
    return IcechunkRepository(url, options)
