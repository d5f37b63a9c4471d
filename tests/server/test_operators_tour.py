"""What an operator does with a server, in order: start it by a file, look at it, break it, renew it, stop it.

One server with two workers, TLS and tokens takes the whole tour; a second one is killed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import psutil
import pytest
import urllib3
from prometheus_client.parser import text_string_to_metric_families

from ports import free_port
from server.certificates_made import make_certificate
from server.serving import Answer, Server, started
from server.trickle import Trickle
from waiting import LONG, wait_until

pytestmark = pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
TOKEN = {"Authorization": "Bearer a-token"}
GRACE = 2


@contextmanager
def touring(folder: Path, roots: list[str]) -> Iterator[Server]:
    """A server whose options are all in a TOML file."""
    port = free_port()
    for name in ("first", "second"):
        make_certificate(folder, name)
    use_certificate(folder, "first")
    (folder / "tokens").write_text("# of the tour\na-token\n")
    options = {
        "roots": roots, "port": port, "workers": 2, "grace": GRACE, "log_format": "json",
        "token_file": str(folder / "tokens"), "tls_cert": str(folder / "cert.pem"), "tls_key": str(folder / "key.pem"),
    }  # fmt: skip
    lines = [f"{name} = {json.dumps(value)}" for name, value in options.items()]
    (folder / "server.toml").write_text("\n".join(lines))
    log = folder / "log"
    with started(["--config", str(folder / "server.toml")], f"https://127.0.0.1:{port}", log) as server:
        yield server


def use_certificate(folder: Path, name: str) -> None:
    for source, target in ((f"{name}.key", "key.pem"), (f"{name}.pem", "cert.pem")):
        shutil.copy(folder / source, folder / "new")
        (folder / "new").replace(folder / target)


def shown_certificate(server: Server) -> str:
    place = urlsplit(server.url)
    return ssl.get_server_certificate((str(place.hostname), int(place.port or 0)), timeout=LONG)


def entries(server: Server) -> list[dict[str, Any]]:
    """The log, whose every line has to be an object; the last one may be half written."""
    lines = server.log.read_text().split("\n")
    return [json.loads(line) for line in lines[:-1]]


def worker_ids(server: Server) -> set[int]:
    """The workers that are alive and have said that they are ready."""
    ready = {entry["worker"] for entry in entries(server) if entry["message"] == "Application startup complete."}
    return ready & {child.pid for child in psutil.Process(server.process.pid).children()}


def new_connection(server: Server) -> None:
    server.pool.clear()


def test_the_tour(tmp_path: Path) -> None:
    trickle = Trickle()
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "x").write_bytes(np.arange(4, dtype="<i4").tobytes())
    body = {"interface_type": "file", "url": f"file://{tmp_path}/archive/x", "dtype": "int32"}
    with touring(tmp_path, [str(tmp_path / "archive"), trickle.url]) as server:
        _look(server, body)
        _kill_a_worker(server, body)
        _renew_the_certificate(server, body, tmp_path)
        _stop_under_load(server, body, f"{trickle.url}/x.nc")
    trickle.listener.close()
    log = entries(server)
    assert not [entry for entry in log if "traceback" in entry]
    assert "a-token" not in server.log.read_text()


def _look(server: Server, body: Any) -> None:
    """Tokens, metrics, the log."""
    wait_until(lambda: len(worker_ids(server)) == 2)
    assert any(entry["message"].startswith(f"listening on {server.url}/") for entry in entries(server))
    assert server.get("/health").status == server.get("/ready").status == 200
    refused = server.post("/v2/sum", body)
    assert refused.status == 401
    assert "Bearer TOKEN" in refused.message
    sent = [server.post("/v2/sum", body, {**TOKEN, "X-Request-ID": f"tour-{number}"}) for number in range(3)]
    assert [(answer.status, answer.headers["X-Request-ID"]) for answer in sent] == [
        (200, f"tour-{number}") for number in range(3)
    ]
    scraped = server.get("/metrics", TOKEN)
    samples = {
        (sample.name, sample.labels.get("status")): sample.value
        for family in text_string_to_metric_families(scraped.body.decode())
        for sample in family.samples
        if sample.labels.get("route") == "v2/sum"
    }
    assert samples["insitu_requests_total", "200"] == 3
    assert samples["insitu_requests_total", "401"] == 1
    logged = [entry for entry in entries(server) if entry.get("request_id", "").startswith("tour-")]
    assert [entry["request_id"] for entry in logged] == ["tour-0", "tour-1", "tour-2"]
    for entry, answer in zip(logged, sent, strict=True):
        wanted = {
            "level": "info", "logger": "insitu.access", "method": "POST", "route": "v2/sum", "status": 200,
            "bytes": len(answer.body), "archive": body["url"].removeprefix("file://"), "client": "127.0.0.1",
        }  # fmt: skip
        assert {key: entry[key] for key in wanted} == wanted
        assert entry["worker"] in worker_ids(server)
        assert entry["milliseconds"] > 0


def _kill_a_worker(server: Server, body: Any) -> None:
    """It is replaced, and meanwhile the other one answers."""
    victim = min(worker_ids(server))
    os.kill(victim, signal.SIGKILL)

    def answers() -> bool:
        new_connection(server)
        try:
            return server.post("/v2/sum", body, TOKEN).status == 200
        except urllib3.exceptions.HTTPError:
            return False  # the connection was the dead worker's

    wait_until(answers)
    wait_until(lambda: len(worker_ids(server) - {victim}) == 2)
    assert all(answers() for _ in range(5))


def _renew_the_certificate(server: Server, body: Any, folder: Path) -> None:
    """Both workers show the new one; a broken one changes nothing."""
    first, second = ((folder / f"{name}.pem").read_text() for name in ("first", "second"))
    assert {shown_certificate(server) for _ in range(8)} == {first}
    use_certificate(folder, "second")
    assert {shown_certificate(server) for _ in range(8)} == {second}
    (folder / "cert.pem").write_text("half a certif")
    assert {shown_certificate(server) for _ in range(8)} == {second}
    assert any("the old ones stay in use" in entry["message"] for entry in entries(server))
    use_certificate(folder, "second")
    new_connection(server)
    assert server.post("/v2/sum", body, TOKEN).status == 200


def _stop_under_load(server: Server, body: Any, slow: str) -> None:
    """What can be finished is; the rest gets a 503 in time; nobody is let down without an answer."""
    late: list[Answer] = []
    threads = [
        threading.Thread(target=lambda: late.append(server.post("/scan", {"url": slow}, TOKEN))) for _ in range(3)
    ]
    quick: list[Answer] = []
    stopping = threading.Event()

    def ask_often() -> None:
        while not stopping.is_set():
            try:
                quick.append(server.post("/v2/sum", body, TOKEN))
            except urllib3.exceptions.HTTPError:
                return  # it listens no more

    for thread in threads:
        thread.start()
    load = threading.Thread(target=ask_often)
    load.start()
    wait_until(lambda: _running(server) >= 3 and len(quick) > 0)
    answered = len(quick)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(LONG) in (0, -signal.SIGTERM)
    stopping.set()
    for thread in (*threads, load):
        thread.join()
    assert {answer.status for answer in quick[:answered]} == {200}
    # One that arrives while the worker stops is answered, or told to come again if its turn did not come in time.
    refused = [answer for answer in quick[answered:] if answer.status != 200]
    assert [answer.status for answer in late] == [503] * 3
    for answer in (*late, *refused):
        assert answer.status == 503
        assert answer.headers["Content-Type"] == "application/json"
        assert "Retry-After" in answer.headers
        assert "stopping" in answer.message


def _running(server: Server) -> float:
    text = server.get("/metrics", TOKEN).body.decode()
    found = re.search(r"^insitu_running (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_a_killed_supervisor(tmp_path: Path) -> None:
    """Its workers went on listening: now they end, and the same file starts the next server on the same port."""
    (tmp_path / "archive").mkdir()
    with touring(tmp_path, [str(tmp_path / "archive")]) as server:
        wait_until(lambda: len(worker_ids(server)) == 2)
        workers = [psutil.Process(pid) for pid in worker_ids(server)]
        server.process.kill()
        server.process.wait()
        _, alive = psutil.wait_procs(workers, LONG)
        assert not alive
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(urlsplit(server.url).port or 0)), timeout=LONG)
        again = tmp_path / "again.log"
        with started(["--config", str(tmp_path / "server.toml")], server.url, again) as next_one:
            assert next_one.get("/ready").status == 200
    log = entries(server)
    assert len([entry for entry in log if "the process that started this worker has gone" in entry["message"]]) == 2
    assert not [entry for entry in log if "traceback" in entry]
