"""Connections between the worker processes of one server, for portions of large reductions.

Every worker listens on a Unix socket in a folder that only the user of the server can enter. A request is
its length and CBOR: who asks, and a batch of one job, as for `/reduce`; the response is its length and the
items that `/reduce` would send. A worker that has something to do refuses, so that workers never wait for
each other. When the asking worker closes the connection, the work for it ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from insitu.cancellation import check_deadline
from insitu.server.worker_folder import worker_folder

__all__ = ["SiblingConnection", "Siblings", "sibling_folder"]

error_log = logging.getLogger("insitu.serve")
ENVIRONMENT_VARIABLE = "INSITU_SERVE_SIBLINGS"
"""Names the folder of the sockets."""
HEAD = struct.Struct(">Q")
MAX_BYTES = 1 << 30
"""Largest message: the partial of a portion is smaller."""
CONNECT_SECONDS = 5.0
POLL_SECONDS = 0.25
"""Seconds between two looks at the deadline while a worker waits for another one."""

Respond = Callable[[bytes], Awaitable[bytes]]


@contextmanager
def sibling_folder(workers: int) -> Iterator[str | None]:
    """Let the worker processes that start within the `with` block find each other, in the folder that it gives."""
    if workers < 2 or not hasattr(socket, "AF_UNIX"):
        yield None
        return
    with worker_folder("insitu-workers-", ENVIRONMENT_VARIABLE) as folder:
        yield folder


class Siblings:
    """The other worker processes of the server, and the socket on which they reach this one.

    Parameters
    ----------
    folder
        Folder of the sockets; None: there are no others.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._own = None if self._folder is None else self._folder / f"{os.getpid()}.sock"
        self._listening: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        """What answers the others now."""

    @classmethod
    def from_environment(cls) -> Siblings:
        """Return the siblings of a process that `sibling_folder` surrounds."""
        return cls(os.environ.get(ENVIRONMENT_VARIABLE))

    def paths(self) -> list[str]:
        """Return the sockets of the others."""
        if self._folder is None or self._listening is None:
            return []
        return sorted(str(path) for path in self._folder.glob("*.sock") if path != self._own)

    async def listen(self, respond: Respond) -> None:
        """Answer the others from now on; without a socket this worker neither asks nor answers them."""
        if self._own is None:
            return

        def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(_serve_connection(reader, writer, respond))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

        try:
            self._listening = await asyncio.start_unix_server(serve, self._own)
        except OSError as problem:  # a path that is too long, a file system without sockets
            error_log.warning("workers do not share reductions: %s", problem)

    async def close(self) -> None:
        """Stop listening and answering."""
        if self._listening is not None and self._own is not None:
            self._listening.close()
            self._listening = None
            self._own.unlink(missing_ok=True)
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)


async def _serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, respond: Respond) -> None:
    try:
        while True:
            (size,) = HEAD.unpack(await reader.readexactly(HEAD.size))
            if size > MAX_BYTES:
                return
            working = asyncio.ensure_future(respond(await reader.readexactly(size)))
            leaving = asyncio.ensure_future(reader.read(1))  # nothing is sent before the response
            try:
                await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if leaving.done():
                    return
                leaving.cancel()
                await asyncio.wait({leaving})  # only one may read
                data = await working
            finally:
                working.cancel()
                leaving.cancel()
            writer.write(HEAD.pack(len(data)) + data)
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        pass  # the other worker has gone
    finally:
        writer.close()  # after any error, so that the other worker does not wait


class SiblingConnection:
    """A connection to another worker, used by one thread.

    Parameters
    ----------
    path
        Its socket.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            self._socket.close()

    def ask(self, request: bytes) -> bytes:
        """Return the response to a request; raise `OSError` if the other worker ends."""
        if self._socket is None:
            self._socket = self._connect()
        self._socket.settimeout(CONNECT_SECONDS)
        self._socket.sendall(HEAD.pack(len(request)) + request)
        self._socket.settimeout(POLL_SECONDS)
        (size,) = HEAD.unpack(self._receive(self._socket, HEAD.size))
        if size > MAX_BYTES:
            raise OSError("a message of another worker is damaged")
        return self._receive(self._socket, size)

    def _connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(CONNECT_SECONDS)
        try:
            made.connect(self.path)
        except OSError as problem:
            made.close()
            if isinstance(problem, ConnectionRefusedError):
                Path(self.path).unlink(missing_ok=True)  # of a worker that was killed
            raise
        return made

    def _receive(self, connection: socket.socket, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            try:
                part = connection.recv(min(size - len(found), 1 << 20))
            except TimeoutError:
                check_deadline()
                continue
            if not part:
                raise ConnectionResetError("another worker ended")
            found += part
        return bytes(found)
