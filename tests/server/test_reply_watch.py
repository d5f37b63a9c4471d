"""Clients that ask for much and read nothing: others are served, and the replies are ended."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import cbor2
import numpy as np
import pytest

from insitu.server import reply_watch
from insitu.server.admission import Admission
from insitu.server.reply_watch import ReplyWatch
from server.serving import Server, serving
from waiting import LONG, wait_until

ROWS = 4096


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 64 MiB, mostly a hole."""
    found: Path = tmp_path_factory.mktemp("folder")
    np.arange(16, dtype="<f4").tofile(found / "small")
    with open(found / "large", "wb") as file:
        file.write(np.arange(1024, dtype="<f4").tobytes())
        file.truncate(ROWS * 4096 * 4)
    return found


def read_request(folder: Path) -> bytes:
    """Asks for all values of the large file, by a table of its chunks."""
    from insitu.active.wire_array import array_to_wire
    from insitu.model import Encoding
    from insitu.reducing.chunk_storage import chunk_array

    array = chunk_array(str(folder / "large"), 0, ROWS * 4096 * 4, Encoding(np.dtype("<f4")), (ROWS, 4096))
    body = cbor2.dumps({"jobs": [{"array": array_to_wire(array)}]})
    head = f"POST /read HTTP/1.1\r\nHost: x\r\nContent-Type: application/cbor\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def sleepy_client(server: Server, request: bytes) -> socket.socket:
    """A client that asks, and reads nothing but the first bytes."""
    parts = urlsplit(server.url)
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.settimeout(LONG)
    line.connect((parts.hostname, parts.port))
    line.sendall(request)
    assert b" 200 " in line.recv(100)
    return line


@pytest.fixture
def server(folder: Path, tmp_path: Path) -> Iterator[Server]:
    with serving([folder], tmp_path / "log", "--min-rate", "0", "--memory", "1") as running:
        yield running


def test_others_are_served_while_clients_read_nothing(server: Server, folder: Path) -> None:
    """More of them than the server has threads: each is paused, and those that hold too much are ended."""
    request = read_request(folder)
    lines = [sleepy_client(server, request) for _ in range(40)]
    wait_until(lambda: server.metrics()["insitu_running"] == 0, "slow clients hold threads")
    requested = {"interface_type": "file", "url": f"file://{folder}/small", "dtype": "float32"}
    assert np.frombuffer(server.post("/v2/sum", requested).cbor["bytes"], "<f4")[0] == 120
    assert server.get("/ready").status == 200
    # One of those that were not ended reads on, and gets all of it.
    expected = ROWS * 4096 * 4
    complete = 0
    for line in lines:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # not 64 MiB by 4 kB, which takes minutes
        got = 0
        try:
            while got < expected and (part := line.recv(1 << 20)):
                got += len(part)
        except ConnectionError:
            pass
        complete += got >= expected
        line.close()
    assert 1 <= complete < 40
    assert "too many clients read slowly" in server.log.read_text()


class Connection:
    """A connection with so many bytes to send."""

    def __init__(self) -> None:
        self.buffered = 0
        self.is_aborted = False

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def abort(self) -> None:
        self.is_aborted = True


def test_replies_without_progress_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0
    monkeypatch.setattr(reply_watch.time, "monotonic", lambda: clock)
    watch = ReplyWatch(1000, 10 << 20)
    fast, slow, idle = Connection(), Connection(), Connection()
    replies = [watch.add(connection) for connection in (fast, slow, idle)]
    for second in range(100):
        clock = float(second)
        for reply, connection, rate in ((replies[0], fast, 2000), (replies[1], slow, 500)):
            if not connection.is_aborted:
                watch.record(reply, 5000)
                connection.buffered += 5000 - rate
        watch.look()
    assert [connection.is_aborted for connection in (fast, slow, idle)] == [False, True, False]
    assert watch.waiting_bytes == fast.buffered
    # What is sent completely is forgotten.
    fast.buffered, replies[0].is_complete = 0, True
    watch.look()
    assert watch.waiting_bytes == 0


def test_the_slowest_are_ended_if_all_hold_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0
    monkeypatch.setattr(reply_watch.time, "monotonic", lambda: clock)
    watch = ReplyWatch(0, 100)
    connections = [Connection() for _ in range(4)]
    for number, connection in enumerate(connections):
        reply = watch.add(connection)
        connection.buffered = 40
        watch.record(reply, 40 + number)
    clock = 5.0
    watch.look()
    assert [connection.is_aborted for connection in connections] == [True, True, False, False]
    large = Connection()
    reply = watch.add(large)
    large.buffered = 1000
    watch.record(reply, 1 << 20)
    assert all(connection.is_aborted for connection in connections)
    assert not large.is_aborted, "one reply may be as large as it is"


def test_a_worker_without_room_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    from insitu.server import admission

    clock = 0.0
    monkeypatch.setattr(admission.time, "monotonic", lambda: clock)

    async def story() -> None:
        nonlocal clock
        limits = Admission(100, 10, LONG, 2)
        first, second = await limits.enter(1), await limits.enter(1)
        clock = 3.0
        assert limits.stuck_seconds == 3
        first()
        assert limits.stuck_seconds == 0
        third = await limits.enter(1)
        clock = 9.0
        assert limits.stuck_seconds == 6
        second()
        third()
        clock = 100.0
        assert limits.stuck_seconds == 0

    asyncio.run(story())
