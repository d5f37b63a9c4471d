"""May this process read from there? A server sets a gate once, and nothing gets past it.

Every way to bytes asks: a file when it is opened (by what the path really leads to), a web address before each request, redirects included,
a bucket, a folder that is listed. So references, external links and virtual datasets that point elsewhere find the same gate as
the request itself. Without a gate everything is allowed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from insitu.errors import AccessError
from insitu.sources.redact import displayed

__all__ = [
    "Gate",
    "RefusedError",
    "ask_bucket",
    "ask_other",
    "ask_path",
    "ask_web",
    "guarded",
    "is_guarded",
    "may_use_environment",
    "set_gate",
]


class RefusedError(AccessError):
    """A process that reads from certain places only was led to another one."""

    kind = "refused"


class Gate(Protocol):
    """Says what may be read."""

    def path(self, path: str) -> bool:
        """Whether a file or folder may be, by its real path."""

    def web(self, url: str) -> bool:
        """Whether a web address may be."""

    def bucket(self, kind: str, endpoint: str | None, bucket: str, key: str) -> bool:
        """Whether an object (or a prefix) of a bucket may be."""


_gate: Gate | None = None


def set_gate(gate: Gate | None) -> None:
    """From now on, in this whole process."""
    global _gate
    _gate = gate


@contextmanager
def guarded(gate: Gate) -> Iterator[None]:
    """A gate for as long as the block lasts."""
    before = _gate
    set_gate(gate)
    try:
        yield
    finally:
        set_gate(before)


def ask_path(path: str, descriptor: int | None = None) -> None:
    """A local path; with an open descriptor, that it is the file that the path really leads to."""
    if _gate is None:
        return
    if "\0" in path:
        raise _refused(path)
    real = os.path.realpath(path)
    if not _gate.path(real):
        raise _refused(path)
    if descriptor is not None:
        # Between the look and the opening somebody may have put a link in the way.
        try:
            found, opened = os.stat(real), os.fstat(descriptor)
        except OSError:
            raise _refused(path) from None
        if (found.st_dev, found.st_ino) != (opened.st_dev, opened.st_ino):
            raise _refused(path)


def ask_web(url: str) -> None:
    """A web address."""
    if _gate is not None and not _gate.web(url):
        raise _refused(url)


def ask_bucket(kind: str, endpoint: str | None, bucket: str, key: str) -> None:
    """An object of a bucket, or a prefix."""
    if _gate is not None and not _gate.bucket(kind, endpoint, bucket, key):
        raise _refused(f"{kind}://{bucket}/{key}")


def is_guarded() -> bool:
    """Whether there is a gate."""
    return _gate is not None


def may_use_environment(options: Mapping[str, Any]) -> bool:
    """Return whether a bucket may be read with credentials that lie around: variables, files, the machine's identity.

    Behind a gate they belong to the operator, not to the client that asks. They are used only where the options of the
    operator say so: `"anon": false`, or a `profile`. Clients cannot say either.
    """
    return _gate is None or options.get("anon") is False or bool(options.get("profile"))


def ask_other(url: str) -> None:
    """Anything that only a third party can open: never behind a gate."""
    if _gate is not None:
        raise _refused(url)


def _refused(url: str) -> RefusedError:
    return RefusedError("this server may not read from there", url=displayed(url), hint="It serves its roots only")
