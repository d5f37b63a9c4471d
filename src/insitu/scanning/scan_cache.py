"""Cache of scans on disk: the second time that an archive is opened, its files are not scanned.

An entry is an archive, as a file or as an insitu store, found by two hashes. The *key* covers what was
asked for: the URLs, the options that change the result, endpoints and credentials. The *identity*
covers the versions of insitu and of plug-in formats, and the state of every file that the scan touched,
external links and missing files included: size, modification and change time in nanoseconds, inode and
device; of a remote object, size and ETag, for which it is asked once. A file that changes gives another
identity, so an entry is never outdated; it is only not found any more. What has no ETag is not cached.

A file that changed less than two seconds before the scan is not cached: a second change within the
resolution of its clock would not be noticed. Where a file system reports neither change times nor
inodes, a change within one tick of the modification time that keeps the size is not noticed later.

The folder is `INSITU_SCAN_CACHE`, or `insitu/archives` in the user's cache folder;
`INSITU_SCAN_CACHE=off` switches the cache off. It is not used if other users may write to it.
Entries that were not used for longest are deleted when all together exceed `max_bytes`, except
those that a process has open.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

from insitu.errors import InsituError
from insitu.forking import fork_safe_lock
from insitu.model import Source
from insitu.process_options import options
from insitu.sources import open_source
from insitu.sources.address import is_remote
from insitu.sources.opened_urls import record_opened_urls
from insitu.sources.redaction import redact_url
from insitu.sources.user_folders import user_cache_folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "CachedScan",
    "ScanCache",
    "ScanRecorder",
    "Versions",
    "ask_versions",
    "default_scan_cache",
    "make_key",
    "reader_identity",
]

MAX_BYTES = 1 << 30
"""Bytes of all entries."""
RECENT_NS = 2_000_000_000
"""A file that changed within this time before the scan is not cached."""
FORMAT_VERSION = 3
"""Of the entries; another one is not read."""
MISSING = (-1, 0, 0, 0, 0)
"""Identity of a file that does not exist."""
ACCOUNT_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_")
"""Environment variables of endpoints and credentials begin with these."""
REQUESTS_AT_ONCE = 64
"""Remote objects that are asked for their versions at the same time."""

Versions = Callable[[Sequence[str]], Mapping[str, Source]]
"""Returns size and ETag of remote objects, by URL."""


@dataclass(frozen=True, slots=True)
class CachedScan:
    """An entry of the cache, open: it is not deleted before the process ends."""

    store: str
    """Path of what was written."""
    notes: dict[str, Any]
    """What was noted beside it."""


class CacheEntry(NamedTuple):
    """One scan in the cache."""

    name: str
    """Of its folder."""
    size: int
    """Bytes."""
    used: float
    """When it was last used, in seconds since 1970."""
    title: str
    """Which files were scanned, for people."""


def _make_title(urls: Sequence[str]) -> str:
    more = f" and {len(urls) - 1:,} more" if len(urls) > 1 else ""
    return f"{redact_url(urls[0])}{more}"


def _read_title(entry: Path) -> str:
    try:
        return (entry / "title").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


class ScanCache:
    """Scans on disk, shared by processes.

    Parameters
    ----------
    folder
        Where the entries lie; created when the first one is written.
    max_bytes
        Bytes of all entries.
    """

    def __init__(self, folder: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> None:
        self.folder = Path(folder)
        self.max_bytes = max_bytes

    def find(self, key: str, urls: Sequence[str], versions: Versions | None = None) -> CachedScan | None:
        """Return the entry of a key if the files are what they were; None if there is none.

        Parameters
        ----------
        key
            From `make_key`.
        urls
            The files that were asked for.
        versions
            Asks for the versions of remote objects; not called if there is no entry of the key.
        """
        if not self._is_ours():
            return None
        try:
            index = json.loads((self.folder / f"{key}.json").read_bytes())
            if index["version"] != FORMAT_VERSION or index["readers"] != reader_identity():
                return None
            identity = identify([*urls, *index["others"]], versions)
            entry = self.folder / f"{key}-{identity.digest}"
            if not _hold(entry):
                return None
            notes = json.loads((entry / "notes.json").read_bytes())
        except (OSError, InsituError, ValueError, KeyError, TypeError):  # no entry, or one of another version
            return None
        with suppress(OSError):
            os.utime(entry)  # used now
        return CachedScan(str(entry / "scan"), notes)

    def put(
        self,
        key: str,
        recorder: ScanRecorder,
        urls: Sequence[str],
        write: Callable[[str], None],
        notes: dict[str, Any],
        versions: Versions | None = None,
    ) -> bool:
        """Write an entry; return False if that is not possible or not safe.

        Parameters
        ----------
        key
            From `make_key`.
        recorder
            Recorded which files the scan touched.
        urls
            The files that were asked for.
        write
            Writes the archive at a path.
        notes
            What is noted beside it, as JSON.
        versions
            Returns the versions of remote objects that were scanned.
        """
        others = sorted(recorder.touched - set(urls))
        try:
            identity = identify([*urls, *others], versions)
        except OSError:
            return False
        if identity.newest > recorder.began - RECENT_NS or not self._make_folder():
            return False
        entry = self.folder / f"{key}-{identity.digest}"
        part = self.folder / f"part-{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}"
        try:
            part.mkdir(mode=0o700)
            write(str(part / "scan"))
            (part / "notes.json").write_text(json.dumps(notes), encoding="utf-8")
            (part / "title").write_text(_make_title(urls), encoding="utf-8")
            (part / "lock").touch()
            if identify([*urls, *others], versions) != identity:  # changed while it was scanned
                return False
            with suppress(OSError):  # another process was faster
                part.rename(entry)
            index = self.folder / f"index-{os.getpid()}-{threading.get_ident()}"
            about = {"version": FORMAT_VERSION, "readers": reader_identity(), "others": others}
            index.write_text(json.dumps(about), encoding="utf-8")
            index.replace(self.folder / f"{key}.json")
        except OSError:  # the disk is full, or the folder cannot be written to: a cache is not worth an error
            return False
        finally:
            shutil.rmtree(part, ignore_errors=True)
        self.evict(self.max_bytes)
        return True

    def entries(self) -> list[CacheEntry]:
        """Return the entries, the least recently used first."""
        found = []
        with suppress(OSError):
            for item in os.scandir(self.folder):
                if item.is_dir(follow_symlinks=False) and not item.name.startswith("part-"):
                    with suppress(OSError):
                        size, used = _count_bytes(Path(item.path)), item.stat().st_mtime
                        found.append(CacheEntry(item.name, size, used, _read_title(Path(item.path))))
        return sorted(found, key=lambda entry: entry.used)

    def evict(self, max_bytes: int) -> int:
        """Delete the least recently used entries until the others fit; return the bytes that are
        left. Entries that a process has open stay.
        """
        found = self.entries()
        total = sum(entry.size for entry in found)
        for entry in found:
            if total <= max_bytes:
                break
            if _delete(self.folder / entry.name):
                total -= entry.size
        return total

    def clear(self) -> int:
        """Delete all entries that no process has open; return the bytes of those that stay."""
        left = self.evict(-1)
        with suppress(OSError):
            current = {entry.name.partition("-")[0] for entry in self.entries()}
            for item in os.scandir(self.folder):
                if item.name.endswith(".json") and item.name.removesuffix(".json") not in current:
                    with suppress(OSError):
                        os.unlink(item.path)
                elif item.name.startswith("part-") and time.time() - item.stat().st_mtime > 3600:  # of a crash
                    shutil.rmtree(item.path, ignore_errors=True)
        return left

    def _make_folder(self) -> bool:
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._is_ours()

    def _is_ours(self) -> bool:
        """Return whether the folder exists and nobody else may write to it."""
        try:
            found = self.folder.stat()
        except OSError:
            return False
        if sys.platform == "win32":
            return stat.S_ISDIR(found.st_mode)
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


@dataclass(frozen=True, slots=True)
class FilesIdentity:
    """The state of some files."""

    digest: str
    newest: int
    """The latest modification or change, in nanoseconds."""


def identify(paths: Sequence[str], versions: Versions | None = None) -> FilesIdentity:
    """Return the state of files and of the code that scans them; a missing local file has a state, too.

    Parameters
    ----------
    paths
        Local paths and URLs.
    versions
        Returns the versions of remote objects; None: there must be none.

    Raises
    ------
    OSError
        If one of them is a folder, cannot be looked at, or is remote and has no ETag.
    """
    hashed = hashlib.blake2b(repr(reader_identity()).encode(), digest_size=16)
    newest = 0
    far = [path for path in paths if is_remote(path)]
    found_far = versions(far) if versions is not None and far else {}
    for path in far:
        hashed.update(repr((path, _version_of(found_far.get(path)))).encode())
    for path in paths:
        if is_remote(path):
            continue
        try:
            found = os.stat(path)
        except FileNotFoundError:
            hashed.update(repr((path, MISSING)).encode())
            continue
        if not stat.S_ISREG(found.st_mode):
            raise IsADirectoryError(path)
        state = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)
        hashed.update(repr((path, state)).encode())
        newest = max(newest, found.st_mtime_ns, found.st_ctime_ns)
    return FilesIdentity(hashed.hexdigest(), newest)


def _version_of(source: Source | None) -> tuple[int, str]:
    """Return what identifies a remote object.

    Raises
    ------
    OSError
        If nothing does. A weak ETag means that the values are the same, not that the bytes are.
    """
    if source is None or source.size is None or not source.etag or source.etag.startswith("W/"):
        raise FileNotFoundError("the version of the object is not known")
    return source.size, source.etag


def ask_versions(storage_options: Mapping[str, Any] | None) -> Versions:
    """Return a function that asks remote storage for the versions of objects, one request for each."""

    def describe(url: str) -> Source:
        with open_source(url, storage_options) as source:
            return source.describe()

    def ask(urls: Sequence[str]) -> dict[str, Source]:
        with ThreadPoolExecutor(min(len(urls), REQUESTS_AT_ONCE), thread_name_prefix="insitu-versions") as pool:
            return dict(zip(urls, pool.map(describe, urls), strict=True))

    return ask


def make_key(urls: Sequence[str], options: Mapping[str, Any]) -> str:
    """Return the key of what was asked for: the same only for the same files, options and accounts."""
    accounts = {}
    if any(map(is_remote, urls)):
        accounts = {name: value for name, value in os.environ.items() if name.startswith(ACCOUNT_VARIABLES)}
    question = json.dumps([list(urls), options, accounts], sort_keys=True)
    return hashlib.blake2b(question.encode(), digest_size=16).hexdigest()


@cache
def reader_identity() -> list[str]:
    """Return what identifies the code that scans: that of insitu, and plug-in formats."""
    package = Path(__file__).parents[1]
    newest = max(path.stat().st_mtime_ns for path in package.rglob("*.py"))
    found = entry_points(group="insitu.formats")
    plugins = sorted(f"{entry.value} {entry.dist.version if entry.dist is not None else ''}" for entry in found)
    return [str(package), str(newest), *plugins]


class ScanRecorder:
    """Which files a scan touches, and when it began."""

    __slots__ = ("began", "touched")

    def __init__(self) -> None:
        self.began = time.time_ns()
        self.touched: set[str] = set()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the files that are opened by the threads of this process."""
        with record_opened_urls() as found:
            try:
                yield
            finally:
                self.touched |= found


def default_scan_cache() -> ScanCache | None:
    """Return the cache of the user; None if it is switched off."""
    named = os.environ.get("INSITU_SCAN_CACHE", "")
    if not options.scan_cache or named.lower() in ("off", "0", "false", "no"):
        return None
    return ScanCache(named or user_cache_folder("archives"))


_descriptors: dict[str, int] = {}
"""Descriptors of the lock files of entries that this process has open."""
_descriptors_lock = fork_safe_lock()


def _hold(entry: Path) -> bool:
    """Keep an entry from being deleted while this process lives; return whether it exists."""
    with _descriptors_lock:
        if str(entry) in _descriptors:
            return entry.is_dir()
        try:
            descriptor = os.open(entry / "lock", os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError:
            return False
        if fcntl is not None:  # Windows does not delete a file that is open
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        if not entry.is_dir():  # deleted in between
            os.close(descriptor)
            return False
        _descriptors[str(entry)] = descriptor
        return True


def _delete(entry: Path) -> bool:
    """Delete an entry unless a process has it open; return whether it is gone."""
    if fcntl is None:
        try:
            os.unlink(entry / "lock")  # first: refused if a process has it open, and then all must stay
        except FileNotFoundError:
            pass
        except OSError:
            return False
        shutil.rmtree(entry, ignore_errors=True)
        return not entry.exists()
    try:
        descriptor = os.open(entry / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        shutil.rmtree(entry, ignore_errors=True)  # half an entry
        return not entry.exists()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(entry, ignore_errors=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return not entry.exists()


def _count_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
