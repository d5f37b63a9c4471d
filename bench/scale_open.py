"""How long does it take to open 100 to 20,000 files as one dataset, here and on a Dask cluster, and
how much memory does the client need?

    python bench/scale_open.py [--quick] [--case here|cluster|memory]

Seconds are those of the processor, where nothing else is said: client, workers and scheduler are
processes of their own, and each is measured alone. The files are names of 500 real ones, such as a
climate model leaves (`archives.cmip_like`), joined in the order given.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openers
from archives import archive, folder
from growth import exponent
from table import arguments

HOW: dict[str, Any] = {"combine": "nested", "concat_dim": "time"}
COUNTS = (100, 1_000, 5_000, 20_000)
WORKERS = (1, 2, 4)
CLUSTER_FILES = 5_000
PEER_FILES = 200
"""Files that peers open: they take 25 to 85 ms for each."""
PEERS = {"xarray": "xarray_tuned", "VirtualiZarr": "virtualizarr_tuned"}
"""With all comparisons switched off, as here: see `openers.py`."""


def make_names(count: int, quick: bool) -> list[str]:
    """Return as many names of files as wanted, of the real ones in turn."""
    real = sorted(archive("cmip_like", quick=quick).glob("*.nc"))
    place = folder() / f"cmip-as-{count}{'-quick' if quick else ''}"
    place.mkdir(exist_ok=True)
    for number in range(count):
        name = place / f"{number:06d}.nc"
        if not name.exists():
            name.symlink_to(real[number % len(real)])
    return [str(path) for path in sorted(place.iterdir())]


def measure(count: int, quick: bool, workers: int = 0, library: str = "insitu") -> dict[str, float]:
    """Open files in a process of its own; return what it took."""
    given = json.dumps({"count": count, "quick": quick, "workers": workers, "library": library})
    command = [sys.executable, __file__, "--measure", given]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def open_and_measure(count: int, quick: bool, workers: int, library: str) -> dict[str, float]:
    """Open files once to warm up and once to measure."""
    warnings.simplefilter("ignore")
    files = make_names(count, quick)
    if library != "insitu":
        work = getattr(openers, library)(paths=files, warm=files[:2])
        return _measure_call(work, files, None)
    import insitu
    from insitu.process_options import options

    options.scan_cache = False
    if not workers:
        return _measure_call(openers.insitu(paths=files, warm=files[:64], **HOW), files, None)
    import distributed

    with _cluster(workers) as address, distributed.Client(address) as client:
        for _ in range(2):  # every worker imports what it needs
            insitu.open_mfdataset(files[:64], parallel=client, **HOW)
        return _measure_call(lambda: insitu.open_mfdataset(files, parallel=client, **HOW), files, client)


def _measure_call(call: Any, files: list[str], client: Any) -> dict[str, float]:
    held, there = _memory("VmRSS"), _processor_of_workers(client)
    Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins anew
    begin, here = time.perf_counter(), time.process_time()
    dataset = call()
    found = {
        "seconds": time.perf_counter() - begin,
        "here": time.process_time() - here,
        "workers": _processor_of_workers(client) - there,
        "kept": _memory("VmRSS") - held,
        "peak": _memory("VmHWM") - held,
    }
    assert dataset.sizes["time"] == 20 * len(files)
    return found


def _processor_of_workers(client: Any) -> float:
    return 0.0 if client is None else sum(client.run(time.process_time).values())


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


@contextmanager
def _cluster(workers: int) -> Iterator[str]:
    """Run scheduler and workers in processes of their own; yield the address."""
    command = [sys.executable, __file__, "--cluster", str(workers)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield child.stdout.readline().strip()
        finally:
            child.communicate("")


def serve_cluster(workers: int) -> None:
    """Run a cluster until standard input ends."""
    import distributed

    with distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
    ) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()


def here(quick: bool) -> None:
    """In one process: growth with the number of files, peers beside."""
    print("\n## open_mfdataset in one process, CMIP-like files\n")
    print("| files | processor ms a file | target | memory kept a file |")
    print("|---|---|---|---|")
    counts = (20, 100) if quick else COUNTS
    costs = []
    for count in counts:
        found = measure(count, quick)
        costs.append(found["here"])
        each = 1e3 * found["here"] / count
        print(f"| {count:,} | {each:.2f} | ≤ 1.5: {_yes(each <= 1.5)} | {found['kept'] / count / 1e3:.1f} kB |")
    peers = 20 if quick else PEER_FILES
    for name, library in PEERS.items():
        try:
            found = measure(peers, quick, library=library)
        except subprocess.CalledProcessError:
            print(f"| {peers:,}, {name} | cannot run here | | |")
            continue
        print(f"| {peers:,}, {name} | {1e3 * found['here'] / peers:.2f} | | {found['kept'] / peers / 1e3:.1f} kB |")
    print(f"\nGrowth with the number of files: n^{exponent(counts, costs):.2f}.")


def cluster(quick: bool) -> None:
    """On a cluster of 1, 2 and 4 processes, beside one process without a cluster."""
    count = 200 if quick else CLUSTER_FILES
    alone = measure(count, quick)
    print(f"\n## open_mfdataset on a Dask cluster, {count:,} CMIP-like files, {os.cpu_count()} cores\n")
    print(
        "| workers | seconds | × faster | client ms a file | workers ms a file | all, × one process | memory a file |"
    )
    print("|---|---|---|---|---|---|---|")
    print(
        f"| no cluster | {alone['seconds']:.1f} | 1 | {1e3 * alone['here'] / count:.2f} | | 1 | "
        f"{alone['kept'] / count / 1e3:.1f} kB |"
    )
    for workers in WORKERS:
        found = measure(count, quick, workers)
        total = (found["here"] + found["workers"]) / alone["here"]
        print(
            f"| {workers} | {found['seconds']:.1f} | {alone['seconds'] / found['seconds']:.2f} | "
            f"{1e3 * found['here'] / count:.3f} | {1e3 * found['workers'] / count:.2f} | {total:.2f} | "
            f"{found['kept'] / count / 1e3:.1f} kB |"
        )
    print("\nTargets: two workers ≥ 1.8 × faster, all together ≤ 1.15 × one process, client ≤ 0.1 ms a file.")


def memory(quick: bool) -> None:
    """The client's part alone: growth with the number of files."""
    print("\n## The client of a Dask cluster of two workers\n")
    print("| files | client ms a file | target | memory kept a file | memory at most a file |")
    print("|---|---|---|---|---|")
    counts = (20, 100) if quick else COUNTS
    costs = []
    for count in counts:
        found = measure(count, quick, 2)
        costs.append(found["here"])
        each = 1e3 * found["here"] / count
        print(
            f"| {count:,} | {each:.3f} | ≤ 0.1: {_yes(each <= 0.1)} | {found['kept'] / count / 1e3:.1f} kB | "
            f"{found['peak'] / count / 1e3:.1f} kB |"
        )
    print(f"\nGrowth with the number of files: n^{exponent(counts, costs):.2f}.")


def _yes(reached: bool) -> str:
    return "yes" if reached else "**no**"


CASES = {"here": here, "cluster": cluster, "memory": memory}


def main() -> None:
    """Run the cases that were asked for."""
    options = arguments(__doc__)
    for case in options.case or CASES:
        CASES[case](options.quick)
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(open_and_measure(**json.loads(sys.argv[2]))))
    elif sys.argv[1:2] == ["--cluster"]:
        serve_cluster(int(sys.argv[2]))
    else:
        main()
