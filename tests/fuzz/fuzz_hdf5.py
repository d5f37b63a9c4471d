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
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "oracles")]

from bounds import bounded  # noqa: E402
from finding import Finding  # noqa: E402
from isolation import findings_of, generate  # noqa: E402
from mutation import LARGEST_SEED, mutated  # noqa: E402

FINDINGS = HERE / "findings"
MEMORY = 4 << 30


def main() -> int:
    """Change files until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside-h5py", action="store_true")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    chance = random.Random(options.seed)
    end = time.monotonic() + 60 * options.minutes
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name, bounded() as judged:
        folder = Path(name)
        files = options.files or [*generate(folder).values(), *sorted(FINDINGS.glob("*.h5"))]
        seeds = [data for data in (path.read_bytes() for path in files) if len(data) <= LARGEST_SEED]
        changed = folder / "changed.h5"
        beside = findings_of("hdf5", itertools.repeat(changed), seconds=20)  # one worker, asked again and again
        while time.monotonic() < end:
            data = mutated(chance.choice(seeds), chance)
            outcome = judged(data)
            if outcome in ("read", "in part") and options.beside_h5py:
                changed.write_bytes(data)
                outcome = _beside(next(beside)[1]) or outcome
            counts[outcome if outcome in ("read", "in part", "refused") else _keep(data, outcome)] += 1
        beside.close()  # type: ignore[attr-defined]  # a generator: ends its worker
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    return int(any(outcome.startswith("FOUND") for outcome in counts))


def _beside(found: list[Finding]) -> str:
    """What differs from h5py, which sees the checksums: what it reads, we read alike."""
    return "\n".join(f"{item.name}: {item.why}" for item in found if item.verdict == "wrong")


def _keep(data: bytes, why: str) -> str:
    name = hashlib.sha256(data).hexdigest()[:12]
    FINDINGS.mkdir(exist_ok=True)
    (FINDINGS / f"{name}.h5").write_bytes(data)
    print(f"{name}: {why}".encode("utf-8", "backslashreplace").decode(), flush=True)  # names may be any bytes
    return f"FOUND {why.strip().splitlines()[-1][:100]}".encode("utf-8", "backslashreplace").decode()


if __name__ == "__main__":
    sys.exit(main())
