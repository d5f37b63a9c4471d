"""How is one reduction shared by several servers?

    python bench/scale_servers.py [--quick]

Archives are in the page cache; the cache of decoded chunks is off, so that every chunk is decoded every time.
Beside the seconds that the client waits stand the processor seconds of the server's processes, of all and of
the busiest one: another program that uses a core at the time disturbs those least.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

import h5py
import numpy as np
import psutil

import insitu
from insitu.active.transport import client_for

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
serving = import_module("server.serving").serving

ROUNDS = 3
SIDE, CHUNKS = 256, 2_000
"""Of each file: chunks of 256 kB."""


def write_archive(path: Path, side: int, chunks: int) -> Path:
    """Write a file of compressed chunks, a few of them again and again."""
    rng = np.random.default_rng(1)
    packed = [zlib.compress(np.round(rng.normal(280, 3, (side, side)), 1).astype("f4").tobytes(), 1) for _ in range(16)]
    with h5py.File(path, "w", libver="latest") as file:
        data = file.create_dataset("tas", (chunks, side, side), "f4", chunks=(1, side, side), compression="gzip")
        for number in range(chunks):
            data.id.write_direct_chunk((number, 0, 0), packed[number * 7 % 16])
    return path


def processor_seconds(pid: int) -> list[float]:
    """Return the processor seconds of a process and of each of its children."""
    parent = psutil.Process(pid)
    return [sum(process.cpu_times()[:2]) for process in [parent, *parent.children()]]


def measure(reduce: Callable[[], object], pids: list[int]) -> tuple[float, float, float]:
    """Return medians: seconds, processor seconds of some processes and their children, and of the busiest."""
    reduce()
    found = []
    for _ in range(ROUNDS):
        before = [seconds for pid in pids for seconds in processor_seconds(pid)]
        began = time.perf_counter()
        reduce()
        waited = time.perf_counter() - began
        used = [a - b for a, b in zip([s for pid in pids for s in processor_seconds(pid)], before, strict=True)]
        found.append((waited, sum(used), max(used)))
    waited, total, busiest = (statistics.median(column) for column in zip(*found, strict=True))
    return waited, total, busiest


def show_servers(folder: Path, quick: bool) -> None:
    """Print a table: one mean of files at two servers, and of files that two servers have."""
    many = CHUNKS // (10 if quick else 1)
    for name in ("one", "two"):
        (folder / name).mkdir()
    paths = [write_archive(folder / name / f"{name}.h5", SIDE, many) for name in ("one", "two")]
    how = {"combine": "nested", "concat_dim": "phony_dim_0", "cache": False}
    print("\n## One reduction on several servers\n")
    print("| mean over time of two files | s | processor s of all servers | of the busiest | bytes to the client |")
    print("|---|---|---|---|---|")
    with ExitStack() as stack:
        roots = [[folder / "one"], [folder / "two"], [folder], [folder]]
        started = [
            stack.enter_context(serving(root, folder / f"log{number}", "--cache", "0"))
            for number, root in enumerate(roots)
        ]
        one, two, both, again = started
        setups = {
            "one server has both": (both.url, [both]),
            "two servers, one file each": ({f"{folder}/one/": one.url, f"{folder}/two/": two.url}, [one, two]),
            "two servers with the same data": ([both.url, again.url], [both, again]),
        }
        for name, (active, servers) in setups.items():
            ds = insitu.open_mfdataset([str(path) for path in paths], active=active, active_required=True, **how)
            before = sum(client_for(server.url).traffic.received for server in servers)
            waited, total, busiest = measure(
                lambda ds=ds: ds.tas.mean("phony_dim_0").load(), [server.process.pid for server in servers]
            )
            moved = (sum(client_for(s.url).traffic.received for s in servers) - before) // (ROUNDS + 1)
            print(f"| {name} | {waited:.2f} | {total:.2f} | {busiest:.2f} | {moved:,} |")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory(prefix="insitu-scale-") as folder:
        show_servers(Path(folder), quick)


if __name__ == "__main__":
    os.environ.setdefault("INSITU_SCAN_CACHE", "off")
    main()
