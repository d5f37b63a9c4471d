"""Is insitu ever slower than plain xarray on the small things of every day?

python bench/small_things.py [--quick] [--case NAME]
"""

from __future__ import annotations

import json
import statistics
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import machine
from archives import folder
from everyday_operations import OPERATIONS, SHAPES, write_everyday
from latency_server import LatencyServer
from small_files import write_small_archives
from table import Contestant, Target, arguments, compete, show

CASES = {
    "few": ("one file of 3 variables, opened and loaded", "load", "few.nc", "netcdf4", 20),
    "many": ("200 small variables, opened and loaded", "load", "many.nc", "netcdf4", 3),
    "standard": ("3,650 chunks of one record, packed, standard calendar", "load", "standard.nc", "netcdf4", 2),
    "noleap": ("3,650 chunks of one record, packed, noleap calendar", "load", "noleap.nc", "netcdf4", 2),
    "records": ("NetCDF-3, 76 variables of 252 records of one value", "load", "records.nc", "scipy", 5),
    "texts": ("500 texts and characters", "load", "texts.nc", "netcdf4", 20),
    "scalar": ("a scalar", "load", "scalar.nc", "netcdf4", 20),
    "twenty": ("20 files as one", "load", "month*.nc", "netcdf4", 2),
    "second": ("the second opening, and its text", "second_opening", "few.nc", "netcdf4", 20),
    "ten": ("ten uses of one variable", "ten_uses", "days.nc", "netcdf4", 1),
    "steps": ("200 steps, one by one, of two chunks", "step_by_step", "steps.nc", "netcdf4", 1),
    "slabs": ("50 boxes at random places of two chunks", "slabs", "steps.nc", "netcdf4", 1),
    "spells": ("xclim hot_spell_frequency", "spells", "days.nc", "netcdf4", 1),
}


def main() -> None:
    """Run the cases that were asked for."""
    options = arguments(__doc__)
    print(machine.describe())
    here = folder() / "small"
    write_small_archives(here)
    for case in options.case or [*CASES, "everyday", "far"]:
        if case == "far":
            compare_far_openings(here, options.rounds)
            continue
        if case == "everyday":
            if options.before is None:  # its ratios are those to xarray
                compare_everyday_operations(here, options.rounds)
            continue
        title, call, files, engine, repeat = CASES[case]
        if case == "spells" and find_spec("xclim") is None:
            print("\nxclim is not installed: hot_spell_frequency was not measured")
            continue
        path = sorted(map(str, here.glob(files))) if "*" in files else str(here / files)
        peers = {"insitu": "insitu", f"xarray, {engine}": engine}
        if engine == "netcdf4":
            peers["xarray, h5netcdf"] = "h5netcdf"
        contestants = [
            Contestant(
                name,
                f"small_uses:{call}",
                {"path": path, "engine": peer, "repeat": repeat, "warm": path if isinstance(path, str) else path[0]},
            )
            for name, peer in peers.items()
        ]
        results = compete(contestants, rounds=options.rounds)
        show(f"{title} (×{repeat})", results, targets=[Target(f"xarray, {engine}", 1)])


def compare_far_openings(here: Path, rounds: int) -> None:
    """Open 20 files behind 50 ms for the first and for the second time."""
    with LatencyServer(here, 0.05) as server, TemporaryDirectory() as cache:
        urls = [f"{server.url}/{path.name}" for path in sorted(here.glob("month*.nc"))]
        contestants = [
            Contestant("insitu", "small_uses:far_opening", {"urls": urls, "folder": f"{cache}/scans"}),
            Contestant("insitu, the first time", "small_uses:far_opening", {"urls": urls, "folder": ""}),
        ]
        results = compete(contestants, rounds=rounds, before=server.reset)
    show("20 files behind 50 ms, the second opening", results, targets=[Target("insitu, the first time", 1)])


def compare_everyday_operations(here: Path, rounds: int) -> None:
    """Time forty operations on variables of three sizes, at their first and at their tenth use."""
    write_everyday(here)
    ratios: dict[tuple[int, str], dict[str, float]] = {}
    for size in SHAPES:
        path = here / f"everyday{size}.nc"
        ratios[size, "first"], ratios[size, "tenth"] = _time_everyday(path, size, rounds)
    print(f"\n## {len(OPERATIONS)} operations of every day: how many times faster than xarray, netcdf4\n")
    print(f"| | {' | '.join(f'{size:,} values, {use} use' for size, use in ratios)} |")
    print(f"|---|{'---|' * len(ratios)}")
    for operation in OPERATIONS:
        print(f"| {operation} | {' | '.join(_format_ratio(found[operation]) for found in ratios.values())} |")
    medians = [statistics.median(found.values()) for found in ratios.values()]
    print(f"| **median** | {' | '.join(f'{median:.2f}' for median in medians)} |", flush=True)
    print(
        "\nThe first use opens the file, too; the tenth is that of the same operation on the same opened dataset. "
        "Target: ≥ 0.95 everywhere, the median above 1."
    )


def _format_ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 0.95 else f"**{ratio:.2f}**"


def _time_everyday(path: Path, size: int, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return how many times faster each operation is than with xarray, at its first and at its tenth use."""
    engines = {"insitu": "insitu", "xarray, netcdf4": "netcdf4"}
    call = "everyday_operations:time_operations"
    contestants = [
        Contestant(name, call, {"path": str(path), "engine": engine, "size": size}) for name, engine in engines.items()
    ]
    runs: list[list[dict[str, tuple[float, float, float]]]] = []
    for _ in range(rounds):
        results = compete(contestants, rounds=1, timeout=600)
        if failed := [result for result in results if result.error]:
            raise SystemExit(f"{failed[0].name}: {failed[0].error}")
        runs.append([json.loads(result.answer) for result in results])
    for operation in OPERATIONS:
        (_, _, ours), (_, _, theirs) = (run[operation] for run in runs[0])
        if not abs(ours - theirs) <= 1e-5 * max(abs(theirs), 1):
            print(f"\n{operation} answers {ours}, not {theirs}")

    def compare(use: int) -> dict[str, float]:
        seconds = (
            [statistics.median(run[contestant][operation][use] for run in runs) for contestant in (1, 0)]
            for operation in OPERATIONS
        )
        return {operation: them / us for operation, (them, us) in zip(OPERATIONS, seconds, strict=True)}

    return compare(0), compare(1)


if __name__ == "__main__":
    main()
