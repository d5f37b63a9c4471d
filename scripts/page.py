"""Bundle of the plotting libraries that the explorer's page ships with (uPlot, d3 modules), coastlines, and its types.

`python scripts/page.py build` installs the versions that scripts/plotting/package-lock.json pins
into `.clients/plotting` and writes the bundle, its types, uPlot's style sheet, coastlines and
borders (Natural Earth, from world-atlas) and the licences into the page's folder `vendor`, where
they are committed: nobody but a maintainer needs npm. `check` says whether what is committed is
what the pinned versions give. `types` checks the JSDoc types of the page by TypeScript; where npm
is missing or has no network it says so, and is content.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "scripts" / "plotting"
WORK = ROOT / ".clients" / "plotting"
VENDOR = ROOT / "src" / "insitu" / "server" / "explorer" / "page" / "vendor"
ATLAS = ("countries-110m.json", "countries-50m.json")
"""Coastlines and borders: those that every map has, and finer ones for zooming in."""
SECONDS = 300


def install(work: Path) -> None:
    """Install the pinned versions, unless they are there already.

    Raises
    ------
    OSError, subprocess.SubprocessError
        npm is missing, or cannot install them.
    """
    pins = (PINS / "package-lock.json").read_bytes()
    installed = work / "installed-lock.json"  # written last: an install that was broken off is begun anew
    if installed.is_file() and installed.read_bytes() == pins:
        return
    work.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(PINS / name, work / name)
    _run(["npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1"], work)
    installed.write_bytes(pins)


def bundle(work: Path = WORK) -> dict[str, bytes]:
    """Return the files of `vendor` by name, made from the pinned versions.

    Raises
    ------
    OSError, subprocess.SubprocessError
        npm is missing, or cannot install the libraries.
    """
    install(work)
    shutil.copyfile(PINS / "plotting.js", work / "plotting.js")
    esbuild = work / "node_modules" / "esbuild" / "bin" / "esbuild"
    options = ["--bundle", "--minify", "--format=esm", "--target=es2022", "--legal-comments=none"]
    _run(["node", str(esbuild), "plotting.js", *options, "--outfile=bundle.js"], work)
    style = work / "node_modules" / "uplot" / "dist" / "uPlot.min.css"
    return {
        "plotting.js": (work / "bundle.js").read_bytes(),
        "plotting.d.ts": (PINS / "plotting.js").read_bytes(),  # what it exports, and from where, are its types
        "uplot.css": style.read_bytes(),
        **{name: (work / "node_modules" / "world-atlas" / name).read_bytes() for name in ATLAS},
        "LICENSES.txt": _licences(work / "node_modules").encode(),
    }


def _licences(modules: Path) -> str:
    """Return the licences of all libraries in the bundle, also of those that others of them need."""
    texts = [
        "Libraries in plotting.js and uplot.css, and the coastlines and borders of world-atlas (made with\n"
        "Natural Earth, which is in the public domain), with their licences. Built by scripts/page.py.\n"
    ]
    pinned = json.loads((PINS / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    for path, package in sorted(pinned.items()):
        if path and not package.get("dev"):
            name = path.removeprefix("node_modules/")
            licence = next((modules / name).glob("LICENSE*"))
            texts.append(f"{name} {package['version']}\n\n{licence.read_text(encoding='utf-8').strip()}\n")
    return f"\n{'-' * 80}\n\n".join(texts)


def _run(command: list[str], folder: Path, *, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which(command[0])  # on Windows npm is a batch file, which is found by its path only
    if program is None:
        raise FileNotFoundError(f"there is no {command[0]} here")
    command = [program, *command[1:]]
    return subprocess.run(command, cwd=folder, check=check, timeout=SECONDS, stdin=subprocess.DEVNULL)


def build() -> int:
    """Write the bundle into the page's folder."""
    VENDOR.mkdir(parents=True, exist_ok=True)
    for name, data in bundle().items():
        (VENDOR / name).write_bytes(data)
        print(f"{(VENDOR / name).relative_to(ROOT)}: {len(data):,} bytes")
    return 0


def check() -> int:
    """Return 1 if a committed file differs from what the pinned versions give."""
    differing = [name for name, data in bundle().items() if (VENDOR / name).read_bytes() != data]
    for name in differing:
        print(f"vendor/{name} is not what the pinned versions give: run `make page`", file=sys.stderr)
    return int(bool(differing))


def check_types() -> int:
    """Return 1 if the page's JavaScript contradicts its JSDoc types; 0 also where that cannot be checked."""
    tsc = WORK / "node_modules" / "typescript" / "bin" / "tsc"
    try:
        install(WORK)
        found = _run(["node", str(tsc), "--project", str(PINS / "tsconfig.json")], ROOT, check=False)
    except (OSError, subprocess.SubprocessError) as problem:
        print(f"the types of the explorer's page are not checked, TypeScript cannot be had here: {problem}")
        return 0
    if found.returncode:
        return 1
    print("Success: no issues found in the types of the explorer's page")
    return 0


COMMANDS = {"build": build, "check": check, "types": check_types}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    try:
        sys.exit(COMMANDS[sys.argv[1]]())
    except (OSError, subprocess.SubprocessError) as problem:
        sys.exit(f"the plotting libraries could not be installed: {problem}")
