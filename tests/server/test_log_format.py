"""The log: one line per event, as text or JSON, with the id of the request and without secrets.

Modules: server/request_context.py
"""

from __future__ import annotations

import json
import logging
import logging.config
import os
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from insitu.errors import InsituError
from insitu.server import Settings, create_app, log_config
from insitu.server.request_context import request_id
from insitu.server.worker import Worker
from server.in_process import Request, ask_app


@pytest.fixture
def quiet() -> Iterator[None]:
    """Loggers as they were, afterwards."""
    names = ("uvicorn", "uvicorn.error", "insitu")
    before = {name: (logging.getLogger(name).handlers[:], logging.getLogger(name).level) for name in names}
    root = logging.getLogger().handlers[:]
    yield
    for name, (handlers, level) in before.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = handlers, True
        logger.setLevel(level)
    logging.getLogger().handlers = root
    logging.captureWarnings(False)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("t", data=np.arange(10.0), chunks=(5,))
    return tmp_path / "a.h5"


def entries(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_requests(quiet: None, archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logging.config.dictConfig(log_config("info", "json"))
    job = {"url": str(archive), "variable": "t", "methods": ["sum"]}
    secret = "http://me:hush@127.0.0.1:9/a.nc?X-Amz-Signature=hush"
    raw = {"interface_type": "file", "url": f"file://{archive}", "dtype": "int8", "size": 4}
    answers = ask_app(
        create_app(Settings(roots=(str(archive.parent),))),
        Request("POST", "/reduce", {"jobs": [job]}, {"X-Request-ID": "from-a-proxy.1"}),
        Request("GET", f"/zarr{archive}!/zarr.json", headers={"X-Request-ID": 'two words"' + "x" * 500}),
        Request("POST", "/scan", {"url": secret}),
        Request("GET", "/explorer/api/archive", query={"url": str(archive)}),
        Request("GET", "/health"),
        Request("POST", "/v2/sum", raw),
    )
    found = [entry for entry in entries(capsys.readouterr().err) if entry["logger"] == "insitu.access"]
    assert len(found) == len(answers)
    for entry, answer in zip(found, answers, strict=True):
        assert answer.headers["x-request-id"] == entry["request_id"]
        assert entry["status"] == answer.status
        assert entry["bytes"] == len(answer.body)
        assert entry["milliseconds"] > 0
        assert entry["worker"] == os.getpid()
        assert entry["level"] == "info"
        assert entry["client"] == "me"
        assert datetime.fromisoformat(entry["time"]).tzinfo is not None
        assert "hush" not in json.dumps(entry)
    assert [entry["route"] for entry in found] == ["reduce", "zarr", "scan", "explorer", "health", "v2/sum"]
    assert [entry["method"] for entry in found] == ["POST", "GET", "POST", "GET", "GET", "POST"]
    path = str(archive)
    assert [entry["archive"] for entry in found] == [
        path, path, "http://127.0.0.1:9/a.nc", path, None, path
    ]  # fmt: skip
    assert found[0]["request_id"] == "from-a-proxy.1"
    assert len({entry["request_id"] for entry in found}) == len(found)
    assert len(found[1]["request_id"]) == 32


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_unexpected_exception(
    quiet: None, archive: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    def fail(*words: Any) -> None:
        logging.getLogger("insitu.serve").warning("about to fail on %s", threading.current_thread().name)
        raise RuntimeError("an unexpected\nfailure")

    logging.config.dictConfig(log_config("info", form))
    worker = Worker(Settings(roots=(str(archive.parent),)))
    monkeypatch.setattr(worker.scans, "get", fail)
    requested = Request("POST", "/scan", {"url": str(archive)}, {"X-Request-ID": "abc"})
    (answer,) = ask_app(create_app(worker.settings, worker), requested)
    assert answer.status == 500
    assert answer.headers["x-request-id"] == "abc"
    text = capsys.readouterr().err
    if form == "text":
        assert text.splitlines()[0].endswith("[abc]")
        return
    warned, failed, access = entries(text)
    assert warned["message"].startswith("about to fail on insitu-serve")  # a thread of the pool
    assert failed["level"] == "error"
    assert "RuntimeError: an unexpected\nfailure" in failed["traceback"]
    assert access["archive"] == str(archive)
    assert {entry["request_id"] for entry in (warned, failed, access)} == {"abc"}


def test_other_loggers_and_warnings(quiet: None, capsys: pytest.CaptureFixture[str]) -> None:
    logging.config.dictConfig(log_config("warning", "json"))
    logging.getLogger("uvicorn.error").error("of Uvicorn")
    logging.getLogger("asyncio").error("of the event loop")
    logging.getLogger("insitu.access").info("too little")
    assert [entry["message"] for entry in entries(capsys.readouterr().err)] == ["of Uvicorn", "of the event loop"]


@pytest.mark.parametrize("words", [("loud", "text"), ("info", "xml")])
def test_what_does_not_exist(words: tuple[str, str]) -> None:
    with pytest.raises(InsituError, match="Use one of"):
        log_config(*words)


@pytest.mark.parametrize("given", ["a b", "", "x" * 129, "ü", "a\nb", "<script>", None])
def test_ids_that_are_none(given: str | None) -> None:
    assert request_id(given) != given
