"""What does a formula cost that is evaluated where the values are read, here or next to the data?

    python bench/expressions.py [--quick] [--case convert|days|rmse|hypot|far]

The archive (1.07 GB of float32, shuffle + zlib, 4 MiB chunks) is in the page cache. `far` reads the
same file from a web server over a link of 100 Mbit/s and 20 ms, with and without an `insitu serve`
beside it (the small archive, since the link takes a minute and a half for the other).
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import machine
from archives import archive
from latency_server import LatencyServer
from table import Contestant, Target, arguments, compete, show
from throttle import Throttle

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "scripts"), str(HERE.parent / "tests")]

RATE, DELAY = 100e6, 0.02

CONTESTANTS = {
    "insitu": "insitu",
    "insitu, then NumPy": "insitu_then_numpy",
    "NumPy over h5py": "numpy_h5py",
    "numexpr over h5py": "numexpr_h5py",
    "Dask over xarray": "dask_xarray",
}
CASES = {
    "convert": "t * 1.8 - 459.67, all values",
    "days": "(t * 10 > 2810).sum(time), a map",
    "rmse": "((t - normal) ** 2).mean(time) ** 0.5, a map",
    "hypot": "hypot(t, t - normal).mean(), one number",
}
FAR = ("days", "rmse")


def main() -> None:
    """Run the cases that were asked for."""
    options = arguments(__doc__)
    print(machine.describe())
    path, warm = str(archive("zlib", quick=options.quick)), str(archive("zlib", quick=True))
    for case in options.case or [*CASES, "far"]:
        if case == "far":
            compare_far(options.rounds)
            continue
        asked = {"path": path, "warm": warm, "formula": case}
        contestants = [Contestant(label, f"formulas:{call}", asked) for label, call in CONTESTANTS.items()]
        results = compete(contestants, rounds=options.rounds)
        targets = [Target("insitu, then NumPy", 1), Target("Dask over xarray", 3)]
        show(f"{CASES[case]}: {'quick' if options.quick else '1.07 GB'}", results, targets=targets)


def compare_far(rounds: int) -> None:
    """Compute behind a slow link: by reading the values, and by sending the formula."""
    serving = import_module("server.serving").serving
    path = archive("zlib", quick=True)
    with ExitStack() as stack:
        storage = stack.enter_context(LatencyServer(path.parent, 0.0))
        files = stack.enter_context(Throttle([_port(storage.url)], RATE, DELAY))
        place = f"http://127.0.0.1:{files.ports[0]}"
        how = ("--cache", "0", "--log-level", "warning")
        server = stack.enter_context(serving([f"{place}={path.parent}"], path.with_suffix(".log"), *how))
        requests = stack.enter_context(Throttle([_port(server.url)], RATE, DELAY))

        def moved() -> dict[str, float]:
            counts = [files.counted(), requests.counted()]
            return {"bytes": sum(c["up"] + c["down"] for c in counts), "requests": sum(c["requests"] for c in counts)}

        url, near = f"{place}/{path.name}", f"http://127.0.0.1:{requests.ports[0]}"
        for case in FAR:
            asked = {"url": url, "formula": case}
            contestants = [
                Contestant("insitu", "formulas:insitu_far", {**asked, "server": near}),
                Contestant("insitu, reading the values", "formulas:insitu_far", asked),
            ]
            results = compete(contestants, rounds=rounds, before=moved, after=moved)
            title = f"{CASES[case]}, {path.stat().st_size / 1e6:.0f} MB behind 100 Mbit/s and 20 ms"
            show(title, results, targets=[Target("insitu, reading the values", 5)])


def _port(url: str) -> int:
    return int(urlsplit(url).port or 0)


if __name__ == "__main__":
    main()
