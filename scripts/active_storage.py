"""PyActiveStorage in an environment of its own, for tests and benchmarks: it wants other versions
of things than we do.

python scripts/active_storage.py install
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

VERSION = "0.8.0"
FOLDER = Path(os.environ.get("INSITU_SERVERS") or Path(__file__).resolve().parents[1] / ".servers") / "pyactivestorage"


def python() -> Path | None:
    """The interpreter that has it; None if there is none. `INSITU_PYACTIVESTORAGE` names another
    one.
    """
    named = os.environ.get("INSITU_PYACTIVESTORAGE")
    path = Path(named) if named else FOLDER / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not path.exists():
        return None
    asked = subprocess.run([path, "-c", "import activestorage"], capture_output=True, check=False)
    return path if asked.returncode == 0 else None


def reason() -> str:
    """Why it is not there."""
    return "PyActiveStorage is not installed (python scripts/active_storage.py install)"


def install() -> None:
    """Make the environment, unless it is there."""
    if python() is not None:
        return
    FOLDER.parent.mkdir(exist_ok=True)
    (FOLDER.parent / ".gitignore").write_text("*\n")
    venv.create(FOLDER, with_pip=True)
    pip = [FOLDER / ("Scripts" if os.name == "nt" else "bin") / "python", "-m", "pip", "install", "-q"]
    subprocess.run([*pip, f"PyActiveStorage=={VERSION}"], check=True, timeout=900)


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit(__doc__)
    install()
    print(python() or reason())
