"""A deadline stops the work of a request, not only its answer; and what failed or is over leaves
nothing behind.

Modules: server/keyed_locks.py, server/scanned_archives.py
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from insitu.cancellation import LateError, check_deadline
from insitu.errors import NotFoundError
from insitu.model import Columns, Encoding, Selection, Tile, VirtualArray
from insitu.model.axis import Axis
from insitu.reading import SourcePool, execute, plan_read
from insitu.references import save
from insitu.server.authentication import Credentials
from insitu.server.keyed_locks import KeyedLocks
from insitu.server.metrics import FOLDER_PREFIX, Metrics
from insitu.server.scanned_archives import ScannedArchives
from insitu.server.settings import Limits, Settings
from insitu.server.worker import Worker
from insitu.server.zarr_view import _ZarrViews
from insitu.sources.threads import gather
from server.serving import serving
from server.trickle import Trickle
from waiting import LONG, wait_until


def worker(seconds: float) -> Worker:
    return Worker(Settings(limits=Limits(seconds=seconds)))


def run_past_deadline(work: Callable[[object], Any], begun: threading.Event) -> None:
    """Run work that ends only by its deadline; with more time where the machine did not even begin it."""
    seconds = 0.2
    while not begun.is_set():
        state = worker(seconds)
        try:
            with pytest.raises(LateError):
                asyncio.run(state.run(1, work))
        finally:
            state.close()
        seconds *= 4


def test_work_ends_when_its_time_is_up() -> None:
    begun, ended = threading.Event(), threading.Event()

    def endless(_: object) -> None:
        begun.set()
        try:
            while True:
                check_deadline()
        except LateError:
            ended.set()
            raise

    run_past_deadline(endless, begun)
    assert ended.wait(LONG)


def test_the_deadline_goes_along_to_other_threads() -> None:
    begun, ended = threading.Event(), threading.Semaphore(0)
    threads = set[int]()

    def one(_: int, stop: threading.Event) -> None:
        threads.add(threading.get_ident())
        if len(threads) > 1:
            begun.set()
        try:
            while True:
                check_deadline()
                time.sleep(0.001)
        except LateError:
            ended.release()
            raise

    run_past_deadline(lambda deadline: gather(one, range(4)), begun)
    for _ in range(2):
        assert ended.acquire(timeout=LONG)


def test_work_that_opens_no_source_has_a_deadline_too() -> None:
    """Chunks that were never written are filled in one by one."""
    axes = (Axis.regular(1 << 14, 1),)
    array = VirtualArray.of(Tile(axes, (Encoding(np.dtype("i4")),), Columns.of_unwritten((1 << 14,))), dims=("x",))
    planned = plan_read(array, Selection.of(..., array.shape))
    out = np.zeros(array.shape, "i4")
    state = worker(LONG)

    def work(deadline: Any) -> None:
        deadline.cancelled = True
        with SourcePool() as opened:
            execute(planned, out, opened)

    try:
        with pytest.raises(LateError):
            asyncio.run(state.run(1, work))
    finally:
        state.close()


def test_what_ends_together_with_its_time_keeps_its_answer() -> None:
    """By the time that the timeout is noticed, the work may be done."""

    seconds = 3.0  # ample for a busy machine to begin the work
    state = worker(seconds)
    under_way: list[Future[str]] = []

    class Pool(ThreadPoolExecutor):
        def submit(self, *work: Any) -> Any:
            under_way.append(super().submit(*work))
            return under_way[0]

    state.pool = Pool(1)

    def slow(deadline: object) -> str:
        time.sleep(seconds + 0.2)
        return "done"

    async def story() -> str:
        running = asyncio.ensure_future(state.run(1, slow))
        while not under_way:
            await asyncio.sleep(0)
        under_way[0].result(LONG)  # the loop sees both at once: that time is up, and that the work is done
        return await running

    try:
        assert asyncio.run(story()) == "done"
    finally:
        state.close()


def test_closing_cancels_what_is_under_way() -> None:
    begun = threading.Event()

    def endless(_: object) -> None:
        begun.set()
        while True:
            check_deadline()

    state = worker(3600)

    async def story() -> None:
        running = asyncio.create_task(state.run(1, endless))
        assert await asyncio.to_thread(begun.wait, 30)
        await asyncio.to_thread(state.close)
        with pytest.raises(LateError):
            await running

    asyncio.run(asyncio.wait_for(story(), LONG))


def test_locks_of_failed_keys_are_forgotten(tmp_path: Path) -> None:
    scans = ScannedArchives(4, 30.0, Metrics())

    def fail() -> Any:
        raise NotFoundError("nothing there")

    for number in range(20):
        with pytest.raises(NotFoundError):
            scans.get(("who", number), f"/nowhere/{number}", fail)
    assert len(scans._making) == 0
    state = Worker(Settings(roots=(str(tmp_path),)))
    try:
        with pytest.raises(NotFoundError):
            _ZarrViews(state).open(str(tmp_path / "x.nc"), 3, Credentials())
        assert len(state.scans._making) == 0
    finally:
        state.close()


def test_one_at_a_time_for_a_key() -> None:
    locks, inside, most = KeyedLocks(), 0, 0
    guard = threading.Lock()

    def visit() -> None:
        nonlocal inside, most
        for _ in range(50):
            with locks.hold("a"):
                with guard:
                    inside += 1
                    most = max(most, inside)
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=visit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert len(locks) == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_stops_late_work_and_ends_when_told_to(tmp_path: Path, workers: int) -> None:
    trickle = Trickle()
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    options = ("--timeout", "1.5", "--workers", str(workers))
    environment = {"TMPDIR": str(temporary)}
    with serving([trickle.url], tmp_path / "log", *options, environment=environment) as server:
        assert server.post("/scan", {"url": f"{trickle.url}/x.nc"}).status in (503, 504)
        wait_until(lambda: not server.metrics()["insitu_running"], "the work goes on")
        folders = [path for path in temporary.iterdir() if path.name.startswith(FOLDER_PREFIX)]
        assert len(folders) == (workers > 1)  # a single process keeps its metrics in memory
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(LONG)
    trickle.listener.close()
    assert not [path for path in temporary.iterdir() if path.name.startswith(FOLDER_PREFIX)]


def test_an_archive_that_refers_outside_of_the_roots(tmp_path: Path) -> None:
    import insitu

    (tmp_path / "inside").mkdir()
    (tmp_path / "outside").mkdir()
    with h5py.File(tmp_path / "outside" / "secret.h5", "w") as file:
        file.create_dataset("x", data=np.arange(10_000.0), chunks=(1000,), compression="gzip")
    save(insitu.scan(tmp_path / "outside" / "secret.h5", decode=False), tmp_path / "inside" / "a.insitu")
    archive = str(tmp_path / "inside" / "a.insitu")
    with serving([tmp_path / "inside"], tmp_path / "log") as server:
        job = {"url": archive, "variable": "x", "methods": ["sum"]}
        for answer in (
            server.post("/reduce", {"jobs": [job]}),
            server.get(f"/zarr{archive}!/x/c/0"),
        ):
            assert answer.status == 403, answer.body
            assert "refers to" in answer.message
            assert "root" in answer.message
            assert "secret" not in answer.message
