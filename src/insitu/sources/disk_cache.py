"""Cache of byte ranges in a folder, shared by any number of processes, bounded by bytes.

There is one file for each range, named by a digest of object, version and range. A file is written
beside and then renamed, so that nobody sees half of one; it carries its length and a checksum, so
that a disk that lost part of it costs a second fetch and not a wrong value. The least recently used
files go when the folder is full. There is no lock and no index: any number of processes (and of
machines, on a shared disk) may use and clean one folder at once, because all they do is rename, and
delete what may be deleted twice.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from insitu.errors import SourceError
from insitu.forking import fork_safe_lock

__all__ = ["DiskCache"]

_numbers = itertools.count()
_PROCESS_MARK = os.urandom(6).hex()
"""Names of files being written differ between the machines that share a disk, too."""
_HEAD = struct.Struct("<4sIQ")
_MAGIC = b"isc1"
_TARGET_FILL = 0.8
"""Share of the capacity that is left filled after cleaning: cleaning looks at every file, so it
should be rare.
"""
_BUDGET_SHARE = 1 / 8
"""Share of the free room that a process fills before it looks again: eight processes together
cannot overfill it.
"""
_BLOCK = 4096
"""Files take whole blocks on disk."""
_TOUCH_INTERVAL = 60.0
"""Seconds within which the time of last use is not updated again."""
_RESERVE = 8
"""An eighth of the capacity is left free for what other processes write before they look again."""
_MAX_BUDGET = 64
"""A process writes at most this part of the capacity before it looks at the folder again."""


class DiskCache:
    """A folder with ranges that were read from remote objects.

    Parameters
    ----------
    folder
        Made if it is not there; readable by its owner only.
    capacity
        The most bytes kept on disk.

    Examples
    --------
    >>> import tempfile
    >>> cache = DiskCache(tempfile.mkdtemp(), capacity=1 << 20)
    >>> key = cache.key("https://host/x.nc", '"v1"', 0, 3)
    >>> cache.get(key), cache.put(key, b"abc"), cache.get(key)
    (None, None, b'abc')
    """

    def __init__(self, folder: str | os.PathLike[str], capacity: int = 10 << 30) -> None:
        if capacity < 1:
            raise ValueError("capacity must be positive")
        self.folder = Path(os.path.abspath(os.path.expanduser(folder)))
        self.capacity = capacity
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise SourceError(f"the cache folder cannot be created: {error.strerror}", url=str(self.folder)) from None
        self._budget = 0
        self._lock = fork_safe_lock()

    @staticmethod
    def key(url: str, version: str, offset: int, length: int) -> str:
        """Return the key of a range of a version of an object."""
        text = f"{url}\0{version}\0{offset}\0{length}"
        return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=20).hexdigest()

    def get(self, key: str) -> bytes | None:
        """Return the bytes under a key; None if they are not cached."""
        path = self._path(key)
        try:
            with open(path, "rb", buffering=0) as file:
                raw = file.read()
                used = os.fstat(file.fileno()).st_mtime
        except OSError:
            return None
        if len(raw) >= _HEAD.size:
            magic, checksum, length = _HEAD.unpack_from(raw)
            data = raw[_HEAD.size :]
            if magic == _MAGIC and length == len(data) and checksum == zlib.crc32(data):
                if time.time() - used > _TOUCH_INTERVAL:
                    with suppress(OSError):  # cleaned away meanwhile, or a disk that may not be written
                        os.utime(path)
                return data
        with suppress(OSError):
            os.unlink(path)
        return None

    def put(self, key: str, data: bytes) -> None:
        """Store bytes under a key. A disk that is full or read-only is no error: they are just not
        cached.
        """
        size = _disk_usage(_HEAD.size + len(data))
        if size > self.capacity * (1 - _TARGET_FILL):
            return
        with self._lock:
            self._budget -= size
            full = self._budget < 0
        if full:
            self._clean(size)
        path = self._path(key)
        try:
            self._write(path, data)
        except FileNotFoundError:
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._write(path, data)
        except OSError:
            return

    def clear(self) -> None:
        """Delete everything in the cache."""
        for path, _, _ in self._entries():
            with suppress(OSError):
                os.unlink(path)
        with self._lock:
            self._budget = 0

    def size(self) -> int:
        """Return the bytes that the folder takes now."""
        return sum(size for _, size, _ in self._entries())

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]

    def _write(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(f".{os.getpid()}-{threading.get_ident()}-{next(_numbers)}-{_PROCESS_MARK}")
        try:
            with open(temporary, "xb") as file:
                file.write(_HEAD.pack(_MAGIC, zlib.crc32(data), len(data)))
                file.write(data)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def _entries(self) -> Iterator[tuple[str, int, float]]:
        """Yield every file: path, bytes on disk, time of last use."""
        for subfolder in _scan(self.folder):
            if len(subfolder.name) != 2 or not subfolder.is_dir(follow_symlinks=False):
                continue
            for entry in _scan(subfolder.path):
                try:
                    facts = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                yield entry.path, _disk_usage(facts.st_size), facts.st_mtime

    def _clean(self, needed: int) -> None:
        """Delete the least recently used files until there is room; then compute how much may be
        written before the next look.
        """
        entries = sorted(self._entries(), key=lambda entry: entry[2])
        total = sum(size for _, size, _ in entries)
        # Others write at the same time, and each looks only now and then: a reserve keeps all within the capacity.
        limit = self.capacity - self.capacity // _RESERVE
        if total + needed > limit:
            target = int(self.capacity * _TARGET_FILL) - needed
            recent = time.time() - 3600
            for path, size, used in entries:
                if total <= target:
                    break
                if os.path.basename(path).startswith(".") and used > recent:
                    continue  # being written by somebody
                try:
                    os.unlink(path)
                except FileNotFoundError:  # somebody else has cleaned it
                    pass
                except OSError:  # on Windows, somebody has it open
                    continue
                total -= size
        with self._lock:
            share = int((limit - total) * _BUDGET_SHARE)
            self._budget = max(min(share, self.capacity // _MAX_BUDGET), 0)

    def __reduce__(self) -> tuple[type[DiskCache], tuple[str, int]]:
        return DiskCache, (str(self.folder), self.capacity)

    def __repr__(self) -> str:
        return f"DiskCache({str(self.folder)!r}, capacity={self.capacity})"


def _scan(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _disk_usage(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK
