"""Pins of every package that an environment of this project holds: `constraints/python3.11.txt` and
its like.

    python scripts/constraints.py write      # pins what this interpreter's environment holds, for
    its Python version python scripts/constraints.py check      # says where this environment
    departs from the pins; exit code 1 if it does

`make update-constraints` does the first in a fresh environment. `make test` and CI install with
these files, so that a release of another project cannot break a test overnight; `make test-latest`
installs without them.

Only what the project's extras reach is pinned: a package that somebody put into the environment by
hand is not. A dependency whose marker excludes this machine (pyhdf has wheels for x86_64 only)
keeps the pin that it had, unless it is installed all the same, so that one file serves every
machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = "insitu"
EXTRAS = frozenset({"test", "check", "demo"})
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
FILE = ROOT / "constraints" / f"python{VERSION}.txt"


def find_pins() -> dict[str, str]:
    """Return the installed version of everything that the project's extras reach, by canonical
    name.
    """
    pins: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(PROJECT, EXTRAS)]
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # its marker excludes this machine
        if name != PROJECT:
            pins[name] = found.version.partition("+")[0]
        waiting += [
            (canonicalize_name(wanted.name), frozenset(wanted.extras)) for wanted in _needs(found.requires, extras)
        ]
    return pins


def _needs(requirements: list[str] | None, extras: frozenset[str]) -> Iterator[Requirement]:
    """Yield the requirements that hold here, and those that only a marker about the machine
    excludes.
    """
    for text in requirements or []:
        requirement = Requirement(text)
        marker = requirement.marker
        holds = marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""})
        if holds or ("platform_machine" in str(marker) and any(extra in str(marker) for extra in extras)):
            yield requirement


def read_pins(path: Path) -> dict[str, str]:
    """Return the pins that a constraints file holds."""
    if not path.exists():
        return {}
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines if line)}


def _kept_pins(found: dict[str, str]) -> dict[str, str]:
    """Return the old pins of direct dependencies whose marker excludes this machine."""
    old = read_pins(FILE)
    direct = {canonicalize_name(Requirement(text).name) for text in distribution(PROJECT).requires or []}
    return {name: version for name, version in old.items() if name in direct and name not in found}


def write() -> int:
    """Write the constraints file of this Python version."""
    found = find_pins()
    pins = {**_kept_pins(found), **found}
    FILE.parent.mkdir(exist_ok=True)
    head = f"# Python {VERSION}. Written by `make update-constraints`; `make test` and CI install with it.\n"
    FILE.write_text(head + "".join(f"{name}=={pins[name]}\n" for name in sorted(pins)), encoding="utf-8")
    print(f"{FILE.relative_to(ROOT)}: {len(pins)} packages")
    return 0


def check() -> int:
    """Print where this environment departs from the pins."""
    if not FILE.exists():
        print(f"there is no {FILE.relative_to(ROOT)}: this environment has the newest releases")
        return 0
    pins, found = read_pins(FILE), find_pins()
    departures = [
        f"{name} {version}, pinned {pins.get(name, 'not at all')}"
        for name, version in sorted(found.items())
        if pins.get(name) != version
    ]
    print("\n".join(departures) or f"as {FILE.relative_to(ROOT)} has it: {len(found)} packages")
    return 1 if departures else 0


if __name__ == "__main__":
    verbs = {"write": write, "check": check}
    if len(sys.argv) != 2 or sys.argv[1] not in verbs:
        sys.exit(__doc__)
    sys.exit(verbs[sys.argv[1]]())
