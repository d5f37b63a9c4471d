"""A headless Chromium for the tests and the pictures of the explorer's page.

`python scripts/browser.py install` does nothing where a browser is found (`INSITU_BROWSER` names one
that lies elsewhere). Otherwise it takes Playwright's own, or Debian's `chromium-headless-shell` where
that download does not work. Tests that find no browser are skipped, with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from glob import glob
from pathlib import Path

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
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


def install() -> int:
    """Install a browser where there is none; 1 if it cannot be had."""
    if find_browser() is not None:
        return 0
    attempts = [[sys.executable, "-m", "playwright", "install", "chromium-headless-shell"]]
    if shutil.which("apt-get") is not None and os.geteuid() == 0:
        attempts.append(["apt-get", "install", "-y", "-q", "--no-install-recommends", "chromium-headless-shell"])
    for command in attempts:
        try:
            subprocess.run(command, check=True, timeout=SECONDS, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        except (subprocess.SubprocessError, OSError) as problem:
            print(f"no browser from {command[0]}: {problem}", file=sys.stderr)
        if find_browser() is not None:
            return 0
    print("no Chromium: the explorer's page is not tested in a browser", file=sys.stderr)
    return 1


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit(__doc__)
    sys.exit(install())
