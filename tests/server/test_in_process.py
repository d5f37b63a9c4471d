"""The server's routes in this process, without a server program: the part of the service's tests
that `make quick` runs.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import cbor2
import h5py
import numpy as np
import pytest

from insitu.active.wire import values_from_wire
from insitu.server.app import create_app
from insitu.server.settings import Settings

VALUES = np.arange(60, dtype="<i4").reshape(5, 4, 3)


@dataclass
class Answer:
    status: int
    content: bytes


async def _exchange(settings: Settings, method: str, path: str, body: bytes) -> Answer:
    """One request to a server of its own, as an ASGI server would hand it over: start, request,
    end.
    """
    app = create_app(settings)
    told, events = anyio.create_memory_object_stream[Any](8)
    commands, obeyed = anyio.create_memory_object_stream[Any](8)
    answer = Answer(0, b"")
    whole = anyio.Event()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
        else:
            answer.content += message.get("body", b"")

    requests = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        message = next(requests, None)
        if message is None:
            await whole.wait()
            return {"type": "http.disconnect"}
        return message

    async with told, events, commands, obeyed, anyio.create_task_group() as group:
        group.start_soon(app, {"type": "lifespan", "asgi": {"version": "3.0"}}, obeyed.receive, told.send)
        await commands.send({"type": "lifespan.startup"})
        assert (await events.receive())["type"] == "lifespan.startup.complete"
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "root_path": "",
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
            "server": ("here", 80),
            "client": ("me", 1),
        }
        await app(scope, receive, send)
        whole.set()
        await commands.send({"type": "lifespan.shutdown"})
        assert (await events.receive())["type"] == "lifespan.shutdown.complete"
    return answer


Ask = Callable[..., Answer]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Ask a server whose root is the test's folder."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=VALUES, chunks=(2, 4, 3), compression="gzip")
    (tmp_path / "raw.bin").write_bytes(VALUES.tobytes())
    settings = Settings(roots=(str(tmp_path),))

    def asked(method: str, path: str, data: Any = None) -> Answer:
        return anyio.run(_exchange, settings, method, path, b"" if data is None else json.dumps(data).encode())

    return asked


def _items(body: bytes) -> list[Any]:
    stream = io.BytesIO(body)
    found = []
    while stream.tell() < len(body):
        found.append(cbor2.load(stream))
    return found


def test_health_and_metrics(ask: Ask) -> None:
    assert json.loads(ask("GET", "/health").content) == {"status": "ok"}
    assert ask("GET", "/ready").status == 200
    assert b"insitu" in ask("GET", "/metrics").content


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
    assert answer.status == 200, answer.content
    found = cbor2.loads(answer.content)
    values = np.frombuffer(found["bytes"], found["dtype"]).reshape(found["shape"])
    expected = np.full((4, 3), 5) if operation == "count" else getattr(VALUES, operation)(0)
    np.testing.assert_array_equal(values.reshape(expected.shape), expected)


def test_a_batch_of_reductions(ask: Ask, tmp_path: Path) -> None:
    job = {"url": str(tmp_path / "a.h5"), "variable": "x", "methods": ["mean", "max"], "axes": [0, 2]}
    answer = ask("POST", "/reduce", {"jobs": [job]})
    assert answer.status == 200, answer.content
    items = _items(answer.content)
    assert "done" in items[-1]
    np.testing.assert_array_equal(values_from_wire(items[0]["values"]["mean"]), VALUES.mean((0, 2)))
    np.testing.assert_array_equal(values_from_wire(items[0]["values"]["max"]), VALUES.max((0, 2)))


def test_an_archive_as_a_zarr_store(ask: Ask, tmp_path: Path) -> None:
    answer = ask("GET", f"/zarr{tmp_path / 'a.h5'}!/x/zarr.json")
    assert answer.status == 200, answer.content
    assert json.loads(answer.content)["shape"] == [5, 4, 3]


def test_what_lies_outside_the_roots_is_refused(ask: Ask) -> None:
    job = {"url": "/etc/hostname.h5", "variable": "x", "methods": ["max"]}
    assert ask("POST", "/reduce", {"jobs": [job]}).status == 403
