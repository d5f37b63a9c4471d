"""Windows, as far as it can be had elsewhere: its path functions for our modules, its locks, and a
Python without what only POSIX systems have.
"""

from __future__ import annotations

import ntpath
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

POSIX_ONLY = ("fork", "forkpty", "pread", "preadv", "posix_fadvise", "register_at_fork", "sched_getaffinity", "statvfs",
              "getuid", "geteuid", "O_CLOEXEC", "O_DIRECTORY", "sysconf")  # fmt: skip
"""Of the module `os`, as far as somebody may be tempted to use it."""

WITHOUT_POSIX = f"""
import asyncio, contextlib, os, signal, sys
import pyarrow.parquet, xarray  # before: others take what their platform has for granted
with contextlib.suppress(ImportError):
    import dask.array
for name in {POSIX_ONLY!r}:
    if name not in ("getuid", "geteuid"):  # the standard library has decided by the platform that they are there
        vars(os).pop(name, None)
for name in ("SIGALRM", "SIGHUP", "SIGKILL", "alarm"):
    vars(signal).pop(name, None)
sys.modules["fcntl"] = sys.modules["resource"] = sys.modules["insitu.sources._scatter"] = None
"""
"""The begin of a program that is to run without these functions and modules, and without our kernel
for scattered reads, which is not compiled on Windows.
"""


class FileLocks(ModuleType):
    """Locks of files as the module `msvcrt` has them, for the threads of this process."""

    LK_UNLCK, LK_LOCK, LK_NBLCK = 0, 1, 2

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.locked: dict[tuple[int, int], int] = {}
        self.refusals = 0

    def locking(self, handle: int, mode: int, count: int) -> None:
        facts = os.fstat(handle)
        file = facts.st_dev, facts.st_ino
        if mode == self.LK_UNLCK:
            if self.locked.pop(file, None) != handle:
                raise OSError(13, "this file is not locked")
        elif self.locked.setdefault(file, handle) != handle:
            self.refusals += 1
            raise OSError(13, "another handle has a lock")


class WindowsOs:
    """The module `os` as Windows has it; what needs the system itself is that of this one."""

    name, path, sep, altsep = "nt", ntpath, "\\", "/"

    def __getattr__(self, name: str) -> Any:
        if name in POSIX_ONLY:
            raise AttributeError(name)
        return getattr(os, name)


@contextmanager
def windows_paths() -> Iterator[None]:
    """Let the modules of insitu that are imported handle paths as on Windows."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] == "insitu" and getattr(module, "os", None) is os:
                patch.setattr(module, "os", WindowsOs())
        yield
