"""Run commands of insitu, and other code, in forks of one process that has imported everything, or in new interpreters.

A new interpreter imports for one to two seconds of processor time before a command begins, and the tests run
hundreds of commands and servers; a fork begins at once. The process that is forked does nothing but import, so it
has no event loops and no threads but those of libraries that prepare for forks (BLAS, Arrow's allocator). Where
forks are not to be had (outside Linux), or where the environment changes what an interpreter imports, a command
gets a new interpreter.

Run as a program, this is the process that is forked: it ends when its standard input does.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import multiprocessing.connection
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from waiting import LONG

__all__ = [
    "ADDRESS",
    "CODE",
    "ForkedProcess",
    "forking_address",
    "run_command",
    "start_command",
    "start_in_new_interpreter",
    "write_program",
]

ADDRESS = "INSITU_TESTS_FORKING"
"""The variable that tells processes which tests have started where the process that is forked listens."""
INTERPRETER = ("LD_", "PYTHON")
"""Beginnings of the variables that change an interpreter as it starts."""
CODE = "import insitu.cli; insitu.cli.main()"
LIBRARIES = (
    "xarray", "pandas", "numcodecs", "imagecodecs", "pyarrow.parquet", "cbor2", "obstore", "rich.console",
    "rich.progress", "rich.table", "typer._adapters", "uvicorn.lifespan.on", "uvicorn.protocols.http.h11_impl",
    "uvicorn.protocols.http.httptools_impl", "distributed", "flox", "h5netcdf", "kerchunk.hdf", "matplotlib.pyplot",
)  # fmt: skip
"""What commands and pages of the documentation import only when they run, besides the modules of insitu."""


class ForkedProcess:
    """A command that runs in a fork, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("r")
        self.pid = int(self._lines.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it ended, or None as long as it runs."""
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it ends, and return how."""
        code = self._wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("insitu", timeout or 0)
        return code

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is None and multiprocessing.connection.wait([self._connection], timeout):
            self.returncode = os.waitstatus_to_exitcode(int(self._lines.readline()))
            self._lines.close()
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def start_command(
    words: Sequence[object],
    *,
    code: str = CODE,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    stdout: IO[Any] | None = None,
    stderr: IO[Any] | None = None,
) -> ForkedProcess | subprocess.Popen[Any]:
    """Start `insitu` with these words.

    Parameters
    ----------
    words
        The verb and its arguments.
    code
        What is run instead of the command line, as by `python -c`.
    folder
        The working directory; by default that of this process.
    environment
        All variables of the process; by default those of this one.
    stdout, stderr
        Files; by default those of this process.
    """
    variables = dict(os.environ if environment is None else environment)
    address = None if _changes_interpreter(variables) else forking_address()
    if address is None:
        return start_in_new_interpreter(
            words, code=code, folder=folder, environment=variables, stdout=stdout, stderr=stderr
        )
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    request = {
        "words": [*map(str, words)], "code": code, "environment": variables, "folder": str(folder or os.getcwd()),
    }  # fmt: skip
    files = [1 if stdout is None else stdout.fileno(), 2 if stderr is None else stderr.fileno()]
    socket.send_fds(connection, [b" "], files)
    connection.sendall(json.dumps(request).encode() + b"\n")
    return ForkedProcess(connection)


def start_in_new_interpreter(
    words: Sequence[object],
    *,
    code: str = CODE,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    stdout: IO[Any] | None = None,
    stderr: IO[Any] | None = None,
) -> subprocess.Popen[Any]:
    """The same in a new interpreter, which has imported nothing but what the command needs."""
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
    )


def run_command(
    words: Sequence[object],
    *,
    code: str = CODE,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `insitu` with these words, or other code, and return how it ended and what it printed."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = start_command(words, code=code, folder=folder, environment=environment, stdout=out, stderr=err)
        code = process.wait(LONG)
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(["insitu", *map(str, words)], code, out.read(), err.read())


def run_insitu(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `insitu` with arguments; it must end with this code."""
    done = run_command(arguments)
    assert done.returncode == code, done.stderr
    return done


def write_program(path: Path) -> None:
    """Write a program that runs its words like `start_command`: `insitu` for shells. It imports what sockets need."""
    path.write_text(
        f"#!{sys.executable} -IS\nimport sys\nsys.path.append({str(Path(__file__).parent)!r})\n"
        "from forked_commands import stand_in\nstand_in()\n"
    )
    path.chmod(0o755)


def stand_in() -> None:
    """Start the command that the words of this process name, hand on signals, and end as it does."""
    process = start_command(sys.argv[1:])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: process.send_signal(number))
    code = process.wait()
    os._exit(code if code >= 0 else 128 - code)


def _changes_interpreter(variables: Mapping[str, str]) -> bool:
    own = {name: value for name, value in os.environ.items() if name.startswith(INTERPRETER)}
    return own != {name: value for name, value in variables.items() if name.startswith(INTERPRETER)}


@functools.cache
def forking_address() -> str | None:
    """Return where the process that is forked listens; it is started the first time. None: there are no forks."""
    if sys.platform != "linux":
        return None
    if ADDRESS in os.environ:
        return "\0" + os.environ[ADDRESS]
    name = f"insitu-tests-{os.getpid()}-{time.monotonic_ns()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen(64)
        process = subprocess.Popen(
            [sys.executable, __file__, str(listener.fileno())],
            pass_fds=[listener.fileno()], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    _started.append(process)  # its standard input ends with this process
    os.environ[ADDRESS] = name
    return "\0" + name


_started: list[subprocess.Popen[bytes]] = []


# -- in the process that is forked


def main() -> None:
    """Listen at the socket of this number. A fork that gets a command goes on with it, as a new interpreter would."""
    ended: list[int] = []
    atexit.register(_leave, ended)  # the first that is registered is the last that is called
    listener = socket.socket(fileno=int(sys.argv[1]))
    _import_everything()
    gc.freeze()  # a fork that marks all these objects as seen would copy the pages that hold them
    if (request := _wait_for_command(listener)) is None:
        return
    sys.argv = ["insitu" if request["code"] == CODE else "-c", *request["words"]]
    main = types.ModuleType("__main__")  # without a file: what is spawned does not import this one
    _main_modules.append(sys.modules["__main__"])
    sys.modules["__main__"] = main
    try:
        exec(compile(request["code"], "<string>", "exec"), vars(main))
    except SystemExit as end:
        ended.append(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise
    ended.append(0)


_main_modules: list[types.ModuleType] = []


def _leave(ended: list[int]) -> None:
    """End a fork whose command is done: to tear down all modules would take longer than most commands."""
    if ended:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended[0])


def _import_everything() -> None:
    import insitu

    os.environ.setdefault("MPLBACKEND", "Agg")  # Matplotlib asks for it only once: as it is imported
    found = [module.name for module in pkgutil.walk_packages(insitu.__path__, "insitu.", onerror=lambda name: None)]
    for name in (*(name for name in found if not name.endswith("__main__")), *LIBRARIES):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # What a process looks up once of the packages that are installed takes longer than a small command.
    importlib.import_module("insitu.formats.registry").installed_formats()
    importlib.import_module("xarray").Variable((), 0)


def _wait_for_command(listener: socket.socket) -> dict[str, Any] | None:
    """Return what is to be run, in a process of its own; None in this one, at its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that wait for commands are not waited for
    while True:
        ready = multiprocessing.connection.wait([listener, sys.stdin])
        if sys.stdin in ready:
            return None
        connection, _ = listener.accept()
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            return _fork_command(connection)
        connection.close()


def _fork_command(connection: socket.socket) -> dict[str, Any]:
    """Return the request in a fork of this process, which waits for it and tells how it ended."""
    _, files, _, _ = socket.recv_fds(connection, 1, 2)
    with connection.makefile("r") as lines:
        request: dict[str, Any] = json.loads(lines.readline())
    child = os.fork()
    if child:
        os.dup2(0, 1)
        os.dup2(0, 2)
        for file in files:
            os.close(file)
        with contextlib.suppress(OSError):  # whoever has started it may have ended
            connection.sendall(f"{child}\n".encode())
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(OSError):
            connection.sendall(f"{status}\n".encode())
        os._exit(0)
    connection.close()
    for place, file in zip((1, 2), files, strict=True):
        os.dup2(file, place)
        os.close(file)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # The objects of before believe that they write to what standard output was then.
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", errors="backslashreplace", buffering=1, closefd=False)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    return request


if __name__ == "__main__":
    main()
