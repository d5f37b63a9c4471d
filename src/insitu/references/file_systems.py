"""What differs between systems when files are written: which names there are, renaming, deleting,
locks.

Windows neither renames nor deletes what a process has open, and programs that look through new
files (virus scanners, search indexes) have each of them open for moments. There, what is refused is
tried again for a while. Locks are `flock` where there is one, else the first byte of a file.
"""

from __future__ import annotations

import importlib
import os
import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from insitu.errors import UnsupportedError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["check_names", "hold_file_lock", "lock_descriptor", "retry_while_open", "sync_directory"]

PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds between attempts, about as long as a scanner takes for a large file."""
LOCK_PAUSE = 0.05
"""Seconds between two looks at a lock that another process holds."""


_RESERVED = re.compile(
    r"""[^/]*[<>:"|?*\\\x00-\x1f][^/]*|[^/]*[. ]|(con|prn|aux|nul|com\d|lpt\d)(\.[^/]*)?""", re.IGNORECASE
)
"""What no file of Windows can be called."""


def check_names(names: Iterable[str], folder: str) -> None:
    """Raise `UnsupportedError` if files of these names, with slashes, cannot lie side by side in an existing
    folder: it does not tell upper case from lower case, or Windows reserves the name.
    """
    seen: dict[str, str] = {}
    ignores_case = os.path.exists(os.path.join(os.path.dirname(folder), os.path.basename(folder).swapcase()))
    for name in names:
        if os.name == "nt" and any(_RESERVED.fullmatch(part) for part in name.split("/")):
            raise UnsupportedError(
                f"Windows allows no file of the name {name!r}", url=folder, variable=name, hint=_NAMES_HINT
            )
        other = seen.setdefault(unicodedata.normalize("NFC", name).casefold() if ignores_case else name, name)
        if other != name:
            raise UnsupportedError(
                f"the file system does not tell {other!r} from {name!r}", url=folder, variable=name, hint=_NAMES_HINT
            )


_NAMES_HINT = "Save as *.insitu or *.json, which need no file for each variable"


def retry_while_open(action: Callable[..., None], *paths: str) -> None:
    """Call a function that renames or deletes; on Windows several times, while it is refused."""
    for pause in PAUSES if os.name == "nt" else ():
        try:
            return action(*paths)
        except PermissionError:
            time.sleep(pause)
    return action(*paths)


def sync_directory(folder: str) -> None:
    """Make a rename durable, where directories can be synced."""
    if os.name != "nt":
        handle = os.open(folder or ".", os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def hold_file_lock(path: str) -> Iterator[None]:
    """Hold an exclusive lock on a file, which is created; the system releases it if the process dies."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with lock_descriptor(handle):
            yield
    finally:
        os.close(handle)


@contextmanager
def try_file_lock(path: str) -> Iterator[bool]:
    """Give whether nobody held the lock on an existing file, which is held then; do not wait for it."""
    handle = os.open(path, os.O_RDWR)
    try:
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            else:
                library: Any = importlib.import_module("msvcrt")
                library.locking(handle, library.LK_NBLCK, 1)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


@contextmanager
def lock_descriptor(handle: int) -> Iterator[None]:
    """Hold an exclusive lock on an open file; wait until nobody else does."""
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield  # closing the file releases it
        return
    library: Any = importlib.import_module("msvcrt")
    while True:
        try:
            library.locking(handle, library.LK_NBLCK, 1)  # LK_LOCK gives up after ten seconds
            break
        except OSError:
            time.sleep(LOCK_PAUSE)
    try:
        yield
    finally:
        library.locking(handle, library.LK_UNLCK, 1)
