"""The server's routes in this process, without a server program: the part of the service's tests
that `make quick` runs.

Modules: server/app.py, server/error_responses.py, server/explorer/api_query.py, server/request_log.py,
server/requested_arrays.py, server/worker.py
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import h5py
import numpy as np
import pytest

from insitu.active.wire import values_from_wire
from insitu.server.app import create_app
from insitu.server.error_responses import StoppingError
from insitu.server.request_log import RequestLogMiddleware
from insitu.server.settings import Settings
from insitu.server.worker import Worker
from server.in_process import Request, ask_app
from server.serving import Answer

VALUES = np.arange(60, dtype="<i4").reshape(5, 4, 3)


Ask = Callable[..., Answer]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Ask a server whose root is the test's folder."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=VALUES, chunks=(2, 4, 3), compression="gzip")
    (tmp_path / "raw.bin").write_bytes(VALUES.tobytes())
    settings = Settings(roots=(str(tmp_path),))

    def request_here(method: str, path: str, data: Any = None) -> Answer:
        return ask_app(create_app(settings), Request(method, path, b"" if data is None else data))[0]

    return request_here


def test_health_and_metrics(ask: Ask) -> None:
    assert json.loads(ask("GET", "/health").body) == {"status": "ok"}
    assert ask("GET", "/ready").status == 200
    assert b"insitu" in ask("GET", "/metrics").body


@pytest.mark.parametrize("operation", ["sum", "min", "max", "count"])
def test_the_compatible_protocol(ask: Ask, tmp_path: Path, operation: str) -> None:
    body = {
        "interface_type": "file",
        "url": (tmp_path / "raw.bin").as_uri(),
        "dtype": "int32",
        "shape": [5, 4, 3],
        "axis": [0],
    }
    answer = ask("POST", f"/v2/{operation}", body)
    assert answer.status == 200, answer.body
    found = cbor2.loads(answer.body)
    values = np.frombuffer(found["bytes"], found["dtype"]).reshape(found["shape"])
    expected = np.full((4, 3), 5) if operation == "count" else getattr(VALUES, operation)(0)
    np.testing.assert_array_equal(values.reshape(expected.shape), expected)


def test_a_batch_of_reductions(ask: Ask, tmp_path: Path) -> None:
    job = {"url": str(tmp_path / "a.h5"), "variable": "x", "methods": ["mean", "max"], "axes": [0, 2]}
    answer = ask("POST", "/reduce", {"jobs": [job]})
    assert answer.status == 200, answer.body
    items = answer.items
    assert "done" in items[-1]
    np.testing.assert_array_equal(values_from_wire(items[0]["values"]["mean"]), VALUES.mean((0, 2)))
    np.testing.assert_array_equal(values_from_wire(items[0]["values"]["max"]), VALUES.max((0, 2)))


def test_an_archive_as_a_zarr_store(ask: Ask, tmp_path: Path) -> None:
    answer = ask("GET", f"/zarr{tmp_path / 'a.h5'}!/x/zarr.json")
    assert answer.status == 200, answer.body
    assert json.loads(answer.body)["shape"] == [5, 4, 3]


def test_requests_that_come_while_the_server_stops(tmp_path: Path) -> None:
    """They got a 500: the threads that should have done the work were gone."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = VALUES
    settings = Settings(roots=(str(tmp_path),))
    job = {"url": str(tmp_path / "a.h5"), "variable": "x"}
    requests = [
        Request("POST", "/reduce", {"jobs": [{**job, "methods": ["sum"]}]}),
        Request("POST", "/read", {"jobs": [job]}),
        Request("POST", "/scan", {"url": job["url"]}),
        Request("GET", f"/zarr{tmp_path / 'a.h5'}!/zarr.json"),
        Request("GET", "/explorer/api/archive", query={"url": job["url"]}),
    ]
    worker = Worker(settings)
    worker.close()
    for answer in ask_app(create_app(settings, worker), *requests):
        assert (answer.status, answer.headers["x-insitu-error"]) == (503, "stopping")
        assert int(answer.headers["retry-after"]) > 0
    assert worker.admission.running == 0


def test_work_that_no_thread_took(tmp_path: Path) -> None:
    """The pool of threads ends while requests wait for one."""

    async def ask(stream: bool) -> str:
        worker = Worker(Settings(roots=(str(tmp_path),), threads=1))
        going_on = threading.Event()
        busy = asyncio.ensure_future(worker.run(1, lambda deadline: going_on.wait()))
        await asyncio.sleep(0)
        worker.admission.width = 2
        waiting = asyncio.ensure_future(
            worker.stream(1, 0, lambda deadline: iter([b""])) if stream else worker.run(1, lambda deadline: b"")  # type: ignore[arg-type, return-value]
        )
        while worker.pool._work_queue.qsize() < 1:
            await asyncio.sleep(0)
        worker.pool.shutdown(wait=False, cancel_futures=True)
        going_on.set()
        await busy
        with pytest.raises(StoppingError) as problem:
            await waiting
        worker.close()
        return problem.value.kind

    assert [asyncio.run(ask(stream)) for stream in (False, True)] == ["stopping"] * 2


def test_a_request_that_was_not_told_that_the_server_stops(tmp_path: Path) -> None:
    """It came after the others were told, and got a 500."""
    worker = Worker(Settings(roots=(str(tmp_path),)))
    worker.owns_process = True

    async def cancelled(scope: Any, receive: Any, send: Any) -> None:
        raise asyncio.CancelledError

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    app = RequestLogMiddleware(cancelled, worker, None)
    scope = {"type": "http", "method": "GET", "path": "/ready", "headers": []}
    asyncio.run(app(scope, None, send))  # type: ignore[arg-type]
    worker.close()
    assert sent[0]["status"] == 503
    assert b"retry-after" in dict(sent[0]["headers"])


def test_what_lies_outside_the_roots_is_refused(ask: Ask) -> None:
    job = {"url": "/etc/hostname.h5", "variable": "x", "methods": ["max"]}
    assert ask("POST", "/reduce", {"jobs": [job]}).status == 403
