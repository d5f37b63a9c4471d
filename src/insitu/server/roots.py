"""Which URLs may be read? Those under the roots that the server was given.

Paths are compared as they really are (symbolic links followed), web addresses after their dots and percent signs are undone, and always by
whole segments: the root `/data` does not let anybody into `/data-of-others`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from insitu.errors import SourceError
from insitu.sources.access_policy import RefusedError
from insitu.sources.address import bucket_address, scheme_of
from insitu.sources.redaction import displayed

__all__ = ["Allowed", "local_path", "refers_outside"]

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class _Web:
    """A prefix of web addresses."""

    scheme: str
    host: str
    port: int | None
    segments: tuple[str, ...]

    @classmethod
    def of(cls, url: str) -> _Web | None:
        """None for what is no web address, or one that tries to climb."""
        try:
            parts = urlsplit(url)
            scheme, host = parts.scheme.lower(), (parts.hostname or "").lower().rstrip(".")
            port = parts.port or PORTS.get(scheme)
        except ValueError:
            return None
        if scheme not in PORTS or not host or parts.username is not None or parts.password is not None:
            return None
        path = unquote(parts.path)
        segments = tuple(segment for segment in path.split("/") if segment)
        if any(_climbs(segment) for segment in segments):
            return None
        if any(ord(letter) < 32 for letter in url) or "\\" in parts.netloc:
            return None
        return cls(scheme, host, port, segments)

    def covers(self, other: _Web) -> bool:
        """Whether another address lies below."""
        same = (self.scheme, self.host, self.port) == (other.scheme, other.host, other.port)
        return same and other.segments[: len(self.segments)] == self.segments


@dataclass(frozen=True, slots=True)
class _Bucket:
    """A prefix of a bucket in its usual place."""

    kind: str
    bucket: str
    segments: tuple[str, ...]


class Allowed:
    """The roots of a server: a gate (see `insitu.sources.access_policy`).

    Parameters
    ----------
    roots
        Folders, files, `file://`, `http(s)://` and `s3://` (`gs://`, `az://`) prefixes. A web address is also that of an S3 endpoint, with
        or without a bucket. `URL=FOLDER`: what others know by that URL lies here in that folder, and is read from there.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        self.paths: list[str] = []
        self.webs: list[_Web] = []
        self.buckets: list[_Bucket] = []
        self.local_copies: list[tuple[_Web, str]] = []
        for root in roots:
            self._add(root)

    def _add(self, root: str) -> None:
        url, equals, folder = root.partition("=")
        if equals and (known := _Web.of(url)) is not None:
            if not os.path.isdir(folder):
                raise SourceError("there is no such folder", url=folder)
            self.webs.append(known)
            self.paths.append(os.path.realpath(folder))
            self.local_copies.append((known, os.path.realpath(folder)))
            return
        local = local_path(root)
        if local is not None:
            if not os.path.exists(local):
                raise SourceError("there is no such root", url=root)
            self.paths.append(os.path.realpath(local))
            return
        web = _Web.of(root)
        if web is not None:
            self.webs.append(web)
            return
        address = bucket_address(root)
        if address is None:
            raise SourceError(
                "a root is a folder, or a prefix of http://, https://, s3://, gs:// or az:// URLs", url=root
            )
        self.buckets.append(_Bucket(address.kind, address.bucket, _segments(address.key)))

    def path(self, path: str) -> bool:
        """Whether a file or folder, by its real path, lies under a root."""
        return any(path == root or path.startswith(root.rstrip(os.sep) + os.sep) for root in self.paths)

    def web(self, url: str) -> bool:
        """Whether a web address does."""
        found = _Web.of(url)
        return found is not None and any(root.covers(found) for root in self.webs)

    def bucket(self, kind: str, endpoint: str | None, bucket: str, key: str) -> bool:
        """Whether an object of a bucket does: by its bucket's own URL at the usual endpoint, or by the endpoint's web address."""
        segments = _segments(key)
        if any(_climbs(segment) for segment in segments):
            return False
        if endpoint is not None:
            found = _Web.of(f"{endpoint.rstrip('/')}/{bucket}/")
            if found is not None:
                found = _Web(found.scheme, found.host, found.port, (*found.segments, *segments))
                if any(root.covers(found) for root in self.webs):
                    return True
            if endpoint.rstrip("/") != (usual_endpoint(kind) or "").rstrip("/"):
                return False
        return any(
            (root.kind, root.bucket) == (kind, bucket) and segments[: len(root.segments)] == root.segments
            for root in self.buckets
        )

    def local_copy(self, url: str) -> str:
        """Where a URL is read from: the folder that it stands for, or itself."""
        if self.local_copies and (found := _Web.of(url)) is not None:
            for root, folder in self.local_copies:
                if root.covers(found):
                    return os.path.join(folder, *found.segments[len(root.segments) :])
        return url

    def public_url(self, path: str) -> str:
        """The URL by which others know a path, where there is one."""
        for root, folder in self.local_copies:
            if path.startswith(folder + os.sep):
                port = "" if root.port == PORTS[root.scheme] else f":{root.port}"
                host = f"[{root.host}]" if ":" in root.host else root.host
                rest = path[len(folder) + 1 :].split(os.sep)
                return f"{root.scheme}://{host}{port}/{'/'.join(quote(part) for part in (*root.segments, *rest))}"
        return path

    def check(self, url: str, options: dict[str, Any] | None = None) -> None:
        """Refuse a URL of a request that lies elsewhere. What it leads to finds the same gate again when it is opened."""
        local = local_path(url)
        if local is not None:
            good = "\0" not in local and self.path(os.path.realpath(local))
        elif scheme_of(url) in PORTS:
            good = self.web(url)
        else:
            try:
                address = bucket_address(url)
            except SourceError:
                address = None
            endpoint = (options or {}).get("endpoint_url")
            good = address is not None and self.bucket(address.kind, endpoint, address.bucket, address.key)
        if not good:
            # Paths of this machine are named only where they lie under a root as they are written: a link may lead out.
            shown = (
                displayed(url) if local is None or ("\0" not in local and self.path(os.path.abspath(local))) else None
            )
            raise RefusedError("this server may not read from there", url=shown, hint="It serves its roots only")


def refers_outside(archive: str) -> RefusedError:
    """Return the error of an archive that may be read, but refers to objects that may not."""
    return RefusedError(
        "the archive lies within what this server serves, but some of the objects that it refers to do not",
        url=displayed(archive),
        hint="The operator of the server has to name their folder, or their prefix, as a root as well",
    )


def usual_endpoint(kind: str) -> str | None:
    """Where buckets are unless somebody says otherwise."""
    if kind != "s3":
        return None
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def local_path(url: str) -> str | None:
    """The path of a file URL or a plain path; None for what is remote."""
    scheme = scheme_of(url)
    if scheme is None:
        return url
    if scheme in ("file", "local"):
        rest = url.partition("://")[2]
        host, slash, path = rest.partition("/")
        return unquote(slash + path) if host in ("", "localhost") else None
    return None


def _segments(key: str) -> tuple[str, ...]:
    return tuple(segment for segment in key.split("/") if segment)


def _climbs(segment: str) -> bool:
    """Whether a segment leads elsewhere; also one that some server behind may decode once more."""
    again = unquote(segment)
    return again in (".", "..") or "\\" in again or "/" in again
