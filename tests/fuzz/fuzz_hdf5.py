"""Does any file hurt the HDF5 parser?

    python tests/fuzz/fuzz_hdf5.py [--minutes 1] [--seed 0] [--beside-h5py] [FILE ...]

Changes the given files (by default the generated ones of the tests), scans and reads them, and keeps what raises anything but an error of
ours, takes more than a second of the processor or more memory than files of that size are worth, in `tests/fuzz/findings`. With
`--beside-h5py` every change is also read by h5py, in a process of its own, and values that differ are kept too. Ends with 1 if something was
found.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from types import FrameType

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "oracles")]

from finding import Finding  # noqa: E402
from isolation import findings_of, generate  # noqa: E402
from mutation import believed, mutated, tried  # noqa: E402

FINDINGS = HERE / "findings"
LARGEST_SEED = 64 << 10
SECONDS = 1.0
"""Of the processor, for one file: others may keep the machine busy."""
MEMORY = 4 << 30
GROWTH = 96 << 20
"""Bytes that a scan and its reads may take beyond what the process has: arrays of 2 MiB are read (see `mutation`), with their scratch."""


class TookTooLong(BaseException):
    """Not an `Exception`: nothing on the way may take it for damage."""


def _late(number: int, frame: FrameType | None) -> None:
    raise TookTooLong


def main() -> int:
    """Change files until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside-h5py", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGPROF, _late)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    chance = random.Random(options.seed)
    end = time.monotonic() + 60 * options.minutes
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = options.files or [*generate(folder).values(), *sorted(FINDINGS.glob("*.h5"))]
        seeds = [data for data in (path.read_bytes() for path in files) if len(data) <= LARGEST_SEED]
        changed = folder / "changed.h5"
        beside = findings_of("hdf5", itertools.repeat(changed), seconds=20)  # one worker, asked again and again
        while time.monotonic() < end:
            data = mutated(chance.choice(seeds), chance)
            outcome = _one(data)
            if outcome in ("read", "in part") and options.beside_h5py:
                changed.write_bytes(data)
                outcome = _judged(data, next(beside)[1], outcome)
            counts[outcome] += 1
        beside.close()  # type: ignore[attr-defined]  # a generator: ends its worker
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    return int(any(outcome.startswith("FOUND") for outcome in counts))


def _one(data: bytes) -> str:
    before = _peak(reset=True)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with believed():
            outcome = tried(data)
    except TookTooLong as late:
        return _keep(data, "".join(traceback.format_exception(late)[-6:]))
    except Exception as problem:
        return _keep(data, "".join(traceback.format_exception(problem)[-6:]))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    growth = _peak() - before
    return _keep(data, f"took {growth >> 20} MiB") if growth > GROWTH else outcome


def _peak(*, reset: bool = False) -> int:
    """The most memory that this process had, in bytes; 0 where the system does not tell."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        told = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in told.splitlines() if line.startswith("VmHWM")), 0)


def _judged(data: bytes, found: list[Finding], outcome: str) -> str:
    """What became of it beside h5py, which sees the checksums: what it reads, we read alike."""
    wrong = [f"{item.name}: {item.why}" for item in found if item.verdict == "wrong"]
    return _keep(data, "\n".join(wrong)) if wrong else outcome


def _keep(data: bytes, why: str) -> str:
    name = hashlib.sha256(data).hexdigest()[:12]
    FINDINGS.mkdir(exist_ok=True)
    (FINDINGS / f"{name}.h5").write_bytes(data)
    print(f"{name}: {why}".encode("utf-8", "backslashreplace").decode(), flush=True)  # names may be any bytes
    last = why.strip().splitlines()[-1]
    return f"FOUND {last[:100]}"


if __name__ == "__main__":
    sys.exit(main())
