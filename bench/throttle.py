"""What does a slow link do to whoever reads over it?

A TCP proxy in a process of its own: several ports, each forwarded to another one, all through one
link of so many bits a second and so much delay. It counts bytes and HTTP requests that pass.
`Throttle` runs it for the time of a `with` block.

    python bench/throttle.py --rate 100e6 --delay 0.02 TARGET_PORT …      # prints one port a line;
    commands on standard input: stats, reset
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from types import TracebackType

BLOCK = 64 << 10


class Link:
    """All connections share it: a byte leaves when those before it have left."""

    def __init__(self, rate: float | None, delay: float) -> None:
        self.rate, self.delay = rate, delay
        self.free = [0.0, 0.0]
        self.reset()

    def reset(self) -> None:
        """Count anew."""
        self.requests = self.up = self.down = 0

    async def carry(self, size: int, downwards: bool) -> float:
        """Wait until so many bytes have left; when they arrive at the other end."""
        if downwards:
            self.down += size
        else:
            self.up += size
        if self.rate is None:
            return 0.0
        now = time.monotonic()
        self.free[downwards] = max(self.free[downwards], now) + 8 * size / self.rate
        await asyncio.sleep(max(self.free[downwards] - now, 0))
        return self.free[downwards] + self.delay / 2


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: Link, downwards: bool) -> None:
    queue: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue(64)

    async def deliver() -> None:
        while (item := await queue.get()) is not None:
            await asyncio.sleep(max(item[0] - time.monotonic(), 0))
            writer.write(item[1])
            await writer.drain()
        writer.write_eof() if writer.can_write_eof() else None

    delivering = asyncio.create_task(deliver())
    try:
        while data := await reader.read(BLOCK):
            if not downwards:
                link.requests += data.count(b" HTTP/1.1\r\n")
            await queue.put((await link.carry(len(data), downwards), data))
        await queue.put(None)
        await delivering
    except (ConnectionError, OSError, asyncio.CancelledError):
        delivering.cancel()
        writer.close()


async def _serve(targets: Sequence[int], link: Link) -> None:
    def forwarding(port: int):
        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_pump(reader, back, link, False), _pump(there, writer, link, True))
            writer.close()
            back.close()

        return forward

    servers = [await asyncio.start_server(forwarding(port), "127.0.0.1", 0) for port in targets]
    for server in servers:
        print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    while command := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        print(json.dumps({"requests": link.requests, "up": link.up, "down": link.down}), flush=True)
        if command == "reset":
            link.reset()


class Throttle:
    """The proxy as a process."""

    def __init__(self, targets: Sequence[int], rate: float | None = None, delay: float = 0.0) -> None:
        command = [sys.executable, __file__, "--delay", str(delay), *map(str, targets)]
        if rate is not None:
            command += ["--rate", str(rate)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ports = [int(self._line()) for _ in targets]

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def counted(self) -> dict[str, int]:
        """What passed since the last time; counts anew."""
        assert self.process.stdin is not None
        self.process.stdin.write("reset\n")
        self.process.stdin.flush()
        found: dict[str, int] = json.loads(self._line())
        return found

    def __enter__(self) -> Throttle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", type=int, nargs="+")
    parser.add_argument("--rate", type=float, default=None, help="bits a second")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds there and back")
    options = parser.parse_args()
    asyncio.run(_serve(options.targets, Link(options.rate, options.delay)))


if __name__ == "__main__":
    main()
