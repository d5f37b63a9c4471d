"""pyhdf, the oracle of the HDF4 tests, on machines that PyPI has no wheel for (all but x86_64):
built against Debian's HDF4.

`python scripts/hdf4.py install` does nothing where pyhdf is there already. Otherwise it builds it
against `libhdf4-dev`, which it installs where that is allowed. Where it cannot be had, the HDF4
tests are skipped, and the end of the run says so.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import constraints

PACKAGE = "libhdf4-dev"
HEADERS = (Path("/usr/include/hdf"), Path("/usr/local/include"), Path("/opt/homebrew/include"))
SECONDS = 300


def find_headers() -> Path | None:
    """Return the folder of HDF4's headers; None if there is none."""
    return next((folder for folder in HEADERS if (folder / "mfhdf.h").exists()), None)


def install() -> int:
    """Build pyhdf if it is missing; 1 if it could not be had."""
    if importlib.util.find_spec("pyhdf") is not None:
        return 0
    if find_headers() is None:
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            print(f"no pyhdf, and no right to install {PACKAGE}: the HDF4 tests are skipped", file=sys.stderr)
            return 1
        _run(["apt-get", "install", "-y", "-q", "--no-install-recommends", PACKAGE])
    headers = find_headers()
    if headers is None:
        print(f"{PACKAGE} could not be installed: the HDF4 tests are skipped", file=sys.stderr)
        return 1
    libraries = [str(folder) for folder in (headers.parent.parent / "lib", headers.parents[1]) if folder.is_dir()]
    built = {**os.environ, "INCLUDE_DIRS": str(headers), "LIBRARY_DIRS": os.pathsep.join(libraries)}
    pins = ["--constraint", str(constraints.FILE)] if constraints.FILE.exists() else []
    if not _run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", *pins, "pyhdf"], built):
        print("pyhdf could not be built: the HDF4 tests are skipped", file=sys.stderr)
        return 1
    return 0


def _run(command: list[str], environment: dict[str, str] | None = None) -> bool:
    try:
        subprocess.run(
            command, check=True, timeout=SECONDS, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=environment
        )
    except (subprocess.SubprocessError, OSError) as problem:
        print(f"{command[0]}: {problem}", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit(__doc__)
    sys.exit(install())
