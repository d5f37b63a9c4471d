"""How a server starts to listen, and how it ends: in time, with an answer to everybody, without leftovers.

Modules: server/process_end.py, server/run.py
"""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from forked_commands import CODE, run_command
from ports import free_port, is_refused
from server.serving import Answer, Server, serving
from server.trickle import Trickle
from waiting import LONG, wait_until

GRACE = 1


def begin(server: Server, path: str, body: Any) -> tuple[threading.Thread, list[Answer]]:
    """Send a request; return when the server works on it."""
    found: list[Answer] = []
    thread = threading.Thread(target=lambda: found.append(server.post(path, body)))
    thread.start()
    wait_until(lambda: server.metrics()["insitu_running"])
    return thread, found


@pytest.mark.parametrize("workers", [1, 2])
def test_work_that_takes_longer_than_the_grace_time(tmp_path: Path, workers: int) -> None:
    """The client got a 500 as text or nothing, the log a traceback, and it took far longer than it should."""
    trickle = Trickle()
    options = ("--grace", str(GRACE), "--workers", str(workers))
    with serving([trickle.url], tmp_path / "log", *options) as server:
        thread, found = begin(server, "/scan", {"url": f"{trickle.url}/x.nc"})
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(LONG) in (0, -signal.SIGTERM)
        thread.join()
    trickle.listener.close()
    (answer,) = found
    assert answer.status == 503
    assert answer.headers["Content-Type"] == "application/json"
    assert int(answer.headers["Retry-After"]) > 0
    assert answer.headers["X-Insitu-Error"] == "stopping"
    assert "stopping" in answer.message
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    assert "POST /scan 503" in log
    assert "abandoned" not in log  # the work has ended, too


def test_a_response_that_has_begun_is_cut_off(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("t", data=np.zeros((64, 1 << 19), "<i4"), chunks=(1, 1 << 19))
    body = json.dumps({"jobs": [{"url": str(tmp_path / "x.h5"), "variable": "t"}]})
    with serving([tmp_path], tmp_path / "log", "--grace", str(GRACE)) as server:
        line = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=LONG)
        line.request("POST", "/read", body, {"Content-Type": "application/json"})
        answer = line.getresponse()
        assert answer.status == 200
        answer.read(1 << 16)  # and no more, for longer than the grace time
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(LONG) in (0, -signal.SIGTERM)
        with pytest.raises((http.client.IncompleteRead, OSError)):
            answer.read()
        line.close()
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    assert "a response is cut off" in log


@pytest.mark.parametrize("workers", [1, 2])
def test_the_line_that_says_where_it_listens(tmp_path: Path, workers: int) -> None:
    """It appears when the port accepts connections; Uvicorn's own, which several workers do too early, does not."""
    port = free_port()
    command = [sys.executable, "-c", CODE, "serve", str(tmp_path), "--port", str(port), "--workers", str(workers)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if f"127.0.0.1:{port}" in line:
                assert f"listening on http://127.0.0.1:{port}/" in line
                assert not is_refused(f"http://127.0.0.1:{port}")
                break
        else:
            pytest.fail("".join(lines))
    finally:
        process.terminate()
        process.communicate(timeout=LONG)


STUBBORN = """
import sys, time
import insitu.server.app
from insitu.server import Settings, run

def never(*words):
    print("begun", flush=True)
    time.sleep(120)

insitu.server.app._scan_to_wire = never
run(Settings(grace=0), port=int(sys.argv[1]))
"""


def test_work_that_does_not_stop_holds_up_nobody(tmp_path: Path) -> None:
    """Python waits for threads at its end if no signal ends it first: after Ctrl+C, or as process 1 of a container."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", STUBBORN, str(port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    server = Server(f"http://127.0.0.1:{port}", process, tmp_path / "log")  # type: ignore[arg-type]
    try:
        wait_until(lambda: not is_refused(server.url))
        found: list[Answer] = []
        thread = threading.Thread(target=lambda: found.append(server.post("/scan", {"url": "x"})))
        thread.start()
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=LONG)
        thread.join()
        assert found[0].status == 503
        assert "are abandoned" in log
        assert "Traceback" not in log
    finally:
        process.kill()
        process.communicate()
        server.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--token", ""], "an accepted token is empty"),
        (["--storage-options", "{here}/text"], "cannot read the storage options in {here}/text"),
        (["--tls-cert", "{here}/text"], "cannot use the TLS files {here}/text"),
        (["--log-format", "xml"], "'xml' is not a log format"),
    ],
)
def test_starts_that_are_refused(options: list[str], words: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    given = [option.replace("{here}", str(tmp_path)) for option in options]
    done = run_command(["serve", tmp_path, "--port", "0", *given])
    assert done.returncode == 1
    assert words.replace("{here}", str(tmp_path)) in done.stderr
    assert "Traceback" not in done.stderr
