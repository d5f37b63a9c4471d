"""Reductions on a server with several worker processes: the same bits as here, and an answer when one of them is
killed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import psutil
import pytest
import xarray as xr
from uvicorn.config import Config

import insitu
from asking import ask_twice
from insitu.server.supervisor import Supervisor
from server.serving import Server, serving
from waiting import LONG, wait_until

STEPS = 12_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two variables of 12,000 chunks each, of values with rounding errors in every sum."""
    rng = np.random.default_rng(3)
    found: Path = tmp_path_factory.mktemp("root") / "x.nc"
    values = rng.normal(280, 30, (STEPS, 4, 6)).astype("f4")
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
    wait_until(lambda: server.log.read_text().count("Application startup complete") >= many)


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
def test_the_bits_are_those_of_here(server: Server, path: Path, name: str) -> None:
    there = insitu.open_dataset(path, active=server.url, active_required=True)
    here = insitu.open_dataset(path)
    expected = ask_twice(lambda: OPERATIONS[name](here))
    for _ in range(4):  # of either worker
        xr.testing.assert_identical(OPERATIONS[name](there).load(), expected)


def test_what_was_read_is_reported(server: Server, path: Path) -> None:
    job = {"url": str(path), "variable": "t", "methods": ["mean"]}
    done = server.post("/reduce", {"jobs": [job], "cache": False}).items[-1]
    assert done["chunks"] == STEPS
    assert done["bytes_decoded"] == STEPS * 4 * 6 * 4


def test_numpys_warnings(server: Server, path: Path) -> None:
    there = insitu.open_dataset(path, active=server.url, active_required=True)
    with np.errstate(invalid="ignore"):
        quotient = there.t.data / (there.u.data * 0)
    with pytest.warns(RuntimeWarning, match="divide by zero encountered in divide") as caught:
        np.nanmax(quotient)
    assert len(caught) == 1


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
        working = wait_until(
            lambda: [child for child, used in workers.items() if sum(child.cpu_times()[:2]) > used + 0.1], every=0.005
        )
        os.kill(working[0].pid, signal.SIGKILL)
        asking.join(LONG)
    assert found
    xr.testing.assert_identical(found[0], expected)


@pytest.mark.skipif(os.name == "nt", reason="no SIGSTOP")
def test_a_worker_that_dies_while_it_is_asked_for_a_sign_of_life() -> None:
    """It was replaced a minute later, when the time for its answer was over; signals waited so long, too."""
    with mock.patch("uvicorn.supervisors.multiprocess.signal.signal"):
        config = Config("starlette.applications:Starlette", factory=True, host="127.0.0.1", port=0, workers=1)
        supervisor = Supervisor(config, [], lambda: False)
    supervisor.init_processes()
    (worker,) = supervisor.processes
    assert worker.pid is not None
    found: list[bool] = []
    try:
        assert worker.is_alive(timeout=LONG)
        os.kill(worker.pid, signal.SIGSTOP)
        wait_until(lambda: psutil.Process(worker.pid).status() == psutil.STATUS_STOPPED)
        asking = threading.Thread(target=lambda: found.append(worker.is_alive(timeout=2 * LONG)), daemon=True)
        asking.start()
        time.sleep(0.3)  # it asks
    finally:
        worker.process.kill()
    asking.join(LONG)
    assert found == [False]
    supervisor.keep_subprocess_alive()
    (successor,) = supervisor.processes
    assert successor.is_alive(timeout=LONG)
    successor.kill()
    successor.join()
