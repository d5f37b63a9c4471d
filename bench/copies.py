"""Copies in other chunks: insitu beside Dask's `to_zarr`, rechunker, nccopy and h5repack.

`python bench/copies.py [--megabytes 256] [--quick] [--only insitu]` copies a NetCDF-4 file of daily maps (shuffle and
zlib at level 1) to series, to maps again, and on the same grid, in a process of its own for each way: seconds (without
Python's imports), processor seconds, peak memory. Those that write Zarr use Blosc's Zstandard at the same level, those
that write NetCDF shuffle and zlib at level 1. Some boxes of every copy are compared with the source. rechunker wants
Zarr 2, so the benchmark makes an environment for it, `.venv-rechunker`; nccopy and h5repack are run where they are
installed (Debian: `netcdf-bin`, `hdf5-tools`), with their defaults.

`python bench/copies.py --megabytes 10000 --only insitu --memory 512MB --curve` shows how memory grows over a copy that
is larger than it. (A script called `copy.py` would hide the module of Python's library from all others here.)
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

GRID = (180, 360)
DIMS = ("time", "lat", "lon")
SERIES = (-1, 20, 20)
MAPS = (1, -1, -1)
CASES = {"maps to series": (MAPS, SERIES), "series to maps": (SERIES, MAPS), "same grid": (MAPS, MAPS)}
WRITTEN_AT_ONCE = 64 << 20
RECHUNKER = Path(__file__).resolve().parent.parent / ".venv-rechunker"
RECHUNKER_NEEDS = ["rechunker==0.5.4", "zarr<3", "numcodecs<0.16", "dask", "xarray", "netCDF4"]


def lengths(chunks: Sequence[int], steps: int) -> tuple[int, ...]:
    """Return the lengths of chunks; -1: the whole dimension."""
    return tuple(n if size == -1 else size for size, n in zip(chunks, (steps, *GRID), strict=True))


def write_source(path: Path, steps: int, chunks: Sequence[int]) -> None:
    """Write the file that is copied, some chunks at a time."""
    import netCDF4

    rng = np.random.default_rng(0)
    field = rng.normal(280, 10, GRID)
    sizes = lengths(chunks, steps)
    with netCDF4.Dataset(path, "w") as file:
        for name, length in zip(DIMS, (steps, *GRID), strict=True):
            file.createDimension(name, length)
        file.createVariable("time", "i8", ("time",))[:] = np.arange(steps)
        values = file.createVariable("tas", "f4", DIMS, zlib=True, complevel=1, shuffle=True, chunksizes=sizes)
        together = (max(WRITTEN_AT_ONCE // (4 * sizes[0] * sizes[1] * sizes[2]), 1) * sizes[0], *sizes[1:])
        for box in iterate_boxes((steps, *GRID), together):
            shape = [part.stop - part.start for part in box]
            values[box] = np.round(field[box[1:]] + rng.normal(0, 1, shape), 1)


def iterate_boxes(shape: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Yield the boxes of some size that a shape consists of."""
    for corner in itertools.product(*(range(0, n, size) for n, size in zip(shape, sizes, strict=True))):
        yield tuple(slice(at, min(at + size, n)) for at, size, n in zip(corner, sizes, shape, strict=True))


# The ways: each copies in this process, after what it imports.


def prepare_insitu(source: str, target: str, chunks: tuple[int, ...], memory: str | None) -> Callable[[], object]:
    """Copy with insitu."""
    import insitu

    codec = "zstd:3" if target.endswith(".zarr") else "zlib:1"
    by_dim = dict(zip(DIMS, chunks, strict=True))
    return lambda: insitu.Archive.open(source).copy(target, chunks=by_dim, codec=codec, memory=memory)


def prepare_dask(source: str, target: str, chunks: tuple[int, ...], memory: str | None) -> Callable[[], object]:
    """Copy with xarray and Dask."""
    import dask.array  # noqa: F401
    import xarray as xr
    from zarr.codecs import BloscCodec

    def work() -> object:
        ds = xr.open_dataset(source, engine="netcdf4", chunks={}).chunk(dict(zip(DIMS, chunks, strict=True)))
        for variable in ds.variables.values():
            variable.encoding = {}
        codec = BloscCodec(cname="zstd", clevel=2, shuffle="shuffle")
        return ds.to_zarr(target, zarr_format=3, encoding={"tas": {"compressors": [codec]}})

    return work


def prepare_rechunker(source: str, target: str, chunks: tuple[int, ...], memory: str | None) -> Callable[[], object]:
    """Copy with rechunker, on Dask's threads."""
    import xarray as xr
    from numcodecs import Blosc
    from rechunker import rechunk

    def work() -> object:
        ds = xr.open_dataset(source, engine="netcdf4", chunks={})
        sizes = {"tas": dict(zip(DIMS, chunks, strict=True)), "time": {"time": chunks[0]}}
        options = {"tas": {"compressor": Blosc("zstd", 2, Blosc.SHUFFLE)}}
        for variable in ds.variables.values():
            variable.encoding = {}
        plan = rechunk(ds, sizes, memory or "1GB", target, temp_store=f"{target}.between", target_options=options)
        return plan.execute()

    return work


PREPARE = {"insitu": prepare_insitu, "insitu to NetCDF": prepare_insitu, "Dask": prepare_dask}
PREPARE["rechunker"] = prepare_rechunker


def run_nccopy(source: str, target: str, chunks: tuple[int, ...]) -> list[str]:
    """Return the command of nccopy."""
    return [
        "nccopy",
        "-d1",
        "-s",
        "-c",
        ",".join(f"{d}/{n}" for d, n in zip(DIMS, chunks, strict=True)),
        source,
        target,
    ]


def run_h5repack(source: str, target: str, chunks: tuple[int, ...]) -> list[str]:
    """Return the command of h5repack."""
    size = "x".join(map(str, chunks))
    return ["h5repack", "-f", "tas:SHUF", "-f", "tas:GZIP=1", "-l", f"tas:CHUNK={size}", source, target]


COMMANDS = {"nccopy": run_nccopy, "h5repack": run_h5repack}
WAYS = {
    "insitu": ".zarr",
    "Dask": ".zarr",
    "rechunker": ".zarr",
    "insitu to NetCDF": ".nc",
    "nccopy": ".nc",
    "h5repack": ".nc",
}
"""The suffix of what each writes."""


def make_environment() -> str:
    """Return the Python that has rechunker; its environment is made if it is not there."""
    python = RECHUNKER / "bin" / "python"
    if not (RECHUNKER / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", str(RECHUNKER)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *RECHUNKER_NEEDS], check=True)
        (RECHUNKER / "complete").touch()
    return str(python)


@dataclass(slots=True)
class Run:
    """What one copy took."""

    seconds: float
    processor: float
    peak: float
    """MB that were resident at most, pages of files that are mapped included."""
    curve: list[tuple[float, float]]
    """Seconds, and MB that are resident then."""


def run(command: Sequence[str], timeout: float, interval: float) -> Run | str:
    """Run a command, and return what it took, or why it failed."""
    with tempfile.TemporaryFile("w+") as log:
        begun = time.perf_counter()
        child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        curve: list[tuple[float, float]] = []
        done = threading.Event()

        def watch() -> None:
            while not done.wait(interval):
                now = time.perf_counter() - begun
                if now > timeout:
                    child.kill()
                curve.append((now, resident(child.pid)))

        watching = threading.Thread(target=watch)
        watching.start()
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begun
        done.set()
        watching.join()
        child.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        lines = log.read().strip().splitlines()
    if seconds > timeout:
        return f"not done after {timeout:.0f} s"
    if child.returncode:
        return lines[-1][:160] if lines else f"exit {child.returncode}"
    if lines and lines[-1].startswith('{"seconds"'):
        seconds = json.loads(lines[-1])["seconds"]
    return Run(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, curve)


def resident(process: int) -> float:
    """Return the MB of a process that are resident."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS")), 0.0)


def find_difference(source: str, target: str) -> str:
    """Return which of some boxes differs between two files; empty if none does."""
    import netCDF4
    import zarr

    with netCDF4.Dataset(source) as file:
        wanted = file["tas"]
        found = zarr.open(target, mode="r")["tas"] if target.endswith(".zarr") else netCDF4.Dataset(target)["tas"]
        if found.shape != wanted.shape:
            return f"its shape is {found.shape}"
        rng = np.random.default_rng(1)
        for _ in range(5):
            step, row, column = (int(rng.integers(0, max(n - 30, 1))) for n in wanted.shape)
            box = (slice(step, step + 3), slice(row, row + 30), slice(column, column + 30))
            if not np.array_equal(np.asarray(found[box]), np.asarray(wanted[box])):
                return f"tas{[(part.start, part.stop) for part in box]} differs"
    return ""


def measure(way: str, source: str, target: str, chunks: tuple[int, ...], memory: str | None) -> None:
    """Copy in this process, and print how long it took."""
    work = PREPARE[way](source, target, chunks, memory)
    begun = time.perf_counter()
    work()
    print(json.dumps({"seconds": time.perf_counter() - begun}), flush=True)


def command_of(way: str, source: str, target: str, chunks: tuple[int, ...], memory: str | None) -> list[str] | str:
    """Return the command of a way, or why it cannot be run."""
    if way in COMMANDS:
        return COMMANDS[way](source, target, chunks) if shutil.which(way) else "not installed"
    python = make_environment() if way == "rechunker" else sys.executable
    return [python, __file__, "--one", way, source, target, json.dumps(chunks), memory or ""]


def main() -> None:
    """Run every way of every case in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=256, help="of values")
    parser.add_argument("--quick", action="store_true", help="64 MB")
    parser.add_argument("--case", action="append", choices=CASES, help="only this case (may be repeated)")
    parser.add_argument("--only", action="append", choices=WAYS, help="only this way (may be repeated)")
    parser.add_argument("--memory", help="what insitu and rechunker may take, such as 512MB")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds of a copy at most")
    parser.add_argument("--curve", action="store_true", help="show the memory over time")
    parser.add_argument("--folder", help="where the files are written; by default that of temporary files")
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        way, source, target, chunks, memory = given.one
        measure(way, source, target, tuple(json.loads(chunks)), memory or None)
        return
    if given.quick:
        given.megabytes = 64
    steps = max(given.megabytes * 1_000_000 // (4 * GRID[0] * GRID[1]), 2)
    print(f"\n## Copies in other chunks: {given.megabytes:,} MB, shuffle + zlib\n")
    print("| copy | by | seconds | MB/s | processor seconds | MB at most |\n|---|---|---|---|---|---|", flush=True)
    curves = []
    # In a process of its own: what this one holds counts as held by those that it starts.
    helper = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    with helper, tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for case in given.case or CASES:
            stored, wanted = CASES[case]
            source = Path(folder) / "source.nc"
            helper.submit(write_source, source, steps, stored).result()
            for way in given.only or WAYS:
                target = f"{folder}/target{WAYS[way]}"
                command = command_of(way, str(source), target, lengths(wanted, steps), given.memory)
                found = command if isinstance(command, str) else run(command, given.timeout, 0.1)
                if isinstance(found, Run):
                    difference = helper.submit(find_difference, str(source), target).result()
                    print(
                        f"| {case} | {way} | {found.seconds:.2f} | {given.megabytes / found.seconds:.0f} | "
                        f"{found.processor:.2f} | {found.peak:.0f} |{difference and f' wrong: {difference}'}",
                        flush=True,
                    )
                    curves.append((case, way, found.curve))
                else:
                    print(f"| {case} | {way} | {found} | | | |", flush=True)
                for path in Path(folder).glob("target*"):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
    for case, way, curve in curves if given.curve else ():
        print(f"\n{case}, {way}: MB after so many seconds")
        print(", ".join(f"{at:.0f} s: {held:.0f}" for at, held in curve[:: max(len(curve) // 24, 1)]))


if __name__ == "__main__":
    main()
