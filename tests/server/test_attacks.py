"""Clients that mean harm, or do not care: whatever they send, the server answers the others, and
stays within its memory.

Modules: server/header_limits.py, server/request_body.py
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import cbor2
import numpy as np
import pytest

from insitu.server import header_limits, request_body
from server.serving import Server, serving
from waiting import LONG

VALUES = np.arange(64, dtype="<i4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = tmp_path_factory.mktemp("folder")
    (found / "x").write_bytes(VALUES.tobytes())
    return found


@pytest.fixture(scope="module")
def small(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that takes 100 KB at a time."""
    log = tmp_path_factory.mktemp("log") / "serve.log"
    with serving(
        [folder], log, "--max-request", "0.1", "--memory", "0.25", "--max-chunk", "256", forked=False
    ) as running:
        yield running


def assert_healthy(server: Server, folder: Path) -> None:
    """Assert that the server still responds and has not grown too large."""
    request = {"interface_type": "file", "url": f"file://{folder}/x", "dtype": "int32"}
    answer = server.post("/v2/sum", request)
    assert np.frombuffer(answer.cbor["bytes"], "<i4")[0] == VALUES.sum()
    assert server.process.poll() is None
    status = Path(f"/proc/{server.process.pid}/status")
    if status.exists():
        resident = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
        assert int(resident.split()[1]) < 1 << 20, "more than a GiB"


def connected(server: Server) -> socket.socket:
    parts = urlsplit(server.url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=LONG)


def until_closed(line: socket.socket, seconds: float) -> bytes:
    """What comes until the server hangs up."""
    line.settimeout(seconds)
    parts = []
    try:
        while part := line.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


@pytest.mark.parametrize("large", ["fields", "one field", "query"])
def test_heads_that_are_too_large(small: Server, large: str) -> None:
    """A head whose end came with its first bytes was taken, whatever its size."""

    def status(size: int) -> int:
        query = "x" * size if large == "query" else ""
        fields = {"one field": {"X-A": "x" * size}, "fields": {f"X-{n}": "x" * 90 for n in range(size // 100)}}
        return small.ask("GET", f"/health?{query}", None, fields.get(large, {})).status

    assert status(60_000) == 200
    assert {status(size) for size in (70_000, 100_000, 200_000)} <= {400, 431}  # 400: no parser takes such a query
    assert small.get("/health").status == 200


def test_heads_without_end(small: Server, folder: Path) -> None:
    for piece in (b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X-Long: ", b"GET /" + b"x" * 1000):
        with connected(small) as line:
            line.sendall(piece)
            try:
                for _ in range(64):
                    line.sendall(b"x" * 65536 if b"Long" in piece else b"/y" * 32768)
            except ConnectionError:
                pass
            assert b" 200 " not in until_closed(line, LONG)
    with connected(small) as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
        try:
            for number in range(100_000):
                line.sendall(b"X-%d: y\r\n" % number)
        except ConnectionError:
            pass
        assert b" 200 " not in until_closed(line, LONG)
    assert_healthy(small, folder)


def test_clients_that_never_finish(folder: Path, tmp_path: Path) -> None:
    """Heads and bodies that trickle: the connection is closed, with a 408 where a request was
    begun.
    """
    setup = (
        "from insitu.server import header_limits, request_body\n"
        "header_limits.HEAD_SECONDS = request_body.MAX_PAUSE_SECONDS = 0.5"
    )
    assert header_limits.HEAD_SECONDS <= 60
    assert request_body.MAX_PAUSE_SECONDS <= 60
    with serving([folder], tmp_path / "log", setup=setup) as server:
        lines = [connected(server) for _ in range(50)]
        for number, line in enumerate(lines):
            if number % 3 == 1:
                line.sendall(b"POST /v2/sum HT")
            elif number % 3 == 2:
                line.sendall(b"POST /v2/sum HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        assert_healthy(server, folder)
        for number, line in enumerate(lines):
            came = until_closed(line, LONG)
            assert (b" 408 " in came) == (number % 3 == 2), came
            line.close()
        # A connection that is kept alive has the same limits for its second request.
        with connected(server) as line:
            line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            time.sleep(0.2)
            line.sendall(b"GET /health HT")
            assert until_closed(line, LONG).count(b" 200 ") == 1
        assert_healthy(server, folder)


def test_uploads_beyond_the_limit(small: Server, folder: Path) -> None:
    """By their length, and in chunks that never end."""
    for route in ("/v2/sum", "/reduce", "/read", "/scan"):
        with connected(small) as line:
            line.sendall(f"POST {route} HTTP/1.1\r\nHost: x\r\nContent-Length: {10**15}\r\n\r\n".encode())
            assert b" 413 " in until_closed(line, LONG)
        with connected(small) as line:
            line.sendall(f"POST {route} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            came = b""
            try:
                for _ in range(1000):
                    line.sendall(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
                came = until_closed(line, LONG)
            except ConnectionError:
                came = b" 413 "  # it hung up on us
            assert b" 413 " in came
    with connected(small) as line:
        line.sendall(f"POST /v2/sum HTTP/1.1\r\nHost: x\r\nContent-Length: {'9' * 500}\r\n\r\n".encode())
        assert b" 200 " not in until_closed(line, LONG)
    assert_healthy(small, folder)


DEEP = [
    b"\x81" * 90_000,
    b"\xa1\x00" * 45_000,
    b"\xc1" * 90_000,
    b"\x9f" * 90_000,
    b"\xd8\x1c" * 40_000,
    b"\x5b" + struct.pack(">Q", 1 << 62),
    b"\x5b" + struct.pack(">Q", 1 << 40) + b"x",
    b"\x7b" + struct.pack(">Q", 1 << 40) + b"x",
    b"\x9b" + struct.pack(">Q", 1 << 40) + b"\0",
    b"\xbb" + struct.pack(">Q", 1 << 40) + b"\0\0",
    b"\x9b" + struct.pack(">Q", 1 << 33),
    bytes.fromhex("d81c81d81d00"),
    bytes.fromhex("c582") + cbor2.dumps(10**9) + b"\3",
    bytes.fromhex("c482") + cbor2.dumps(10**30) + b"\3",
    cbor2.dumps(cbor2.CBORTag(1, 1e300)),
    cbor2.dumps(cbor2.CBORTag(35, "(")),
    cbor2.dumps(cbor2.CBORTag(30, [1, 0])),
    b"\xa1\x80\0",
    b"\xff",
    b"\x61\xff",
    b"\xc2\x59\xff\xff" + b"\xff" * 0xFFFF,
    # Shared values: a list of 2**150 items, and a map that contains itself ten thousand times.
    b"".join(b"\xd8\x1c\x82" for _ in range(150))
    + b"\0"
    + b"".join(b"\xd8\x1d\x18" + bytes([n]) for n in range(149, -1, -1)),
    b"\xd8\x1c\xb9\x27\x10" + b"".join(b"\x19" + struct.pack(">H", n) + b"\xd8\x1d\0" for n in range(10_000)),
    # Keys with equal hashes.
    b"\xb9\x03\xe8" + b"".join(cbor2.dumps(n * ((1 << 61) - 1)) + b"\0" for n in range(9, 1009)),
]


@pytest.mark.parametrize("number", range(len(DEEP)))
def test_cbor_that_is_deep_or_says_that_it_is_huge(small: Server, folder: Path, number: int) -> None:
    for route in ("/reduce", "/read", "/scan"):
        answer = small.ask("POST", route, DEEP[number], {"Content-Type": "application/cbor"})
        assert answer.status == 400
    array = b"\xa1\x64jobs\x81\xa1\x65array" + DEEP[number]
    job = cbor2.dumps({"url": f"{folder}/x", "variable": "x", "methods": ["sum"], "selection": [[0, 1]]})
    selection = b"\xa1\x64jobs\x81" + job[: -len(cbor2.dumps([0, 1]))] + DEEP[number]
    for jobs in (array, selection):
        assert small.ask("POST", "/reduce", jobs, {"Content-Type": "application/cbor"}).status == 400
    assert_healthy(small, folder)


def test_json_that_is_deep_or_huge(small: Server, folder: Path) -> None:
    for text in (
        "[" * 90_000,
        '{"a":' * 15_000,
        "9" * 90_000,
        "1e999999999",
        '{"shape": [' + "1," * 40_000 + "1]}",
        '"' + "\\ud800" * 10_000 + '"',
    ):
        for route in ("/v2/sum", "/reduce", "/read", "/scan"):
            assert small.post(route, text.encode()).status == 400
        small.post(
            "/v2/sum",
            f'{{"interface_type": "file", "url": "file://{folder}/x", "dtype": "int32", "shape": {text}}}'.encode(),
        )
    assert_healthy(small, folder)


def table(folder: Path, shape: list[int]) -> dict[str, Any]:
    """An array of which one chunk is there, and nothing else."""
    from insitu.active.wire_array import array_to_wire
    from insitu.model import Encoding
    from insitu.reducing.chunk_storage import chunk_array

    made: dict[str, Any] = array_to_wire(chunk_array(str(folder / "x"), 0, 256, Encoding(np.dtype("<f4")), (1, 64)))
    made["shape"] = shape
    return made


def test_an_array_whose_rows_are_larger_than_the_memory(small: Server, folder: Path) -> None:
    """It is read in pieces that are small in every direction; who hangs up stops it."""
    request = cbor2.dumps({"jobs": [{"array": table(folder, [4, 1 << 33])}]})
    head = f"POST /read HTTP/1.1\r\nHost: x\r\nContent-Type: application/cbor\r\nContent-Length: {len(request)}\r\n\r\n"
    with connected(small) as line:
        line.sendall(head.encode() + request)
        came = 0
        while came < 40 << 20:
            part = line.recv(1 << 20)
            assert part, "the server hung up"
            if not came:
                assert b" 200 " in part
            came += len(part)
        assert_healthy(small, folder)
    for methods in (["sum"], ["max", "argmin"], ["median"], ["std"]):
        for axes in (None, [0], [1], []):
            job = {"array": table(folder, [4, 1 << 33]), "methods": methods, "axes": axes}
            answer = small.ask("POST", "/reduce", cbor2.dumps({"jobs": [job]}), {"Content-Type": "application/cbor"})
            assert answer.status in (200, 400, 413, 422), answer.body
    assert_healthy(small, folder)


ELSEWHERE = [
    "http://127.0.0.1:{port}/x",
    "http://2130706433:{port}/x",
    "http://0x7f000001:{port}/x",
    "http://0177.0.0.1:{port}/x",
    "http://127.1:{port}/x",
    "http://[::1]:{port}/x",
    "http://[::ffff:127.0.0.1]:{port}/x",
    "http://localhost:{port}/x",
    "http://LOCALHOST.:{port}/x",
    "http://good.invalid@127.0.0.1:{port}/x",
    "http://good.invalid:80@127.0.0.1:{port}/x",
    "http://127.0.0.1:{port}#@good.invalid/x",
    "http://127.0.0.1:{port}?good.invalid/x",
    "http://127.0.0.1:{port}\\@good.invalid/x",
    "http://good.invalid.127.0.0.1.nip.io:{port}/x",
    "http://good.invalid\t:{port}/x",
    "http://good.invalid\n.127.0.0.1:{port}/x",
    "//127.0.0.1:{port}/x",
    "http:127.0.0.1:{port}/x",
    "http:///127.0.0.1:{port}/x",
    "http://good.invalid%2f@127.0.0.1:{port}/x",
    "http://good\u3002invalid:{port}/x",
    "http://ⓖood.invalid:{port}/x",
    "gopher://127.0.0.1:{port}/x",
    "ftp://127.0.0.1:{port}/x",
    "dict://127.0.0.1:{port}/x",
    "data:text/plain,x",
    "jar:http://127.0.0.1!/x",
    "simplecache::http://127.0.0.1:{port}/x",
    "zip://x::http://127.0.0.1:{port}/x",
    "reference://?fo=http://127.0.0.1:{port}/x",
    "s3://bucket/x",
    "s3://good.invalid/x",
    "gs://b/x",
    "az://c@127.0.0.1:{port}/x",
    "abfs://c@account.dfs.core.windows.net/x",
    "memory://x",
    "icechunk+http://127.0.0.1:{port}/x",
    "reference+json://http://127.0.0.1:{port}/x",
    "virtualizarr://127.0.0.1:{port}/x",
]


def test_addresses_that_look_like_others(folder: Path, tmp_path: Path) -> None:
    """The only root on the web is a name that does not exist: the server here sees no connection at
    all.
    """
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        serving([folder, "http://good.invalid/"], tmp_path / "log") as server,
    ):
        listener.setblocking(False)
        port = listener.getsockname()[1]
        for pattern in ELSEWHERE:
            url = pattern.replace("{port}", str(port))
            for interface in ("http", "https", "s3", "file"):
                answer = server.post("/v2/sum", {"interface_type": interface, "url": url, "dtype": "uint8"})
                assert answer.status in (400, 403), (url, answer.body)
            for route in ("/reduce", "/read", "/scan"):
                job = {"url": url, "variable": "t", **({"methods": ["sum"]} if route == "/reduce" else {})}
                data = (
                    {"url": url}
                    if route == "/scan"
                    else {"jobs": [job], "options": {"endpoint_url": f"http://127.0.0.1:{port}"}}
                )
                answer = server.post(route, data)
                assert answer.status in (400, 403, 404, 422), (url, answer.status, answer.body)
            quoted = (
                url.replace("\n", "%0A")
                .replace("\t", "%09")
                .replace("#", "%23")
                .replace("?", "%3F")
                .encode("ascii", "ignore")
                .decode()
            )
            assert server.get(f"/zarr/{quoted}!/zarr.json").status in (400, 403, 404, 422, 502), url
            with pytest.raises(BlockingIOError):
                listener.accept()
        assert_healthy(server, folder)


def test_paths_that_look_like_others(small: Server, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(VALUES.tobytes())
    up = "/".join([".."] * 12)
    for path in (
        f"{folder}/{up}{tmp_path}/secret",
        f"{folder}/%2e%2e/{up}{tmp_path}/secret",
        f"{folder}/..%2f{up}{tmp_path}/secret",
        f"{folder}/..;/{up}{tmp_path}/secret",
        f"{folder}/\uff0e\uff0e/{up}{tmp_path}/secret",
        f"{folder}\x00{tmp_path}/secret",
        f"{folder}/x\x00/../../secret",
        f"{folder}/x%00",
        f"{tmp_path}/secret\x00{folder}/x",
        f"/proc/self/root{tmp_path}/secret",
        "/proc/self/fd/3",
        "/dev/zero",
        "/dev/stdin",
        f"//{folder}/../{tmp_path.name}/secret",
        "~/x",
        "~root/x",
        f"{folder}/" + "a/" * 3000,
        f"{folder}/" + "a" * 3000,
    ):
        for url in (f"file://{path}", path):
            answer = small.post("/v2/sum", {"interface_type": "file", "url": url, "dtype": "int32", "size": 4})
            assert answer.status in (400, 403), (url[:100], answer.status, answer.body)
            answer = small.post("/reduce", {"jobs": [{"url": url, "variable": "t", "methods": ["sum"]}]})
            assert answer.status in (400, 403, 404, 422), (url[:100], answer.status, answer.body)
    assert_healthy(small, folder)


def test_answers_say_nothing_of_the_machine(small: Server, folder: Path) -> None:
    for answer in (
        small.get("/nothing"),
        small.post("/v2/sum", {}),
        small.ask("POST", "/reduce", b"\xff"),
        small.ask("TRACE", "/health"),
        small.get("/../../etc/passwd"),
    ):
        assert answer.status in (400, 404, 405)
        assert "server" not in {name.lower() for name in answer.headers}
        assert b"Traceback" not in answer.body
        assert json.loads(answer.body)["error"]["message"]
