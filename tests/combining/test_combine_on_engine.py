"""Scanning on a real Dask cluster of processes: the same dataset, workers that die, bounded memory.

Modules: combining/scan_portions.py, engines/choose.py
"""

from __future__ import annotations

import os
import signal
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import xarray as xr

from dask_cluster import start_cluster
from fixtures.make_archive import Part, write_all
from insitu.combining.scan_portions import PortionScan
from insitu.xarray_bridge import open_mfdataset
from waiting import LONG

distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]

FILES = 4_000
"""Names of ten files, for the test of memory."""
BYTES_A_FILE = 3000
"""Most memory that the client takes for a file, at any time: names, identity, labels and chunks of
the files below take 1.5 kB.
"""


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Return a client of two processes."""
    with start_cluster() as connected:
        yield connected


def test_the_same_dataset(tmp_path: Path, client: Any) -> None:
    archive = [Part(first=2 * i, packing=i // 40, stored="i2", storage=i % 4, title=str(i)) for i in range(100)]
    paths = write_all(tmp_path, archive)
    taken = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
    for options in ({}, {"combine": "nested", "concat_dim": "time"}, taken):
        found, expected = open_mfdataset(paths, parallel=client, **options), open_mfdataset(paths, **options)
        assert str(found.insitu.report()) == str(expected.insitu.report())
        xr.testing.assert_identical(found.load(), expected.load())


def test_a_grid_of_files(tmp_path: Path, client: Any) -> None:
    paths = write_all(tmp_path, [Part(first=2 * i, lon_first=4 * j) for i in range(4) for j in range(3)])
    xr.testing.assert_identical(open_mfdataset(paths, parallel=client).load(), open_mfdataset(paths).load())


def test_an_error_of_a_file(tmp_path: Path, client: Any) -> None:
    paths = write_all(tmp_path, [Part(first=2 * i) for i in range(20)])
    Path(paths[7]).write_bytes(b"no data")
    with pytest.raises(ValueError, match=r"part_007\.nc"):
        open_mfdataset(paths, parallel=client)
    found = open_mfdataset(paths, parallel=client, errors="skip")
    assert list(found.insitu.report().left_out) == [paths[7]]


def test_a_worker_that_is_killed(tmp_path: Path, client: Any) -> None:
    """In the middle of a scan: Dask gives its work to others, the result is the same."""
    paths = write_all(tmp_path, [Part(first=2 * i) for i in range(30)]) * 40
    expected = open_mfdataset(paths, combine="nested", concat_dim="time")
    victim = sorted(client.run(os.getpid).values())[0]
    killed = threading.Event()

    def kill_once(done: int, total: int) -> None:
        if not killed.is_set() and total / 4 < done < total:
            os.kill(victim, signal.SIGKILL)
            killed.set()

    found = open_mfdataset(paths, parallel=client, combine="nested", concat_dim="time", progress=kill_once)
    assert killed.is_set()
    xr.testing.assert_identical(found.load(), expected.load())
    client.wait_for_workers(2, timeout=LONG)
    assert victim not in client.run(os.getpid).values()


def test_memory_of_the_client(tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    real = write_all(tmp_path, [Part(first=2 * i, chunks=(1, 3, 4)) for i in range(10)])
    names = tmp_path / "names"
    names.mkdir()
    for number in range(FILES):
        (names / f"{number:05d}.nc").symlink_to(real[number % 10])
    how: dict[str, Any] = {"combine": "nested", "concat_dim": "time", "parallel": client}
    open_mfdataset(str(names / "000*.nc"), **how)
    tracemalloc.start()
    try:
        ds = open_mfdataset(str(names / "*.nc"), **how)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert ds.sizes["time"] == 2 * FILES
    assert peak < BYTES_A_FILE * FILES


RELEASE = threading.Event()


def _wait_for_release() -> None:
    RELEASE.wait(LONG)


def test_a_client_that_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error, no endless waiting."""
    monkeypatch.setattr("insitu.combining.scan_portions.ALIVE_SECONDS", 0.2)
    paths = write_all(tmp_path, [Part(first=2 * i) for i in range(4)])
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0", protocol="inproc://"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        try:
            busy = client.submit(_wait_for_release, pure=False)
            threading.Timer(0.5, client.close).start()
            with pytest.raises(Exception, match=r"closed|lost|cancel"):
                PortionScan(paths, *_scan_arguments(client)).run()
            del busy
        finally:
            RELEASE.set()


def _scan_arguments(client: Any) -> tuple[Any, ...]:
    from insitu.engines.choose import engine_for
    from insitu.scanning.scan_member import Job

    return Job(), engine_for(client), None, None
