"""How does insitu grow beyond one machine: files, chunks, workers, servers?

    python bench/scale.py [--quick] [TOPIC...]

Runs every `bench/scale_*.py`, each in a process of its own, and prints their tables. A topic is the
rest of such a name: `python bench/scale.py open` runs `scale_open.py`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import machine

HERE = Path(__file__).parent


def main() -> None:
    """Run the topics that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small archives, one round")
    parser.add_argument("topics", nargs="*", metavar="TOPIC")
    options = parser.parse_args()
    scripts = {path.stem.removeprefix("scale_"): path for path in sorted(HERE.glob("scale_*.py"))}
    if unknown := [topic for topic in options.topics if topic not in scripts]:
        parser.error(f"no topic {', '.join(unknown)}; there are: {', '.join(scripts)}")
    print(machine.describe())
    failed = []
    for topic in options.topics or scripts:
        sys.stdout.flush()
        command = [sys.executable, str(scripts[topic]), *(["--quick"] if options.quick else [])]
        if subprocess.run(command, check=False).returncode:
            failed.append(topic)
            print(f"\n{scripts[topic].name} failed.")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
