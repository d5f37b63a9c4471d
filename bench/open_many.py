"""How long does it take to open many files as one dataset, beside xarray, VirtualiZarr and
kerchunk? And how does it grow with their number?

python bench/open_many.py [--quick] [--case cmip|growth|cuts|overlaps]
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import machine
from archives import archive, folder
from table import Contestant, Target, arguments, compete, show

PEERS = {
    "xarray open_mfdataset": "xarray",
    "xarray, tuned": "xarray_tuned",
    "VirtualiZarr open_virtual_mfdataset": "virtualizarr",
    "VirtualiZarr, tuned": "virtualizarr_tuned",
    "kerchunk MultiZarrToZarr": "kerchunk",
}


def cmip(quick: bool, rounds: int, only: list[str] | None) -> None:
    """500 files such as a climate model leaves, scan and combine."""
    files = sorted(str(path) for path in archive("cmip_like", quick=quick).glob("*.nc"))
    given = {"paths": files, "warm": files[:2]}
    contestants = [Contestant("insitu", "openers:insitu", given)]
    for name, call in PEERS.items():
        if not only or name in only:
            contestants.append(Contestant(name, f"openers:{call}", given))
    results = compete(contestants, rounds=rounds)
    targets = [Target("xarray open_mfdataset", 3), Target("VirtualiZarr open_virtual_mfdataset", 15)]
    show(f"{len(files)} CMIP-like files as one dataset", results, targets=targets)


def growth(quick: bool) -> None:
    """100, 1,000 and 10,000 files of 12 variables: names of 100 real ones, joined in the order
    given.
    """
    real = _twelve(20 if quick else 100)
    print("\n## Files of 12 variables, joined along time\n")
    print("| files | seconds | milliseconds a file | processor to combine | target < 1 | memory kept |")
    print("|---|---|---|---|---|---|")
    for count in (20, 100) if quick else (100, 1_000, 10_000):
        place = _names(real, count)
        warm = [str(path) for path in real[:2]]
        given = {"paths": f"{place}/*.nc", "warm": warm, "combine": "nested", "concat_dim": "time"}
        calls = {"insitu": "openers:insitu", "insitu, combine": "openers:insitu_combine"}
        contestants = [Contestant(name, call, given) for name, call in calls.items()]
        found = {result.name: result for result in compete(contestants, rounds=1, timeout=1800)}
        for name in [name for name in found if "combine" not in name]:
            before = name.removeprefix("insitu")
            result, combined = found[name], found[f"insitu, combine{before}"]
            if not result.seconds or not combined.seconds:
                print(f"| {count:,}{before} | failed: {result.error or combined.error} |")
                continue
            each = combined.processor[0] / count * 1e3  # it waits for nothing
            print(
                f"| {count:,}{before} | {result.seconds[0]:.2f} | {result.seconds[0] / count * 1e3:.2f} | {each:.2f} | "
                f"{'yes' if each < 1 else '**no**'} | {result.growth[0] / 1e6:.0f} MB |"
            )


def _twelve(count: int) -> list[Path]:
    import netCDF4

    place = folder() / f"twelve-{count}"
    if not place.exists():
        part = place.with_name(f"part-{place.name}")
        part.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            with netCDF4.Dataset(part / f"{number:05d}.nc", "w") as file:
                for name, length in (("time", None), ("lat", 8), ("lon", 16)):
                    file.createDimension(name, length)
                    values = np.arange(length or 5, dtype="f8") + (5 * number if name == "time" else 0)
                    variable = file.createVariable(name, "f8", (name,))
                    variable.units = "days since 2000-01-01" if name == "time" else "degrees"
                    variable[:] = values
                for index in range(9):
                    variable = file.createVariable(
                        f"field_{index}", "i2", ("time", "lat", "lon"), zlib=True, chunksizes=(2, 8, 16)
                    )
                    variable.setncatts({"scale_factor": 0.01 + number * 1e-6, "add_offset": 273.15, "units": "K"})
                    variable.set_auto_maskandscale(False)
                    variable[:] = np.full((5, 8, 16), number % 1000)
        part.rename(place)
    return sorted(place.glob("*.nc"))


def _names(real: list[Path], count: int) -> Path:
    """A folder of as many names as wanted, of the real files in turn."""
    place = real[0].parent.with_name(f"{real[0].parent.name}-as-{count}")
    place.mkdir(exist_ok=True)
    for number in range(count):
        name = place / f"{number:06d}.nc"
        if not name.exists():
            name.symlink_to(real[number % len(real)])
    return place


def cuts(quick: bool) -> None:
    """10,000 parts that alternate between three ways to be cut across the join: how long does
    planning a read take?
    """
    from insitu.model import Axis, Columns, Encoding, Selection, Source, Tile, VirtualArray
    from insitu.model.join_similar import join_arrays
    from insitu.reading import plan_read

    parts, encoding = [], Encoding(np.dtype("f4"))
    count = 300 if quick else 10_000
    for number in range(count):
        size = (45, 90, 180)[number % 3]
        axes = (Axis.regular(10, 4), Axis.regular(180, size), Axis.regular(360, 360))
        grid = tuple(axis.count for axis in axes)
        offset = np.arange(np.prod(grid)).reshape(grid) * size * 360 * 16
        source = (Source(f"file_{number:05d}.nc"),)
        table = Columns(grid, source, np.asarray(0), offset, np.asarray(size * 360 * 16))
        parts.append(VirtualArray.of(Tile(axes, (encoding,), table), dims=("time", "lat", "lon")))
    start = time.perf_counter()
    whole = join_arrays(parts, 0)
    seconds = time.perf_counter() - start
    print(f"\n## {count:,} parts that alternate between three cuts\n")
    print(f"Joined in {seconds:.2f} s: {len(whole.tiles):,} tiles.\n")
    print("| selection | touched tiles | processor seconds | µs a touched tile | target ≤ 50 |")
    print("|---|---|---|---|---|")
    length = whole.shape[0]
    selections = {
        "one point of all times": (slice(None), 17, 100),
        "a hundredth of the times": (slice(length // 2, length // 2 + length // 100), slice(None), slice(None)),
        "every tenth time of a box": (slice(None, None, 10), slice(40, 60), slice(100, 120)),
        "one time": (length // 3, slice(None), slice(None)),
    }
    for name, key in selections.items():
        selection = Selection.of(key, whole.shape)
        best = float("inf")
        for _ in range(5):
            start = time.process_time()  # of the processor: planning waits for nothing
            made = plan_read(whole, selection)
            best = min(best, time.process_time() - start)
        touched = len(made.sources)  # every part is a file of its own
        each = best / max(touched, 1) * 1e6
        print(
            f"| {name} | {touched:,} | {best:.4f} | {each:.1f} | "
            f"{'a plan of its own' if touched == 1 else 'yes' if each <= 50 else '**no**'} |"
        )


def overlaps(quick: bool, rounds: int) -> None:
    """10,000 files of ten steps, opened by their labels: as before, and with a rule for labels that
    several files have, where none has one, and where each file has one step of the next.
    """
    count = 300 if quick else 10_000
    apart, shared = (_days(count, step) for step in (10, 9))
    cases = {
        "as they are": (apart, {}),
        "a rule": (apart, {"overlap": "last"}),
        "overlaps": (shared, {"overlap": "last"}),
    }
    contestants = []
    for name, (place, how) in cases.items():
        # A pattern: ten thousand names are more than a command may be given.
        given = {"paths": f"{place}/*.nc", "warm": sorted(map(str, place.glob("*.nc")))[:2], **how}
        contestants += [
            Contestant(name, "openers:insitu", given),
            Contestant(f"{name}, combine", "openers:insitu_combine", given),
        ]
    found = {result.name: result for result in compete(contestants, rounds=rounds, timeout=1800)}
    print(f"\n## {count:,} files of ten steps, joined by their labels\n")
    print("| files | processor seconds | of these combining | times as many as they are | target |")
    print("|---|---|---|---|---|")
    usual = min(found["as they are"].processor)
    for name, target in (("as they are", 1.0), ("a rule", 1.05), ("overlaps", 1.3)):
        whole, combining = min(found[name].processor), min(found[f"{name}, combine"].processor)
        print(f"| {name} | {whole:.2f} | {combining:.2f} | {whole / usual:.2f} | ≤ {target} |")


def _days(count: int, step: int) -> Path:
    """Files of ten days each, that begin so many days after another."""
    import netCDF4

    place = folder() / f"days-{count}-{step}"
    if not place.exists():
        part = place.with_name(f"part-{place.name}")
        part.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            with netCDF4.Dataset(part / f"{number:06d}.nc", "w") as file:
                for name, length in (("time", 10), ("lat", 4), ("lon", 8)):
                    file.createDimension(name, length)
                    file.createVariable(name, "f8", (name,))[:] = np.arange(length) + (
                        step * number if name == "time" else 0
                    )
                file["time"].units = "days since 1800-01-01"
                for index in range(3):
                    field = file.createVariable(f"field_{index}", "f4", ("time", "lat", "lon"), chunksizes=(5, 4, 8))
                    field[:] = np.full((10, 4, 8), number)
        part.rename(place)
    return place


def main() -> None:
    """Run the cases."""
    options = arguments(__doc__)
    print(machine.describe())
    cases = options.case or ["cmip", "growth", "cuts", "overlaps"]
    if "cmip" in cases:
        cmip(options.quick, options.rounds, options.only)
    if "growth" in cases:
        growth(options.quick)
    if "cuts" in cases:
        cuts(options.quick)
    if "overlaps" in cases:
        overlaps(options.quick, options.rounds)


if __name__ == "__main__":
    main()
