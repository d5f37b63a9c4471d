"""Temporary folders that the worker processes of one server share, removed at its end or at the next start.

A supervisor that is killed cannot remove its own. So it holds a lock on a file in it: a folder whose lock is free is
removed by the next server of the same user.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["worker_folder"]

LOCK = "lock"


@contextmanager
def worker_folder(prefix: str, variable: str, workers: int = 2) -> Iterator[str | None]:
    """Make a folder that only this user can enter, for as long as the `with` block lasts; None for a single worker.

    Parameters
    ----------
    prefix
        Of its name. Folders of that prefix whose server was killed are removed.
    variable
        The environment variable by which worker processes find it.
    workers
        How many worker processes there are: one alone needs no folder.
    """
    if workers < 2:
        yield None
        return
    _remove_abandoned(prefix)
    folder = tempfile.mkdtemp(prefix=prefix)
    try:
        with open(os.path.join(folder, LOCK), "w") as lock_file:
            _lock(lock_file)
            os.environ[variable] = folder
            yield folder
    finally:
        os.environ.pop(variable, None)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(prefix: str) -> None:
    if fcntl is None:
        return
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # of somebody else, of a server that runs, or just being removed by another
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with open(folder / LOCK, "r+") as lock_file:
                _lock(lock_file)
                shutil.rmtree(folder, ignore_errors=True)


def _lock(file: IO[str]) -> None:
    """Lock a file until it is closed, or its process ends; raise `OSError` if another process has locked it."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
