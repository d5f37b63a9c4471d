"""How does each library find the chunks of NetCDF-3, GRIB, TIFF, FITS and DMR++ files?

One function for each contestant of `scan_formats.py`, as in `scanners.py`. The answer that is
compared is the number of bytes that the references point at.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

__all__ = ["check"]


def check(found: Sequence[Any]) -> int:
    """The bytes that all references point at."""
    return sum(count(one) for count, one in found)


def _each(
    scan: Callable[[str], Any], count: Callable[[Any], int], paths: Sequence[str], warm: str
) -> Callable[[], list[Any]]:
    scan(warm)
    return lambda: [(count, scan(path)) for path in paths]


def insitu(paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    """Our own."""
    import insitu as ours

    return _each(partial(ours.scan, decode=False), _stored, paths, warm)


def _stored(group: Any) -> int:
    total = 0
    for _, array in group.all_arrays():
        for tile in array.tiles:
            shape = tile.chunks.shape
            rows = tile.chunks.locate(list(np.indices(shape).reshape(len(shape), -1)) if shape else [])
            total += int(rows.length[rows.source >= 0].sum())
    return total


def _referred(references: dict[str, Any]) -> int:
    references = references.get("refs", references)
    return sum(value[2] for value in references.values() if isinstance(value, list) and len(value) == 3)


def kerchunk_netcdf3(paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    """kerchunk, which takes scipy's reader."""
    from kerchunk.netCDF3 import NetCDF3ToZarr

    return _each(lambda path: NetCDF3ToZarr(path, inline_threshold=0).translate(), _referred, paths, warm)


def kerchunk_tiff(paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    """kerchunk, which takes tifffile."""
    from kerchunk.tiff import tiff_to_zarr

    return _each(tiff_to_zarr, _referred, paths, warm)


def tifffile(paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    """tifffile: the references of its Zarr store, which kerchunk takes."""
    import tifffile as theirs

    def scan(path: str) -> Any:
        text = io.StringIO()
        with theirs.TiffFile(path) as file, file.series[0].aszarr() as store:
            store.write_fsspec(text, url=path.rpartition("/")[0])
        return json.loads(text.getvalue())

    return _each(scan, _referred, paths, warm)


def kerchunk_fits(paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    """kerchunk, which takes astropy; all extensions."""
    from astropy.io import fits
    from kerchunk.fits import process_file

    def scan(path: str) -> dict[str, Any]:
        with fits.open(path) as file:
            wanted = [number for number, unit in enumerate(file) if unit.header["NAXIS"]]
        found: dict[str, Any] = process_file(path, extension=wanted)
        return found

    return _each(scan, _referred, paths, warm)


def kerchunk_grib(paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    """kerchunk, which takes ecCodes and cfgrib."""
    from kerchunk.grib2 import scan_grib

    def count(found: list[dict[str, Any]]) -> int:
        # Latitudes and longitudes refer to the message, too.
        values = [
            value[2]
            for one in found
            for name, value in one["refs"].items()
            if isinstance(value, list) and len(value) == 3 and not name.startswith(("latitude/", "longitude/"))
        ]
        return sum(values)

    return _each(scan_grib, count, paths, warm)


def gribberish(paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    """gribberish's parser for VirtualiZarr."""
    from gribberish.virtualizarr import GribberishParser

    def count(group: Any) -> int:
        own = sum(int(np.asarray(array.manifest._lengths).sum()) for array in group.arrays.values())
        return own + sum(count(part) for part in group.groups.values())

    made = _virtualizarr(GribberishParser(), paths, warm)
    return lambda: [(lambda store: count(store._group), store) for _, store in made()]


def cfgrib_index(paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    """cfgrib, without what it keeps beside the file: the index only, no dataset."""
    from cfgrib.dataset import open_fileindex
    from cfgrib.messages import FileStream

    def count(index: Any) -> int:
        from pathlib import Path

        return Path(index.fieldset.path).stat().st_size

    return _each(lambda path: open_fileindex(FileStream(path), indexpath=""), count, paths, warm)


def _virtualizarr(parser: Any, paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    import obstore.store
    from obspec_utils.registry import ObjectStoreRegistry

    stores: dict[str, Any] = {"file://": obstore.store.LocalStore()}
    for path in {path.rpartition("/")[0] for path in [*paths, warm] if path.startswith("http")}:
        stores[path] = obstore.store.HTTPStore.from_url(path, client_options={"allow_http": True})
    registry = ObjectStoreRegistry(stores)

    def count(store: Any) -> int:
        return sum(int(np.asarray(array.manifest._lengths).sum()) for array in store._group.arrays.values())

    return _each(
        lambda path: parser(url=path if "://" in path else f"file://{path}", registry=registry), count, paths, warm
    )


def virtualizarr_netcdf3(paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    """VirtualiZarr: its NetCDF3Parser."""
    from virtualizarr.parsers.netcdf3 import NetCDF3Parser

    return _virtualizarr(NetCDF3Parser(), paths, warm)


def virtualizarr_fits(paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    """VirtualiZarr: its FITSParser, which takes astropy."""
    from virtualizarr.parsers.fits import FITSParser

    return _virtualizarr(FITSParser(), paths, warm)


def virtualizarr_dmrpp(paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    """VirtualiZarr: its DMRPPParser."""
    from virtualizarr.parsers.dmrpp import DMRPPParser

    return _virtualizarr(DMRPPParser(), paths, warm)


def virtual_tiff(paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    """virtual-tiff, which takes async-tiff."""
    from virtual_tiff import VirtualTIFF

    return _virtualizarr(VirtualTIFF(), paths, warm)


def insitu_zarr(paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    """Our own: the keys of chunks are computed, none is looked for. The answer is their number."""
    import insitu as ours

    def count(group: Any) -> int:
        return sum(math.prod(array.tiles[0].chunks.shape) for _, array in group.all_arrays())

    return _each(partial(ours.scan, decode=False), count, paths, warm)


def kerchunk_hdf4(paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    """kerchunk: its own reader."""
    from kerchunk.hdf4 import HDF4ToZarr

    return _each(lambda path: HDF4ToZarr(path, inline_threshold=0).translate(), _referred, paths, warm)


def virtualizarr_hdf4(paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    """VirtualiZarr: its HDF4Parser, which takes kerchunk's reader."""
    from virtualizarr.parsers.hdf4 import HDF4Parser

    return _virtualizarr(HDF4Parser(), paths, warm)


def virtualizarr_zarr(paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    """VirtualiZarr: its ZarrParser, which lists the store. The answer is the number of chunks."""
    from virtualizarr.parsers.zarr import ZarrParser

    def count(store: Any) -> int:
        return sum(np.asarray(array.manifest._lengths).size for array in store._group.arrays.values())

    made = _virtualizarr(ZarrParser(), paths, warm)
    return lambda: [(count, store) for _, store in made()]


def virtualizarr_zip(paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    """VirtualiZarr: its parser of zipped stores."""
    import virtualizarr.parsers.zarr as parsers

    return _virtualizarr(parsers.ZippedZarrParser(), paths, warm)
