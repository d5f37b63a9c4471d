"""ecCodes in a child process, for GRIB messages that may be damaged.

Of some damaged messages ecCodes ends its process, writes where it must not, or takes all memory. So
one child process is started when it is first needed, or as soon as a scan sees that it will be, and
serves all threads in turn. It ends with its parent, whose end closes the pipe; a signal of its own
ends it when a message takes too long. Whoever was forked starts another one. When it dies of a
message, a fresh one tries once more: the damage may have been done by the message before.

The child inherits no secrets: of the environment it gets what the loader, the locale and ecCodes
need, and no open file but its pipes. A start that fails is tried again a few times, and again for a
message that comes later. Where it keeps failing, a user's own process asks ecCodes itself; a server
never does (`codecs.libraries.isolation`): it raises `SourceError`, and its clients come again.

A request is its head, then the message; an answer is its head, then the values, or what went wrong.
After an error the process is not used again.
"""

from __future__ import annotations

import atexit
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import IO

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.libraries import isolation
from insitu.errors import CodecError, InsituError, SourceError, UnsupportedError
from insitu.formats.grib.codecs.eccodes_library import decode_values, import_alone

__all__ = ["decode_in_subprocess", "serve", "start_early"]

_REQUEST = struct.Struct("<24sQQ")
"""The key, the number of values, the bytes of the message."""
_ANSWER = struct.Struct("<BQ")
"""What it is, of the following; the bytes that follow."""
DAMAGED, VALUES, UNSUPPORTED = range(3)
READY = b"R"
SECONDS, PER_SECOND = 30, 1 << 20
"""Time limit of a message: so many seconds, and one more for so many values."""
START_SECONDS = 60
START_PAUSES = (0.1, 0.5)
"""Seconds between attempts to start the child: a machine may be out of processes or memory for a
moment.
"""
START_AGAIN = 10.0
"""Seconds for which no further attempt is made once all of them have failed."""
MEMORY = 1 << 30
"""Memory that ecCodes may take besides the values."""
LONGEST_PROBLEM = 1 << 16
_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; from insitu.formats.grib.codecs.subprocess_decoder import serve; serve()"
)


_INHERITED = frozenset({
    "PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "WINDIR", "COMSPEC", "PYTHONHOME",
    "CONDA_PREFIX",
    "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX",
    "COVERAGE_PROCESS_START",
})  # fmt: skip
_INHERITED_PREFIXES = ("LC_", "LD_", "DYLD_", "ECCODES_", "GRIB_", "FINDLIBS_", "PROJ_")


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the child gets of an environment.

    An allow-list, because the names of secrets cannot be listed.

    Examples
    --------
    >>> child_environment({"PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "x", "INSITU_SERVE": "{}"})
    {'PATH': '/bin', 'OPENBLAS_NUM_THREADS': '1', 'PYTHONFAULTHANDLER': ''}
    """
    inherited = {
        name: value
        for name, value in environment.items()
        if name.upper() in _INHERITED or name.upper().startswith(_INHERITED_PREFIXES)
    }
    return {**inherited, "OPENBLAS_NUM_THREADS": "1", "PYTHONFAULTHANDLER": ""}


class _GoneError(Exception):
    """The child process has ended before its answer."""


class _Worker:
    """The child process, as seen from the parent."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment(os.environ),
            close_fds=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.to: IO[bytes] = self.process.stdin
        self.back: IO[bytes] = self.process.stdout
        self.is_ready = False

    def wait_until_ready(self) -> None:
        """Wait until the child has started; raise OSError if it does not."""
        if self.is_ready:
            return
        with self._time_limit(START_SECONDS):
            ready = self.back.read(1)
        if ready != READY:
            self.end()
            raise OSError("no process for ecCodes can be started")
        self.is_ready = True

    def _time_limit(self, seconds: float) -> _Limit:
        return _Limit(self.process, seconds)

    def ask(self, raw: bytes, key: str, count: int) -> NDArray[np.float64]:
        # The other process has a limit of its own, which is the shorter one, where there are
        # signals.
        with self._time_limit(_seconds(count) + 5):
            try:
                self.to.write(_REQUEST.pack(key.encode(), count, len(raw)))
                self.to.write(raw)
                self.to.flush()
            except OSError as problem:
                raise _GoneError from problem
            kind, size = _ANSWER.unpack(self._read(_ANSWER.size))
            if kind != VALUES:
                reason = self._read(min(size, LONGEST_PROBLEM)).decode(errors="replace")
                raise UnsupportedError(reason) if kind == UNSUPPORTED else CodecError(reason)
            if size > count * 8 or size % 8:
                raise _GoneError
            values = np.empty(size // 8, np.float64)
            room = values.view(np.uint8).data
            while room:
                filled = self.back.readinto(room)  # type: ignore[attr-defined]
                if not filled:
                    raise _GoneError
                room = room[filled:]
        return values

    def _read(self, size: int) -> bytes:
        found = self.back.read(size)
        if len(found) < size:
            raise _GoneError
        return found

    def end(self) -> None:
        """Kill the child."""
        self.process.kill()
        self.process.wait()
        self.forget()

    def forget(self) -> None:
        """Close this end of the pipes."""
        for pipe in (self.to, self.back):
            with suppress(OSError):
                pipe.close()


class _Limit:
    """A `with` block that kills the child after so many seconds."""

    def __init__(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        self._timer = threading.Timer(seconds, process.kill)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *problem: object) -> None:
        self._timer.cancel()


_lock = threading.Lock()
_worker: _Worker | None = None
_not_before = 0.0
"""By the monotonic clock: no child is started earlier, because all attempts have failed."""


def _start_worker() -> _Worker | None:
    """Start the child, with a few attempts; return None if that fails."""
    global _not_before
    if time.monotonic() < _not_before:
        return None
    for pause in (*START_PAUSES, None):
        try:
            worker = _Worker()
            worker.wait_until_ready()
            return worker
        except (OSError, subprocess.SubprocessError):
            if pause is not None:
                time.sleep(pause)
    _not_before = time.monotonic() + START_AGAIN
    return None


def start_early() -> None:
    """Start the child, if there is none, without waiting for it: messages were found that need it."""
    global _worker
    if not _lock.acquire(blocking=False):  # another thread starts or uses it
        return
    try:
        if _worker is None and time.monotonic() >= _not_before:
            with suppress(OSError, subprocess.SubprocessError):  # tried again when it is needed
                _worker = _Worker()
    finally:
        _lock.release()


def decode_in_subprocess(raw: bytes, key: str, count: int) -> NDArray[np.float64]:
    """Return what `decode_values` returns, decoded in a child process.

    Raises
    ------
    SourceError
        If no child can be started, and this process may not do it.
    """
    global _worker
    with _lock:
        while True:
            fresh = _worker is None
            if _worker is None:
                _worker = _start_worker()
            if _worker is None:
                break
            try:
                _worker.wait_until_ready()
            except OSError:  # started early, and gone since
                _worker = None
                continue
            try:
                return _worker.ask(raw, key, count)
            except _GoneError as problem:
                _end_worker()
                if fresh:
                    raise CodecError(
                        "the GRIB message is damaged: ecCodes crashed or ran out of time or memory",
                        hint="Fetch the file again, or leave the message out",
                    ) from problem
            except BaseException:
                _end_worker()
                raise
    if not isolation.allows_in_process:
        raise SourceError(
            "the message needs ecCodes, whose subprocess cannot be started",
            hint="The machine may be out of processes or memory: try again.",
        )
    return decode_values(raw, key, count)


def _end_worker() -> None:
    global _worker
    if _worker is not None:
        _worker.end()
    _worker = None


def _forget_worker() -> None:
    """Forget the child of the parent process after a fork."""
    global _worker, _lock
    _lock = threading.Lock()
    if _worker is not None:
        _worker.process.returncode = 0  # not a child of this process: nothing to wait for
        _worker.forget()
    _worker = None


atexit.register(_end_worker)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_worker)


def _seconds(count: int) -> int:
    return SECONDS + count // PER_SECOND


def serve() -> None:
    """Answer requests until there are no more: the main loop of the child."""
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    # What libraries print must not come between the answers.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _limit_resources(0)
    answers.write(READY)
    answers.flush()
    import_alone()
    while len(head := requests.read(_REQUEST.size)) == _REQUEST.size:
        name, count, size = _REQUEST.unpack(head)
        raw = requests.read(size)
        _limit_resources(count * 64 + size * 8, _seconds(count))
        problem, kind = b"", DAMAGED
        try:
            values = decode_values(raw, name.rstrip(b"\0").decode(), count)
        except MemoryError:
            problem = b"ecCodes needs too much memory for this message"
        except InsituError as error:
            problem, kind = str(error).encode(), UNSUPPORTED if isinstance(error, UnsupportedError) else DAMAGED
        except Exception as error:  # whatever the library raises: the message is not one that it knows
            problem = f"ecCodes cannot decode the message: {error}".encode()
        answers.write(_ANSWER.pack(kind if problem else VALUES, len(problem) or values.nbytes))
        answers.write(problem or values.tobytes())
        answers.flush()
        if problem:
            return
        _limit_resources(0, 0)


def _limit_resources(more: int, seconds: int | None = None) -> None:
    """Limit memory to what is used now plus so many bytes, and time; where the system can."""
    if seconds is not None and hasattr(signal, "alarm"):
        signal.alarm(seconds)
    if sys.platform != "linux":
        return
    import resource

    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open("/proc/self/statm") as statm:
            now = int(statm.read().split()[0]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = now + MEMORY + more
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
