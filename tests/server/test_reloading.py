"""SIGHUP: a server that runs goes on with new tokens, roots and options, and nobody notices otherwise. And what a
killed supervisor leaves is removed by the next start.

Modules: server/worker_folder.py
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from insitu.server.worker_folder import worker_folder
from ports import free_port, is_refused
from server.serving import Server, started
from server.trickle import Trickle
from waiting import LONG, wait_until

pytestmark = pytest.mark.skipif(os.name == "nt", reason="no signals")


def write_options(path: Path, **options: Any) -> None:
    """Write a TOML file in one step."""
    new = path.with_suffix(".new")
    new.write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in options.items()))
    new.replace(path)


def ask(server: Server, path: Path, token: str) -> int:
    """The status of a request by a connection of its own, which any worker may get."""
    line = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=LONG)
    body = {"interface_type": "file", "url": f"file://{path}", "dtype": "int32"}
    line.request("POST", "/v2/sum", json.dumps(body), {"Authorization": f"Bearer {token}"})
    status = line.getresponse().status
    line.close()
    return status


@pytest.mark.parametrize("workers", [1, 2])
def test_new_options_without_a_dropped_request(workers: int, tmp_path: Path) -> None:
    for name in ("first", "second", "always"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_bytes(np.arange(4, dtype="<i4").tobytes())
    port, config = free_port(), tmp_path / "server.toml"
    same = {"port": port, "workers": workers}
    roots = [str(tmp_path / "always"), str(tmp_path / "first")]
    write_options(config, **same, roots=roots, token=["always", "first"], max_request=64.0)
    with started(["--config", str(config)], f"http://127.0.0.1:{port}", tmp_path / "log") as server:
        begun = server.log.read_text
        wait_until(lambda: begun().count("Application startup complete") == workers)
        processes = [child.pid for child in psutil.Process(server.process.pid).children()]
        assert ask(server, tmp_path / "first" / "x", "first") == 200
        assert ask(server, tmp_path / "second" / "x", "first") == 403
        statuses: list[int] = []
        ended = threading.Event()

        def ask_all_the_time() -> None:
            """By one connection, which stays open: a restart would close it."""
            line = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)
            body = {"interface_type": "file", "url": f"file://{tmp_path}/always/x", "dtype": "int32"}
            line.connect()
            first = line.sock
            while not ended.is_set():
                line.request("POST", "/v2/sum", json.dumps(body), {"Authorization": "Bearer always"})
                answer = line.getresponse()
                answer.read()
                statuses.append(answer.status if line.sock is first else 0)
            line.close()

        threads = [threading.Thread(target=ask_all_the_time) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            config.write_text("roots = 5")
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "the old ones stay in use" in begun())
            assert ask(server, tmp_path / "first" / "x", "first") == 200
            roots = [str(tmp_path / "always"), str(tmp_path / "second")]
            write_options(config, **{**same, "port": 9}, roots=roots, token=["always", "second"], max_request=0.001)
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: begun().count("the options were read again") == workers)
            for _ in range(8):
                assert ask(server, tmp_path / "second" / "x", "second") == 200
                assert ask(server, tmp_path / "second" / "x", "first") == 401
                assert ask(server, tmp_path / "first" / "x", "second") == 403
                assert server.post("/reduce", b" " * 2000, {"Authorization": "Bearer second"}).status == 413
                server.close()
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        assert len(statuses) > 4
        assert set(statuses) == {200}
        assert [child.pid for child in psutil.Process(server.process.pid).children()] == processes
    assert "port changes only when the server is started again" in begun()
    assert "Traceback" not in begun()


def test_two_workers_refuse_connections_while_they_finish(tmp_path: Path) -> None:
    """They were accepted, not answered, and reset at the end."""
    trickle = Trickle()
    port = free_port()
    options = [trickle.url, "--port", str(port), "--workers", "2", "--grace", "600"]
    with started(options, f"http://127.0.0.1:{port}", tmp_path / "log") as server:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)
        body = {"url": f"{trickle.url}/x.nc"}
        line.request("POST", "/scan", json.dumps(body), {"Content-Type": "application/json"})
        wait_until(lambda: server.metrics()["insitu_running"])
        server.close()
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: is_refused(server.url))
        assert server.process.poll() is None  # it finishes what it has begun
        for child in psutil.Process(server.process.pid).children():
            child.send_signal(signal.SIGKILL)
        server.process.wait(LONG)
        line.close()
    trickle.listener.close()


LEFT = """
import os, signal
from insitu.server.worker_folder import worker_folder
with worker_folder("insitu-test-", "INSITU_TEST") as folder:
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_folder_of_a_killed_supervisor_is_removed_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    killed = subprocess.run([sys.executable, "-c", LEFT], stdout=subprocess.PIPE, env=environment, check=False)
    left = Path(killed.stdout.decode().strip())
    assert left.is_dir()
    with worker_folder("insitu-test-", "INSITU_TEST") as first:
        assert not left.exists()
        with worker_folder("insitu-test-", "INSITU_TEST") as second:
            assert Path(first).is_dir()  # of a server that runs
        assert not Path(second).exists()
    assert not list(tmp_path.iterdir())
