"""How fast are values read, beside everything that reads the same file, or a native Zarr copy of
it?

    python bench/read.py [--quick] [--case zlib|slabs|zstd|plain|small_chunks]

The archives are in the page cache: what is measured is the reader. Contestants marked * read a
native Zarr copy, with blosc doing the shuffle and the same compressor.
"""

from __future__ import annotations

import random
import statistics
from typing import Any

import machine
from archives import CHUNK, archive
from table import Contestant, Result, Target, arguments, compete, show

ON_FILE = {
    "h5py": "h5py",
    "netCDF4": "netcdf4",
    "hidefix": "hidefix",
    "xarray + h5netcdf": "xarray_h5netcdf",
    "zarr over kerchunk JSON": "kerchunk_zarr",
    "VirtualiZarr ManifestStore": "manifest_store",
    "Icechunk virtual": "icechunk",
}
ON_COPY = {"TensorStore*": "tensorstore", "zarrs*": "zarrs", "zarr-python*": "zarr_native"}
PREADV = {"plain preadv": "preadv", "plain preadv, 2 threads": "preadv_two"}
VIRTUAL = ("zarr over kerchunk JSON", "VirtualiZarr ManifestStore", "Icechunk virtual")

CASES: dict[str, tuple[str, str, list[Target]]] = {
    "zlib": (
        "zlib",
        "shuffle + zlib, 4 MiB chunks",
        [
            Target("h5py", 4.5),
            Target("netCDF4", 4.5),
            Target("hidefix", 2),
            Target("TensorStore*", 1),
            *(Target(name, 4.5) for name in VIRTUAL),
        ],
    ),
    "slabs": ("zlib", "100 random small slabs of the same file", [Target("h5py", 5), Target("TensorStore*", 1)]),
    "zstd": (
        "zstd",
        "shuffle + zstd, 4 MiB chunks",
        [Target("TensorStore*", 1), Target("zarrs*", 1), *(Target(name, 3) for name in VIRTUAL)],
    ),
    "plain": (
        "plain",
        "uncompressed, 4 MiB chunks",
        [Target("plain preadv", 0.85), Target("plain preadv, 2 threads", 0.85)],
    ),
    "small_chunks": (
        "small_chunks",
        "shuffle + zlib, chunks of 4 kB",
        [Target("h5py", 2.5), Target("hidefix", 1), Target("zarr over kerchunk JSON", 40)],
    ),
}


def slabs(shape: tuple[int, ...], count: int) -> list[list[list[int]]]:
    """Give corners of small boxes at random places, the same ones each time."""
    dice = random.Random(7)
    made = []
    for _ in range(count):
        box = []
        for length, size in zip(shape, (4, 40, 40), strict=True):
            first = dice.randrange(length - size)
            box.append([first, first + size])
        made.append(box)
    return made


def memory_note(results: list[Result], nbytes: int, cores: int = 2) -> list[str]:
    """Peak memory: the result plus at most 8 chunks a thread."""
    chunk = 4
    for length in CHUNK:
        chunk *= length
    limit = nbytes + 8 * chunk * cores
    return [
        f"insitu, memory at most: {statistics.median(result.peak) / 1e6:,.0f} MB; target ≤ the result and 8 "
        f"chunks a thread = {limit / 1e6:,.0f} MB: "
        + ("yes." if statistics.median(result.peak) <= limit else "**no**.")
        for result in results
        if result.name == "insitu" and result.peak
    ]


def main() -> None:
    """Run the cases."""
    options = arguments(__doc__)
    print(machine.describe())
    shape = (32, 512, 512) if options.quick else (256, 1024, 1024)
    for case in options.case or CASES:
        name, title, targets = CASES[case]
        wanted: dict[str, Any] = {"slabs": slabs(shape, 10 if options.quick else 100)} if case == "slabs" else {}
        path, warm = (
            str(archive(name, quick=options.quick)),
            str(archive("zstd" if name == "zstd" else "zlib", quick=True)),
        )
        copy, warm_copy = (
            str(archive(f"{name}_copy", quick=options.quick)),
            str(archive("zlib_copy", quick=True)),
        )
        chosen = {"insitu": "insitu"} | (PREADV if case == "plain" else {}) | ON_FILE
        contestants = [
            Contestant(label, f"readers:{call}", {"path": path, "warm": warm, **wanted})
            for label, call in chosen.items()
        ]
        contestants += [
            Contestant(label, f"readers:{call}", {"path": copy, "warm": warm_copy, **wanted})
            for label, call in ON_COPY.items()
        ]
        if options.only:
            contestants = [contestant for contestant in contestants if contestant.name in ("insitu", *options.only)]
        results = compete(contestants, rounds=options.rounds)
        whole = case != "slabs"
        nbytes = 4 * (
            shape[0] * shape[1] * shape[2] if name != "small_chunks" else (64 if options.quick else 320) ** 2 * 1024
        )
        show(
            f"{title}{f', {nbytes / 1e9:.2f} GB' if whole else ''}",
            results,
            targets=targets,
            notes=memory_note(results, nbytes) if whole else [],
        )


if __name__ == "__main__":
    main()
