"""A proxy in front of a real server that fails as networks and servers do, by the dice or on order.

It speaks HTTP/1.1 to both sides, one request at a time for each connection. Requests go on as they
came (signatures hold); answers come back whole, or as the chosen fault has it. Each fault is a
thing that was seen in the wild.
"""

from __future__ import annotations

import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from contextlib import suppress

from waiting import LONG

__all__ = ["FAULTS", "FaultProxy"]

FAULTS = (
    "slow",  # half a moment later
    "500",
    "503",
    "429",
    "reset",  # the connection is reset before an answer
    "hang-up",  # it is closed before an answer
    "cut-head",  # … within the head
    "cut-body",  # … within the body
    "reset-body",  # reset within the body
    "longer",  # the head says more bytes than come
    "shorter",  # the head says fewer bytes than come
    "other-range",  # the answer is of another range than was asked for, and says so
    "stall",  # nothing comes any more
    "trickle",  # a byte now and then
    "whole",  # 200 and an error page where 206 was expected
)


class FaultProxy:
    """In front of `host:port`; `share` of the requests fail, in the ways of `faults`."""

    def __init__(
        self, upstream: tuple[str, int], *, share: float = 0.0, faults: tuple[str, ...] = FAULTS, seed: int = 0
    ) -> None:
        self.upstream = upstream
        self.share, self.faults = share, faults
        self.stall = 3.0
        self.latency = 0.0
        self.happened: Counter[str] = Counter()
        self.requests: list[str] = []
        self.heads: list[bytes] = []
        self._dice = random.Random(seed)
        self._lock = threading.Lock()
        self._orders: list[str] = []
        self._stopped = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def order(self, *faults: str) -> None:
        """The next requests fail in these ways ("" for none), one after the other."""
        with self._lock:
            self._orders += faults

    def stop(self) -> None:
        self._stopped.set()
        self._listener.close()

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _choose(self, line: str) -> str:
        with self._lock:
            self.requests.append(line)
            if self._orders:
                fault = self._orders.pop(0)
            else:
                fault = self._dice.choice(self.faults) if self._dice.random() < self.share else ""
            self.happened[fault] += 1
            return fault

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.settimeout(30)
        rest = b""
        with client, suppress(OSError):
            while not self._stopped.is_set():
                while b"\r\n\r\n" not in rest:
                    more = client.recv(65536)
                    if not more:
                        return
                    rest += more
                head, _, rest = rest.partition(b"\r\n\r\n")
                sent = re.search(rb"(?i)content-length: *(\d+)", head)
                while len(rest) < (size := int(sent[1]) if sent else 0):
                    rest += client.recv(1 << 20)
                body, rest = rest[:size], rest[size:]
                if self.latency:
                    time.sleep(self.latency)
                if not self._answer(client, head, body):
                    return

    def _answer(self, client: socket.socket, request: bytes, sent: bytes) -> bool:
        """Whether the connection can go on."""
        self.heads.append(request)
        fault = self._choose(request.split(b"\r\n", 1)[0].decode())
        if fault == "slow":
            time.sleep(0.05)
        if fault in ("500", "503", "429"):
            extra = b"Retry-After: 0\r\n" if fault != "500" else b""
            client.sendall(b"HTTP/1.1 %s No\r\n%sContent-Length: 4\r\n\r\nbusy" % (fault.encode(), extra))
            return True
        if fault == "reset":
            return _reset(client)
        if fault == "hang-up":
            return False
        if fault == "whole":
            page = b"<html>Sign in to the network of this hotel</html>"
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page))
            return True
        head, body = self._fetch(request, sent)
        return self._send(client, fault, head, body)

    def _send(self, client: socket.socket, fault: str, head: bytes, body: bytes) -> bool:
        if fault == "stall":
            client.sendall(head + body[: len(body) // 2])
            self._stopped.wait(self.stall)
            return False
        if fault == "trickle":
            for at in range(0, len(head), 8):
                client.sendall(head[at : at + 8])
                if self._stopped.wait(self.stall / 20):
                    break
            return False
        if fault == "cut-head":
            client.sendall(head[: len(head) // 2])
            return False
        if fault in ("cut-body", "reset-body"):
            client.sendall(head + body[: len(body) // 2])
            return _reset(client) if fault == "reset-body" else False
        if fault in ("longer", "shorter"):
            change = 3 if fault == "longer" else -3
            head = re.sub(
                rb"(?i)(content-length: *)(\d+)", lambda m: m[1] + str(max(int(m[2]) + change, 0)).encode(), head
            )
        if fault == "other-range":
            head = re.sub(
                rb"(?i)(content-range: *bytes )(\d+)-(\d+)",
                lambda m: b"%s%d-%d" % (m[1], int(m[2]) + 1, int(m[3]) + 1),
                head,
            )
        client.sendall(head + body)
        return fault not in ("longer", "shorter") and b"connection: close" not in head.lower()

    def _fetch(self, request: bytes, sent: bytes) -> tuple[bytes, bytes]:
        """The true answer."""
        with socket.create_connection(self.upstream, timeout=LONG) as server:
            server.sendall(request + b"\r\n\r\n" + sent)
            data = b""
            while b"\r\n\r\n" not in data:
                more = server.recv(65536)
                if not more:
                    return data, b""
                data += more
            head, _, body = data.partition(b"\r\n\r\n")
            found = re.search(rb"(?i)content-length: *(\d+)", head)
            status = int(head.split(b" ", 2)[1])
            size = 0 if request.startswith(b"HEAD") or status in (204, 304) else int(found[1]) if found else None
            while size is None or len(body) < size:
                more = server.recv(1 << 20)
                if not more:
                    break
                body += more
        return head + b"\r\n\r\n", body


def _reset(client: socket.socket) -> bool:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False
