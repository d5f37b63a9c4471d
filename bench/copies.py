"""Copies in other chunks: insitu beside `ds.chunk().to_zarr` on Dask's threads.

`python bench/copies.py [--megabytes 64]`: seconds, processor seconds and peak memory of a process of its own for each
way, of a NetCDF-4 file of daily maps (shuffle and zlib at level 1) to series, to maps again, and on the same grid. Both
write Zarr V3 with Blosc's Zstandard at the same level. (A script called `copy.py` would hide the module of Python's
library from all others here.)
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

GRID = (180, 360)
SERIES = {"time": -1, "lat": 20, "lon": 20}
MAPS = {"time": 1, "lat": -1, "lon": -1}
CASES = {"maps to series": (MAPS, SERIES), "series to maps": (SERIES, MAPS), "same grid": (MAPS, MAPS)}


def write_source(path: Path, steps: int, chunks: dict[str, int]) -> None:
    """Write the file that is copied."""
    import xarray as xr

    rng = np.random.default_rng(0)
    field = rng.normal(280, 10, GRID)
    values = np.empty((steps, *GRID), "f4")
    for step in range(steps):
        values[step] = np.round(field + rng.normal(0, 1, GRID), 1)
    ds = xr.Dataset({"tas": (("time", "lat", "lon"), values)}, {"time": np.arange(steps)})
    sizes = tuple(n if chunks[dim] == -1 else chunks[dim] for dim, n in ds.tas.sizes.items())
    encoding = {"tas": {"chunksizes": sizes, "zlib": True, "complevel": 1, "shuffle": True}}
    ds.to_netcdf(path, engine="netcdf4", encoding=encoding)


def copy_by_insitu(source: str, target: str, chunks: dict[str, int]) -> None:
    """Copy with insitu."""
    import insitu

    insitu.Archive.open(source).copy(target, chunks=chunks, codec="zstd:3")


def copy_by_dask(source: str, target: str, chunks: dict[str, int]) -> None:
    """Copy with xarray and Dask."""
    import xarray as xr
    from zarr.codecs import BloscCodec

    ds = xr.open_dataset(source, engine="netcdf4", chunks={}).chunk(chunks)
    for variable in ds.variables.values():
        variable.encoding = {}
    codec = BloscCodec(cname="zstd", clevel=2, shuffle="shuffle")
    ds.to_zarr(target, zarr_format=3, encoding={"tas": {"compressors": [codec]}})


WAYS = {"insitu": copy_by_insitu, "dask": copy_by_dask}


def measure(way: str, source: str, target: str, chunks: dict[str, int]) -> None:
    """Copy in this process, and print what it took."""
    begun = time.perf_counter()
    WAYS[way](source, target, chunks)
    seconds, used = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
    found = {"seconds": seconds, "cpu": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss / 1024}
    print(json.dumps(found))


def main() -> None:
    """Run every way of every case in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=256, help="of values")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        way, source, target, chunks = given.one
        measure(way, source, target, json.loads(chunks))
        return
    steps = max(given.megabytes * 1_000_000 // (4 * GRID[0] * GRID[1]), 2)
    with tempfile.TemporaryDirectory() as folder:
        for case, (stored, wanted) in CASES.items():
            source = Path(folder) / "source.nc"
            write_source(source, steps, stored)
            for way in WAYS:
                target = f"{folder}/target.zarr"
                words = [sys.executable, __file__, "--one", way, str(source), target, json.dumps(wanted)]
                done = subprocess.run(words, capture_output=True, text=True, check=True)
                found = json.loads(done.stdout.splitlines()[-1])
                rate = given.megabytes / found["seconds"]
                print(
                    f"{case:15} {way:7} {found['seconds']:7.2f} s {rate:7.0f} MB/s {found['cpu']:7.2f} s of processor "
                    f"{found['peak']:6.0f} MB at most",
                    flush=True,
                )
                shutil.rmtree(target)


if __name__ == "__main__":
    main()
