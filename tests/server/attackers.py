"""Clients that attack a server, all at once, and healthy ones beside them: for the tests and for `bench/attack.py`."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import cbor2
import h5py
import imagecodecs
import numpy as np
import psutil
import urllib3
import zarr

from insitu.active.wire_array import array_to_wire
from insitu.model import Codec, Encoding
from insitu.reducing.chunk_storage import chunk_array
from waiting import LONG

__all__ = ["ATTACKS", "Attackers", "HealthyClients", "MemoryWatch", "stated_bytes", "write_files"]

CBOR = {"Content-Type": "application/cbor"}
JSON = {"Content-Type": "application/json"}
LARGE = (2048, 4096)
"""Rows and columns of the file that slow readers ask for: 32 MiB."""

Ask = Callable[[str, str, bytes | None, dict[str, str]], None]
"""Sends a request by method, path, body and headers, and takes note of the status."""


def write_files(folder: Path) -> None:
    """Write what clients ask for."""
    np.arange(64, dtype="<i4").tofile(folder / "small")
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("t", data=np.ones((40, 50, 60), "f4"), chunks=(10, 50, 60), compression="gzip")
    with open(folder / "large", "wb") as hole:
        hole.truncate(LARGE[0] * LARGE[1] * 4)
    (folder / "image").write_bytes(imagecodecs.jpeg2k_encode(np.zeros((4000, 4000), "u1"), codecformat="j2k"))
    group = zarr.open_group(folder / "vast.zarr", mode="w", zarr_format=3)
    group.create_array("v", shape=(1 << 50,), chunks=(1,), dtype="u1", dimension_names=("x",))


def _chunk(path: Path, encoding: Encoding, shape: tuple[int, ...]) -> dict[str, Any]:
    array = chunk_array(str(path), 0, path.stat().st_size, encoding, shape)
    return array_to_wire(array)


def _shared_values(ask: Ask, folder: Path) -> None:
    """Lists of two references to the list before, as a selection."""
    shared = b"\xd8\x1c\x82" * 150 + b"\0" + b"".join(b"\xd8\x1d\x18" + bytes([n]) for n in range(149, -1, -1))
    job = b"\xa3\x63url\x61x\x68variable\x61t\x69selection" + shared
    ask("POST", "/reduce", b"\xa1\x64jobs\x81" + job, CBOR)
    itself = b"".join(b"\x19" + struct.pack(">H", n) + b"\xd8\x1d\0" for n in range(30_000))
    ask("POST", "/read", b"\xa1\x64jobs\xd8\x1c\xb9\x75\x30" + itself, CBOR)


def _large_numbers(ask: Ask, folder: Path) -> None:
    ask("POST", "/reduce", b"\xc4\x82\x1a\x3b\x9a\xca\x00\x01", CBOR)
    keys = b"".join(cbor2.dumps(n * ((1 << 61) - 1)) + b"\0" for n in range(9, 5009))
    ask("POST", "/scan", b"\xb9\x13\x88" + keys, CBOR)
    ask("POST", "/v2/sum", b"9" * 90_000, JSON)
    ask("POST", "/read", b'{"jobs": [' + b"1" * 4000 + b"]}", JSON)


def _many_items(ask: Ask, folder: Path) -> None:
    ask("POST", "/reduce", b"\x9a" + struct.pack(">I", 3_000_000) + b"\x80" * 3_000_000, CBOR)
    ask("POST", "/reduce", b"\x9f" + b"\x80" * 3_000_000 + b"\xff", CBOR)
    ask("POST", "/reduce", b"\x9f" + b"\x81\x40" * 1_500_000 + b"\xff", CBOR)
    ask("POST", "/read", b"[" * 100_000, JSON)
    ask("POST", "/reduce", b"[" + b"[]," * 1_000_000 + b"[]]", JSON)
    ask("POST", "/v2/sum", b"[" + b"[]," * 1_000_000 + b"[]]", JSON)


def _large_images(ask: Ask, folder: Path) -> None:
    array = _chunk(folder / "image", Encoding(np.dtype("u1"), (Codec("imagecodecs_jpeg2k"),)), (8, 8))
    ask("POST", "/read", cbor2.dumps({"jobs": [{"array": array}]}), CBOR)
    sized = {"interface_type": "file", "url": f"file://{folder}/image", "dtype": "uint8", "shape": [8, 8]}
    ask("POST", "/v2/sum", json.dumps({**sized, "compression": {"id": "imagecodecs_jpeg2k"}}).encode(), JSON)


def _vast_declarations(ask: Ask, folder: Path) -> None:
    ask("GET", f"/explorer/api/archive?{urlencode({'url': folder / 'vast.zarr'})}", None, {})
    query = {"url": folder / "vast.zarr", "variable": "v", "x": "x", "columns": 1500}
    ask("GET", f"/explorer/api/chunks?{urlencode(query)}", None, {})
    array = {**_chunk(folder / "small", Encoding(np.dtype("<i4")), (64,)), "shape": [1 << 60]}
    ask("POST", "/reduce", cbor2.dumps({"jobs": [{"array": array, "methods": ["median"]}]}), CBOR)
    grid = {"shape": [1 << 40], "all": 0}
    ask("POST", "/read", cbor2.dumps({"jobs": [{"array": {**array, "origins": grid}}]}), CBOR)


ATTACKS: dict[str, Callable[[Ask, Path], None]] = {
    "values that refer to themselves": _shared_values,
    "numbers without end": _large_numbers,
    "millions of items": _many_items,
    "images in small chunks": _large_images,
    "vast declarations": _vast_declarations,
}


@dataclass
class Attackers:
    """All attacks, again and again, until they are stopped."""

    url: str
    folder: Path
    slow: int = 24
    """Connections that ask for much and read nothing, and as many that never end their request."""
    statuses: dict[str, Counter[int]] = field(default_factory=lambda: {name: Counter() for name in ATTACKS})
    ended: int = 0
    """Slow connections that the server has closed."""
    problems: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Attack until `stopped` is set."""
        threads = [threading.Thread(target=self._attack, args=(name,)) for name in ATTACKS]
        threads += [threading.Thread(target=self._read_nothing), threading.Thread(target=self._never_finish)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _attack(self, name: str) -> None:
        with urllib3.PoolManager(maxsize=4) as pool:

            def ask(method: str, path: str, body: bytes | None, headers: dict[str, str]) -> None:
                if self.stopped.is_set():
                    return
                try:
                    answer = pool.request(
                        method, self.url + path, body=body, headers=headers, retries=False, timeout=LONG
                    )
                except urllib3.exceptions.HTTPError:
                    return  # refused while the body was being sent
                self.statuses[name][answer.status] += 1
                if answer.status >= 500 and answer.status != 503:
                    self.problems.append(f"{method} {path}: {answer.status} {answer.data[:300]!r}")

            while not self.stopped.is_set():
                ATTACKS[name](ask, self.folder)

    def _read_nothing(self) -> None:
        array = _chunk(self.folder / "large", Encoding(np.dtype("<f4")), LARGE)
        body = cbor2.dumps({"jobs": [{"array": array}]})
        head = "POST /read HTTP/1.1\r\nHost: x\r\nContent-Type: application/cbor\r\n"
        self._hold_connections(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def _never_finish(self) -> None:
        self._hold_connections(b"POST /reduce HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{")

    def _hold_connections(self, request: bytes) -> None:
        """Keep connections open on which nothing is read; replace those that are closed."""
        place = urlsplit(self.url)
        lines: list[socket.socket] = []
        try:
            while not self.stopped.wait(0.2):
                for line in [line for line in lines if not _is_open(line)]:
                    line.close()
                    lines.remove(line)
                    self.ended += 1
                while len(lines) < self.slow and not self.stopped.is_set():
                    line = socket.socket()
                    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    lines.append(line)
                    with suppress(OSError):
                        line.connect((place.hostname, place.port))
                        line.sendall(request)
                        line.setblocking(False)
        finally:
            for line in lines:
                line.close()


def _is_open(line: socket.socket) -> bool:
    """Whether a connection was not reset: what it holds is not read."""
    return line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0 and _state(line) == 1


def _state(line: socket.socket) -> int:
    """The state of a connection as the kernel has it: 1 if both ends are open; 1 where it does not say."""
    if not hasattr(socket, "TCP_INFO"):
        return 1
    return line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


@dataclass
class HealthyClients:
    """Clients that ask for little and know the answers."""

    url: str
    folder: Path
    many: int = 4
    seconds: list[float] = field(default_factory=list)
    """Of each answer."""
    refused: Counter[int] = field(default_factory=Counter)
    """Statuses other than 200."""
    problems: list[str] = field(default_factory=list)

    def run(self, duration: float, least: int = 1) -> None:
        """Ask for so many seconds, and for so many answers each."""
        until = time.monotonic() + duration
        threads = [threading.Thread(target=self._ask, args=(until, least)) for _ in range(self.many)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _ask(self, until: float, least: int) -> None:
        small = {"interface_type": "file", "url": f"file://{self.folder}/small", "dtype": "int32"}
        job = {"url": str(self.folder / "a.h5"), "variable": "t", "methods": ["sum"]}
        requests = [("/v2/sum", small), ("/reduce", {"jobs": [job]})]
        done = 0
        with urllib3.PoolManager(maxsize=2) as pool:
            while time.monotonic() < until or done < least:
                path, body = requests[done % 2]
                begun = time.perf_counter()
                answer = pool.request(
                    "POST", self.url + path, body=json.dumps(body), headers=JSON, retries=False, timeout=LONG
                )
                if answer.status != 200:
                    self.refused[answer.status] += 1
                    time.sleep(0.05)
                    continue
                self.seconds.append(time.perf_counter() - begun)
                done += 1
                found = cbor2.loads(answer.data)
                data = found["bytes"] if path == "/v2/sum" else found["values"]["sum"]["data"]
                value = np.frombuffer(data, "<i4" if path == "/v2/sum" else found["values"]["sum"]["dtype"])[0]
                if value != (2016 if path == "/v2/sum" else 120_000):
                    self.problems.append(f"{path}: {value}")

    def percentile(self, share: float) -> float:
        """Seconds within which a share of the answers came."""
        return float(np.percentile(self.seconds, 100 * share))


class MemoryWatch:
    """Watches the memory of the processes that serve, until it is stopped."""

    def __init__(self, pid: int) -> None:
        self.largest = 0
        """Bytes of the largest process at any time."""
        self._server, self._stopped = psutil.Process(pid), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stopped.wait(0.05):
            for process in (self._server, *self._server.children(recursive=True)):
                with suppress(psutil.Error):
                    self.largest = max(self.largest, process.memory_info().rss)

    def __enter__(self) -> MemoryWatch:
        return self

    def __exit__(self, *problem: object) -> None:
        self._stopped.set()
        self._thread.join()


def stated_bytes(log: Path) -> int:
    """What the log of a server says that a worker may take."""
    (found,) = re.findall(r"memory: at most \d+ x (\d+) MiB: ", log.read_text())
    return int(found) << 20
