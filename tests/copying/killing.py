"""A process that dies at one of its writes or requests, after which nothing that it does changes disk or bucket; a disk
that is full.
"""

from __future__ import annotations

import builtins
import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from insitu.copying.object_writers import PrefixWriter
from insitu.references import directory_swap

__all__ = ["Killed", "die_at", "die_at_request", "fill_disk_at"]

ACTIONS = ("replace", "rename", "unlink", "remove", "rmdir", "mkdir", "fsync", "sync", "truncate")


class Killed(BaseException):
    """As if the process were gone."""


class _Death:
    def __init__(self, number: int, make_problem: Callable[[], BaseException]) -> None:
        self.left = number
        self.make_problem = make_problem
        self._lock = threading.Lock()

    def count(self) -> bool:
        """Return whether this is the action at which it happens; raise the problem if it has happened."""
        with self._lock:
            self.left -= 1
            if self.left < 0:
                raise self.make_problem()
            return self.left == 0

    def around(self, action: Callable[..., Any]) -> Callable[..., Any]:
        """Return an action that happens, unless the process dies at it or is dead."""

        def do(*given: Any, **how: Any) -> Any:
            if self.count():
                raise self.make_problem()
            return action(*given, **how)

        return do


class _DyingFile:
    """A file of which only half of the last write is on the disk."""

    def __init__(self, file: Any, death: _Death) -> None:
        self._file, self._death = file, death

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _DyingFile:
        return self

    def __exit__(self, *problem: Any) -> None:
        self._file.close()

    def write(self, data: Any) -> int:
        """Write, or half of it."""
        if self._death.count():
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            raise self._death.make_problem()
        return int(self._file.write(data))


@contextmanager
def die_at(number: int) -> Iterator[Callable[[], bool]]:
    """Let a block die at the number-th action that changes the disk; give what tells whether it did.

    Files that libraries write in C are written as ever: the block dies before or after.
    """
    with _patched(_Death(number, Killed), ACTIONS) as has_happened:
        yield has_happened


@contextmanager
def die_at_request(number: int) -> Iterator[Callable[[], bool]]:
    """Let a block die before the number-th request that writes, reads, lists or removes objects of the target."""
    death = _Death(number, Killed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrefixWriter, "_ask", death.around(PrefixWriter._ask))
        yield lambda: death.left <= 0


@contextmanager
def fill_disk_at(number: int) -> Iterator[Callable[[], bool]]:
    """Let the disk be full from the number-th write on; give what tells whether it was. Renames and removals work."""
    with _patched(_Death(number, lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))), ("mkdir",)) as has_happened:
        yield has_happened


@contextmanager
def _patched(death: _Death, actions: Sequence[str]) -> Iterator[Callable[[], bool]]:
    plain_open = builtins.open

    def open_file(file: Any, mode: str = "r", *given: Any, **how: Any) -> Any:
        if not set(mode) & set("wax+"):
            return plain_open(file, mode, *given, **how)
        if death.count():
            raise death.make_problem()
        return _DyingFile(plain_open(file, mode, *given, **how), death)

    with pytest.MonkeyPatch.context() as patch:
        for name in actions:
            if hasattr(os, name):
                patch.setattr(os, name, death.around(getattr(os, name)))
        if "replace" in actions:
            patch.setattr(directory_swap, "_exchange", death.around(directory_swap._exchange))
        patch.setattr(builtins, "open", open_file)
        yield lambda: death.left <= 0
