"""Law 1 on files made by others: every one that xarray opens is identical, or refused by an error
of ours.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import wait  # unlike select, of any number of open files
from pathlib import Path
from typing import Any

import pytest

import insitu
from real_files import FILES, list_files

WORKER = Path(__file__).with_name("law.py")
SECONDS = 600


def verdicts(paths: Iterable[Path], engines: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Ask a worker about each file; a new one where it dies, which it does of the oracles'
    libraries: then the next engine is asked.
    """
    worker = None
    for path in paths:
        for number in range(len(engines)):
            worker = worker or _worker()
            answer = _ask_worker(worker, "\t".join([str(path), *engines[number:]]))
            if answer not in ("died", "hung"):
                break
            end(worker)
            worker = None
        yield path, answer
    if worker is not None:
        end(worker)


def _worker() -> subprocess.Popen[str]:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, str(WORKER)], **pipes, text=True, env=environment)


def _ask_worker(worker: subprocess.Popen[str], question: str) -> str:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(f"{question}\n")
    worker.stdin.flush()
    ready = wait([worker.stdout], SECONDS)
    answer = worker.stdout.readline() if ready else ""
    return answer.strip() or ("died" if ready else "hung")


def end(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        assert pipe is not None
        pipe.close()


THEY_HANG = {"h5repack_hlink.h5"}
"""Files with cycles of hard links, on which netCDF never comes back."""


def assert_files_agree(corpus: Path, paths: Sequence[Path], engines: Sequence[str], share: float) -> None:
    """Every file that an engine opens is the same, or differs for a reason that is listed; and
    enough of them are opened.
    """
    found = dict(verdicts(paths, engines))
    bad = [
        f"{path.relative_to(corpus)}: {verdict}"
        for path, verdict in found.items()
        if verdict.startswith(("wrong", "crashed", "refused", "hung", "died"))
    ]
    assert not bad
    counted = Counter(verdict.split(":")[0].split(" ")[0].strip(",") for verdict in found.values())
    assert counted["equal"] > share * len(paths)


@pytest.mark.parametrize(("folder", "engines"), [("hdf5", ("netcdf4", "h5netcdf")), ("netcdf3", ("netcdf4",))])
def test_files_that_others_wrote(folder: str, engines: tuple[str, ...]) -> None:
    assert_files_agree(FILES, list_files(FILES / folder), engines, 0.8)


PARTS = {"hdf5": 4, "netcdf3": 1}
"""How many parts a folder of the corpus is compared in, so that several workers share it."""


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("folder", "engines", "part"),
    [
        (folder, engines, part)
        for folder, engines in (("hdf5", ("netcdf4", "h5netcdf")), ("netcdf3", ("netcdf4",)))
        for part in range(PARTS[folder])
    ],
)
def test_every_file_that_xarray_opens(corpus: Path, folder: str, engines: tuple[str, ...], part: int) -> None:
    paths = [path for path in list_files(corpus / folder) if path.name not in THEY_HANG][part :: PARTS[folder]]
    assert_files_agree(corpus, paths, engines, 0.8)


def test_every_zarr_store_that_xarray_opens(corpus: Path) -> None:
    pytest.importorskip("zarr")
    marks = {"zarr.json", ".zgroup", ".zmetadata"}
    paths = sorted({path.parent for path in (corpus / "zarr").rglob("*") if path.name in marks})
    assert_files_agree(corpus, paths, ("zarr",), 0.1)  # most are single arrays, which are no datasets for xarray


def test_files_that_they_hang_on(corpus: Path) -> None:
    for path in (corpus / "hdf5").rglob("*"):
        if path.name in THEY_HANG:
            assert len(list(insitu.open_datatree(path).subtree)) > 1
