"""What would limit sixteen cores, or sixty-four? Measured on one, estimated for many.

A pass over an archive is tasks of threads (`PlanExecution.run_batch`), and what is done before and after
them by one thread. A task needs things that only one thread has at a time: the GIL, and the locks of
insitu. On one core nobody waits for them, so the time for which they are held is what each task needs
of them. From that a closed queueing network (mean value analysis: as many customers as threads, one
station for the GIL and for each lock, all else a delay) says how many tasks are done in a second:

    speed-up(n) = time(1) / (alone + max(tasks / throughput(n), rounds of tasks, the longest task))

The model knows nothing of the bandwidth of memory and disk, and takes cores for equal.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

__all__ = ["Demand", "Estimate", "estimate", "measure_demand"]

LOCK, RLOCK = threading.Lock, threading.RLock
GIL = "the GIL"
ALONE = "one thread alone"
FEW = "too few tasks"


@dataclass(slots=True)
class Demand:
    """What one pass over an archive needs, in seconds of one core."""

    seconds: float
    """All of it."""
    tasks: int
    """Tasks that threads share."""
    in_tasks: float
    """Time within tasks."""
    longest: float
    """The longest task."""
    locks: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By lock: how often it was taken, and how long it was held."""
    gil: float = 0.0
    """The part of the time in tasks for which the GIL is held."""


class Estimate(NamedTuple):
    """What so many cores would make of it."""

    cores: int
    faster: float
    limit: str
    """What limits it most, and for how much of the time: it is busy; or, of too few tasks, cores wait."""


def estimate(demand: Demand, cores: int) -> Estimate:
    """Return how many times faster a pass is on so many cores.

    Examples
    --------
    >>> half = Demand(10.0, 100, 10.0, 0.1, gil=5.0)
    >>> estimate(half, 1).faster, round(estimate(half, 64).faster, 1), estimate(half, 64).limit
    (1.0, 2.0, 'the GIL, 100 % of the time')
    """
    alone = max(demand.seconds - demand.in_tasks, 0.0)
    count = max(demand.tasks, 1)
    each = demand.in_tasks / count
    needs = {GIL: demand.gil / count} | {name: held / count for name, (_, held) in demand.locks.items()}
    delay = max(each - sum(needs.values()), 0.0)
    queued = dict.fromkeys(needs, 0.0)
    throughput, most = 0.0, min(cores, count)
    for threads in range(1, most + 1):
        waits = {name: need * (1 + queued[name]) for name, need in needs.items()}
        throughput = threads / max(delay + sum(waits.values()), 1e-12)
        queued = {name: throughput * wait for name, wait in waits.items()}
    rounds = math.ceil(count / most)  # not every thread has a task in the last one
    seconds = alone + max(count / throughput, rounds * each, demand.longest) if demand.tasks else alone
    busy = {name: throughput * need for name, need in needs.items()} if demand.tasks else {}
    busy |= {ALONE: alone / seconds, FEW: 1 - count / (rounds * cores)}
    limit = max(busy, key=lambda name: busy[name])
    return Estimate(cores, demand.seconds / seconds, f"{limit}, {100 * busy[limit]:.0f} % of the time")


class _MeasuredLock:
    """A lock that notes how often it is taken and how long it is held."""

    held: dict[str, list[float]] = {}  # noqa: RUF012 one for all
    """By the place where locks are made: how often, how long."""

    def __init__(self, inner: Any, place: str) -> None:
        self._inner = inner
        self._counts = self.held.setdefault(place, [0, 0.0])
        self._depth = 0
        self._since = 0.0

    def acquire(self, *how: Any, **named: Any) -> bool:
        taken: bool = self._inner.acquire(*how, **named)
        if taken:
            self._depth += 1
            if self._depth == 1:
                self._since = time.perf_counter()
        return taken

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._counts[0] += 1
            self._counts[1] += time.perf_counter() - self._since
        self._inner.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _measuring(make: Callable[[], Any]) -> Callable[[], Any]:
    def make_measured() -> Any:
        frame: Any = sys._getframe(1)
        while frame.f_code.co_filename.endswith(("/forking.py", "<string>")):  # `fork_safe_lock`, dataclasses
            frame = frame.f_back
        name = frame.f_code.co_filename
        if "/insitu/" not in name:  # of the standard library: of a pool, a lock is held while its threads sleep
            return make()
        return _MeasuredLock(make(), f"{name.rpartition('/insitu/')[2]}:{frame.f_lineno}")

    return make_measured


def _cost_of_measuring() -> float:
    """Return the seconds that a measured lock is held where nothing is done with it."""
    lock, rounds = _MeasuredLock(LOCK(), "nothing"), 10_000
    for _ in range(rounds):
        with lock:
            pass
    return float(_MeasuredLock.held.pop("nothing")[1]) / rounds


def measure_demand(call: str, path: str) -> Demand:
    """Return what a pass needs, measured on one core in a process of its own.

    Parameters
    ----------
    call
        A function of `scaling` that makes the work of a path.
    path
        The archive.
    """
    done = subprocess.run([sys.executable, __file__, call, path], stdout=subprocess.PIPE, text=True, check=True)
    return Demand(**json.loads(done.stdout.splitlines()[-1]))


def _measure_here(call: str, path: str) -> Demand:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    threading.Lock, threading.RLock = _measuring(LOCK), _measuring(RLOCK)  # type: ignore[assignment, misc]
    import scaling
    from insitu.reading.fetch_and_decode import PlanExecution

    tasks: list[float] = []
    run_batch = PlanExecution.run_batch

    def run_measured(self: PlanExecution, begin: int, end: int) -> None:
        began = time.thread_time()
        run_batch(self, begin, end)
        tasks.append(time.thread_time() - began)

    PlanExecution.run_batch = run_measured  # type: ignore[method-assign]
    work = getattr(scaling, call)(path)
    work()
    tasks.clear()
    for counts in _MeasuredLock.held.values():
        counts[:] = [0, 0.0]
    began = time.process_time()
    work()
    seconds = time.process_time() - began
    cost = _cost_of_measuring()
    locks = {
        place: (int(count), max(held - count * cost, 0.0))
        for place, (count, held) in _MeasuredLock.held.items()
        if count
    }
    return Demand(seconds, len(tasks), sum(tasks), max(tasks, default=0.0), locks)


def print_estimates(title: str, demand: Demand, measured: Mapping[int, float]) -> None:
    """Print what was measured of a pass, and what many cores would make of it.

    Parameters
    ----------
    title
        What the pass is.
    demand
        What it needs.
    measured
        By number of cores of this machine: how many times faster it was.
    """
    alone = demand.seconds - demand.in_tasks
    print(f"\n## Contention: {title}\n")
    print("| of one pass on one core | ms | of the time |\n|---|---:|---:|")
    rows = [
        ("all", demand.seconds),
        (ALONE, alone),
        (f"{demand.tasks} tasks", demand.in_tasks),
        ("the longest task", demand.longest),
        ("tasks hold the GIL", demand.gil),
    ]
    held = sorted(demand.locks.items(), key=lambda item: -item[1][1])
    rows += [(f"lock {place}, taken {count:,} times", seconds) for place, (count, seconds) in held[:4]]
    for name, seconds in rows:
        print(f"| {name} | {1e3 * seconds:,.2f} | {100 * seconds / demand.seconds:.2f} % |")
    print("\n| cores | times faster, estimated | measured | limited by |\n|---:|---:|---:|---|")
    for cores in (2, 4, 16, 64):
        found = estimate(demand, cores)
        seen = f"{measured[cores]:.2f}" if cores in measured else ""
        print(f"| {cores} | {found.faster:.1f} | {seen} | {found.limit} |")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    demanded = _measure_here(*sys.argv[1:])
    print("\n" + json.dumps({name: getattr(demanded, name) for name in Demand.__slots__}))
