"""How much at once, for whom, and how it ends: admission, limits, tokens, TLS, shutdown, logs.

Modules: server/admission.py, server/settings.py
"""

from __future__ import annotations

import asyncio
import http.client
import http.server
import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import warnings
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from forked_commands import CODE
from insitu.server.admission import Admission
from insitu.server.error_responses import BusyError
from insitu.server.settings import Limits, Settings
from ports import free_port, is_refused
from server.serving import Answer, Server, serving
from waiting import LONG, wait_until


def test_who_has_room_goes_first_come_first_served() -> None:
    async def story() -> list[str]:
        admission = Admission(100, 10, LONG, 8)
        events: list[str] = []

        async def visit(name: str, cost: int, seconds: float) -> None:
            leave = await admission.enter(cost)
            events.append(f"{name} in")
            assert admission.used <= 100
            await asyncio.sleep(seconds)
            events.append(f"{name} out")
            leave()

        await asyncio.gather(visit("a", 60, 0.05), visit("b", 60, 0.01), visit("c", 10, 0.01), visit("d", 10**9, 0.0))
        assert (admission.used, admission.running, admission.waiting) == (0, 0, 0)
        assert admission.peak_bytes == 100
        return events

    events = asyncio.run(story())
    assert events.index("a out") < events.index("b in"), "there is no room for both"
    assert events.index("b in") < events.index("c in") < events.index("d in"), "nobody overtakes"


def test_a_full_queue_and_a_long_wait() -> None:
    async def story() -> None:
        admission = Admission(10, 1, 0.05, 8)
        leave = await admission.enter(10)
        waiting = asyncio.create_task(admission.enter(5))
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="waiting") as full:
            await admission.enter(1)
        assert full.value.retry_after >= 1
        with pytest.raises(BusyError, match="too long"):
            await waiting
        cancelled = asyncio.create_task(admission.enter(5))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        leave()
        assert (admission.used, admission.running, admission.waiting) == (0, 0, 0)
        (await admission.enter(10))()

    asyncio.run(story())


def test_only_so_many_at_once() -> None:
    async def story() -> None:
        admission = Admission(10**9, 10, LONG, 2)
        first, second = await admission.enter(1), await admission.enter(1)
        third = asyncio.create_task(admission.enter(1))
        await asyncio.sleep(0.01)
        assert not third.done()
        first()
        (await third)()
        second()

    asyncio.run(story())


def test_settings_travel() -> None:
    settings = Settings(("/data",), ("t",), "/tokens", Limits(memory=5), True, {"s3://b": {"key": "k"}}, 3)
    assert Settings.from_json(settings.to_json()) == settings


class _Slow(http.server.BaseHTTPRequestHandler):
    was_requested = threading.Event()

    def do_GET(self) -> None:
        self.was_requested.set()
        time.sleep(1.2)
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"\1\0\0\0")

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def slow() -> Iterator[str]:
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Slow)
    threading.Thread(target=served.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{served.server_address[1]}"
    served.shutdown()
    served.server_close()


def sum_of(server: Server, url: str, **headers: str) -> Any:
    interface = "file" if url.startswith("file") else "http"
    return server.post("/v2/sum", {"interface_type": interface, "url": url, "dtype": "int32", "size": 4}, headers)


def test_requests_that_are_too_large_or_too_many(slow: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(8 << 20))
    options = ("--max-request", "0.01", "--max-chunk", "4", "--queue", "1", "--memory", "0.05")
    with serving([tmp_path, slow], tmp_path / "log", *options) as server:
        answer = server.post("/v2/sum", b'{"url": "' + b"x" * 20_000 + b'"}')
        assert answer.status == 413
        answer = server.ask("POST", "/reduce", b"x" * 20_000)
        assert answer.status == 413
        large = {"interface_type": "file", "url": f"file://{tmp_path}/x", "dtype": "int32"}
        assert "Insufficient memory" in server.post("/v2/sum", large).message
        assert server.post("/v2/sum", {**large, "shape": [10**6, 10**6], "compression": {"id": "zlib"}}).status == 400
        assert server.post("/v2/sum", {**large, "size": 4 << 20}).status == 200
        # Requests that are large enough to run alone, one after the other: of many at once most are
        # told to come again.
        body = {
            "interface_type": "http",
            "url": f"{slow}/x",
            "dtype": "int32",
            "size": 4 << 20,
            "option_disable_chunk_cache": True,
        }
        found: list[Any] = []
        many = {**body, "shape": [1 << 20]}
        threads = [threading.Thread(target=lambda: found.append(server.post("/v2/sum", many))) for _ in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        busy = [answer for answer in found if answer.status == 429]
        assert busy, [answer.status for answer in found]
        assert all(int(answer.headers["Retry-After"]) >= 1 for answer in busy)
        assert all(answer.json["error"]["message"] for answer in busy)
        assert server.get("/ready").status == 200


def test_requests_that_take_too_long(slow: str, tmp_path: Path) -> None:
    with serving([slow], tmp_path / "log", "--timeout", "0.3") as server:
        answer = sum_of(server, f"{slow}/x")
        assert answer.status == 503
        assert "took longer than" in answer.message
        assert server.get("/health").status == 200


def test_tokens(slow: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\1\0\0\0")
    (tmp_path / "tokens").write_text("# people\nfrom-a-file\n")
    url = f"file://{tmp_path}/x"
    with serving([tmp_path], tmp_path / "log", "--token", "hush", "--token-file", str(tmp_path / "tokens")) as server:
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Basic aHVzaDp3cm9uZw=="},
            {"X-Insitu-Token": ""},
        ):
            answer = sum_of(server, url, **headers)
            assert answer.status == 401
            assert "Access Denied" in answer.message
            assert "WWW-Authenticate" in answer.headers
            assert server.post("/reduce", {"jobs": []}, headers).status == 401
            assert server.get("/metrics", headers).status == 401
        assert sum_of(server, url, Authorization="Bearer hush").status == 200
        assert sum_of(server, url, Authorization="bearer from-a-file").status == 200
        basic = b64encode(b"key:secret").decode()
        assert sum_of(server, url, **{"Authorization": f"Basic {basic}", "X-Insitu-Token": "hush"}).status == 200
        assert server.get("/health").status == 200
        sum_of(server, url + "?sig=very-secret", Authorization="Bearer hush")
    log = (tmp_path / "log").read_text()
    assert "POST /v2/sum 200" in log
    for secret in ("hush", "from-a-file", "very-secret", basic, "Bearer", "Basic"):
        assert secret not in log


def test_a_file_of_tokens_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\1\0\0\0")
    url, tokens = f"file://{tmp_path}/x", tmp_path / "tokens"

    def let_in(server: Server, *names: str) -> list[int]:
        return [sum_of(server, url, Authorization=f"Bearer {name}").status for name in names]

    tokens.write_text("first\n")
    with serving([tmp_path], tmp_path / "log", "--token-file", str(tokens)) as server:
        assert let_in(server, "first") == [200]
        tokens.write_text("")  # a file without tokens lets nobody in, not everybody
        assert let_in(server, "one", "two", "") == [401, 401, 401]
        assert sum_of(server, url).status == 401
        tokens.write_text("one\n")
        assert let_in(server, "one", "two") == [200, 401]
        (tmp_path / "new").write_text("# changed\ntwo\n")
        (tmp_path / "new").replace(tokens)
        assert let_in(server, "one", "two") == [401, 200]
        tokens.unlink()
        assert let_in(server, "one", "two") == [401, 200]
        assert server.get("/metrics", {"Authorization": "Bearer one"}).status == 401
        assert server.get("/health").status == server.get("/ready").status == 200
    assert "two" not in (tmp_path / "log").read_text()


def test_clients_with_certificates(tmp_path: Path) -> None:
    """Mutual TLS: who has no certificate of the authority's does not get as far as a request;
    nothing older than TLS 1.2 is spoken.
    """

    def openssl(*words: str) -> None:
        made = subprocess.run(["openssl", *words], capture_output=True, check=False, cwd=tmp_path)
        if made.returncode:
            pytest.skip("no openssl to make certificates")

    for name in ("server", "authority"):
        openssl(
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.pem",
            "-days",
            "1",
            "-subj",
            f"/CN={name}",
        )
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "me.key", "-out", "me.csr", "-subj", "/CN=me")
    openssl(
        "x509",
        "-req",
        "-in",
        "me.csr",
        "-CA",
        "authority.pem",
        "-CAkey",
        "authority.key",
        "-CAcreateserial",
        "-out",
        "me.pem",
        "-days",
        "1",
    )
    options = ("--tls-cert", "server.pem", "--tls-key", "server.key", "--tls-client-ca", "authority.pem")
    options = tuple(str(tmp_path / word) if word.endswith((".pem", ".key")) else word for word in options)
    port = free_port()
    command = [sys.executable, "-c", CODE, "serve", str(tmp_path), "--port", str(port), *options]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(command, stderr=log, stdout=log)

    def health(certificate: bool, latest: ssl.TLSVersion | None = None) -> int:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if certificate:
            context.load_cert_chain(tmp_path / "me.pem", tmp_path / "me.key")
        if latest is not None:
            context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, latest
        line = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=LONG)
        try:
            line.request("GET", "/health")
            return line.getresponse().status
        finally:
            line.close()

    def listens() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text()
        try:
            return health(True) == 200
        except ConnectionRefusedError:
            return False

    try:
        wait_until(listens)
        with pytest.raises(OSError):
            health(False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # versions that nobody should use any more
            with pytest.raises(OSError):
                health(True, ssl.TLSVersion.TLSv1_1)
    finally:
        process.terminate()
        process.wait(LONG)


def test_a_shutdown_waits_for_answers_that_are_being_sent(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    values = np.arange(6_000_000, dtype="<i4").reshape(2, -1)  # rows larger than a block
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("t", data=values, chunks=(1, 500_000))
    body = json.dumps({"jobs": [{"url": str(tmp_path / "x.h5"), "variable": "t"}]})
    with serving([tmp_path], tmp_path / "log") as server:
        line = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=LONG)
        line.request("POST", "/read", body, {"Content-Type": "application/json"})
        answer = line.getresponse()
        parts = [answer.read(1 << 20)]
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: is_refused(server.url))
        while part := answer.read(1 << 20):
            parts.append(part)
            time.sleep(0.02)
        line.close()
        items = Answer(200, {}, b"".join(parts)).items
        assert items[-1]["done"] == 1
        data = b"".join(item for item in items if isinstance(item, bytes))
        np.testing.assert_array_equal(np.frombuffer(data, "<i4").reshape(values.shape), values)
        assert server.process.wait(LONG) in (0, -signal.SIGTERM)


def test_the_names_of_the_metrics_are_documented() -> None:
    from insitu.server.metrics import COUNTERS, GAUGES

    page = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "serving.md").read_text()
    for name in (*COUNTERS, *GAUGES, "insitu_requests_total", "insitu_request_seconds"):
        assert f"`{name}" in page, name


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The options of a server that speaks TLS."""
    folder = tmp_path_factory.mktemp("certificate")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    made = subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            key,
            "-out",
            certificate,
            "-days",
            "1",
            "-subj",
            "/CN=localhost",
        ],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("no openssl to make a certificate")
    return "--tls-cert", str(certificate), "--tls-key", str(key)


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")  # nobody signed the certificate
def test_tls(certified: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\1\0\0\0")
    with serving([tmp_path], tmp_path / "log", *certified, scheme="https") as server:
        assert sum_of(server, f"file://{tmp_path}/x").status == 200


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
def test_an_idle_client_with_tls_does_not_hold_the_server(certified: tuple[str, ...], tmp_path: Path) -> None:
    """A closed TLS connection waits for the client's farewell, which an idle client never sends:
    the server took 30 s to end.
    """
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    with serving([tmp_path], tmp_path / "log", *certified, scheme="https") as server:
        where = urlsplit(server.url)
        plain = socket.create_connection((str(where.hostname), int(where.port or 0)))
        with plain, anybody.wrap_socket(plain) as line:
            line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b" 200 " in line.recv(1000)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(LONG) in (0, -signal.SIGTERM)


def test_a_shutdown_waits_for_what_is_under_way(slow: str, tmp_path: Path) -> None:
    with serving([slow], tmp_path / "log") as server:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(sum_of(server, f"{slow}/x")))
        _Slow.was_requested.clear()
        thread.start()
        assert _Slow.was_requested.wait(LONG)
        server.process.send_signal(signal.SIGTERM)
        thread.join()
        assert found[0].status == 200
        assert server.process.wait(LONG) in (0, -signal.SIGTERM)


def test_metrics_are_those_of_all_workers(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(np.arange(4, dtype="<i4").tobytes())
    with serving([tmp_path], tmp_path / "log", "--workers", "2") as server:
        for _ in range(20):
            assert sum_of(server, f"file://{tmp_path}/x").status == 200
            server.pool.clear()  # another connection, perhaps another worker
        text = server.get("/metrics").body.decode()
        found = re.search(r'insitu_requests_total\{route="v2/sum",status="200"\} (\d+)', text)
        assert found is not None
        assert int(found[1]) == 20
        assert 'insitu_request_seconds_count{route="v2/sum"} 20' in text
        assert re.search(r"^insitu_bytes_sent_total [1-9]", text, re.MULTILINE)


def test_it_listens_to_this_machine_only(server: Server) -> None:
    assert server.url.startswith("http://127.0.0.1:")
    assert json.loads(server.get("/health").body) == {"status": "ok"}
