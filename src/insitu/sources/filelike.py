"""Source for open Python files and file-like objects.

Reads are `seek` and `read` under a lock, because a file has one position. The file stays the
caller's: closing the source does not close it. An ordinary file on disk is read by its descriptor
instead, which needs neither.

References need a URL, and the name of a file object is not one (a gzip file's name leads to other
bytes). So each gets a `file-object://` URL of its own, under which it is found again while it
lives.
"""

from __future__ import annotations

import io
import itertools
import os
import secrets
import stat
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

from insitu.errors import NotFoundError, SourceError
from insitu.forking import fork_safe_lock
from insitu.model import Source
from insitu.sources import tracing
from insitu.sources.local import LocalSource
from insitu.sources.protocol import ByteSource, Range, SourceBase
from insitu.sources.ranges import clip

__all__ = ["SCHEME", "FileLike", "FileLikeSource", "find_file_object", "source_from_file"]

SCHEME = "file-object"
_numbers = itertools.count(1)
_files: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


@runtime_checkable
class FileLike(Protocol):
    """An open binary file that supports seeking."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a position."""

    def read(self, size: int = -1, /) -> bytes:
        """Read from there."""


def source_from_file(file: FileLike) -> ByteSource:
    """Return the best source for an open file."""
    raw = file.raw if type(file) is io.BufferedReader else file
    # Only the plain classes: the descriptor of a gzip file, say, gives other bytes than the file
    # does.
    if type(raw) is io.FileIO and not raw.closed and isinstance(raw.name, str | bytes):
        path = os.path.abspath(os.fsdecode(raw.name))
        if _same_file(raw.fileno(), path):
            return LocalSource.adopt(raw.fileno(), path)
    return FileLikeSource(file)


def _same_file(descriptor: int, path: str) -> bool:
    """Return whether the path still leads to the open file: it may be deleted, replaced, or
    relative to another directory.
    """
    try:
        status = os.stat(path)
        return stat.S_ISREG(status.st_mode) and os.path.samestat(os.fstat(descriptor), status)
    except OSError:
        return False


def find_file_object(url: str) -> FileLikeSource:
    """Return a source on the living file object of that URL."""
    file = _files.get(url)
    if file is None:
        raise NotFoundError(
            "the file object of this URL no longer exists, or belongs to another process",
            url=url,
            hint="Keep the file open while the dataset is used.",
        )
    return FileLikeSource(file)


class _FileObject:
    """One file object: all sources on it share its lock, because they share its position."""

    def __init__(self, file: FileLike, url: str) -> None:
        self.file, self.url = file, url
        self.lock = fork_safe_lock()


_opened: weakref.WeakValueDictionary[int, _FileObject] = weakref.WeakValueDictionary()
"""The file objects that have a lock already."""
_opening = fork_safe_lock()


def _file_object(file: FileLike) -> _FileObject:
    with _opening:
        known = _opened.get(id(file))
        if known is None:
            known = _opened[id(file)] = _FileObject(file, _url_of(file))
        return known


def _url_of(file: FileLike) -> str:
    for url, known in list(_files.items()):
        if known is file:
            return url
    name = getattr(file, "name", None)
    label = f"/{os.path.basename(name)}" if isinstance(name, str) and name else ""
    # A random part: a dataset that travels to another process must not find that one's file of the
    # same number.
    url = f"{SCHEME}://{next(_numbers)}-{secrets.token_hex(4)}{label}"
    with suppress(TypeError):  # a class without weak references is readable, only not found again
        _files[url] = file
    return url


class FileLikeSource(SourceBase):
    """An open file-like object (`io.BytesIO`, an fsspec file, a zip member) as a source.

    Parameters
    ----------
    file
        Opened for reading, in binary mode, able to `seek`.
    """

    def __init__(self, file: FileLike) -> None:
        self._opened = _file_object(file)
        self._file, self._url = file, self._opened.url
        try:
            with self._opened.lock:
                self._size = file.seek(0, os.SEEK_END)
        except (OSError, ValueError) as error:
            raise SourceError(
                f"the file does not support seeking: {error}",
                url=self._url,
                hint="Read it into memory and pass the bytes.",
            ) from error

    def describe(self) -> Source:
        """Return name and size; a file object has no version."""
        return Source(self._url, self._size)

    def read(self, offset: int, length: int) -> bytes:
        """Return one range."""
        return self.read_many([(offset, length)])[0]

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return many ranges, read one after the other."""
        if not ranges:
            return []
        with self._opened.lock, tracing.Request("file objects", len(ranges)) as request:
            data = [self._piece(offset, length) for offset, length in ranges]
            request.bytes = sum(map(len, data))
            return data

    def _piece(self, offset: int, length: int) -> bytes:
        start, left = clip(self._url, offset, length, self._size)
        parts: list[bytes] = []
        try:
            if left:
                self._file.seek(start)
            while left > 0:
                part = self._file.read(left)
                if isinstance(part, str):
                    raise SourceError(
                        "the file is open in text mode", url=self._url, hint="Open it in binary mode ('rb')."
                    )
                if not part:
                    break
                parts.append(part)
                left -= len(part)
        except SourceError:
            raise
        except (OSError, ValueError) as error:
            raise SourceError(f"reading failed: {error}", url=self._url, offset=offset, length=length) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def __reduce__(self) -> tuple[Callable[[FileLike, str], FileLikeSource], tuple[FileLike, str]]:
        # Files of fsspec travel; those of Python do not, and say so.
        return _restore, (self._file, self._url)


def _restore(file: FileLike, url: str) -> FileLikeSource:
    """Return the source again after unpickling; in the process where it was pickled, on the same
    file.
    """
    with suppress(TypeError):
        file = _files.setdefault(url, file)
    return FileLikeSource(file)
