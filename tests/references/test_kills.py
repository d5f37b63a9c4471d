"""Every writer is killed before each of its system calls: the old state or the new one is left, and
can be opened and written to.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
    *[(work, ".insitu") for work in ("drop", "rollback", "compact", "convert", "pin", "unpin", "unpin-compact")],
]


Killer = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def kill_at_every_call(library: Path) -> Iterator[Killer]:
    """A function that kills a writer at every call, in a process that has imported what writers import."""
    process = subprocess.Popen(
        [sys.executable, KILLS / "die_everywhere.py", library],
        env={**os.environ, "LD_PRELOAD": str(library)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None

    def kill(folder: Path, *words: Any) -> dict[str, Any]:
        print(json.dumps([str(folder), *words]), file=process.stdin, flush=True)
        line = process.stdout.readline()
        assert line, f"the process ended: {process.wait(LONG)}"
        answer: dict[str, Any] = json.loads(line)
        assert "failed" not in answer, answer["failed"]
        return answer

    with process:
        yield kill
        process.stdin.close()


@pytest.mark.parametrize(("work", "suffix"), CASES)
def test_killed_at_every_call(kill_at_every_call: Killer, tmp_path: Path, work: str, suffix: str) -> None:
    if suffix == ".icechunk":
        pytest.importorskip("icechunk")
    counted = kill_at_every_call(tmp_path, work, suffix)
    assert counted["old"] >= 2
    assert counted["calls"] == counted["old"] + counted["new"]


def test_killed_where_directories_cannot_be_exchanged(kill_at_every_call: Killer, tmp_path: Path) -> None:
    assert kill_at_every_call(tmp_path, "save", ".parq", False)["new"] >= 1
