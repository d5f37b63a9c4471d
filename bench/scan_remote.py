"""What does a scan over HTTP cost, when each request takes 50 ms?

Two files: one with its metadata at the head, one written step by step, whose B-tree nodes lie all
over it; and 200 files of one archive, everybody with 64 threads (where a library takes turns in
them, that is its own affair). Seconds depend on the machine; requests, round trips and bytes do
not. The server counts them. Waves are how often a request came when none was under way: the round
trips of a reader that asks for all it needs at once.

    python bench/scan_remote.py [--quick] [--case head|scattered|files]
"""

from __future__ import annotations

import statistics

import machine
from archives import archive, folder
from latency_server import LatencyServer
from table import Contestant, Result, Target, arguments, compete, show

PEERS = {
    "VirtualiZarr HDFParser": "virtualizarr",
    "pyfive (fsspec)": "pyfive",
    "kerchunk (fsspec)": "kerchunk",
}


def _judge(results: list[Result], limits: dict[str, float]) -> list[str]:
    notes = []
    for result in results:
        if result.name == "insitu" and result.seconds:
            for name, limit in limits.items():
                value = statistics.median(result.extra[name])
                notes.append(
                    f"insitu, {name}: {value:,.4g}; target ≤ {limit:,.4g}: {'yes' if value <= limit else '**no**'}."
                )
    return notes


def main() -> None:
    """Run both cases."""
    options = arguments(__doc__)
    print(machine.describe())
    cases = {
        "head": ("head", "100 variables, 100 MB, metadata at the head", {"requests": 3.0}),
        "scattered": (
            "scattered",
            "100 variables x 240 chunks, 290 MB, written step by step",
            {"waves": 8.0, "bytes": 4e6},
        ),
        "files": ("cmip_like", "200 files of a model's archive", {}),
    }
    targets = {
        "scattered": [Target("VirtualiZarr HDFParser", 8), Target("kerchunk (fsspec)", 50)],
        "files": [Target("VirtualiZarr HDFParser", 20)],
    }
    chosen = {"insitu": "insitu"} | {
        name: call for name, call in PEERS.items() if not options.only or name in options.only
    }
    for case in options.case or cases:
        name, title, limits = cases[case]
        path, warm = archive(name, quick=options.quick), archive("million_chunks", quick=True)
        many = case == "files"
        names = sorted(f"{path.name}/{file.name}" for file in path.iterdir())[:200] if many else [path.name]
        with LatencyServer(folder()) as server:
            given = {
                "paths": [f"{server.url}/{name}" for name in names], "warm": str(warm), "threads": 64 if many else 1
            }  # fmt: skip
            contestants = [
                Contestant(label, f"scanners:{call}", given)
                for label, call in chosen.items()
                if not (many and label.startswith("kerchunk"))  # most of an hour
            ]
            results = compete(contestants, rounds=options.rounds, before=server.reset, after=server.stats)
        show(
            f"{title}; HTTP, 50 ms added to each request",
            results,
            targets=targets.get(case, []),
            notes=_judge(results, limits),
        )


if __name__ == "__main__":
    main()
