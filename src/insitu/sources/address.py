"""Parsing of URLs: scheme, host, bucket and key; whether a URL is remote.

Pure. Object stores have addresses of their own (`s3://bucket/key`) and web addresses for the same
objects (`https://bucket.s3.eu-west-1.amazonaws.com/key`); both are understood, because people paste
what they find.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, unquote, urlsplit

from insitu.errors import SourceError
from insitu.sources.redaction import redact_url

__all__ = [
    "Address",
    "bucket_address",
    "file_name",
    "file_url",
    "file_url_path",
    "folder_of",
    "host_of",
    "is_remote",
    "scheme_of",
    "web_address",
]

StoreKind = Literal["s3", "gcs", "azure"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_CHAIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+::")
_FILE = re.compile(r"(?:file|local)://", re.IGNORECASE)
_DRIVE = re.compile(r"/?([A-Za-z])[:|](?=/|$)")
_KINDS: dict[str, StoreKind] = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "az": "azure",
    "azure": "azure",
    "adl": "azure",
    "abfs": "azure",
    "abfss": "azure",
    "wasb": "azure",
    "wasbs": "azure",
}


@dataclass(frozen=True, slots=True)
class Address:
    """An object in an object store (or, with an empty key, the store's root)."""

    kind: StoreKind
    bucket: str
    key: str
    region: str | None = None
    """Of a web address that names it."""
    account: str | None = None
    """Azure's storage account, if the URL names it."""

    @property
    def place(self) -> str:
        """The bucket as a URL."""
        return f"{'gs' if self.kind == 'gcs' else 'az' if self.kind == 'azure' else 's3'}://{self.bucket}"


def scheme_of(url: str) -> str | None:
    """Return the scheme in lower case; `::` for a chain of fsspec; None for a path.

    Examples
    --------
    >>> scheme_of("S3://b/k"), scheme_of("simplecache::s3://b/k"), scheme_of("a/b.nc"), scheme_of("C://x")
    ('s3', '::', None, None)
    """
    if ":" not in url:  # nearly all of a million files
        return None
    if _CHAIN.match(url):
        return "::"
    found = _SCHEME.match(url)
    return found[1].lower() if found else None


def is_remote(url: str) -> bool:
    """Return whether reading costs round trips, as far as the URL tells.

    Examples
    --------
    >>> is_remote("https://host/x"), is_remote("file:///x"), is_remote("/x")
    (True, False, False)
    """
    return scheme_of(url) not in (None, "file", "local", "memory", "file-object")


def file_url_path(url: str) -> str | None:
    """Return the path that a file URL names on this machine; None if it is no file URL, or names
    another machine.

    What looks like a query or a fragment is part of a file's name, so the URL is not parsed for
    them. On Windows a drive may follow two slashes (as fsspec writes it) or three, and a host is
    that of a network share.

    Examples
    --------
    >>> file_url_path("file:///data/a%20b"), file_url_path("file://localhost/x"), file_url_path("file://host/x")
    ('/data/a b', '/x', None)
    """
    if (scheme := _FILE.match(url)) is None:
        return None
    rest = url[scheme.end() :]
    if os.name != "nt":
        host, slash, path = rest.partition("/")
        return unquote(slash + path) if slash and host in ("", "localhost") else None
    rest = unquote(rest.removeprefix("localhost")).replace("\\", "/")
    if (drive := _DRIVE.match(rest)) is not None:
        rest = f"{drive[1]}:{rest[drive.end() :] or '/'}"
    elif not rest.startswith("/"):
        rest = f"//{rest}"  # a share
    return rest.replace("/", "\\")


def file_url(path: str) -> str:
    """Return the URL of an absolute path of this machine.

    Examples
    --------
    >>> file_url("/data/a b.nc")
    'file:///data/a%20b.nc'
    """
    if os.name != "nt":
        return f"file://{quote(path)}"
    path = path.replace("\\", "/")
    if path.startswith("//"):
        return f"file:{quote(path)}"
    return f"file:///{quote(path, safe='/:')}"


def bucket_address(url: str) -> Address | None:
    """Return the object that a URL with an object store's own scheme names; None for other schemes.

    Examples
    --------
    >>> bucket_address("abfs://box@account.dfs.core.windows.net/a/b.nc")
    Address(kind='azure', bucket='box', key='a/b.nc', region=None, account='account')
    """
    kind = _KINDS.get(scheme_of(url) or "")
    if kind is None:
        return None
    # Not urlsplit: keys may hold "?" and "#".
    bucket, _, key = url.partition("://")[2].partition("/")
    account = None
    if kind == "azure" and "@" in bucket:
        bucket, _, host = bucket.partition("@")
        account = host.partition(".")[0]
    if not bucket:
        raise SourceError("the URL names no bucket: write scheme://bucket/key", url=redact_url(url))
    return Address(kind, bucket, key, account=account)


_S3_HOST = re.compile(
    r"(?:(?P<bucket>.+)\.)?s3(?:[.-](?:dualstack\.)?(?P<region>[a-z]{2}(?:-[a-z]+)+-\d))?\.amazonaws\.com(?:\.cn)?"
)
_GCS_HOST = re.compile(r"(?:(?P<bucket>.+)\.)?storage(?:\.googleapis|\.cloud\.google)\.com")
_AZURE_HOST = re.compile(r"(?P<account>[a-z0-9]+)\.(?:blob|dfs)\.core\.windows\.net")


def web_address(url: str) -> Address | None:
    """Return the object that a web address of a cloud names; None if it is not of a cloud, or has a
    query (a signature, say).

    Examples
    --------
    >>> web_address("https://era5.s3.eu-west-1.amazonaws.com/a%20b.nc")
    Address(kind='s3', bucket='era5', key='a b.nc', region='eu-west-1', account=None)
    >>> web_address("https://s3.amazonaws.com/era5/a.nc").bucket, web_address("https://example.org/era5/a.nc")
    ('era5', None)
    """
    if scheme_of(url) not in ("http", "https"):
        return None
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        if parts.query or parts.fragment or parts.username is not None or parts.port not in (None, 80, 443):
            return None
    except ValueError:
        return None
    path = unquote(parts.path.lstrip("/"))
    kind: StoreKind
    for kind, pattern in (("s3", _S3_HOST), ("gcs", _GCS_HOST)):
        if (found := pattern.fullmatch(host)) is not None:
            bucket, key = (found["bucket"], path) if found["bucket"] else _split_bucket(path)
            region = found["region"] if kind == "s3" else None
            return Address(kind, bucket, key, region=region) if bucket and key else None
    if (found := _AZURE_HOST.fullmatch(host)) is not None:
        bucket, key = _split_bucket(path)
        return Address("azure", bucket, key, account=found["account"]) if bucket and key else None
    return None


def host_of(url: str) -> str:
    """Return scheme and host (or bucket) of a URL: the key for counting and throttling requests.

    Examples
    --------
    >>> host_of("https://me@host:8080/a/b.nc?sig=x"), host_of("s3://bucket/key"), host_of("/data/x.nc")
    ('https://host:8080', 's3://bucket', 'files')
    """
    scheme = scheme_of(url)
    if scheme is None or scheme in ("file", "local"):
        return "files"
    if scheme == "::":
        return url.partition("::")[0]
    return f"{scheme}://{url.partition('://')[2].partition('/')[0].partition('?')[0].rpartition('@')[2]}"


def folder_of(url: str) -> str:
    """Return a URL up to and including its last slash; the query of a web address does not count.

    Examples
    --------
    >>> folder_of("https://host/a/b.nc?v=1/2"), folder_of("s3://bucket/a?/b#.nc"), folder_of("x.nc")
    ('https://host/a/', 's3://bucket/a?/', '')
    """
    bare = _without_query(url)
    return bare[: _name_begin(bare)]


def file_name(url: str) -> str:
    """Return the name of an object without its folder; that of a web address is decoded.

    Examples
    --------
    >>> file_name("https://host/a/b%20c.nc?v=1"), file_name("s3://bucket/a/b?c#d%20.nc")
    ('b c.nc', 'b?c#d%20.nc')
    """
    bare = _without_query(url)
    name = bare[_name_begin(bare) :]
    return unquote(name) if scheme_of(url) in ("http", "https") else name


def _name_begin(url: str) -> int:
    """Return where the last segment begins. A path of Windows may have slashes of both kinds."""
    backslash = url.rfind("\\") if os.name == "nt" and scheme_of(url) is None else -1
    return max(url.rfind("/"), backslash) + 1


def _without_query(url: str) -> str:
    # Keys and paths may hold "?" and "#"; only web addresses have a query.
    return url.partition("#")[0].partition("?")[0] if scheme_of(url) in ("http", "https") else url


def _split_bucket(path: str) -> tuple[str, str]:
    bucket, _, key = path.partition("/")
    return bucket, key
