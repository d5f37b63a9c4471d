"""Run random programs for as long as one likes, or one of them again.

make random-programs MINUTES=60
python -m random_programs --minutes 60 --first 1000
python -m random_programs numpy 12 7        (archive 12, program 7; as a failure prints it)
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import hdf5plugin  # noqa: F401  (before netCDF4: loaded after it, its filters fail)

os.environ.setdefault("INSITU_SCAN_CACHE", "off")

from random_programs.suite import LEVELS, open_archive, run_cases

PROGRAMS = 100
"""Programs of each level for one archive."""


def main() -> int:
    """Run what the arguments ask for; return how many programs differ."""
    parser = argparse.ArgumentParser(prog="random_programs", description=__doc__)
    parser.add_argument("case", nargs="*", help="level, archive and number of one program")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--first", type=int, default=None, help="the first archive; otherwise by the clock")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.case:
            level, archive, number = arguments.case
            found = list(
                run_cases(level, open_archive(int(archive), Path(folder)), range(int(number), int(number) + 1))
            )
            print(found[0] if found[0].problem else f"no difference:\n{found[0].program}")
            return bool(found[0].problem)
        return _search(arguments.minutes, arguments.first, Path(folder))


def _search(minutes: float, first: int | None, folder: Path) -> int:
    end = time.monotonic() + 60 * minutes
    counted: Counter[str] = Counter()
    for seed in itertools.count(int(time.time()) if first is None else first):
        opened = open_archive(seed, folder)
        for level in LEVELS:
            for case in run_cases(level, opened, range(PROGRAMS)):
                counted[case.known or ("different" if case.problem else "equal")] += 1
                if case.problem and case.known is None:
                    print(f"{case}\n", flush=True)
                if time.monotonic() > end:
                    print(", ".join(f"{name}: {count}" for name, count in counted.most_common()))
                    return counted["different"]
    return 0


if __name__ == "__main__":
    sys.exit(min(main(), 1))
