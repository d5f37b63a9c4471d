"""What `/metrics` says, of one worker process and of several."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
import urllib3
from prometheus_client.parser import text_string_to_metric_families

from insitu.server.error_responses import UnavailableError, error_response
from insitu.server.metrics import COUNTERS, ENVIRONMENT_VARIABLE, GAUGES, Metrics, multiprocess_folder
from insitu.server.settings import Settings
from insitu.server.worker import Worker
from server.serving import Server, serving
from waiting import LONG, wait_until


def samples(metrics: Metrics) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def test_counters_gauges_and_histogram() -> None:
    metrics = Metrics()
    metrics.add("insitu_scans_total", 2)
    metrics.set("insitu_running", 3)
    for total in (4, 4, 7):
        metrics.add_up_to("insitu_cache_hits_total", total)
    metrics.record_response("reduce", 200, 0.2, 10)
    metrics.record_response("reduce", 200, 70.0, 10)
    metrics.record_response("chosen/by/the/client", 0, 0.2, 0)
    found = samples(metrics)
    assert {*COUNTERS, *GAUGES} <= {name for name, *_ in found}
    assert found["insitu_scans_total",] == 2
    assert found["insitu_running",] == 3
    assert found["insitu_cache_hits_total",] == 7
    assert found["insitu_bytes_sent_total",] == 20
    assert found["insitu_requests_total", "reduce", "200"] == 2
    assert found["insitu_requests_total", "other", "other"] == 1
    assert found["insitu_request_seconds_bucket", "0.25", "reduce"] == 1
    assert found["insitu_request_seconds_bucket", "+Inf", "reduce"] == 2
    assert found["insitu_request_seconds_sum", "reduce"] == pytest.approx(70.2)
    metrics.close()
    assert samples(metrics)["insitu_running",] == 0


def test_servers_in_one_process_count_apart() -> None:
    one, two = Metrics(), Metrics()
    one.add("insitu_scans_total", 1)
    assert samples(two)["insitu_scans_total",] == 0


def test_the_folder_of_several_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    with multiprocess_folder(1):
        assert ENVIRONMENT_VARIABLE not in os.environ
    with multiprocess_folder(2):
        folder = Path(os.environ[ENVIRONMENT_VARIABLE])
        assert folder.is_dir()
    assert not folder.exists()
    assert ENVIRONMENT_VARIABLE not in os.environ
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path / "given"))
    for _ in range(2):
        with multiprocess_folder(2):
            assert not list((tmp_path / "given").iterdir())
            (tmp_path / "given" / "counter_1.db").write_bytes(b"of an earlier run")
    assert (tmp_path / "given" / "counter_1.db").exists()


@pytest.mark.skipif(os.name == "nt", reason="processes cannot be asked for there")
def test_files_of_workers_that_start_or_were_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were a 500: a file that a new worker has just made, one that another worker removes at the same time."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path))
    metrics = Metrics()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for kind in ("counter", "gauge_livesum", "histogram"):
        (tmp_path / f"{kind}_{dead.pid}.db").write_bytes(b"")
    metrics.text()
    assert not list(tmp_path.iterdir())
    (tmp_path / f"counter_{os.getpid()}.db").write_bytes(b"")
    with pytest.raises(UnavailableError) as problem:
        metrics.text()
    answer = error_response(problem.value)
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "1"


def _is_replaced(server: Server, folder: Path, victim: int) -> bool:
    """Whether another worker writes gauges, and those of the killed one are gone; meanwhile no counter goes down."""
    gauges = [path.name for path in folder.glob("gauge_live*")]
    if not any(f"_{victim}." in name for name in gauges) and sum("livesum" in name for name in gauges) >= 2:
        return True
    with contextlib.suppress(urllib3.exceptions.HTTPError):  # the connection to the killed worker
        assert server.metrics()["insitu_requests_total"] >= 20, "no counter goes down"
    return False


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_a_killed_worker_keeps_its_counters_and_loses_its_gauges(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    environment = {ENVIRONMENT_VARIABLE: str(folder)}
    with serving([tmp_path], tmp_path / "log", "--workers", "2", environment=environment) as server:
        wait_until(lambda: len(list(folder.glob("gauge_livesum_*.db"))) >= 2, "no two workers write gauges")
        processes = wait_until(lambda: found if (found := server.metrics())["insitu_workers"] == 2 else None)
        assert processes["insitu_pool_size"] >= 2
        assert processes["insitu_process_threads"] >= 2
        if Path("/proc/self/statm").exists():
            workers = psutil.Process(server.process.pid).children(recursive=True)
            whole = sum(worker.memory_info().rss for worker in workers)
            assert whole / 4 < processes["insitu_process_resident_bytes"] < whole * 4
            assert processes["insitu_process_open_descriptors"] > 10
        for _ in range(20):
            assert server.get("/health").status == 200
        assert server.metrics()["insitu_requests_total"] >= 20
        victim = int(next(iter(folder.glob("gauge_livesum_*.db"))).stem.rpartition("_")[2])
        assert victim in {child.pid for child in psutil.Process(server.process.pid).children(recursive=True)}
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: _is_replaced(server, folder, victim), "the worker is not replaced, or its gauges count")
        assert server.metrics()["insitu_requests_total"] >= 20


def test_a_request_counts_as_soon_as_it_runs() -> None:
    """Its gauge was set when it ended, or when its own worker was asked for metrics: another one did not count it."""
    worker, begun, end = Worker(Settings()), threading.Event(), threading.Event()

    def work(deadline: object) -> None:
        begun.set()
        end.wait(LONG)

    async def run() -> float:
        running = asyncio.ensure_future(worker.run(10, work))
        await asyncio.to_thread(begun.wait, 30)
        found = samples(worker.metrics)["insitu_running",]
        end.set()
        await running
        return found

    assert asyncio.run(run()) == 1
    worker.close()
