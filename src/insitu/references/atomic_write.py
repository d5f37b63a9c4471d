"""Where are references written to, so that a crash leaves the old state?

A file is written beside its place and moved there when it is complete. A directory's last file (the one that names all others) is put in place last, by
one atomic step, and only if nobody else has put another there in between. The same on object stores, by conditional requests.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Protocol

from insitu.errors import AccessError, NotFoundError, SourceError, UnsupportedError
from insitu.references.directory_swap import remove_directory, replace_directory
from insitu.sources import open_source
from insitu.sources.access_policy import ask_path
from insitu.sources.listing import local_path

__all__ = ["Folder", "LocalFolder", "RemoteFolder", "folder", "lock_directory", "new_directory", "writable"]


@contextmanager
def writable(url: str, storage_options: Mapping[str, Any] | None = None) -> Iterator[IO[bytes]]:
    """A file that appears at `url` when it is complete, and not at all if something goes wrong."""
    path = local_path(url)
    if path is None:
        with tempfile.TemporaryFile() as file:
            yield file
            file.seek(0)
            store, key = _bucket(url, storage_options)
            _put(store, key, file, url)
        return
    temporary = f"{path}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(temporary, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise _ours(error, path) from error
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


class Folder(Protocol):
    """A directory that is written to."""

    url: str

    def create(self, name: str) -> Any:
        """A context: a file that appears under this name when it is complete."""

    def read(self, name: str) -> bytes | None:
        """A file's bytes; None if it is not there."""

    def swap(self, name: str, data: bytes, before: bytes | None) -> bool:
        """Put a file in place if it still is what it was `before` (None: not there); whether that was so."""

    def remove(self, names: list[str]) -> None:
        """Delete files; those that are not there do no harm."""

    def size(self, name: str) -> int:
        """Bytes of a file."""


def folder(url: str, storage_options: Mapping[str, Any] | None = None) -> Folder:
    """The directory at a URL."""
    path = local_path(url)
    return LocalFolder(path) if path is not None else RemoteFolder(url.rstrip("/"), storage_options)


class LocalFolder:
    """A directory on this machine."""

    def __init__(self, path: str) -> None:
        self.url = path
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise _ours(error, path) from error

    @contextmanager
    def create(self, name: str) -> Iterator[IO[bytes]]:
        """A context: a file that appears under this name when it is complete."""
        with writable(os.path.join(self.url, name)) as file:
            yield file

    def read(self, name: str) -> bytes | None:
        """A file's bytes; None if it is not there."""
        try:
            path = os.path.join(self.url, name)
            with open(path, "rb") as file:
                ask_path(path, file.fileno())
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _ours(error, self.url) from error

    def swap(self, name: str, data: bytes, before: bytes | None) -> bool:
        """Put a file in place if it still is what it was `before`; whether that was so."""
        with _alone(os.path.join(self.url, ".lock")):
            if self.read(name) != before:
                return False
            with self.create(name) as file:
                file.write(data)
            _sync(self.url)
        return True

    def remove(self, names: list[str]) -> None:
        """Delete files."""
        for name in names:
            try:
                os.unlink(os.path.join(self.url, name))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _ours(error, self.url) from error

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return os.path.getsize(os.path.join(self.url, name))


class RemoteFolder:
    """A prefix of an object store."""

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.url = url
        self._options = storage_options
        self._store, self._prefix = _bucket(f"{url}/", storage_options)
        self._tags: dict[str, dict[str, str]] = {}

    @contextmanager
    def create(self, name: str) -> Iterator[IO[bytes]]:
        """A context: an object that appears under this name when it is complete."""
        with writable(f"{self.url}/{name}", self._options) as file:
            yield file

    def read(self, name: str) -> bytes | None:
        """An object's bytes; None if it is not there."""
        import obstore

        try:
            answer = obstore.get(self._store, self._prefix + name)
            data = answer.bytes().to_bytes()
        except FileNotFoundError:
            return None
        except Exception as error:
            # obstore's errors have no one class; the original may hold a signed address.
            raise SourceError("the store failed", url=f"{self.url}/{name}") from _quiet(error)
        meta: Any = answer.meta
        self._tags[name] = {key: meta[key] for key in ("e_tag", "version") if meta[key] is not None}
        return data

    def swap(self, name: str, data: bytes, before: bytes | None) -> bool:
        """Put an object in place if it still is what it was `before`; whether that was so."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        mode: Any = "create"
        if before is not None:
            if self.read(name) != before:
                return False
            mode = self._tags[name]
        try:
            obstore.put(self._store, self._prefix + name, data, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return False
        except Exception as error:
            raise SourceError("the store failed", url=f"{self.url}/{name}") from _quiet(error)
        return True

    def remove(self, names: list[str]) -> None:
        """Delete objects."""
        import obstore

        for name in names:
            try:
                obstore.delete(self._store, self._prefix + name)
            except FileNotFoundError:
                continue
            except Exception as error:
                raise SourceError("the store failed", url=f"{self.url}/{name}") from _quiet(error)

    def size(self, name: str) -> int:
        """Bytes of an object."""
        with open_source(f"{self.url}/{name}", self._options) as source:
            return source.size()


@contextmanager
def new_directory(path: str) -> Iterator[Folder]:
    """A directory that appears at `path` when it is complete, in one step, and not at all if something goes wrong."""
    path = path.rstrip("/") or path
    made = f"{path}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        yield LocalFolder(made)
        for folder, _, _ in os.walk(made, topdown=False):
            _sync(folder)
        replace_directory(path, made)
    except OSError as error:
        raise _ours(error, path) from error
    finally:
        remove_directory(made)


@contextmanager
def lock_directory(path: str) -> Iterator[None]:
    """Hold a lock on a directory of this machine, against other writers that ask for it too."""
    if os.name == "nt":  # pragma: no cover
        with _alone(f"{path}.lock"):
            yield
        return
    import fcntl

    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise _ours(error, path) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Hold a lock that the system gives back if the process dies."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise _ours(error, path) from error
    try:
        if os.name == "nt":  # pragma: no cover
            import msvcrt

            lock: Any = msvcrt
            lock.locking(handle, lock.LK_LOCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sync(path: str) -> None:
    """Make a rename durable, where directories can be synced."""
    if os.name != "nt":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            raise _ours(error, path) from error
        finally:
            os.close(handle)


def _bucket(url: str, storage_options: Mapping[str, Any] | None) -> tuple[Any, str]:
    source: Any = open_source(f"{url}x" if url.endswith("/") else url, storage_options)
    if not hasattr(source, "_store"):
        raise UnsupportedError("nothing can be written there", url=url, hint="Write to a local path or an object store")
    key: str = source._path
    return source._store, key.removesuffix("x") if url.endswith("/") else key


def _put(store: Any, key: str, file: IO[bytes], url: str) -> None:
    import obstore

    try:
        obstore.put(store, key, file)
    except Exception as error:
        raise SourceError("the store failed to take the file", url=url) from _quiet(error)


def _quiet(error: Exception) -> Exception | None:
    """Nothing of what the store's library said: it may hold a signed address."""
    return None


def _ours(error: OSError, path: str) -> SourceError:
    if isinstance(error, SourceError):
        return error
    if isinstance(error, PermissionError):
        return AccessError("it may not be written", url=path)
    if isinstance(error, FileNotFoundError):
        return NotFoundError("no such directory", url=path)
    return SourceError(f"writing failed: {error.strerror or error}", url=path)
