"""Is insitu ever slower than plain xarray on the small things of every day?

python bench/small_things.py [--quick] [--case NAME]
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import machine
from archives import folder
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
    for case in options.case or [*CASES, "far"]:
        if case == "far":
            compare_far_openings(here, options.rounds)
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


if __name__ == "__main__":
    main()
