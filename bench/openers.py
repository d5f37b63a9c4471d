"""How does each library make one dataset of many files?

One function for each contestant of `open_many.py`. It imports what it needs, warms up on two files,
and gives a function that opens `paths` as one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["check"]

Open = Callable[[Any], Any]


def check(found: Any) -> int:
    """What all contestants must agree on: how long the joined dimension is."""
    if isinstance(found, dict):  # kerchunk's references
        import json

        return int(json.loads(found["refs"]["tas/.zarray"])["shape"][0])
    return int(found.sizes["time"])


def _work(opened: Open, paths: Sequence[str] | str, warm: Sequence[str]) -> Callable[[], Any]:
    warnings.simplefilter("ignore")
    opened(warm)
    return lambda: opened(paths)


def insitu(paths: Sequence[str] | str, warm: Sequence[str], **how: Any) -> Callable[[], Any]:
    """Our own; every time as if for the first time, without the cache of scans."""
    from insitu.process_options import options
    from insitu.xarray_bridge import open_mfdataset

    options.scan_cache = False
    return _work(lambda files: open_mfdataset(files, **how), paths, warm)


def insitu_combine(paths: Sequence[str] | str, warm: Sequence[str], **how: Any) -> Callable[[], Any]:
    """What our own does after all files were scanned."""
    from insitu.combining.file_names import expand_paths
    from insitu.combining.recipe import Recipe
    from insitu.combining.scan_many import scan_many
    from insitu.combining.survey import Survey
    from insitu.open_options import OpenOptions
    from insitu.scanning.scan_member import Job, make_loader

    job, recipe = Job(), Recipe(OpenOptions.of(**how))

    def combine(members: list[Any], files: Sequence[str]) -> Any:
        places = [(number,) for number in range(len(files))]
        member = recipe.combine_found(members, places, files, make_loader(None))
        Survey.of(members, member)
        return member

    combine(scan_many(warm, job), warm)
    files = [str(path) for path in (expand_paths(paths, None) if isinstance(paths, str) else paths)]
    members = scan_many(files, job)
    return lambda: combine(members, files)


def xarray(paths: Sequence[str], warm: Sequence[str], **how: Any) -> Callable[[], Any]:
    """`xarray.open_mfdataset`, as everybody calls it."""
    import xarray as library

    return _work(lambda files: library.open_mfdataset(list(files), engine="netcdf4", **how), paths, warm)


def xarray_tuned(paths: Sequence[str], warm: Sequence[str]) -> Callable[[], Any]:
    """The same with the options that its documentation recommends for speed."""
    import xarray as library

    def opened(files: Sequence[str]) -> Any:
        return library.open_mfdataset(
            list(files),
            engine="netcdf4",
            combine="nested",
            concat_dim="time",
            data_vars="minimal",
            coords="minimal",
            compat="override",
            join="override",
        )

    return _work(opened, paths, warm)


def virtualizarr(paths: Sequence[str], warm: Sequence[str]) -> Callable[[], Any]:
    """VirtualiZarr: `open_virtual_mfdataset`, as everybody calls it."""
    return _virtualizarr(paths, warm, {})


def virtualizarr_tuned(paths: Sequence[str], warm: Sequence[str]) -> Callable[[], Any]:
    """The same with all comparisons switched off."""
    how = {
        "combine": "nested",
        "concat_dim": "time",
        "data_vars": "minimal",
        "coords": "minimal",
        "compat": "override",
        "join": "override",
        "loadable_variables": ["time", "lat", "lon"],
    }
    return _virtualizarr(paths, warm, how)


def _virtualizarr(paths: Sequence[str], warm: Sequence[str], how: dict[str, Any]) -> Callable[[], Any]:
    import obstore.store
    from obspec_utils.registry import ObjectStoreRegistry
    from virtualizarr import open_virtual_mfdataset
    from virtualizarr.parsers import HDFParser

    registry = ObjectStoreRegistry({"file://": obstore.store.LocalStore()})

    def opened(files: Sequence[str]) -> Any:
        urls = [f"file://{path}" for path in files]
        return open_virtual_mfdataset(urls, registry=registry, parser=HDFParser(), **how)

    return _work(opened, paths, warm)


def kerchunk(paths: Sequence[str], warm: Sequence[str]) -> Callable[[], Any]:
    """kerchunk: references of each file, then `MultiZarrToZarr`."""
    from kerchunk.combine import MultiZarrToZarr
    from kerchunk.hdf import SingleHdf5ToZarr

    def opened(files: Sequence[str]) -> Any:
        each = [SingleHdf5ToZarr(path, inline_threshold=0).translate() for path in files]
        same = ["lat", "lon", "lat_bnds", "lon_bnds"]
        return MultiZarrToZarr(each, concat_dims=["time"], identical_dims=same).translate()

    return _work(opened, paths, warm)
