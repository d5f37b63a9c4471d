"""May this process read from there? A server sets a gate once, and nothing gets past it.

Every way to bytes asks: a file when it is opened (by what the path really leads to), a web address before each request, redirects included,
a bucket, a folder that is listed. So references, external links and virtual datasets that point elsewhere find the same gate as
the request itself. Without a gate everything is allowed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from insitu.errors import AccessError
from insitu.sources.redaction import displayed

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
    "without_outside_paths",
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
        raise _refused(None)
    shown = path if is_inside(path) else None
    real = os.path.realpath(path)
    if not _gate.path(real):
        raise _refused(shown)
    if descriptor is not None:
        # Between the look and the opening somebody may have put a link in the way.
        try:
            found, opened = os.stat(real), os.fstat(descriptor)
        except OSError:
            raise _refused(shown) from None
        if (found.st_dev, found.st_ino) != (opened.st_dev, opened.st_ino):
            raise _refused(shown)


def ask_web(url: str, asked: str | None = None) -> None:
    """A web address; for a redirect with the address that was `asked` for, because the one that it leads to is not the client's to know."""
    if _gate is not None and not _gate.web(url):
        raise _refused(asked or url)


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


def is_inside(path: str) -> bool:
    """Return whether a path, as it is written, lies under a root; where links lead does not count."""
    return _gate is None or ("\0" not in path and _gate.path(os.path.abspath(path)))


_PATH = re.compile(r"""(?<![\w:/.~-])(?:(?<=['"`])/[^'"`]*|/[^\s'"`,;)\]]+)""")


def without_outside_paths(text: str) -> str:
    """Return a text without the paths that lie outside the roots: a client need not know how the server's disk is arranged.

    Without a gate the text stays as it is.
    """
    if _gate is None:
        return text
    return _PATH.sub(lambda found: found[0] if is_inside(found[0].rstrip(".:")) else "…", text)


def _refused(url: str | None) -> RefusedError:
    shown = None if url is None else displayed(url)
    return RefusedError("this server may not read from there", url=shown, hint="It serves its roots only")
