"""Listing of buckets page by page, with every redirect checked by the access policy.

obstore lists buckets, and follows whatever redirect a store answers with. Under an access policy
the listing requests are therefore made here, in the same way as objects are read (see
`signed_requests`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

from insitu.errors import AccessError, NotFoundError, SourceError
from insitu.sources.address import Address
from insitu.sources.http.certificates import trust_for
from insitu.sources.http.deadline import RequestDeadline
from insitu.sources.http.response_body import read_body
from insitu.sources.http.session import HttpSession, Response, to_source_error
from insitu.sources.object_store.signed_requests import bucket_web_url, is_anonymous, sign_listing
from insitu.sources.object_store.xml_check import declares_doctype
from insitu.sources.retry_policy import RetryPolicy, TransientError, retry, retry_after, retry_policy_for

if TYPE_CHECKING:
    from insitu.sources.object_store.bucket import Bucket

__all__ = ["ListingPage", "list_pages"]

_LARGEST = 32 << 20
"""Bytes of a page; a thousand keys of the greatest length are about four million."""
_MOST_PAGES = 100_000
"""Limit of pages, against a store whose listing never ends."""
_TRANSIENT_STATUSES = frozenset({408, 429, 500, 502, 503, 504})


class ListingPage(NamedTuple):
    """One page of a listing."""

    folders: list[str]
    """Prefixes, with the slash at their end."""
    files: list[tuple[str, int]]
    """Keys and bytes."""


def list_pages(
    bucket: Bucket, address: Address, options: Mapping[str, Any], prefix: str, delimiter: str = ""
) -> Iterator[ListingPage]:
    """Yield the pages of the listing of a prefix.

    Parameters
    ----------
    bucket, address
        The bucket.
    options
        The options that hold for it.
    prefix
        Folders, without the slash at their end; empty: the whole bucket.
    delimiter
        `/` lists only what lies right under the prefix.
    """
    bucket.settle_region()
    policy, trust = retry_policy_for(options), trust_for(options, aws=address.kind == "s3")
    below = f"{prefix}/" if prefix else ""
    mark = ""
    for _ in range(_MOST_PAGES):
        query = _list_query(address.kind, below, delimiter, mark)
        if is_anonymous(bucket, options):
            target, headers = f"{bucket_web_url(bucket, address)}?{_encode_query(query)}", dict[str, str]()
        else:
            target, headers = sign_listing(bucket, address, query)
        headers |= {str(name): str(value) for name, value in (options.get("headers") or {}).items()}
        name = f"{address.place}/{below}"
        data = _fetch_page(HttpSession(target, headers, policy, trust, name=name, scope=bucket.scope), policy, name)
        page, mark = _parse_page(data, address.kind, name)
        yield page
        if not mark:
            return
    raise SourceError(f"the store's listing has more than {_MOST_PAGES} pages", url=name)


def _list_query(kind: str, prefix: str, delimiter: str, mark: str) -> dict[str, str]:
    azure = kind == "azure"
    query = {"restype": "container", "comp": "list"} if azure else {"list-type": "2"}
    more = {"prefix": prefix, "delimiter": delimiter, "marker" if azure else "continuation-token": mark}
    return query | {name: value for name, value in more.items() if value}


def _encode_query(query: Mapping[str, str]) -> str:
    from urllib.parse import quote, urlencode

    return urlencode(query, quote_via=quote, safe="")


def _fetch_page(session: HttpSession, policy: RetryPolicy, name: str) -> bytes:
    """Return a page, under the retry policy."""

    def attempt(until: float) -> bytes:
        with RequestDeadline(until, policy.read) as deadline:
            return _request_page(session, deadline, name)

    return retry(attempt, policy, url=name)


def _request_page(session: HttpSession, deadline: RequestDeadline, name: str) -> bytes:
    from urllib3 import exceptions as failures

    response = session.request("GET", {}, deadline)
    try:
        if response.status != 200:
            raise _status_error(response, name)
        size = response.headers.get("Content-Length", "")
        return read_body(response, int(size) if size.isdecimal() else None, name, deadline, most=_LARGEST)
    except failures.HTTPError as error:
        raise TransientError(to_source_error(error, name, deadline)) from None
    finally:
        response.close()


def _status_error(response: Response, name: str) -> Exception:
    answer = f"the store answered {response.status} {response.reason or ''}".rstrip()
    if response.status == 404:
        return NotFoundError(answer, url=name)
    if response.status in (401, 403):
        return AccessError(f"the store refuses to list: {answer}", url=name)
    error = SourceError(answer, url=name)
    if response.status in _TRANSIENT_STATUSES:
        return TransientError(error, retry_after(response.headers.get("Retry-After"), time.time()))
    return error


def _parse_page(data: bytes, kind: str, name: str) -> tuple[ListingPage, str]:
    """Return a page from its XML, and the mark of the next one; empty for the last.

    Examples
    --------
    >>> file = b"<Contents><Key>a/b</Key><Size>3</Size></Contents>"
    >>> folder = b"<CommonPrefixes><Prefix>a/c/</Prefix></CommonPrefixes>"
    >>> _parse_page(b"<R>" + file + folder + b"</R>", "s3", "s3://x")
    (ListingPage(folders=['a/c/'], files=[('a/b', 3)]), '')
    """
    if declares_doctype(data):
        raise SourceError("the store's listing declares a document type, which is not accepted", url=name)
    try:
        root = ElementTree.fromstring(data)
        for element in root.iter():
            element.tag = element.tag.rpartition("}")[2]  # with or without a namespace
        if kind == "azure":
            rows = [(row, row.find("Properties/Content-Length")) for row in root.iter("Blob")]
            files = [
                (row.findtext("Name", ""), int((size.text if size is not None else "") or 0)) for row, size in rows
            ]
            folders = [row.findtext("Name", "") for row in root.iter("BlobPrefix")]
            mark = root.findtext("NextMarker") or ""
        else:
            files = [(row.findtext("Key", ""), int(row.findtext("Size") or 0)) for row in root.iter("Contents")]
            folders = [row.findtext("Prefix", "") for row in root.iter("CommonPrefixes")]
            mark = (root.findtext("NextContinuationToken") or "") if root.findtext("IsTruncated") == "true" else ""
    except (ElementTree.ParseError, ValueError) as problem:
        raise SourceError(f"the store's listing cannot be read: {problem}", url=name) from None
    return ListingPage(folders, [(key, size) for key, size in files if key and not key.endswith("/")]), mark
