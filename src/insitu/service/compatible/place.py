"""Which object does a request name? S3's are `endpoint/bucket/key`, path-style; web addresses and files are what they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from insitu.service.answers import RequestError

__all__ = ["Place", "place_of"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object is."""

    interface: str
    url: str
    """As insitu opens it."""
    given: str
    """As the client wrote it, for the allow-list and for messages."""
    endpoint: str | None = None
    """Of S3."""
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    """How to open it, without credentials."""


def place_of(interface: str, url: str) -> Place:
    """The place that a request names."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _invalid(f"url: not a URL: {url[:200]!r}") from None
    if interface == "file":
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise _invalid("url: interface_type file wants a URL file:///path")
        return Place(interface, unquote(parts.path), url)
    if parts.scheme not in ("http", "https") or not host:
        raise _invalid("url: expected a URL of http or https")
    if parts.username is not None or parts.password is not None:
        raise _invalid("url: credentials go into the Authorization header")
    if any(ord(letter) <= 32 for letter in url):
        raise _invalid("url: not a URL")
    if interface != "s3":
        return Place(interface, url, url)
    del port
    if parts.query or parts.fragment:
        raise _invalid("url: an object of S3 has neither query nor fragment")
    # Several slashes in a row come from clients that join a bucket and a path by hand.
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    key = key.lstrip("/")
    if not bucket or not key:
        raise _invalid("url: expected endpoint/bucket/key")
    endpoint = f"{parts.scheme}://{parts.netloc}"
    options = {"endpoint_url": endpoint, "region": "us-east-1"}
    shown = f"{endpoint}/{quote(bucket)}/{quote(key)}"
    return Place(interface, f"s3://{bucket}/{key}", shown, endpoint, options)


def _invalid(why: str) -> RequestError:
    return RequestError("request data is not valid", why=why)
