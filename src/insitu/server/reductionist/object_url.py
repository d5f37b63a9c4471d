"""The location of the object that a Reductionist request names.

Clients write the names of objects unquoted (`…/shape-[5, 5, 4]`). They are quoted here as browsers
and Rust's `Url` do it, and the key of an S3 object (`endpoint/bucket/key`, path-style) is decoded
from that: `a b` and `a%20b` are one key. The URL of an S3 object or of a file has neither query nor
fragment, so `?` and `#` belong to the name there; in http(s) URLs they are written `%3F` and `%23`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from insitu.server.error_responses import RequestError
from insitu.sources.address import file_url_path
from insitu.sources.redaction import percent_encode

__all__ = ["RequestLocation", "locate_object"]


@dataclass(frozen=True, slots=True)
class RequestLocation:
    """Location of an object, and how to open it."""

    interface: str
    url: str
    """URL as insitu opens it."""
    given: str
    """URL as the client wrote it, for cache keys and messages."""
    endpoint: str | None = None
    """Endpoint of an S3 object."""
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    """Storage options, without credentials."""


_S3_QUERY = frozenset({"versionid", "partnumber", "awsaccesskeyid", "signature", "x-id"})
"""Query parameters of S3 itself: they are not taken as part of a key."""


def locate_object(interface: str, url: str) -> RequestLocation:
    """Return the location of the object that a request names; an error if the URL is invalid."""
    try:
        if any(ord(letter) < 32 or ord(letter) == 127 for letter in url):
            raise ValueError
        url = percent_encode(url.strip(" "))
        whole = url if interface == "http" or interface == "https" else url.replace("?", "%3F").replace("#", "%23")
        parts = urlsplit(whole)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _invalid_url_error(f"url: not a URL: {url[:200]!r}") from None
    if interface == "file":
        path = file_url_path(url) if parts.scheme == "file" else None
        if path is None:
            raise _invalid_url_error("url: interface_type file needs a URL file:///path")
        return RequestLocation(interface, path, url)
    if parts.scheme not in ("http", "https") or not host:
        raise _invalid_url_error("url: expected an http or https URL")
    if parts.username is not None or parts.password is not None:
        raise _invalid_url_error("url: credentials go into the Authorization header")
    if interface != "s3":
        return RequestLocation(interface, url, url)
    del port
    names = [unquote(pair.partition("=")[0]).lower() for pair in url.partition("?")[2].partition("#")[0].split("&")]
    if any(name in _S3_QUERY or name.startswith("x-amz-") for name in names):
        raise _invalid_url_error(
            "url: the URL of an S3 object takes no parameters; credentials go into the Authorization header"
        )
    # Several slashes in a row come from clients that join a bucket and a path by hand.
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    key = key.lstrip("/")
    if not bucket or not key:
        raise _invalid_url_error("url: expected endpoint/bucket/key")
    endpoint = f"{parts.scheme}://{parts.netloc}"
    options = {"endpoint_url": endpoint, "region": "us-east-1"}
    shown = f"{endpoint}/{quote(bucket)}/{quote(key)}"
    return RequestLocation(interface, f"s3://{bucket}/{key}", shown, endpoint, options)


def _invalid_url_error(why: str) -> RequestError:
    return RequestError("request data is not valid", why=why)
