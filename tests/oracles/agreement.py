"""How many files and datasets agree with the oracles, and which do not, and why?

    python tests/oracles/agreement.py [--show wrong|refused|...] [PATH ...]

Without paths: the generated files, `tests/files`, and the corpus when it is there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from finding import BAD, ORDER, Finding, verdict_of  # noqa: E402
from isolation import findings_of, generate  # noqa: E402

from real_files import FILES, corpus_files, list_files  # noqa: E402


def report(title: str, comparison: str, paths: list[Path], shown: set[str]) -> None:
    """Print one table, then each finding whose verdict is asked for."""
    found: dict[Path, list[Finding]] = dict(findings_of(comparison, paths))
    files = Counter(verdict_of(findings) for findings in found.values())
    datasets = Counter(finding.verdict for findings in found.values() for finding in findings)
    print(
        f"\n## {title}: {len(found)} files, {sum(datasets.values())} findings\n\n| verdict | "
        "files (by their worst) | datasets |\n|---|---|---|"
    )
    for verdict in ORDER:
        if files[verdict] or datasets[verdict]:
            print(f"| {verdict} | {files[verdict]} | {datasets[verdict]} |")
    for path, findings in found.items():
        for finding in findings:
            if finding.verdict in shown:
                print(f"{finding.verdict}: {path.name} {finding.name!r}: {finding.why}")
    sys.stdout.flush()


def main() -> None:
    """Compare all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument(
        "--show", action="append", help="print each finding with this verdict (may be repeated; the bad ones)"
    )
    parser.add_argument("--comparison", action="append", choices=["hdf5", "xarray"])
    options = parser.parse_args()
    shown = set(options.show or BAD)
    comparisons = options.comparison or ["hdf5", "xarray"]
    with tempfile.TemporaryDirectory() as folder:
        sets: dict[str, list[Path]] = {}
        if options.paths:
            sets["given"] = [
                file
                for path in options.paths
                for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
                if file.is_file()
            ]
        else:
            sets["generated"] = list(generate(Path(folder)).values())
            sets["files"] = list_files(FILES / "hdf5")
            sets["corpus"] = corpus_files("hdf5")
        for title, paths in ((title, paths) for title, paths in sets.items() if paths):
            for comparison in comparisons:
                report(
                    f"{title}, beside {'h5py' if comparison == 'hdf5' else comparison}",
                    comparison,
                    paths,
                    shown,
                )


if __name__ == "__main__":
    main()
