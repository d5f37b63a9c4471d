"""How fast are statistics taken of a local file, beside everything that takes the same?

    python bench/reduce_local.py [--quick] [--case mean|three|time]

The archive (1.07 GB of float32, shuffle + zlib, 4 MiB chunks) is in the page cache: what is
measured is fetching, decoding and reducing.
"""

from __future__ import annotations

import statistics

import machine
from archives import archive
from table import Contestant, Result, Target, arguments, compete, show

CONTESTANTS = {
    "insitu": "insitu",
    "numpy over netCDF4": "numpy_netcdf4",
    "numpy over h5py": "numpy_h5py",
    "Dask over xarray": "dask_xarray",
    "PyActiveStorage": "active_storage",
}
READING = {"insitu, reading only": "insitu_read"}
"""A mean must not take longer than reading the values that it is of."""
PEERS = ("numpy over netCDF4", "Dask over xarray", "PyActiveStorage")

CASES: dict[str, tuple[str, list[str], list[int] | None]] = {
    "mean": ("the mean", ["mean"], None),
    "three": ("min, max and mean, in one pass where the library can", ["min", "max", "mean"], None),
    "time": ("the mean over time, a map", ["mean"], [0]),
}


def memory_note(results: list[Result]) -> list[str]:
    """What it held at most: chunks, not the values."""
    return [
        f"insitu held at most {statistics.median(result.peak) / 1e6:,.0f} MB more than before."
        for result in results
        if result.name == "insitu" and result.peak
    ]


def main() -> None:
    """Run the cases."""
    options = arguments(__doc__)
    print(machine.describe())
    path, warm = str(archive("zlib", quick=options.quick)), str(archive("zlib", quick=True))
    for case in options.case or CASES:
        title, methods, axes = CASES[case]
        asked = {"path": path, "warm": warm, "methods": methods, "axes": axes}
        contestants = [
            Contestant(label, f"reducers:{call}", asked)
            for label, call in (CONTESTANTS | (READING if methods == ["mean"] else {})).items()
            if not options.only or label in ("insitu", *options.only)
        ]
        results = compete(contestants, rounds=options.rounds)
        show(
            f"{title}: shuffle + zlib, {'quick' if options.quick else '1.07 GB'}",
            results,
            targets=[Target("insitu, reading only", 1), *(Target(peer, 3) for peer in PEERS)],
            notes=memory_note(results),
        )


if __name__ == "__main__":
    main()
