"""Does any file hurt the HDF5 parser?

    python tests/fuzz/fuzz_hdf5.py [--minutes 1] [--seed 0] [--beside-h5py] [--unbounded] [FILE ...]

Changes the given files (by default the generated ones of the tests), scans and reads them, and
keeps what raises anything but an error of ours with its place, or takes more time or memory than
files of that size are worth, in `tests/fuzz/findings`. Every other
change is blind, with checksums believed; the rest hit structures, with checksums put right. The
compiled parser and the one in Python must find the same, or say the same. With
`--beside-h5py` files whose structures were hit are also read by h5py, in a process of its own, and
values that differ are kept too. `--unbounded` is for sanitizers, which take time and memory of their
own. Ends with 1 if something was found.
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
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "oracles")]

from anatomy import dissected  # noqa: E402
from bounds import GROWTH, HANGING_SECONDS, bounded, measure_seconds  # noqa: E402
from changes import any_changes, changed  # noqa: E402
from isolation import findings_of  # noqa: E402
from mutation import LARGEST_SEED, disagreement, mutated  # noqa: E402
from seeds import Seed, seeds_in  # noqa: E402

from described_scan import difference_of_parsers  # noqa: E402

FINDINGS = HERE / "findings"
MEMORY = 4 << 30
FINE = ("read", "in part", "refused")


def main() -> int:
    """Change files until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside-h5py", action="store_true")
    parser.add_argument("--unbounded", action="store_true")
    options = parser.parse_args()
    if not options.unbounded:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    chance = random.Random(options.seed)
    end = time.monotonic() + 60 * options.minutes
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        generated = seeds_in(Path(name))
        seconds = HANGING_SECONDS if options.unbounded else measure_seconds(data for _, data, _ in generated)
        growth = 1 << 62 if options.unbounded else GROWTH
        seeds = _given(options.files) if options.files else [*generated, *_given(FINDINGS.glob("*.h5"))]
        path = Path(name) / "changed.h5"
        beside = findings_of("hdf5", itertools.repeat(path), seconds=20)  # one worker, asked again and again
        while time.monotonic() < end:
            _, whole, anatomy = chance.choice(seeds)
            blind = len(whole) <= LARGEST_SEED and chance.random() < 0.5
            data = mutated(whole, chance) if blind else changed(whole, anatomy, any_changes(chance))
            with bounded(seconds, growth, believe=blind) as judged:
                outcome = judged(data)
            if outcome in FINE:
                outcome = difference_of_parsers(data) or outcome
            if outcome in ("read", "in part") and options.beside_h5py and not blind:
                path.write_bytes(data)
                outcome = disagreement(next(beside)[1]) or outcome
            counts[outcome if outcome in FINE else _keep(data, outcome)] += 1
        beside.close()  # type: ignore[attr-defined]  # a generator: ends its worker
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    return int(any(outcome.startswith("FOUND") for outcome in counts))


def _given(files: Iterable[Path]) -> list[Seed]:
    return [(path.stem, data, dissected(data)) for path in sorted(files) for data in [path.read_bytes()] if data]


def _keep(data: bytes, why: str) -> str:
    name = hashlib.sha256(data).hexdigest()[:12]
    FINDINGS.mkdir(exist_ok=True)
    (FINDINGS / f"{name}.h5").write_bytes(data)
    print(f"{name}: {why}".encode("utf-8", "backslashreplace").decode(), flush=True)  # names may be any bytes
    return f"FOUND {why.strip().splitlines()[-1][:100]}".encode("utf-8", "backslashreplace").decode()


if __name__ == "__main__":
    sys.exit(main())
