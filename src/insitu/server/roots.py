"""The roots of a server: the folders and URL prefixes that it may read, and nothing else.

Paths are compared after symbolic links are resolved, web addresses after dots and percent signs are
decoded, and always by whole segments: the root `/data` does not include `/data-of-others`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote, unquote, urlsplit

from insitu.errors import SourceError
from insitu.server.operator_options import bucket_endpoint, is_same_endpoint
from insitu.server.request_context import record_archive
from insitu.sources.access_policy import RefusedError
from insitu.sources.address import Address, StoreKind, bucket_address, file_url_path, scheme_of
from insitu.sources.globs import is_glob
from insitu.sources.redaction import redact_url

__all__ = ["Roots", "local_path", "report_archive_on_refusal", "split_root"]

DEFAULT_PORTS = {"http": 80, "https": 443}
_PATH_START = re.compile(r"[/~.\\]|[A-Za-z]:[/\\]")
"""How a folder begins that is not the rest of a URL."""


@dataclass(frozen=True, slots=True)
class _WebPrefix:
    """A prefix of http(s) URLs."""

    scheme: str
    host: str
    port: int | None
    segments: tuple[str, ...]

    @classmethod
    def of(cls, url: str) -> _WebPrefix | None:
        """Return the prefix that a URL names;
        None if it is no http(s) URL, or leads out of its folder.
        """
        try:
            parts = urlsplit(url)
            scheme, host = parts.scheme.lower(), (parts.hostname or "").lower().rstrip(".")
            port = parts.port or DEFAULT_PORTS.get(scheme)
        except ValueError:
            return None
        if scheme not in DEFAULT_PORTS or not host or parts.username is not None or parts.password is not None:
            return None
        path = unquote(parts.path)
        segments = tuple(segment for segment in path.split("/") if segment)
        if any(_is_traversal(segment) for segment in segments):
            return None
        if any(ord(letter) < 32 for letter in url) or "\\" in parts.netloc:
            return None
        return cls(scheme, host, port, segments)

    def is_prefix_of(self, other: _WebPrefix) -> bool:
        """Return whether another URL lies under this prefix."""
        same = (self.scheme, self.host, self.port) == (other.scheme, other.host, other.port)
        return same and other.segments[: len(self.segments)] == self.segments


@dataclass(frozen=True, slots=True)
class _BucketPrefix:
    """A prefix of keys of a bucket at its default endpoint."""

    kind: str
    bucket: str
    segments: tuple[str, ...]


class Roots:
    """The roots of a server, as an access policy (see `insitu.sources.access_policy`).

    Parameters
    ----------
    roots
        Folders, files, and prefixes of `file://`, `http(s)://`, `s3://`, `gs://` and `az://` URLs.
        An http(s) prefix may also be that of an S3 endpoint, with or without a bucket.
        `URL=FOLDER`: objects under that URL are read from that folder of this machine.
    archives
        Locations that may be requested by exactly this name, patterns too.
    options
        Storage options of the operator: they say at which endpoints the buckets are.
    """

    def __init__(
        self, roots: Sequence[str], archives: Sequence[str] = (), options: Mapping[str, Any] | None = None
    ) -> None:
        self.archives, self.options = frozenset(archives), options or {}
        self.paths: list[str] = []
        self.webs: list[_WebPrefix] = []
        self.buckets: list[_BucketPrefix] = []
        self.local_copies: list[tuple[_WebPrefix, str]] = []
        for root in roots:
            self._add(root)

    def _add(self, root: str) -> None:
        url, folder = split_root(root)
        known = _WebPrefix.of(url)
        if folder is not None and known is not None:
            if not os.path.isdir(folder):
                raise SourceError("the folder of a root does not exist", url=folder, hint="Write URL=FOLDER")
            self.webs.append(known)
            self.paths.append(os.path.realpath(folder))
            self.local_copies.append((known, os.path.realpath(folder)))
            return
        local = local_path(root)
        if local is not None:
            if not os.path.exists(local):
                raise SourceError("the root does not exist", url=root, hint="Name an existing folder or file")
            self.paths.append(os.path.realpath(local))
            return
        if known is not None:
            if "?" in url:
                raise SourceError(
                    "a root is a prefix of URLs and has no query", url=redact_url(url), hint="Leave out what follows ?"
                )
            self.webs.append(known)
            return
        address = bucket_address(root)
        if address is None:
            raise SourceError(
                "a root must be a folder, or a prefix of http://, https://, s3://, gs:// or az:// URLs", url=root
            )
        self.buckets.append(_BucketPrefix(address.kind, address.bucket, _segments(address.key)))

    def path(self, path: str) -> bool:
        """Return whether a file or folder, by its real path, lies under a root."""
        return any(path == root or path.startswith(root.rstrip(os.sep) + os.sep) for root in self.paths)

    def web(self, url: str) -> bool:
        """Return whether an http(s) URL lies under a root."""
        found = _WebPrefix.of(url)
        return found is not None and any(root.is_prefix_of(found) for root in self.webs)

    def bucket(self, kind: str, endpoint: str | None, bucket: str, key: str) -> bool:
        """Return whether an object lies under a root:
        by its bucket URL at the operator's endpoint, or by any endpoint that is a root.
        """
        segments = _segments(key)
        if any(_is_traversal(segment) for segment in segments):
            return False
        if endpoint is not None:
            found = _WebPrefix.of(f"{endpoint.rstrip('/')}/{bucket}/")
            if found is not None:
                found = _WebPrefix(found.scheme, found.host, found.port, (*found.segments, *segments))
                if any(root.is_prefix_of(found) for root in self.webs):
                    return True
            if not is_same_endpoint(Address(cast(StoreKind, kind), bucket, key), endpoint, self.options):
                return False
        return any(
            (root.kind, root.bucket) == (kind, bucket) and segments[: len(root.segments)] == root.segments
            for root in self.buckets
        )

    def local_copy(self, url: str) -> str:
        """Return the local path of a URL under a root `URL=FOLDER`; any other URL as it is."""
        if self.local_copies and (found := _WebPrefix.of(url)) is not None:
            for root, folder in self.local_copies:
                if root.is_prefix_of(found):
                    return os.path.join(folder, *found.segments[len(root.segments) :])
        return url

    def public_url(self, path: str) -> str:
        """Return the URL of a local path under a root `URL=FOLDER`; any other path as it is."""
        for root, folder in self.local_copies:
            if path == folder or path.startswith(folder + os.sep):
                port = "" if root.port == DEFAULT_PORTS[root.scheme] else f":{root.port}"
                host = f"[{root.host}]" if ":" in root.host else root.host
                rest = path[len(folder) + 1 :].split(os.sep)
                return f"{root.scheme}://{host}{port}/{'/'.join(quote(part) for part in (*root.segments, *rest))}"
        return path

    def check(self, url: str, options: dict[str, Any] | None = None) -> None:
        """Raise an error if a URL lies outside the roots.

        What it refers to is checked when it is opened.
        """
        record_archive(url)
        if url in self.archives:
            return
        local = local_path(url)
        if local is not None:
            # Braces of a pattern may hide dots, which realpath does not see.
            leads_up = is_glob(local) and ".." in re.split(r"[/\\{},]", local)
            good = "\0" not in local and not leads_up and self.path(os.path.realpath(local))
        elif scheme_of(url) in DEFAULT_PORTS:
            good = self.web(url)
        else:
            try:
                address = bucket_address(url)
            except SourceError:
                address = None
            endpoint = (
                None if address is None else bucket_endpoint(address, self.options if options is None else options)
            )
            good = address is not None and self.bucket(address.kind, endpoint, address.bucket, address.key)
        if not good:
            # Show a local path only if it lies under a root as written: a link may lead out.
            shown = (
                redact_url(url) if local is None or ("\0" not in local and self.path(os.path.abspath(local))) else None
            )
            raise RefusedError(
                "the server refuses this URL: it lies outside its roots",
                url=shown,
                hint="Ask the operator of the server to add it as a root",
            )


@contextmanager
def report_archive_on_refusal(archive: str | None) -> Iterator[None]:
    """Turn the refusal of a source into an error that names the client's archive, not what the archive refers to; with
    None, a client that names its sources itself, it stays as it is.
    """
    try:
        yield
    except RefusedError:
        if archive is None:
            raise
        raise RefusedError(
            "the archive lies under the roots of this server, but refers to objects that do not",
            url=redact_url(archive),
            hint="Ask the operator of the server to add the folder or URL prefix of these objects as a root",
        ) from None


def split_root(root: str) -> tuple[str, str | None]:
    """Return the URL and the folder of a root `URL=FOLDER`; of any other root itself and None.

    A URL may hold equals signs, and so may the name of a folder: the folder is what exists after one of them, or
    looks like a path.

    Examples
    --------
    >>> split_root("https://host/data=/srv/data"), split_root("https://host/year=2020/")
    (('https://host/data', '/srv/data'), ('https://host/year=2020/', None))
    """
    ends = [place for place, letter in enumerate(root) if letter == "="] if scheme_of(root) in DEFAULT_PORTS else []
    splits = [(root[:end], root[end + 1 :]) for end in ends]
    found = [split for split in splits if os.path.isdir(split[1])]
    found += [split for split in splits if _PATH_START.match(split[1])]
    return found[0] if found else (root, None)


def local_path(url: str) -> str | None:
    """Return the path of a file URL or a plain path; None for a remote URL."""
    return url if scheme_of(url) is None else file_url_path(url)


def _segments(key: str) -> tuple[str, ...]:
    return tuple(segment for segment in key.split("/") if segment)


def _is_traversal(segment: str) -> bool:
    """Return whether a segment leads out of its folder,
    also after a second percent-decoding by a server behind.
    """
    again = unquote(segment)
    return again in (".", "..") or "\\" in again or "/" in again
