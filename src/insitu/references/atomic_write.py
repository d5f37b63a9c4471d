"""Atomic writes of files and directories, local and on object stores: a crash leaves the old state.

A file is written under a temporary name and moved to its target when it is complete. The file of a
directory that names all others is replaced last, in one atomic step, and only if no other writer
replaced it in between. Object stores do the same with conditional requests.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import IO, Any, Protocol

from insitu.errors import AccessError, NotFoundError, SourceError, UnsupportedError
from insitu.references.directory_swap import remove_directory, replace_directory
from insitu.references.file_systems import hold_file_lock, lock_descriptor, retry_while_open, sync_directory
from insitu.sources import open_source
from insitu.sources.access_policy import check_path
from insitu.sources.listing import local_path

__all__ = [
    "Folder",
    "LocalFolder",
    "RemoteFolder",
    "lock_directory",
    "new_directory",
    "open_atomic",
    "open_bucket",
    "open_folder",
    "to_source_error",
]

_STORE_HINT = "Check the credentials and the address, then try again"


@contextmanager
def open_atomic(url: str, storage_options: Mapping[str, Any] | None = None) -> Iterator[IO[bytes]]:
    """Open a file for writing that appears at `url` only when it is complete."""
    path = local_path(url)
    if path is None:
        with tempfile.TemporaryFile() as file:
            yield file
            file.seek(0)
            store, key = open_bucket(url, storage_options)
            _put_object(store, key, file, url)
        return
    temporary = f"{path}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(temporary, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        retry_while_open(os.replace, temporary, path)
    except OSError as error:
        raise to_source_error(error, path) from error
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


class Folder(Protocol):
    """A directory, local or remote, to write files to."""

    url: str

    def create(self, name: str) -> Any:
        """Open a file for writing that appears under this name when it is complete."""

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes; None if it does not exist."""

    def swap(self, name: str, data: bytes, before: bytes | None) -> bool:
        """Replace a file if it still holds `before` (None: does not exist); return whether it did."""

    def remove(self, names: list[str]) -> None:
        """Delete files; missing ones are ignored."""

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""


def open_folder(url: str, storage_options: Mapping[str, Any] | None = None) -> Folder:
    """Return the directory at a URL, to write to."""
    path = local_path(url)
    return LocalFolder(path) if path is not None else RemoteFolder(url.rstrip("/"), storage_options)


class LocalFolder:
    """A directory on this machine."""

    def __init__(self, path: str) -> None:
        self.url = path
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise to_source_error(error, path) from error

    @contextmanager
    def create(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file for writing that appears under this name when it is complete."""
        with open_atomic(os.path.join(self.url, name)) as file:
            yield file

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes; None if it does not exist."""
        try:
            path = os.path.join(self.url, name)
            with open(path, "rb") as file:
                check_path(path, file.fileno())
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise to_source_error(error, self.url) from error

    def swap(self, name: str, data: bytes, before: bytes | None) -> bool:
        """Replace a file if it still holds `before`; return whether it did."""
        with _hold_lock(os.path.join(self.url, ".lock")):
            if self.read(name) != before:
                return False
            with self.create(name) as file:
                file.write(data)
            try:
                sync_directory(self.url)
            except OSError as error:
                raise to_source_error(error, self.url) from error
        return True

    def remove(self, names: list[str]) -> None:
        """Delete files."""
        for name in names:
            try:
                retry_while_open(os.unlink, os.path.join(self.url, name))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise to_source_error(error, self.url) from error

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        return os.path.getsize(os.path.join(self.url, name))


class RemoteFolder:
    """A prefix of an object store."""

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.url = url
        self._options = storage_options
        self._store, self._prefix = open_bucket(f"{url}/", storage_options)
        self._tags: dict[str, dict[str, str]] = {}

    @contextmanager
    def create(self, name: str) -> Iterator[IO[bytes]]:
        """Open an object for writing that appears under this name when it is complete."""
        with open_atomic(f"{self.url}/{name}", self._options) as file:
            yield file

    def read(self, name: str) -> bytes | None:
        """Return an object's bytes; None if it does not exist."""
        import obstore

        try:
            answer = obstore.get(self._store, self._prefix + name)
            data = answer.bytes().to_bytes()
        except FileNotFoundError:
            return None
        except Exception:
            # obstore's errors share no class. `from None`: the original may hold a signed URL.
            raise SourceError(
                "reading from the object store failed", url=f"{self.url}/{name}", hint=_STORE_HINT
            ) from None
        meta: Any = answer.meta
        self._tags[name] = {key: meta[key] for key in ("e_tag", "version") if meta[key] is not None}
        return data

    def swap(self, name: str, data: bytes, before: bytes | None) -> bool:
        """Replace an object if it still holds `before`; return whether it did."""
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
        except Exception:
            raise SourceError(
                "writing to the object store failed", url=f"{self.url}/{name}", hint=_STORE_HINT
            ) from None
        return True

    def remove(self, names: list[str]) -> None:
        """Delete objects."""
        import obstore

        for name in names:
            try:
                obstore.delete(self._store, self._prefix + name)
            except FileNotFoundError:
                continue
            except Exception:
                raise SourceError(
                    "deleting from the object store failed", url=f"{self.url}/{name}", hint=_STORE_HINT
                ) from None

    def size(self, name: str) -> int:
        """Return the size of an object in bytes."""
        with open_source(f"{self.url}/{name}", self._options) as source:
            return source.size()


@contextmanager
def new_directory(path: str) -> Iterator[Folder]:
    """Make a directory that appears at `path` only when it is complete, in one step."""
    path = path.rstrip(f"/{os.sep}") or path
    temporary = f"{path}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        yield LocalFolder(temporary)
        for folder, _, _ in os.walk(temporary, topdown=False):
            sync_directory(folder)
        replace_directory(path, temporary)
    except OSError as error:
        raise to_source_error(error, path) from error
    finally:
        remove_directory(temporary)


@contextmanager
def lock_directory(path: str) -> Iterator[None]:
    """Hold an exclusive lock on a local directory while the context lasts."""
    if os.name == "nt":  # a directory cannot be opened there: a file beside it
        with _hold_lock(f"{path}.lock"):
            yield
        return
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise to_source_error(error, path) from error
    try:
        with lock_descriptor(handle):
            yield
    finally:
        os.close(handle)


@contextmanager
def _hold_lock(path: str) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(hold_file_lock(path))
        except OSError as error:
            raise to_source_error(error, path) from error
        yield


def open_bucket(url: str, storage_options: Mapping[str, Any] | None) -> tuple[Any, str]:
    """Return the object store of a URL, and the key of its path there; a prefix if it ends with a slash."""
    source: Any = open_source(f"{url}x" if url.endswith("/") else url, storage_options)
    if not hasattr(source, "_store"):
        raise UnsupportedError(
            "cannot write to this kind of URL", url=url, hint="Write to a local path or an object store"
        )
    key: str = source._path
    return source._store, key.removesuffix("x") if url.endswith("/") else key


def _put_object(store: Any, key: str, file: IO[bytes], url: str) -> None:
    import obstore

    try:
        obstore.put(store, key, file)
    except Exception:
        raise SourceError(
            "the object store did not accept the file", url=url, hint=_STORE_HINT
        ) from None  # may hold a signed URL


def to_source_error(error: OSError, path: str) -> SourceError:
    """Return an error of the system at a path as one of ours."""
    if isinstance(error, SourceError):
        return error
    if isinstance(error, PermissionError):
        return AccessError(
            "no permission to write here",
            url=path,
            hint="Check the permissions, and on Windows whether a program has it open; or choose another target",
        )
    if isinstance(error, FileNotFoundError):
        return NotFoundError("no such directory", url=path, hint="Create it first")
    return SourceError(f"writing failed: {error.strerror or error}", url=path)
