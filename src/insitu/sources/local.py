"""Source for files on this machine.

Reads are `pread` on one descriptor: there is no shared position, so threads and forked children
read concurrently without a lock, and a batch is a plain loop (about 1 µs a range over the system
call; threads would cost more than they bring).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.cancellation import check_deadline
from insitu.errors import AccessError, NotFoundError, SourceError
from insitu.forking import fork_safe_lock
from insitu.model import Source
from insitu.sources import tracing
from insitu.sources.access_policy import check_path
from insitu.sources.opened_urls import note_opened
from insitu.sources.protocol import Range, SourceBase, copy_to_buffer
from insitu.sources.ranges import clip

__all__ = ["LocalSource"]

_read_scattered: Callable[[int, int, Any], int] | None
_read_ranges: Callable[[int, Any, Any, Any], int] | None
try:
    _read_scattered = import_module("insitu.sources._scatter").read_scattered
    _read_ranges = import_module("insitu.sources._scatter").read_ranges
except (ImportError, AttributeError):  # built only where there is a C compiler, perhaps of an earlier version
    _read_scattered = _read_ranges = None


_FOLDER_HINT = (
    "It is neither a Zarr store nor a set of references. To open the files in it, use open_mfdataset('archive/**/*.nc')"
)
"""Hint for users who name a folder of files."""
_PATTERN_HINT = "For patterns use open_mfdataset, or insitu scan"


class _Descriptor:
    """An open file, closed when the last read that uses it is over.

    Closing at once would let the system give the number to another file while a thread still reads
    by it: wrong bytes without an error.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class LocalSource(SourceBase):
    """A file on a local (or mounted) disk.

    Parameters
    ----------
    path
        The file. It is opened at once; its size and time of change are those of that moment.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"abcdef"), file.flush()
    ...     with LocalSource(file.name) as source:
    ...         source.size(), source.read(4, 10), source.read_many([(0, 2), (2, 1)])
    (6, b'ef', [b'ab', b'c'])
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._url = os.path.abspath(path)
        note_opened(self._url)
        try:
            check_path(self._url)
            # Looked at before it is opened: opening a pipe would wait for a writer.
            mode = os.stat(self._url).st_mode
            if not stat.S_ISREG(mode):
                folder = stat.S_ISDIR(mode)
                raise SourceError(
                    f"this is {'a directory' if folder else 'a device or a pipe'}, not a file",
                    url=self._url,
                    hint=_FOLDER_HINT if folder else None,
                )
            self._adopt_descriptor(os.open(self._url, os.O_RDONLY | getattr(os, "O_BINARY", 0)))
            if self._open is not None:
                check_path(self._url, self._open.number)
        except ValueError:
            raise SourceError("this is not a path that the system accepts", url=self._url) from None
        except SourceError:
            raise
        except OSError as error:
            raise _to_source_error(error, self._url) from error

    @classmethod
    def adopt(cls, descriptor: int, url: str) -> LocalSource:
        """Return a source on a file that is open already; the descriptor stays the caller's."""
        source = cls.__new__(cls)
        source._url = url
        source._adopt_descriptor(os.dup(descriptor))
        return source

    def _adopt_descriptor(self, number: int) -> None:
        self._open: _Descriptor | None = _Descriptor(number)
        self._lock = fork_safe_lock()
        facts = os.fstat(number)
        self._size, self._modified = facts.st_size, facts.st_mtime
        # Neither inode nor device: the same file seen from another machine, or restored, is the
        # same file.
        self._etag = f"{facts.st_size:x}-{facts.st_mtime_ns:x}"

    def describe(self) -> Source:
        """Return size and time of change when the file was opened."""
        return Source(self._url, self._size, self._etag, self._modified)

    def read(self, offset: int, length: int) -> bytes:
        """Return one range."""
        check_deadline()
        if tracing.is_tracing():
            with tracing.Request("files") as request:
                data = self._read(offset, length)
                request.bytes = len(data)
                return data
        return self._read(offset, length)

    def _read(self, offset: int, length: int) -> bytes:
        if _HAS_PREAD and 0 <= length <= self._size:
            file = self._file()
            try:
                found = _pread(file.number, length, offset)
            except (OSError, OverflowError):
                return self._read_in_pieces(offset, length)
            if len(found) == length:
                return found
        return self._read_in_pieces(offset, length)

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return many ranges, read one after the other: no faster order exists for a local file."""
        check_deadline()
        if tracing.is_tracing() and ranges:
            with tracing.Request("files", len(ranges)) as request:
                data = self._read_many(ranges)
                request.bytes = sum(map(len, data))
                return data
        return self._read_many(ranges)

    def _read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        total = sum([length for _, length in ranges])
        if not _HAS_PREAD or total > self._size:
            return [self._read_in_pieces(offset, length) for offset, length in ranges]
        file = self._file()
        number = file.number
        try:
            found = [_pread(number, length, offset) for offset, length in ranges]
        except (OSError, OverflowError):
            # Find out which range it was, or survive an offset that no file can have.
            return [self._read_in_pieces(offset, length) for offset, length in ranges]
        if sum(map(len, found)) != total:
            for at, (offset, length) in enumerate(ranges):
                if len(found[at]) != length:
                    found[at] = self._read_in_pieces(offset, length)
        return found

    def read_ranges_into(self, offset: NDArray[np.int64], length: NDArray[np.int64], target: NDArray[np.uint8]) -> int:
        """Fill `target` with many ranges, one behind the other; return the number of bytes read.

        Parameters
        ----------
        offset, length
            The ranges.
        target
            As many bytes as all of them together. If fewer were read, its content is undefined.
        """
        check_deadline()
        if tracing.is_tracing():
            with tracing.Request("files", len(offset)) as request:
                request.bytes = self._read_ranges_into(offset, length, target)
                return request.bytes
        return self._read_ranges_into(offset, length, target)

    def _read_ranges_into(self, offset: NDArray[np.int64], length: NDArray[np.int64], target: NDArray[np.uint8]) -> int:
        if _read_ranges is not None:
            file = self._file()
            try:
                return _read_ranges(file.number, np.ascontiguousarray(offset), np.ascontiguousarray(length), target)
            except OSError as error:
                raise _to_source_error(error, self._url) from error
        done, view = 0, target.data
        for begin, count in zip(offset.tolist(), length.tolist(), strict=True):
            found = self._read_into(begin, view[done : done + count])
            done += found
            if found < count:
                break
        return done

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer`, which need not be contiguous, from `offset` on, without a copy; return the
        number of bytes written.
        """
        if tracing.is_tracing():
            with tracing.Request("files") as request:
                request.bytes = self._read_into(offset, buffer)
                return request.bytes
        return self._read_into(offset, buffer)

    def _read_into(self, offset: int, buffer: memoryview) -> int:
        if not buffer.nbytes:
            return 0
        if not buffer.c_contiguous:
            return self._read_strided(offset, buffer)
        view = buffer.cast("B")
        file = self._file()
        start, length = clip(self._url, offset, view.nbytes, os.fstat(file.number).st_size)
        done = 0
        try:
            while done < length:
                count = self._read_piece_into(file.number, start + done, view[done:length])
                if count == 0:
                    break
                done += count
        except OSError as error:
            raise _to_source_error(error, self._url, offset, view.nbytes) from error
        return done

    def _read_strided(self, offset: int, buffer: memoryview) -> int:
        """Fill the rows of an array that is a part of a larger one."""
        if _read_scattered is not None and offset >= 0:
            try:
                return _read_scattered(self._file().number, offset, buffer)
            except OSError as error:
                raise _to_source_error(error, self._url, offset, buffer.nbytes) from error
        target = np.asarray(buffer)
        if target.nbytes > _BETWEEN and len(target) > 1:
            done, row = 0, target.nbytes // len(target)
            step = max(_BETWEEN // row, 1)
            for begin in range(0, len(target), step):
                part = target[begin : begin + step]
                found = self._read_into(offset + done, part.data)
                done += found
                if found < part.nbytes:
                    break
            return done
        return copy_to_buffer(self._read_in_pieces(offset, target.nbytes), buffer)

    def tail(self, length: int) -> bytes:
        """Return the last bytes."""
        return self.read(max(self._size - length, 0), min(length, self._size))

    def close(self) -> None:
        """Release the descriptor; reads that are under way in other threads end first."""
        self._open = None

    def _file(self) -> _Descriptor:
        file = self._open
        if file is None:
            raise SourceError("the source is closed", url=self._url)
        return file

    def _read_in_pieces(self, offset: int, length: int) -> bytes:
        """Return one range, however long: clipped to the file before memory is allocated, and
        continued where the system stops short.
        """
        file = self._file()
        # The size now: a file that shrank gives short reads, one that grew gives its new end.
        start, left = clip(self._url, offset, length, os.fstat(file.number).st_size)
        parts: list[bytes] = []
        try:
            while left > 0:
                part = self._read_piece(file.number, start, min(left, _LONGEST))
                if not part:
                    break
                parts.append(part)
                start, left = start + len(part), left - len(part)
        except OSError as error:
            raise _to_source_error(error, self._url, offset, length) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_piece(self, number: int, offset: int, length: int) -> bytes:
        if _HAS_PREAD:
            return _pread(number, length, offset)
        # Without pread (Windows) the position is shared by threads, hence the lock; there is no
        # fork there.
        with self._lock:
            os.lseek(number, offset, os.SEEK_SET)
            return os.read(number, length)

    def _read_piece_into(self, number: int, offset: int, view: memoryview) -> int:
        if _HAS_PREADV:
            return os.preadv(number, [view], offset)
        data = self._read_piece(number, offset, min(view.nbytes, _LONGEST))
        view[: len(data)] = data
        return len(data)

    def __reduce__(self) -> tuple[type[LocalSource], tuple[str]]:
        return LocalSource, (self._url,)


_HAS_PREAD = hasattr(os, "pread")
_HAS_PREADV = hasattr(os, "preadv")
_BETWEEN = 256 << 10
"""Bytes on their way to several rows: few enough to be in the processor's cache still when they are
copied.
"""
_LONGEST = 1 << 30
"""Systems cut a single read at 2 GiB or a little below."""

if _HAS_PREAD:
    _pread = os.pread
else:  # pragma: no cover - never called, there is a check before each use

    def _pread(descriptor: int, length: int, offset: int, /) -> bytes:
        raise NotImplementedError


def _to_source_error(error: OSError, url: str, offset: int | None = None, length: int | None = None) -> SourceError:
    if isinstance(error, FileNotFoundError | NotADirectoryError) or error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        pattern = any(character in url for character in "*?[{")
        return NotFoundError("no such file", url=url, hint=_PATTERN_HINT if pattern else None)
    if isinstance(error, PermissionError):
        return AccessError("permission to read the file is denied", url=url)
    return SourceError(f"reading failed: {error.strerror or error}", url=url, offset=offset, length=length)
