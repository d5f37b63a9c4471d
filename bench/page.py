"""What do the benchmarks say, when, and on which machine? Runs them one after another and writes
docs/benchmarks.md.

python bench/page.py [--quick] [SCRIPT...]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import machine
import table

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
SCRIPTS = (
    "first_second", "small_things", "scan_local", "scan_remote", "scan_formats", "open_many", "forecasts", "read",
    "read_remote", "read_zarr", "references", "reduce_local", "expressions", "scaling", "scale", "active", "explorer",
    "copies",
)  # fmt: skip
HEAD = """# Benchmarks

Written by `make bench` on {date}{quick}. {machine}

Every run of every contestant is a process of its own; rounds are interleaved, and the median counts.
A busy machine shows in it; "least by least" compares the quietest run of each.
A contestant that takes more than {long:.0f} s runs once.
Answers are compared: a contestant that answers something else is shown as wrong, one that fails with its
reason. Targets are ours. `make bench` on your machine writes this page anew;
`make bench BENCH="read --quick"` runs one of them.
"""
SUMMARY = (
    ("open one file and look at a value, in a new process", "A dataset and one of its values", "xarray, netcdf4"),
    ("open 500 files as one dataset", "500 CMIP-like files as one dataset", "xarray open_mfdataset"),
    ("find every chunk of 500 files", "500 CMIP-like files, one core", "VirtualiZarr HDFParser"),
    ("index 1,200 GRIB messages", "GRIB 2: 1,200 messages", "cfgrib (index)"),
    ("read 1.07 GB, shuffle and deflate", "shuffle + zlib, 4 MiB chunks, 1.07 GB", "xarray + h5netcdf"),
    ("read 100 small boxes of it", "100 random small slabs of the same file", "xarray + h5netcdf"),
    ("read 1 GB of a Zarr store in shards", "zstd, 1 MiB chunks in shards of 64 MiB", "zarr-python"),
    ("read 1,024 chunks behind 50 ms", "1,024 scattered chunks of 4 kB", "zarr over kerchunk references"),
    ("the mean over time of 1.07 GB", "the mean over time, a map", "Dask over xarray"),
    ("a formula over 1.07 GB, summed over time", "(t * 10 > 2810).sum(time), a map", "Dask over xarray"),
)
"""What a row of the summary says, how the title of its table begins, and beside whom."""


def summarize(tables: str) -> str:
    """Return the summary of tables in Markdown: what, beside whom, how many times faster.

    Examples
    --------
    >>> table = "## GRIB 2: 1,200 messages\\n\\n| cfgrib (index) | 2.16 | 2.15 | 2.16 | 19.93 | 19.9 |\\n"
    >>> print(summarize(table).splitlines()[-1])
    | index 1,200 GRIB messages | cfgrib (index) | 20 × |
    """
    rows = ["| what | beside | insitu is faster |", "|---|---|---:|"]
    sections = re.split("^## ", tables, flags=re.MULTILINE)
    for what, title, peer in SUMMARY:
        section = next((section for section in sections if section.startswith(title)), "")
        row = re.search(rf"^\| {re.escape(peer)}[^|]*((?:\| [\d.]+ ){{4}})", section, re.MULTILINE)
        if row:
            ratio = float(row[1].split("|")[4])
            rows.append(f"| {what} | {peer} | {ratio:{',.0f' if ratio >= 10 else '.1f'}} × |")
    return "\n".join(rows)


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
    parts = [HEAD.format(date=date, long=table.LONG, quick=quick, machine=f"{first}. Versions: {libraries}.")]
    failed = []
    for name in options.scripts or SCRIPTS:
        printed = _run(name, options.quick)
        if printed is None:
            failed.append(name)
            continue
        # The machine is described once, at the top.
        tables = printed[printed.find("\n## ") :] if "\n## " in printed else f"## {name}\n\n```\n{printed.strip()}\n```"
        parts.append(f"{tables.strip()}\n\n*`bench/{name}.py`*\n")
    parts.insert(1, f"## In short\n\n{summarize(''.join(parts))}\n")
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
