"""The server's routes in this process, without a server program: the part of the service's tests
that `make quick` runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import h5py
import numpy as np
import pytest

from insitu.active.wire import values_from_wire
from insitu.server.app import create_app
from insitu.server.settings import Settings
from server.in_process import Asked, ask_app
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

    def asked(method: str, path: str, data: Any = None) -> Answer:
        return ask_app(create_app(settings), Asked(method, path, b"" if data is None else data))[0]

    return asked


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


def test_what_lies_outside_the_roots_is_refused(ask: Ask) -> None:
    job = {"url": "/etc/hostname.h5", "variable": "x", "methods": ["max"]}
    assert ask("POST", "/reduce", {"jobs": [job]}).status == 403
