"""Registration of the chunk manager with xarray where its entry point is not installed (a checkout)."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, distribution

from insitu.forking import import_before_fork

__all__ = ["register_chunk_manager"]

GROUP = "xarray.chunkmanagers"


@cache
def register_chunk_manager() -> None:
    """Register the chunk manager, unless xarray finds it by its entry point.

    xarray makes the list of chunk managers when it first needs one, and imports Dask for that. It
    takes longer than to open a file, so an installed insitu leaves the list alone.
    """
    if _is_installed():
        return
    # The dictionary is xarray's own, made once for the process.
    managers = import_before_fork("xarray.namedarray.parallelcompat").list_chunkmanagers()
    if "insitu" not in managers:
        managers["insitu"] = import_before_fork("insitu.xarray_bridge.chunk_manager").InsituChunkManager()


def _is_installed() -> bool:
    """Return whether the entry point of the chunk manager is installed."""
    try:
        return any(entry.group == GROUP and entry.name == "insitu" for entry in distribution("insitu").entry_points)
    except PackageNotFoundError:
        return False
