"""Access policy of a process: which files, web addresses and buckets it may read.

A server sets a policy once, and every access is checked against it: a file when it is opened (by
its real path), a web address before each request (redirects included), a bucket, a folder that is
listed. So references, external links and virtual datasets that point elsewhere meet the same check
as the request itself. Without a policy everything is allowed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from insitu.errors import AccessError
from insitu.sources.redaction import redact_url

__all__ = [
    "AccessPolicy",
    "RefusedError",
    "access_policy_scope",
    "can_use_environment",
    "check_bucket",
    "check_path",
    "check_web_url",
    "has_access_policy",
    "hint_for_user",
    "public_path",
    "refuse_third_party",
    "set_access_policy",
    "without_outside_paths",
]


class RefusedError(AccessError):
    """The access policy does not allow this location."""

    kind = "refused"


class AccessPolicy(Protocol):
    """Decides what may be read."""

    def path(self, path: str) -> bool:
        """Return whether a file or folder may be read, by its real path."""

    def web(self, url: str) -> bool:
        """Return whether a web address may be read."""

    def bucket(self, kind: str, endpoint: str | None, bucket: str, key: str) -> bool:
        """Return whether an object (or a prefix) of a bucket may be read."""

    def public_url(self, path: str) -> str:
        """Return a path under a root as clients know it: a URL, if it is a copy of what lies there."""


_policy: AccessPolicy | None = None


def set_access_policy(gate: AccessPolicy | None) -> None:
    """Set the access policy of this whole process; None allows everything."""
    global _policy
    _policy = gate


@contextmanager
def access_policy_scope(gate: AccessPolicy) -> Iterator[None]:
    """Set an access policy for as long as the block lasts."""
    before = _policy
    set_access_policy(gate)
    try:
        yield
    finally:
        set_access_policy(before)


def check_path(path: str, descriptor: int | None = None) -> None:
    """Raise `RefusedError` if a local path may not be read; with an open descriptor, also if it is
    not the file at that path.
    """
    if _policy is None:
        return
    if "\0" in path:
        raise _refused_error(None)
    shown = path if is_inside(path) else None
    real = os.path.realpath(path)
    if not _policy.path(real):
        raise _refused_error(shown)
    if descriptor is not None:
        # Between the check and the opening somebody may have put a link in the way.
        try:
            found, opened = os.stat(real), os.fstat(descriptor)
        except OSError:
            raise _refused_error(shown) from None
        if (found.st_dev, found.st_ino) != (opened.st_dev, opened.st_ino):
            raise _refused_error(shown)


def check_web_url(url: str, requested: str | None = None) -> None:
    """Raise `RefusedError` if a web address may not be read. For a redirect, `requested` is the address
    of the request: the client need not learn the one that it leads to.
    """
    if _policy is not None and not _policy.web(url):
        raise _refused_error(requested or url)


def check_bucket(kind: str, endpoint: str | None, bucket: str, key: str) -> None:
    """Raise `RefusedError` if an object of a bucket, or a prefix, may not be read."""
    if _policy is not None and not _policy.bucket(kind, endpoint, bucket, key):
        raise _refused_error(f"{kind}://{bucket}/{key}")


def has_access_policy() -> bool:
    """Return whether this process has an access policy."""
    return _policy is not None


def can_use_environment(options: Mapping[str, Any]) -> bool:
    """Return whether a bucket may be read with credentials of the environment: variables, files,
    the machine's identity.

    Under an access policy they belong to the operator, not to the client. They are used only where
    the operator's options say so: `"anon": false`, or a `profile`. Clients cannot set either.
    """
    return _policy is None or options.get("anon") is False or bool(options.get("profile"))


def refuse_third_party(url: str) -> None:
    """Raise `RefusedError` under any access policy: the URL is opened by a third-party library,
    whose accesses cannot be checked.
    """
    if _policy is not None:
        raise _refused_error(url)


def is_inside(path: str) -> bool:
    """Return whether a path, as written, lies under a root; links are not followed."""
    return _policy is None or ("\0" not in path and _policy.path(os.path.abspath(path)))


def public_path(path: str) -> str | None:
    """Return a local path as clients may see it: as it is written, or the URL of which it is a copy; None if it lies
    outside the roots.
    """
    if _policy is None:
        return path
    if not is_inside(path):
        return None
    whole = os.path.abspath(path)
    shown = _policy.public_url(whole)
    return path if shown == whole else shown


_START = r"(?:/|[A-Za-z]:[\\/]|\\\\)"
"""How a path begins: at the root, with a drive or with a network share."""
_PATH = re.compile(rf"""(?<![\w:/.~-])(?:(?<=['"`]){_START}[^'"`]*|{_START}[^\s'"`,;)\]]+)""")


def without_outside_paths(text: str) -> str:
    """Return a text without the paths that lie outside the roots, and with the URLs of those that are copies, so
    that a client does not learn the layout of the server's disk.

    Without an access policy the text stays as it is.
    """
    if _policy is None:
        return text

    def show(found: re.Match[str]) -> str:
        path = found[0].rstrip(".:")
        shown = public_path(path)
        return "…" if shown is None else shown + found[0][len(path) :]

    return _PATH.sub(show, text)


def hint_for_user(hint: str) -> str | None:
    """Return a hint about options, files and variables of this process; None under an access policy: the client
    of a server cannot follow it.
    """
    return hint if _policy is None else None


def _refused_error(url: str | None) -> RefusedError:
    shown = None if url is None else redact_url(url)
    return RefusedError(
        "this server is not allowed to read from this location",
        url=shown,
        hint="It reads only from the roots that it was started with.",
    )
