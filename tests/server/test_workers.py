"""One reduction on a server with several worker processes: shared by them, equal to one worker's, and
finished when one of them is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cbor2
import numpy as np
import psutil
import pytest
import xarray as xr
from prometheus_client.mmap_dict import MmapedDict

import insitu
from asking import ask_twice
from insitu.active.piecewise import PlainPieces
from insitu.active.remote_values import RemoteArray
from insitu.reading import ReadContext, ReadStatistics
from insitu.reading.thread_pools import count_cores
from insitu.reducing import ReductionQuery, compute_statistics
from insitu.server import shared_reduction
from insitu.server.shared_reduction import BUSY, Sharing, reduce_shared
from insitu.server.siblings import Siblings
from server.serving import Server, serving
from waiting import LONG

STEPS = 12_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two variables of 12,000 chunks each, of eighths, whose sums are exact in any order."""
    rng = np.random.default_rng(3)
    found: Path = tmp_path_factory.mktemp("root") / "x.nc"
    values = (rng.integers(-4000, 4000, (STEPS, 4, 6)) / 8).astype("f4")
    values[7] = np.nan
    time_ = np.datetime64("2001-01-01") + np.arange(STEPS) * np.timedelta64(1, "D")
    made = xr.Dataset(
        {"t": (("time", "lat", "lon"), values), "u": (("time", "lat", "lon"), values[::-1])},
        coords={"time": time_.astype("M8[ns]"), "lat": np.arange(4.0), "lon": np.arange(6.0)},
    )
    made.to_netcdf(found, encoding={name: {"zlib": True, "chunksizes": (1, 4, 6)} for name in "tu"})
    return found


@pytest.fixture(scope="module")
def server(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("metrics")
    environment = {"PROMETHEUS_MULTIPROC_DIR": str(folder)}
    with serving([path.parent], folder / "log", "--workers", "2", environment=environment) as running:
        wait_for_workers(running)
        yield running


def wait_for_workers(server: Server, many: int = 2) -> None:
    """Wait until all workers listen: the first one answers before the others are there."""
    until = time.monotonic() + LONG
    while server.log.read_text().count("Application startup complete") < many:
        assert time.monotonic() < until, server.log.read_text()
        time.sleep(0.05)


def chunks_by_worker(server: Server) -> dict[str, float]:
    """How many chunks each worker process has decoded."""
    found = {}
    for file in server.log.parent.glob("counter_*.db"):
        for key, value, *_ in MmapedDict.read_all_values_from_file(str(file)):
            if "insitu_chunks_total" in key:
                found[file.stem] = value
    return found


OPERATIONS: dict[str, Any] = {
    "mean": lambda ds: ds.t.mean("time"),
    "sum of all": lambda ds: ds.t.sum(),
    "kept": lambda ds: ds.t.max(("lat", "lon")),
    "argmin": lambda ds: ds.t.fillna(0).argmin("time"),
    "selection": lambda ds: ds.t.isel(time=slice(None, 100, -1), lat=[2, 0]).sum("time"),
    "months": lambda ds: ds[["t"]].insitu.groupby("time.month").mean().t,
    "weighted": lambda ds: ds.t.weighted(ds.lat + 1).mean(("lat", "time")),
    "expression": lambda ds: (ds.t * 2 - ds.u).mean("time"),
    "grouped expression": lambda ds: (ds.t + ds.u).to_dataset(name="x").insitu.groupby("time.month").sum().x,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_both_workers_reduce(server: Server, path: Path, name: str) -> None:
    there = insitu.open_dataset(path, active=server.url, active_required=True)
    here = insitu.open_dataset(path)
    before = chunks_by_worker(server)
    found = OPERATIONS[name](there).load()
    xr.testing.assert_identical(found, ask_twice(lambda: OPERATIONS[name](here)))
    after = chunks_by_worker(server)
    # On one core nothing would be gained by sharing.
    assert sum(after[worker] > before.get(worker, 0) for worker in after) == min(count_cores(), 2)
    done = sum(after.values()) - sum(before.values())
    assert done >= 11_000


def test_what_was_read_is_reported_of_all_workers(server: Server, path: Path) -> None:
    job = {"url": str(path), "variable": "t", "methods": ["mean"]}
    done = server.post("/reduce", {"jobs": [job], "cache": False}).items[-1]
    assert done["chunks"] == STEPS
    assert done["bytes_decoded"] == STEPS * 4 * 6 * 4


def test_numpys_warnings_come_from_all_workers(server: Server, path: Path) -> None:
    there = insitu.open_dataset(path, active=server.url, active_required=True)
    with np.errstate(invalid="ignore"):
        quotient = there.t.data / (there.u.data * 0)
    with pytest.warns(RuntimeWarning, match="divide by zero encountered in divide") as caught:
        np.nanmax(quotient)
    assert len(caught) == 1


def test_small_reductions_are_not_shared(server: Server, path: Path) -> None:
    there = insitu.open_dataset(path, active=server.url, active_required=True)
    before = chunks_by_worker(server)
    there.t.isel(time=slice(0, 100)).mean().load()
    after = chunks_by_worker(server)
    assert sum(after[worker] > before.get(worker, 0) for worker in after) == 1


def test_a_worker_is_killed_in_the_middle(path: Path, tmp_path: Path) -> None:
    here = insitu.open_dataset(path)
    expected = (here.t * 2 - here.u).sum("time").load()
    with serving([path.parent], tmp_path / "log", "--workers", "2") as server:
        wait_for_workers(server)
        there = insitu.open_dataset(path, active=server.url, active_required=True)
        workers = {
            child: sum(child.cpu_times()[:2])
            for child in psutil.Process(server.process.pid).children()
            if "spawn_main" in " ".join(child.cmdline())
        }
        assert len(workers) == 2
        found: list[Any] = []
        asking = threading.Thread(target=lambda: found.append((there.t * 2 - there.u).sum("time").load()))
        asking.start()
        until = time.monotonic() + LONG
        while not all(sum(child.cpu_times()[:2]) > used + 0.1 for child, used in workers.items()):
            assert time.monotonic() < until
            time.sleep(0.005)
        os.kill(next(iter(workers)).pid, signal.SIGKILL)
        asking.join(LONG)
    assert found
    xr.testing.assert_identical(found[0], expected)


@pytest.mark.parametrize("behaviour", ["busy", "error", "nonsense", "closes", "missing"])
def test_whatever_a_sibling_does_the_result_is_right(
    behaviour: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_reduction, "PORTION_CELLS", 1000)
    asked = threading.Event()

    async def respond(data: bytes) -> bytes:
        asked.set()
        if behaviour == "closes":
            raise ConnectionResetError
        return {"busy": BUSY, "error": cbor2.dumps({"error": {}}), "nonsense": cbor2.dumps({"partial": {}}) * 2}[
            behaviour
        ]

    loop = asyncio.new_event_loop()
    sibling = Siblings(str(tmp_path))
    if behaviour != "missing":
        loop.run_until_complete(sibling.listen(respond))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    array = insitu.scan(path).array("t")
    query = ReductionQuery.of(["sum", "count"], axes=0)
    try:
        shared = reduce_shared(
            RemoteArray(array, ReadContext("t")),
            [array],
            PlainPieces(array.shape, array.dtype, query),
            Sharing([str(tmp_path / f"{os.getpid()}.sock")], lambda job, kept: cbor2.dumps(job), 1 << 30),
            ReadStatistics(),
            False,
        )
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(sibling.close())
        loop.close()
    assert shared is not None
    assert asked.is_set() == (behaviour != "missing")
    for name, expected in compute_statistics(array, query).items():
        np.testing.assert_array_equal(shared[0][name], expected)
