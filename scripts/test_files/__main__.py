"""Write `tests/files`: small files of every format by other projects' writers, and a few that other
projects ship with their tests.

    python scripts/test_files             # all of them, and MANIFEST.csv
    python scripts/test_files hdf5 grib   # some kinds only; MANIFEST.csv keeps its other lines

The oracle tests read every one of these files beside the field's own reader, so that they mean
something without the large corpus. The values are drawn from a fixed seed; the bytes depend on the
versions of the writers, which MANIFEST.csv names.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import fields  # noqa: F401  (each of these modules registers its files)
import gdal  # noqa: F401
import hdf5_netcdf  # noqa: F401
import images  # noqa: F401
import shipped
import stores  # noqa: F401
from registry import FILES, Made

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "files"
MANIFEST = FOLDER / "MANIFEST.csv"
COLUMNS = ("file", "writer", "licence", "bytes")
LIMIT = 3_000_000


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        told = subprocess.run(["gdalinfo", "--version"], capture_output=True, text=True, check=True).stdout
        return told.partition(",")[0]


def _size(path: Path) -> int:
    return sum(found.stat().st_size for found in [path, *path.rglob("*")] if found.is_file())


def _make(made: Made) -> dict[str, str]:
    path = FOLDER / made.file
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    made.write(path)
    writer = " + ".join(_version(package) for package in made.writer)
    return {"file": made.file, "writer": writer, "licence": made.licence, "bytes": str(_size(path))}


def main(kinds: list[str]) -> None:
    """Write the files of some kinds, or all."""
    rows: dict[str, dict[str, str]] = {}
    if MANIFEST.exists():
        with MANIFEST.open(encoding="utf-8", newline="") as file:
            rows = {row["file"]: row for row in csv.DictReader(file)}
    for made in FILES:
        if not kinds or made.file.partition("/")[0] in kinds:
            rows[made.file] = _make(made)
    known = {made.file for made in FILES}
    with MANIFEST.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows[name] for name in sorted(rows) if name in known)
    (FOLDER / "LICENSES").mkdir(exist_ok=True)
    for package in sorted({package for package, _, _ in shipped.SHIPPED}):
        shipped.copy_licence(package, FOLDER / "LICENSES")
    total = _size(FOLDER)
    print(f"{len(known)} files, {total:,} bytes")
    if total > LIMIT:
        raise SystemExit(f"that is more than {LIMIT:,} bytes: make them smaller")


if __name__ == "__main__":
    main(sys.argv[1:])
