"""What do the benchmarks say, when, and on which machine? Runs them one after another and writes
docs/benchmarks.md.

python bench/page.py [--quick] [SCRIPT...]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import machine

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
SCRIPTS = (
    "first_second", "small_things", "scan_local", "scan_remote", "scan_formats", "open_many", "read", "read_remote",
    "read_zarr", "references", "reduce_local", "expressions", "scaling", "scale", "active", "explorer",
)  # fmt: skip
HEAD = """# Benchmarks

Written by `make bench` on {date}{quick}. {machine}

Every run of every contestant is a process of its own; rounds are interleaved, and the median counts.
A busy machine shows in it; "least by least" compares the quietest run of each.
A contestant that takes more than 20 s runs once.
Answers are compared: a contestant that answers something else is shown as wrong, one that fails with its
reason. Targets are ours. `make bench` on your machine writes this page anew;
`make bench BENCH="read --quick"` runs one of them.
"""


def main() -> None:
    """Run the scripts, show what they print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", default=[], help=f"of {', '.join(SCRIPTS)}; all if none is named")
    parser.add_argument("--quick", action="store_true", help="small archives, one round")
    options = parser.parse_args()
    about = machine.describe()
    quick = (
        ", in a hurry (`--quick`: small archives, one round; times of the order of start-up say little)"
        if options.quick
        else ""
    )
    first, _, libraries = about.partition("\n")
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    parts = [HEAD.format(date=date, quick=quick, machine=f"{first}. Versions: {libraries}.")]
    failed = []
    for name in options.scripts or SCRIPTS:
        printed = _run(name, options.quick)
        if printed is None:
            failed.append(name)
            continue
        # The machine is described once, at the top.
        tables = printed[printed.find("\n## ") :] if "\n## " in printed else f"## {name}\n\n```\n{printed.strip()}\n```"
        parts.append(f"{tables.strip()}\n\n*`bench/{name}.py`*\n")
    if failed:
        parts.append(f"Not measured: {', '.join(failed)}.\n")
    PAGE.write_text("\n".join(parts), encoding="utf-8")
    subprocess.run([sys.executable, HERE.parent / "scripts" / "wrap_documents.py", PAGE], check=True)
    print(f"\n{PAGE}", file=sys.stderr)
    sys.exit(1 if failed else 0)


def _run(name: str, quick: bool) -> str | None:
    command = [sys.executable, str(HERE / f"{name}.py"), *(["--quick"] if quick else [])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    return "".join(lines) if process.wait() == 0 else None


if __name__ == "__main__":
    main()
