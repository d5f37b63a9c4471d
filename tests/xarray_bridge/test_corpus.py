"""Law 1 on files made by others: every one that xarray opens is identical, or refused by an error of ours."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import insitu

WORKER = Path(__file__).with_name("law.py")
SECONDS = 60


def verdicts(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Ask a worker about each file; a new one where it dies, which it does of the oracles' libraries."""
    worker = None
    for path in paths:
        if worker is None:
            environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
            worker = subprocess.Popen(
                [sys.executable, str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=environment,
            )
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(f"{path}\n")
        worker.stdin.flush()
        ready, _, _ = select.select([worker.stdout], [], [], SECONDS)
        answer = worker.stdout.readline() if ready else ""
        if not answer:
            end(worker)
            worker = None
            yield path, "died" if ready else "hung"
        else:
            yield path, answer.strip()
    if worker is not None:
        end(worker)


def end(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        assert pipe is not None
        pipe.close()


THEY_HANG = {"h5repack_hlink.h5"}
"""Files with cycles of hard links, on which netCDF never comes back."""


@pytest.mark.timeout(1800)
def test_every_file_that_xarray_opens(corpus: Path) -> None:
    paths = sorted(path for path in (corpus / "hdf5").rglob("*") if path.is_file() and path.name not in THEY_HANG)
    found = dict(verdicts(paths))
    counted = Counter(verdict.split(":")[0].split(" ")[0].strip(",") for verdict in found.values())
    bad = [
        f"{path.relative_to(corpus)}: {v}" for path, v in found.items() if v.startswith(("wrong", "crashed", "hung"))
    ]
    assert not bad
    assert counted["equal"] > 0.7 * len(paths)


def test_files_that_they_hang_on(corpus: Path) -> None:
    for path in (corpus / "hdf5").rglob("*"):
        if path.name in THEY_HANG:
            assert len(list(insitu.open_datatree(path).subtree)) > 1
