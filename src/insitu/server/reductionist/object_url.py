"""The object that a request of the compatible protocol names.

Clients write names of objects as they are (`…/shape-[5, 5, 4]`). They are quoted as browsers and Rust's `Url` do, and the key
of an S3 object (`endpoint/bucket/key`, path-style) is decoded from that: `a b` and `a%20b` are one key. The URL of an S3
object or of a file has neither query nor fragment, so `?` and `#` belong to the name there; in web addresses they are
written `%3F` and `%23`, as everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from insitu.server.error_responses import RequestError
from insitu.sources.redaction import quoted

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


_S3_QUERY = frozenset({"versionid", "partnumber", "awsaccesskeyid", "signature", "x-id"})
"""Parameters that S3 itself knows: whoever sends one means it, and not a key that looks like it."""


def place_of(interface: str, url: str) -> Place:
    """Return the place that a request names."""
    try:
        if any(ord(letter) < 32 or ord(letter) == 127 for letter in url):
            raise ValueError
        url = quoted(url.strip(" "))
        whole = url if interface == "http" or interface == "https" else url.replace("?", "%3F").replace("#", "%23")
        parts = urlsplit(whole)
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
    if interface != "s3":
        return Place(interface, url, url)
    del port
    names = [unquote(pair.partition("=")[0]).lower() for pair in url.partition("?")[2].partition("#")[0].split("&")]
    if any(name in _S3_QUERY or name.startswith("x-amz-") for name in names):
        raise _invalid("url: the URL of an S3 object takes no parameters; credentials go into the Authorization header")
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
