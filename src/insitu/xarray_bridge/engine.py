"""The xarray engine `insitu`: `xr.open_dataset(url, engine="insitu")`.

It gives xarray's own lazy arrays, and Dask arrays with `chunks=`. xarray imports this module whenever
it has to find out which engine opens a file; what opens one is imported when this engine does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from inspect import signature
from os import PathLike, fspath
from typing import Any

import xarray
from xarray.backends import BackendEntrypoint

from insitu.forking import import_before_fork
from insitu.xarray_bridge.engine_keywords import ENGINE_KEYWORDS
from insitu.xarray_bridge.open_functions import open_dataset, open_groups

__all__ = ["InsituBackendEntrypoint"]

XARRAY_INDEXES = "create_default_indexes" in signature(xarray.open_dataset).parameters
"""Whether xarray makes the indexes itself, and may be asked not to."""


class InsituBackendEntrypoint(BackendEntrypoint):
    """The engine `insitu`."""

    description = "Open any archive of scientific arrays without copying it"
    open_dataset_parameters = (
        "filename_or_obj",
        "mask_and_scale",
        "decode_times",
        "concat_characters",
        "decode_coords",
        "drop_variables",
        "use_cftime",
        "decode_timedelta",
        "group",
        "errors",
        "storage_options",
        "format",
        *ENGINE_KEYWORDS,
    )
    supports_groups = True

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        group: str | None = None,
        errors: str = "raise",
        storage_options: Mapping[str, Any] | None = None,
        mask_and_scale: Any = None,
        decode_times: Any = None,
        concat_characters: Any = None,
        decode_coords: Any = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        format: str | None = None,
        **engine: Any,
    ) -> xarray.Dataset:
        """Open one group. `engine`: keywords of xarray's netCDF engines."""
        named = {name: value for name, value in locals().items() if name not in ("self", "filename_or_obj", "engine")}
        named["create_default_indexes"] = not XARRAY_INDEXES
        return _to_xarray_lazy(open_dataset(filename_or_obj, **named, **engine))

    def open_groups_as_dict(self, filename_or_obj: Any, **given: Any) -> dict[str, xarray.Dataset]:
        """Open every group."""
        groups = open_groups(filename_or_obj, create_default_indexes=not XARRAY_INDEXES, **given)
        return {path: _to_xarray_lazy(dataset) for path, dataset in groups.items()}

    def open_datatree(self, filename_or_obj: Any, **given: Any) -> xarray.DataTree:
        """Open the tree of groups."""
        groups = self.open_groups_as_dict(filename_or_obj, **given)
        tree: xarray.DataTree = import_before_fork("insitu.xarray_bridge.opening").to_datatree(groups, filename_or_obj)
        return tree

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return whether an insitu store lies there on this machine.

        Nothing else is claimed: xarray asks its engines in alphabetical order, and what other
        engines open must open with them as before. Files of every other kind are read when they are
        asked for: `engine="insitu"`.
        """
        if not isinstance(filename_or_obj, (str, PathLike)):
            return False
        path = fspath(filename_or_obj)
        return path.rstrip("/").endswith(".insitu") and os.path.isfile(os.path.join(path, "root.json"))


def _to_xarray_lazy(dataset: xarray.Dataset) -> xarray.Dataset:
    lazy: xarray.Dataset = import_before_fork("insitu.xarray_bridge.backend_array").to_xarray_lazy(dataset)
    return lazy
