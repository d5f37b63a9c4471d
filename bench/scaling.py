"""How does reading get faster with more cores, and how much of the time is the GIL held?

    python bench/scaling.py [--quick] [--case zlib|small_chunks|mean]

The number of cores is set by the processor affinity of the process: 1, 2, 4, 8 and 16 of them, as far
as the machine has them. The archive is in the page cache, and is scanned before the clock starts.

A machine of two cores cannot show what happens on sixteen. What only one thread has at a time can be
measured there, too: the GIL, our locks, what is done before and after the tasks of threads; from these
`contention.py` estimates 16 and 64 cores. How long the GIL is held is measured by py-spy, which looks
into the memory of another process 200 times a second and does not take the GIL itself: a probe thread
within the process would wait for the GIL when the others hold it, and could not tell that from waiting
for a core. Samples are compared with those of a loop in Python, which holds the GIL all the time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import contention
import machine
from archives import archive
from table import Contestant, Result, Target, arguments, compete, show

CORES = (1, 2, 4, 8, 16)
SAMPLED_SECONDS = 6
SAMPLES_A_SECOND = 200
SHARE_OF_LINEAR = 0.6
"""Speed-up that we mean to reach, as a part of the number of cores: ten times on sixteen."""
CASES = {
    "zlib": ("zlib", "read_all", "shuffle + zlib, 4 MiB chunks, read"),
    "small_chunks": ("small_chunks", "read_all", "shuffle + zlib, chunks of 4 kB, read"),
    "mean": ("zlib", "mean_of_all", "shuffle + zlib, 4 MiB chunks, mean of all values"),
}
HELD = "GIL held, % of the time"
PY_SPY = Path(sys.executable).with_name("py-spy")


def read_all(path: str) -> Callable[[], float]:
    """Read the whole array into an array that exists: new pages of memory are not what is measured."""
    import numpy as np

    import insitu

    array = insitu.scan(path).arrays["t"]
    out = np.ones(array.shape, array.dtype)
    return lambda: float(insitu.read(array, out=out)[0, 0, 0])


def mean_of_all(path: str) -> Callable[[], float]:
    """Compute the mean of the whole array."""
    import insitu

    group = insitu.scan(path)
    return lambda: round(float(insitu.reduce(group, "t", "mean")), 3)


def busy_loop(path: str) -> Callable[[], float]:
    """Hold the GIL all the time."""
    return lambda: float(sum(number * number for number in range(1_000_000)))


def repeat(call: str, path: str, cores: int) -> None:
    """Do the same work again and again, until the process is ended."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    work = globals()[call](path)
    work()
    print("ready", flush=True)
    while True:
        work()


def count_samples(call: str, path: str, cores: int, within: str = "") -> float:
    """Return the number of samples a second in which some thread held the GIL, `within` a function of that name."""
    command = [sys.executable, __file__, "--repeat", call, path, str(cores)]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child,
    ):
        try:
            assert child.stdout is not None
            if child.stdout.readline().strip() != "ready":
                raise RuntimeError(f"{call} could not be repeated")
            found = Path(folder) / "samples"
            started = time.perf_counter()
            subprocess.run(
                [str(PY_SPY), "record", "--gil", "--nonblocking", "--format", "raw", "--output", str(found), "--pid",
                 str(child.pid), "--duration", str(SAMPLED_SECONDS), "--rate", str(SAMPLES_A_SECOND)],
                check=True, capture_output=True,
            )  # fmt: skip
            seconds = time.perf_counter() - started
            lines = found.read_text().splitlines() if found.exists() else []
            return sum(int(line.rpartition(" ")[2]) for line in lines if within in line) / seconds
        finally:
            child.kill()


def measure_gil(results: list[Result], call: str, path: str, counts: list[int], always: float) -> None:
    """Add to each result the share of time in which the GIL is held."""
    for result, cores in zip(results, counts, strict=True):
        if result.seconds:
            result.extra[HELD] = [100 * count_samples(call, path, cores) / always]


def run_case(case: str, options: Any) -> None:
    """Measure one case with each number of cores."""
    name, call, title = CASES[case]
    path = str(archive(name, quick=options.quick))
    counts = [count for count in CORES if count <= len(os.sched_getaffinity(0))]
    contestants = [Contestant(_label(n), f"scaling:{call}", {"path": path}, cores=n) for n in counts]
    results = compete(contestants, rounds=options.rounds)
    notes = [f"The machine lets this process use {len(os.sched_getaffinity(0))} cores."]
    demand = contention.measure_demand(call, path)
    if PY_SPY.exists():
        always = count_samples("busy_loop", path, 1)
        measure_gil(results, call, path, counts, always)
        demand.gil = demand.seconds * count_samples(call, path, 1, within="run_batch") / always
    else:
        notes.append("How long the GIL is held was not measured: py-spy is not installed.")
    most = counts[-1]
    target = [Target(_label(1), SHARE_OF_LINEAR * most)] if most > 1 else []
    show(f"Cores: {title}", results, ours=_label(most), targets=target, notes=notes)
    one = results[0]
    measured = {n: one.median / found.median for n, found in zip(counts, results, strict=True) if found.seconds}
    contention.print_estimates(title, demand, measured if one.seconds else {})


def _label(cores: int) -> str:
    return "insitu, 1 core" if cores == 1 else f"insitu, {cores} cores"


def main() -> None:
    """Run the cases that were asked for."""
    options = arguments(__doc__)
    print(machine.describe())
    for case in options.case or CASES:
        run_case(case, options)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--repeat"]:
        repeat(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
