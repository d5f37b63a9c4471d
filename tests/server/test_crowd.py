"""Two hundred clients at once, good and bad; a worker that is killed: nobody gets a wrong answer,
or somebody else's.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import cbor2
import numpy as np
import psutil
import pytest
import urllib3

import insitu
from insitu.active.answer import answer_array
from insitu.active.client import Active
from insitu.active.transport import ServerClient
from insitu.reducing import ReductionQuery
from server.serving import Server, serving
from waiting import LONG, wait_until


def workers_of(server: Server) -> list[int]:
    found = []
    for child in psutil.Process(server.process.pid).children():
        with suppress(psutil.Error):  # it has just ended
            found += [child.pid] if "spawn_main" in " ".join(child.cmdline()) else []
    return found


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number in range(8):
            file.create_dataset(
                f"v{number}", data=np.full((40, 50), number + 1, "f4"), chunks=(10, 50), compression="gzip"
            )
    for number in range(50):
        (tmp_path / f"chunk-{number}").write_bytes(np.full(100, number, "<i4").tobytes())
    return tmp_path


def visit(server: Server, folder: Path, number: int, wrong: list[Any], done: list[int]) -> None:
    """One client: asks until it has three answers, and knows each."""
    pool = urllib3.PoolManager(maxsize=1)
    rng = np.random.default_rng(number)
    answered = 0
    try:
        while answered < 3 and not wrong:
            kind = int(rng.integers(0, 5))
            which = int(rng.integers(0, 50))
            if kind < 2:
                body: Any = {
                    "interface_type": "file",
                    "url": f"file://{folder}/chunk-{which}",
                    "dtype": "int32",
                    "axis": None,
                }
                answer = pool.request("POST", f"{server.url}/v2/sum", json=body, retries=False, timeout=LONG)
                good = answer.status == 200 and cbor2.loads(answer.data)["bytes"] == (which * 100).to_bytes(4, "little")
                expected = (200, 429)
            elif kind == 2:
                job = {"url": str(folder / "a.h5"), "variable": f"v{which % 8}", "methods": ["sum"]}
                answer = pool.request("POST", f"{server.url}/reduce", json={"jobs": [job]}, retries=False, timeout=LONG)
                total = np.float32((which % 8 + 1) * 2000).tobytes()
                good = answer.status == 200 and total in answer.data and b"done" in answer.data
                expected = (200, 429)
            elif kind == 3:
                body = {"interface_type": "file", "url": "file:///etc/passwd", "dtype": "int32"}
                answer = pool.request("POST", f"{server.url}/v2/max", json=body, retries=False, timeout=LONG)
                good = answer.status == 403
                expected = (403,)
            else:
                answer = pool.request(
                    "POST", f"{server.url}/v2/min", body=b'{"nonsense": [1, 2', retries=False, timeout=LONG
                )
                good = answer.status == 400
                expected = (400,)
            if answer.status not in expected or (answer.status == 200 and not good):
                wrong.append((kind, which, answer.status, answer.data[:200]))
            elif good:
                answered += 1
                done.append(kind)
            else:
                time.sleep(0.1)  # it is to come again
    except Exception as error:
        wrong.append(repr(error))
    finally:
        pool.clear()


def test_two_hundred_clients(archive: Path, tmp_path: Path) -> None:
    with serving([archive], tmp_path / "log", "--memory", "0.2", "--max-chunk", "64", forked=False) as server:
        wrong: list[Any] = []
        done: list[int] = []
        threads = [threading.Thread(target=visit, args=(server, archive, i, wrong, done)) for i in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert len(done) == 600
        assert set(done) == set(range(5))
        used = psutil.Process(server.process.pid).memory_info().rss
        assert used < 1 << 30
        assert server.get("/ready").status == 200


def test_a_worker_that_is_killed(archive: Path, tmp_path: Path) -> None:
    with serving([archive], tmp_path / "log", "--workers", "2") as server:
        array = insitu.scan(archive / "a.h5", decode=False).array("v3")
        active = Active(server.url, required=True)
        wrong: list[Any] = []
        stop = threading.Event()
        done: list[int] = []

        def ask() -> None:
            while not stop.is_set():
                try:
                    if float(answer_array(array, ReductionQuery.of("sum"), active=active)["sum"]) != 8000:
                        wrong.append("sum")
                    done.append(1)
                except Exception as error:
                    wrong.append(repr(error))

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: len(done) > 6)
            before = wait_until(lambda: [*workers_of(server)] if len(workers_of(server)) == 2 else [])
            os.kill(before[0], signal.SIGKILL)
            wait_until(lambda: len(set(workers_of(server)) - set(before)) == 1)
            reached = len(done)
            wait_until(lambda: wrong or len(done) > reached + 12)
        finally:
            stop.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert len(workers_of(server)) == 2


def test_a_client_that_hangs_up(archive: Path, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(archive / "large.h5", "w") as file:
        file.create_dataset(
            "t", data=np.zeros((200, 1000, 300), "f4"), chunks=(10, 1000, 300), compression="gzip", compression_opts=1
        )
    with serving([archive], tmp_path / "log", "--memory", "0.5", forked=False) as server:
        for _ in range(6):
            pool = urllib3.PoolManager()
            body = {"jobs": [{"url": str(archive / "large.h5"), "variable": "t"}]}
            answer = pool.request(
                "POST", f"{server.url}/read", json=body, preload_content=False, retries=False, timeout=LONG
            )
            assert answer.status == 200
            answer.read(1 << 20)
            answer.close()
            pool.clear()
        client = ServerClient(server.url)
        items = client.ask(
            "reduce", {"jobs": [{"url": str(archive / "large.h5"), "variable": "t", "methods": ["max"]}]}
        )
        assert items[-1]["done"] == 1
        wait_until(lambda: server.metrics()["insitu_running"] == 0)
