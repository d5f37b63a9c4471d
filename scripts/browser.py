"""A headless Chromium for the tests and the pictures of the explorer's page, and Debian's Firefox.

`python scripts/browser.py install` does nothing where browsers are found (`INSITU_BROWSER` names a
Chromium that lies elsewhere, `INSITU_FIREFOX` a Firefox). Otherwise it takes Playwright's own
Chromium, or Debian's `chromium-headless-shell` where that download does not work, and Debian's
`firefox-esr`. Tests that find no browser are skipped, with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from glob import glob
from pathlib import Path

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
FIREFOX = ("firefox-esr", "firefox")
SECONDS = 300


def find_browser() -> str | None:
    """Return the path of a Chromium, or None."""
    named = os.environ.get("INSITU_BROWSER")
    if named:
        return named
    for program in PROGRAMS:
        found = shutil.which(program)
        if found is not None:
            return found
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    own = sorted(glob(str(cache / "chromium*" / "*" / "*headless*shell"))) + sorted(
        glob(str(cache / "chromium*" / "*" / "chrome"))
    )
    return own[-1] if own else None


def find_firefox() -> str | None:
    """Return the path of a Firefox, or None."""
    return os.environ.get("INSITU_FIREFOX") or next(filter(None, map(shutil.which, FIREFOX)), None)


def install() -> int:
    """Install the browsers that are missing; 1 if one cannot be had."""
    debian = ["apt-get", "install", "-y", "-q", "--no-install-recommends"]
    can_install = shutil.which("apt-get") is not None and os.geteuid() == 0
    chromium = [[sys.executable, "-m", "playwright", "install", "chromium-headless-shell"]]
    chromium += [[*debian, "chromium-headless-shell"]] if can_install else []
    firefox = [[*debian, "firefox-esr"]] if can_install else []
    missing = [
        name
        for name, find, attempts in (("Chromium", find_browser, chromium), ("Firefox", find_firefox, firefox))
        if not _install_one(find, attempts)
    ]
    for name in missing:
        print(f"no {name}: the explorer's page is not tested in it", file=sys.stderr)
    return 1 if missing else 0


def _install_one(find: Callable[[], str | None], attempts: list[list[str]]) -> bool:
    """Try commands until a browser is found; return whether one is."""
    for command in attempts:
        if find() is not None:
            break
        try:
            subprocess.run(command, check=True, timeout=SECONDS, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        except (subprocess.SubprocessError, OSError) as problem:
            print(f"no browser from {command[0]}: {problem}", file=sys.stderr)
    return find() is not None


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit(__doc__)
    sys.exit(install())
