"""A server in a process of its own, and what is needed to talk to it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cbor2
import urllib3
from prometheus_client.parser import text_string_to_metric_families

from forked_commands import CODE, ForkedProcess, start_command, start_in_new_interpreter
from ports import free_port
from waiting import LONG, wait_until


@dataclass
class Answer:
    status: int
    headers: Any
    body: bytes

    @property
    def cbor(self) -> Any:
        return cbor2.loads(self.body)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def items(self) -> list[Any]:
        stream = io.BytesIO(self.body)
        decoder = cbor2.CBORDecoder(stream)
        found = []
        while stream.tell() < len(self.body):
            found.append(decoder.decode())
        return found

    @property
    def message(self) -> str:
        """All that an error says."""
        error = self.json["error"]
        return " | ".join([error["message"], *error.get("caused_by", [])])


@dataclass
class Server:
    url: str
    process: ForkedProcess | subprocess.Popen[Any]
    log: Path

    def __post_init__(self) -> None:
        self.pool = urllib3.PoolManager(maxsize=64, cert_reqs="CERT_NONE")

    def close(self) -> None:
        """Close the connections, at once: `PoolManager.clear` leaves that to the garbage collector."""
        for key in self.pool.pools.keys():  # noqa: SIM118  (no dictionary: it cannot be iterated over)
            self.pool.pools[key].close()
        self.pool.clear()

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
        response = self.pool.request(
            method, f"{self.url}{path}", body=body, headers=headers or {}, retries=False, redirect=False, timeout=LONG
        )
        return Answer(response.status, response.headers, response.data)

    def post(self, path: str, data: Any, headers: dict[str, str] | None = None) -> Answer:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        return self.ask("POST", path, body, {"Content-Type": "application/json", **(headers or {})})

    def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        return self.ask("GET", path, None, headers)

    def peak_bytes(self) -> int:
        """The most memory that the process had so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) << 10

    def metrics(self) -> dict[str, float]:
        """The values of `/metrics` by name; of those with labels, the sums."""
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(self.get("/metrics").body.decode()):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0) + sample.value
        return found


@contextmanager
def serving(
    roots: Sequence[Any],
    log: Path,
    *options: str,
    scheme: str = "http",
    environment: dict[str, str] | None = None,
    setup: str = "",
    forked: bool = True,
) -> Iterator[Server]:
    """`insitu serve` with these roots, for as long as the block lasts.

    Parameters
    ----------
    roots, log, options
        What it serves, where its output goes, and its other arguments.
    scheme
        Of its URL.
    environment
        Variables beside those of this process.
    setup
        Statements that its process runs first; those of several workers do not.
    forked
        Whether it may be a fork: a test that measures its memory would measure what other commands import.
    """
    port = free_port()
    arguments = [*map(str, roots), "--port", str(port), *options]
    with started(arguments, f"{scheme}://127.0.0.1:{port}", log, environment, setup=setup, forked=forked) as server:
        yield server


@contextmanager
def started(
    arguments: Sequence[str],
    url: str,
    log: Path,
    environment: dict[str, str] | None = None,
    *,
    setup: str = "",
    forked: bool = True,
) -> Iterator[Server]:
    """`insitu serve` with these arguments, which make it listen at that URL, for as long as the block lasts."""
    start = start_command if forked else start_in_new_interpreter
    with open(log, "wb") as file:
        process = start(
            ["serve", *arguments], code=f"{setup}\n{CODE}", environment={**os.environ, **(environment or {})},
            stdout=file, stderr=file,
        )  # fmt: skip
    server = Server(url, process, log)
    try:
        wait_for_server(server)
        yield server
    finally:
        server.close()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(LONG)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_server(server: Server) -> None:
    """Wait until a server answers."""

    def answers() -> bool:
        assert server.process.poll() is None, f"the server ended: {server.log.read_text()}"
        try:
            return server.get("/health").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    wait_until(answers, "no answer", every=0.02)
