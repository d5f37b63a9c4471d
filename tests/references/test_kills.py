"""Every writer is killed before each of its system calls: the old state or the new one is left, and
can be opened and written to.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import LONG

KILLS = Path(__file__).parent / "kills"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ends a process before one of its calls."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("needs Linux and a C compiler")
    made = tmp_path_factory.mktemp("kills") / "die_at_call.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, KILLS / "die_at_call.c", "-ldl"], check=True)
    return made


CASES = [
    *[("save", suffix) for suffix in (".insitu", ".json", ".parq", ".parquet", ".icechunk")],
    *[("append", suffix) for suffix in (".insitu", ".icechunk")],
    # Of changed sources: kerchunk's forms do not say what their sources were, and Icechunk refuses
    # to open with them.
    ("refresh", ".insitu"),
    *[("resume", suffix) for suffix in (".insitu", ".parq")],
    *[("scan", suffix) for suffix in (".insitu", ".parq")],
    ("save-new", ".icechunk"),
    ("scan-one", ".insitu"),
    *[(work, ".insitu") for work in ("drop", "rollback", "compact", "convert")],
]


def run(library: Path, folder: Path, *words: str) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, KILLS / "die_everywhere.py", library, folder, *words],
        env={**os.environ, "LD_PRELOAD": str(library)}, capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.parametrize(("work", "suffix"), CASES)
def test_killed_at_every_call(library: Path, tmp_path: Path, work: str, suffix: str) -> None:
    if suffix == ".icechunk":
        pytest.importorskip("icechunk")
    told = run(library, tmp_path, work, suffix)
    assert told["old"] >= 2
    assert told["calls"] == told["old"] + told["new"]


def test_killed_where_directories_cannot_be_exchanged(library: Path, tmp_path: Path) -> None:
    told = run(library, tmp_path, "save", ".parq", "--two-steps")
    assert told["new"] >= 1
