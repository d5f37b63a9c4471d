"""Programs of others that the tests run against the server, and on copies.

Of the Zarr view: zarrita.js from npm, GDAL from Debian. Of copies: GDAL and ncdump from Debian. Of the
explorer's page: axe-core, which looks for what shuts people out, and puppeteer-core, which drives
Firefox, from npm.

`python scripts/clients.py install` puts those of npm into `.clients` and, where that is allowed,
installs Debian's `gdal-bin` and `netcdf-bin`. Tests that find no client are skipped, with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent / ".clients"
PACKAGES = {"zarrita": "0.7", "axe-core": "4", "puppeteer-core": "24"}
"""What comes from npm, and its version."""
DEBIAN = {"gdalmdiminfo": "gdal-bin", "ncdump": "netcdf-bin"}
"""Programs that come from Debian, and their packages."""
SECONDS = 300


def install() -> int:
    """Install what is missing; 1 if something could not be had."""
    missing = 0
    absent = [name for name in PACKAGES if not (FOLDER / "node_modules" / name).is_dir()]
    if absent:
        if shutil.which("npm") is None:
            print(f"no npm: {', '.join(absent)} cannot be installed", file=sys.stderr)
            missing = 1
        else:
            FOLDER.mkdir(exist_ok=True)
            wanted = [f"{name}@{PACKAGES[name]}" for name in absent]
            call = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(FOLDER), *wanted]
            missing |= _called(call, " and ".join(absent))
    packages = [package for program, package in DEBIAN.items() if shutil.which(program) is None]
    if packages:
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            print(f"no right to install what is missing: apt-get install {' '.join(packages)}", file=sys.stderr)
            missing = 1
        else:
            install_debian = ["apt-get", "install", "-y", "-q", "--no-install-recommends"]
            missing |= _called([*install_debian, *packages], " and ".join(packages))
    return missing


def _called(command: list[str], what: str) -> int:
    try:
        subprocess.run(command, check=True, timeout=SECONDS, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    except (subprocess.SubprocessError, OSError) as problem:
        print(f"{what} could not be installed: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit(__doc__)
    sys.exit(install())
