"""Atomic replacement of a directory by another one.

Linux and macOS can exchange two directories in one step, on most file systems: then a reader finds
the old directory at the path, or the new one, whenever it looks. Where that is not possible (some
network file systems, Windows), the old directory is moved aside before the new one is moved into
its place. A process that dies in between leaves nothing at the path, but the old directory is
complete under a name that `find_interrupted_swap` knows: readers open that one, and the next writer puts
it back.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import sys
import uuid
from typing import Any

from insitu.references.file_systems import retry_while_open, sync_directory

__all__ = ["find_interrupted_swap", "remove_directory", "replace_directory"]

_AT_FDCWD = -100
_EXCHANGE = 2
"""`RENAME_EXCHANGE` of Linux, `RENAME_SWAP` of macOS."""
_NO_EXCHANGE_ERRORS = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM}
"""Error codes of file systems and kernels that cannot exchange directories."""
_ATTEMPTS = 100
"""Other writers may get in between; each time one of them has succeeded."""


def replace_directory(path: str, replacement: str) -> None:
    """Replace whatever lies at `path` by a complete directory; `replacement` then holds the old content,
    or is gone.

    Parameters
    ----------
    path
        The place: a directory, a file, a symbolic link, or nothing.
    replacement
        The new directory, on the same file system.
    """
    for _ in range(_ATTEMPTS):
        try:
            _undo_interrupted_swap(path)
            if os.path.lexists(path):
                if not _exchange(path, replacement):
                    _replace_in_two_steps(path, replacement)
            else:
                retry_while_open(os.rename, replacement, path)
        except OSError as error:
            # Another writer was faster: its directory is there now, or the one that was there is
            # gone.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT) or not os.path.lexists(replacement):
                raise
            continue
        sync_directory(os.path.dirname(path))
        return
    raise OSError(
        errno.EBUSY, f"other writers replaced the directory {_ATTEMPTS} times; try again when they are done", path
    )


def find_interrupted_swap(path: str) -> str | None:
    """Return the old directory of `path` that a writer moved aside before it died; None: there is
    none.
    """
    if os.path.lexists(path):
        return None
    folder, name = os.path.split(path)
    pattern = re.compile(re.escape(name) + r"\.[0-9a-f]{8}\.old")
    try:
        found = [os.path.join(folder, entry) for entry in os.listdir(folder or ".") if pattern.fullmatch(entry)]
        return max(found, key=lambda old: (os.lstat(old).st_mtime_ns, old), default=None)
    except OSError:  # the folder does not exist, or another writer has just put the directory back
        return None


def remove_directory(path: str) -> None:
    """Remove an old directory or file. What cannot be removed is left behind: the new one is in
    place.
    """
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        os.unlink(path)


def _undo_interrupted_swap(path: str) -> None:
    old = find_interrupted_swap(path)
    if old is not None:
        os.rename(old, path)


def _exchange(path: str, other: str) -> bool:
    """Exchange two directories in one step; return False if the file system cannot."""
    one, two = os.fsencode(os.path.abspath(path)), os.fsencode(os.path.abspath(other))
    if sys.platform == "win32":
        return False
    library: Any = ctypes.CDLL(None, use_errno=True)
    if hasattr(library, "renameat2"):  # Linux
        result = library.renameat2(_AT_FDCWD, one, _AT_FDCWD, two, ctypes.c_uint(_EXCHANGE))
    elif hasattr(library, "renamex_np"):  # macOS
        result = library.renamex_np(one, two, ctypes.c_uint(_EXCHANGE))
    else:
        return False
    if result == 0:
        return True
    problem = ctypes.get_errno()
    if problem in _NO_EXCHANGE_ERRORS:
        return False
    raise OSError(problem, os.strerror(problem), path)


def _replace_in_two_steps(path: str, replacement: str) -> None:
    """Replace a directory in two steps; `find_interrupted_swap` finds the old one if only the first was
    done.
    """
    old = f"{path}.{uuid.uuid4().hex[:8]}.old"
    retry_while_open(os.rename, path, old)
    try:
        retry_while_open(os.rename, replacement, path)
    except OSError:
        _give_back(old, path)
        raise
    with contextlib.suppress(FileNotFoundError):  # another writer took it for one that a dead writer had left
        os.rename(old, replacement)  # a name that readers ignore, and that may be removed


def _give_back(old: str, path: str) -> None:
    """Put an old directory back, or remove it where another writer's directory took its place."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(OSError):  # another writer came or went in between: look again
            if not os.path.lexists(path):
                os.rename(old, path)
            else:
                unused = f"{path}.{uuid.uuid4().hex[:8]}.tmp"  # nobody puts it back while it is being removed
                os.rename(old, unused)
                remove_directory(unused)
        if not os.path.lexists(old):
            return
