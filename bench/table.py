"""How many times faster is one than the other, measured so that the answer can be trusted?

Every run of every contestant is a process of its own, so none profits from what another has loaded
or leaves memory behind. The rounds are interleaved (each contestant once, then all again), so a
busy machine hits all alike, and each round starts with another contestant: on a virtual machine,
memory that the run before has just freed is several times cheaper to get than other memory. The
median of the rounds counts. What a contestant needs before the
clock starts (imports, a warm-up on a small file) it does when it is made; then it is called once.
Answers are compared: a contestant that answers something else is shown as wrong, one that fails
with its reason.

`--before TREE` compares states of insitu instead: what the work tree there takes (its code, its
extensions built, its own benchmarks) beside this one, without the peers.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

__all__ = ["Contestant", "Result", "Target", "arguments", "compete", "show"]

HERE = Path(__file__).parent
BEFORE = "INSITU_BENCH_BEFORE"
"""Names the work trees that are compared with this one: set by `--before`."""
LONG = 5.0
"""Seconds: one that takes longer runs one round only, and its row says so."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to do it."""

    name: str
    call: str
    """`module:function`: called with `arguments`, gives a function that does the work and returns
    an answer.
    """
    arguments: Mapping[str, Any] = field(default_factory=dict)
    cores: int | None = None
    """How many cores the process may use."""
    tree: Path | None = None
    """Another work tree whose insitu it is."""


@dataclass(slots=True)
class Result:
    """What was measured."""

    name: str
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    """Seconds of processor time, all threads together: what a busy machine disturbs least."""
    growth: list[float] = field(default_factory=list)
    """Bytes that the process holds more than before, with the answer in hand."""
    peak: list[float] = field(default_factory=list)
    """Bytes that it held at most, above those before."""
    extra: dict[str, list[float]] = field(default_factory=dict)
    answer: Any = None
    error: str = ""

    @property
    def median(self) -> float:
        """Seconds, the median of the rounds."""
        return statistics.median(self.seconds)


@dataclass(frozen=True, slots=True)
class Target:
    """How many times faster than `peer` we mean to be."""

    peer: str
    ratio: float


def compete(
    contestants: Sequence[Contestant],
    *,
    rounds: int = 3,
    timeout: float = 90,
    before: Callable[[], None] | None = None,
    after: Callable[[], Mapping[str, float]] | None = None,
) -> list[Result]:
    """Run all contestants, interleaved. `before` and `after` surround each run; what `after` gives
    is kept beside the time.
    """
    if trees := os.environ.get(BEFORE):
        before_that = [Path(tree) for tree in trees.split(os.pathsep)]
        names = ["before", *(f"before, {tree.name}" for tree in before_that[1:])]
        contestants = [
            one
            for contestant in contestants
            if contestant.name.startswith("insitu")
            for one in (
                contestant,
                *(
                    replace(contestant, name=f"{contestant.name}: {name}", tree=tree)
                    for name, tree in zip(names, before_that, strict=True)
                ),
            )
        ]
    results = {contestant.name: Result(contestant.name) for contestant in contestants}
    for number in range(rounds):
        first = number % max(len(contestants), 1)
        for contestant in [*contestants[first:], *contestants[:first]]:
            result = results[contestant.name]
            if result.error or (number and result.seconds[0] > LONG):
                continue
            if before:
                before()
            run = _run(contestant, timeout)
            if "error" in run:
                result.error = run["error"]
                continue
            result.seconds.append(run["seconds"])
            result.processor.append(run["processor"])
            result.growth.append(run["growth"])
            result.peak.append(run["peak"])
            result.answer = run["answer"]
            for name, value in (after() if after else {}).items():
                result.extra.setdefault(name, []).append(value)
            print(
                f"  round {number + 1}: {contestant.name:<34} {run['seconds']:9.3f} s, "
                f"{run['processor']:.3f} s of processors",
                file=sys.stderr,
                flush=True,
            )
    return list(results.values())


def _run(contestant: Contestant, timeout: float) -> dict[str, Any]:
    here, environment = HERE, dict(os.environ)
    if contestant.tree is not None:
        here = contestant.tree / "bench"
        environment["PYTHONPATH"] = str(contestant.tree / "src")
    command = [
        sys.executable,
        str(here / "table.py"),
        contestant.call,
        json.dumps(dict(contestant.arguments)),
        str(contestant.cores or 0),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, env=environment)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {timeout:.0f} s"}
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return {"error": f"{_reason(done.stderr)} (exit {done.returncode})"}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def _reason(stderr: str) -> str:
    """The line that says what went wrong: the last that speaks of an error, not the end of a stack
    trace.
    """
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"(?i)^(?!\d+: ).*(error|exception|panicked|unsupported)", line)]
    return (telling or lines or ["died"])[-1].replace("|", "/")[:200]


def _serve(call: str, arguments: dict[str, Any], cores: int) -> None:
    """Be one run: make the contestant, call it once, print what was measured."""
    if cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    module, _, function = call.partition(":")
    sys.path.insert(0, str(HERE))
    work = getattr(importlib.import_module(module), function)(**arguments)
    _reset_peak()
    held = _memory("VmRSS")
    start, processor = time.perf_counter(), _processor_seconds()
    answer = work()
    seconds, processor = time.perf_counter() - start, _processor_seconds() - processor
    growth, peak = _memory("VmRSS") - held, _memory("VmHWM") - held
    check = getattr(importlib.import_module(module), "check", repr)
    print(
        "\n"
        + json.dumps(
            {"seconds": seconds, "processor": processor, "growth": growth, "peak": peak, "answer": check(answer)}
        ),
        flush=True,
    )
    os._exit(0)  # taking a large answer apart is not what is measured, and some libraries hang at exit


def _processor_seconds() -> float:
    """Return the processor seconds of all threads so far, and of the processes that were started and have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _reset_peak() -> None:
    with suppress(OSError):  # VmHWM then holds the peak since the start, which is no lower
        Path("/proc/self/clear_refs").write_text("5")


def show(
    title: str,
    results: Sequence[Result],
    *,
    ours: str = "insitu",
    targets: Sequence[Target] = (),
    notes: Sequence[str] = (),
) -> None:
    """Print one table: seconds, how many times slower than ours, the target and whether it is
    reached.
    """
    print(f"\n## {title}\n")
    us = next((result for result in results if result.name == ours and result.seconds), None)
    answers = Counter(str(result.answer) for result in results if result.seconds)
    right = answers.most_common(1)[0][0] if answers else ""
    wanted = {target.peer: target.ratio for target in targets}
    names = sorted({name for result in results for name in result.extra})
    print(
        "| | seconds (median) | least | processor | ours is x faster | least by least | target | reached "
        "| memory kept | memory at most |" + "".join(f" {name} |" for name in names)
    )
    print("|---|---|---|---|---|---|---|---|---|---|" + "---|" * len(names))
    for result in sorted(results, key=lambda item: item.median if item.seconds else float("inf")):
        if not result.seconds:
            told = "not installed" if "No module named" in result.error else f"failed: {result.error}"
            print(f"| {result.name} | {told} |" + " |" * (8 + len(names)))
            continue
        ratio = result.median / us.median if us else float("nan")
        target = wanted.get(result.name)
        reached = "" if target is None else ("yes" if ratio >= target else "**no**")
        cells = [
            result.name
            + (f" (answers {result.answer}, not {right})" if str(result.answer) != right else "")
            + (" (one round)" if result.seconds[0] > LONG else ""),
            f"{result.median:.3f}",
            f"{min(result.seconds):.3f}",
            f"{statistics.median(result.processor):.3f}",
            "" if result is us else f"{ratio:.2f}",
            "" if result is us or us is None else f"{min(result.seconds) / min(us.seconds):.2f}",
            "" if target is None else f"≥ {target:g}",
            reached,
            f"{statistics.median(result.growth) / 1e6:.0f} MB",
            f"{statistics.median(result.peak) / 1e6:.0f} MB",
            *(f"{statistics.median(result.extra[name]):,.4g}" if name in result.extra else "" for name in names),
        ]
        print("| " + " | ".join(cells) + " |")
    for note in notes:
        print(f"\n{note}")
    sys.stdout.flush()


def arguments(description: str | None) -> argparse.Namespace:
    """The options that all benchmarks share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small archives, one round")
    parser.add_argument("--rounds", type=int, default=0, help="rounds (3; 1 with --quick)")
    parser.add_argument("--case", action="append", help="only this case (may be repeated)")
    parser.add_argument("--only", action="append", help="only this contestant, besides insitu (may be repeated)")
    parser.add_argument(
        "--before", type=Path, action="append", help="another work tree of insitu, instead of the peers (repeatable)"
    )
    options = parser.parse_args()
    if options.before is not None:
        os.environ[BEFORE] = os.pathsep.join(str(tree.resolve()) for tree in options.before)
    options.rounds = options.rounds or (1 if options.quick else 3)
    return options


if __name__ == "__main__":
    _serve(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))
