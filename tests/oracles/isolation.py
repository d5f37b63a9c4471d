"""How does one run a comparison on files that may kill the process or never end?

A worker process takes one path after the other. When it dies or takes too long, that file gets a
finding that says so, and a new worker goes on with the next one.

    python isolation.py hdf5            (the worker; paths come one a line, answers go one a line as
    JSON)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import wait  # unlike select, of any number of open files
from pathlib import Path
from typing import Any

from finding import Finding

__all__ = ["DIED", "environment", "findings_of", "generate", "generate_once"]

DIED = "the process died"
FIXTURES = Path(__file__).parents[1] / "fixtures"
READY = "ready\n"


def findings_of(comparison: str, paths: Iterable[Path], seconds: float = 600) -> Iterator[tuple[Path, list[Finding]]]:
    """Compare each file in a worker. `comparison`: hdf5 (h5py), xarray (its engine netcdf4; where
    that fails, h5netcdf), zarr (zarr-python), dmrpp (h5py, on the data file), cut or flip (damage).
    """
    first, *others = ["netcdf4", "h5netcdf"] if comparison == "xarray" else [comparison]
    workers: dict[str, subprocess.Popen[str]] = {}
    try:
        for path in paths:
            findings = _ask_worker(workers, first, path, seconds)
            for other in others:
                if comparison == "xarray" and _oracle_failed(findings):
                    findings = _ask_worker(workers, other, path, seconds)
            yield path, findings
    finally:
        for worker in workers.values():
            _end(worker)


def generate(folder: Path) -> dict[str, Path]:
    """Write every file of `tests/fixtures` into a folder; give them by name.

    In processes of their own: netCDF4 brings its own plugins and tells HDF5 about them, and h5py
    cannot write with those.
    """
    for maker in ("make_hdf5.py", "make_netcdf4.py"):
        command = [sys.executable, str(FIXTURES / maker), str(folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment())
    return {path.stem: path for path in sorted(folder.iterdir())}


def generate_once(factory: Any) -> dict[str, Path]:
    """The same by a `tmp_path_factory`, once for all modules of tests and all their workers, which only read them."""
    base = factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "generated-once"
    if not shared.exists():
        made = factory.mktemp("generated")
        generate(made)
        with suppress(OSError):  # another worker was quicker
            made.rename(shared)
    return {path.stem: path for path in sorted(shared.iterdir())}


def _oracle_failed(findings: list[Finding]) -> bool:
    """Whether nothing could be compared: the oracle died, never ended (ours is tested without it
    too), or opened no group.
    """
    return bool(findings) and all(
        finding.why.startswith(DIED) or finding.verdict == "unchecked" for finding in findings
    )


def _ask_worker(
    workers: dict[str, subprocess.Popen[str]], comparison: str, path: Path, seconds: float
) -> list[Finding]:
    if comparison not in workers:
        workers[comparison] = _start(comparison)
    answer = _ask(workers[comparison], path, seconds)
    if isinstance(answer, list):
        return answer
    _end(workers.pop(comparison))
    return [answer]


def _end(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    with suppress(BrokenPipeError), worker:  # closes its pipes and waits
        pass


def environment() -> dict[str, str]:
    """For processes that import the modules of these folders."""
    paths = [str(Path(__file__).parent), str(FIXTURES), *filter(None, sys.path)]
    variables = {name: value for name, value in os.environ.items() if name != "HDF5_PLUGIN_PATH"}
    return variables | {"PYTHONPATH": os.pathsep.join(paths)}


def _start(comparison: str) -> subprocess.Popen[str]:
    with tempfile.TemporaryFile("w+") as output:
        worker = subprocess.Popen(
            [sys.executable, __file__, comparison],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            env=environment(),
        )
        assert worker.stdout is not None
        if worker.stdout.readline() != READY:  # an error here is one of the comparison itself, not of a file
            output.seek(0)
            raise RuntimeError(f"no worker for {comparison}: {output.read()}")
    return worker


def _ask(worker: subprocess.Popen[str], path: Path, seconds: float) -> list[Finding] | Finding:
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        print(path, file=worker.stdin, flush=True)
    except BrokenPipeError:
        return Finding("", "crashed", f"{DIED} before it began")
    ready = wait([worker.stdout], seconds)
    if not ready:
        return Finding("", "hung", f"nothing after {seconds:g} s")
    line = worker.stdout.readline()
    if not line:
        return Finding("", "crashed", f"{DIED} (signal or exit {worker.wait()})")
    return [Finding(**fields) for fields in json.loads(line)]


def main(comparison: str) -> None:
    """Serve as the worker."""
    if comparison == "hdf5":
        import compare_hdf5

        compare = compare_hdf5.compare
    elif comparison == "zarr":
        import compare_zarr

        compare = compare_zarr.compare
    elif comparison == "dmrpp":
        import compare_dmrpp

        compare = compare_dmrpp.compare
    elif comparison in ("cut", "flip"):
        import damage

        compare = getattr(damage, comparison)
    else:
        import compare_xarray

        def compare(path: str) -> list[Finding]:
            return compare_xarray.compare(path, comparison)

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not get among the answers
    answers.write(READY)
    answers.flush()
    for line in sys.stdin:
        print(
            json.dumps([finding.as_json() for finding in compare(line.rstrip("\n"))]),
            file=answers,
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1])
