"""Opening of sources: `open_source` picks the source that reads a URL, a path, an open file or
bytes.

Credentials come from the environment or from `storage_options`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from insitu.errors import InsituError, NotFoundError, SourceError
from insitu.model import Source
from insitu.sources.access_policy import has_access_policy
from insitu.sources.address import Address, bucket_address, file_url_path, host_of, is_remote, scheme_of, web_address
from insitu.sources.filelike import SCHEME, FileLike, FileLikeSource, find_file_object, source_from_file
from insitu.sources.identity import check_identity
from insitu.sources.local import LocalSource
from insitu.sources.memory import MemorySource
from insitu.sources.opened_urls import note_opened
from insitu.sources.protocol import ByteSource
from insitu.sources.redaction import redact_url
from insitu.sources.storage_options import has_credentials, http_settings, options_for

if TYPE_CHECKING:
    from insitu.sources.fsspec_source import FsspecSource
    from insitu.sources.object_store.object_source import ObjectSource
    from insitu.sources.throttle import HostThrottle

__all__ = ["Openable", "estimate_seconds", "is_local", "open_source", "read_all", "request_bytes"]

Openable = str | os.PathLike[str] | bytes | bytearray | memoryview | FileLike | ByteSource
"""What `open_source` takes."""


def open_source(
    url: Openable, storage_options: Mapping[str, object] | None = None, *, expected: Source | None = None
) -> ByteSource:
    """Return the source that reads `url`.

    Parameters
    ----------
    url
        A path or `Path`; a URL: `file://`, `http://`, `https://`, `s3://`, `gs://`, `az://`,
        `abfs://`, `memory://`, or whatever fsspec knows (chains included); bytes; an open binary
        file; or a `ByteSource`, which is returned as it is.
    storage_options
        Credentials and the like, or a mapping of URL prefix to such options; files need none and
        ignore them.

        | option | meaning |
        |---|---|
        | `anon` | read without credentials |
        | `key`, `secret`, `token`; `profile` | of an object store; an AWS profile |
        | `endpoint_url`, `region`, `requester_pays` | where a bucket is; who pays |
        | `headers`, `bearer_token` | sent to web servers |
        | `verify` | the path of a certificate bundle; False: accept any certificate |
        | `timeout`; `connect_timeout`; `read_timeout` | seconds for a range; for a connection; without a byte |
        | `retries` | how often to try again |
        | `cache` | a folder (or a `DiskCache`) that keeps what was read from remote places |
    expected
        What was recorded of the object when it was scanned: another version raises
        `StaleSourceError`.

    Examples
    --------
    >>> open_source(b"abc").read(1, 2)
    b'bc'
    """
    if isinstance(url, str):
        if is_remote(url):
            note_opened(url)
        source = _open_url(url, options_for(url, storage_options), expected)
    elif isinstance(url, os.PathLike):
        source = LocalSource(url)
    elif isinstance(url, bytes | bytearray | memoryview):
        source = MemorySource(url)
    elif isinstance(url, ByteSource):
        return url
    elif isinstance(url, FileLike):
        source = source_from_file(url)
    else:
        raise TypeError(
            f"cannot read bytes from a {type(url).__name__}: give a path, a URL, an open binary file or bytes"
            + (" (many files are opened by open_mfdataset)" if isinstance(url, Iterable) else "")
        )
    if expected is not None and is_local(source):
        check_identity(expected, source.describe())
    return source


def is_local(source: ByteSource) -> bool:
    """Return whether reads cost no round trip, so that neither merging nor reading ahead pays;
    wrappers are looked through.

    Examples
    --------
    >>> from insitu.sources import CountingSource, HttpSource
    >>> is_local(open_source(b"abc")), is_local(CountingSource(HttpSource("https://host/x.nc")))
    (True, False)
    """
    return isinstance(_innermost(source), LocalSource | MemorySource | FileLikeSource)


def read_all(source: ByteSource, offset: int = 0) -> bytes:
    """Return an object from an offset on, in one request where it is not large.

    Asking for the size first is one request more. So a part is asked for that nearly every
    document and chunk fits in; a larger object has told its size by then.

    Parameters
    ----------
    source
        The object.
    offset
        The first byte to read.

    Examples
    --------
    >>> from insitu.sources import MemorySource
    >>> read_all(MemorySource(b"abcdef"), 2)
    b'cdef'
    """
    if is_local(source):  # a file knows its size
        return source.read(offset, max(source.size() - offset, 0))
    data = source.read(offset, FIRST_PART)
    if len(data) < FIRST_PART:
        return data
    return data + source.read(offset + len(data), max(source.size() - offset - len(data), 0))


FIRST_PART = 4 << 20
"""Bytes that `read_all` asks for at first."""


def request_bytes(source: ByteSource | str) -> int:
    """Return how many bytes could be read in the time that one more request costs there. It is the
    cost rule of all code that cuts or joins ranges.

    It takes a URL as well, because a read is planned before anything is opened. The latency and
    bandwidth measured so far count.

    Examples
    --------
    >>> request_bytes("/data/x.nc"), request_bytes("https://never.seen/x.nc")
    (16384, 52083)
    """
    if isinstance(source, str):
        return _throttle_of(source).request_bytes if is_remote(source) else _LOCAL_REQUEST
    inner = _innermost(source)
    cost = getattr(inner, "request_bytes", None)
    if isinstance(cost, int):
        return cost
    if is_local(inner):
        return _LOCAL_REQUEST
    from insitu.sources.throttle import throttle_for

    return throttle_for(host_of(inner.url)).request_bytes


def estimate_seconds(url: str, requests: float, nbytes: float) -> float:
    """Return about how many seconds it takes to fetch some bytes from where a URL points to, in so many requests.

    The latency and bandwidth measured so far count.

    Examples
    --------
    >>> estimate_seconds("/data/x.nc", 0, 1e9), round(estimate_seconds("https://never.seen/x.nc", 1, 1e6), 3)
    (1.0, 0.06)
    """
    if is_remote(url):
        return _throttle_of(url).estimate_seconds(requests, nbytes)
    return (nbytes + requests * _LOCAL_REQUEST) / _LOCAL_BANDWIDTH


def _throttle_of(url: str) -> HostThrottle:
    from insitu.sources.throttle import throttle_for  # not at the top: files need none of it

    address = bucket_address(url)
    return throttle_for(address.place if address is not None else host_of(url))


_LOCAL_BANDWIDTH = 1e9
"""Bytes that a local disk gives in a second, about."""
_LOCAL_REQUEST = 16 << 10
"""A system call and the Python around it, in bytes from the page cache."""


def _innermost(source: ByteSource) -> ByteSource:
    # None is checked first: isinstance with this protocol costs more than opening a file.
    while (inner := getattr(source, "source", None)) is not None and isinstance(inner, ByteSource):
        source = inner
    return source


def _open_url(url: str, options: dict[str, Any], expected: Source | None) -> ByteSource:
    scheme = scheme_of(url)
    if scheme == "::" and not os.path.exists(url):
        return _open_fsspec(url, options)
    if scheme is None or scheme == "::":
        return LocalSource(os.path.expanduser(url))
    if scheme in ("file", "local"):
        return LocalSource(_path_of_file_url(url))
    if scheme == SCHEME:
        return find_file_object(url)
    if scheme == "memory":
        try:
            return MemorySource.find(url)
        except NotFoundError:
            # fsspec has a memory of its own, under the same scheme.
            try:
                return _open_fsspec(url, options)
            except InsituError:
                raise NotFoundError("there is no such object in memory", url=url) from None
    address = bucket_address(url)
    if address is None and scheme in ("http", "https"):
        found = web_address(url)
        # With credentials, a web address of a bucket is read as the bucket; without, like any web
        # page.
        address = found if found is not None and has_credentials(options) else None
        if address is None:
            return _with_disk_cache(url, _open_web(url, options, expected), options, expected)
    if address is not None:
        signed = _open_signed(url, address, options, expected)
        return _with_disk_cache(url, signed or _open_object(url, address, options, expected), options, expected)
    source = _open_fsspec(url, options)
    if expected is not None:
        check_identity(expected, source.describe())
    return _with_disk_cache(url, source, options, expected)


def _with_disk_cache(url: str, source: ByteSource, options: Mapping[str, Any], expected: Source | None) -> ByteSource:
    from insitu.sources.cached_source import CachedSource, cache_for, cache_scope  # what is remote has a cache

    cache = cache_for(options)
    return source if cache is None else CachedSource(source, cache, expected, cache_scope(url, options))


def _open_fsspec(url: str, options: Mapping[str, Any]) -> FsspecSource:
    from insitu.sources.fsspec_source import FsspecSource  # not at the top: files need none of it

    return FsspecSource(url, {name: value for name, value in options.items() if name != "cache"})


def _open_web(url: str, options: dict[str, Any], expected: Source | None) -> ByteSource:
    # Imported when used: files need neither of the two libraries, and a scan of one should start at
    # once.
    from insitu.sources.http.certificates import trust_for
    from insitu.sources.http.http_source import HttpSource
    from insitu.sources.retry_policy import retry_policy_for

    address, headers = http_settings(url, options)
    return HttpSource(
        address, headers=headers, policy=retry_policy_for(options), trust=trust_for(options), expected=expected
    )


def _path_of_file_url(url: str) -> str:
    path = file_url_path(url)
    if path is None:
        raise SourceError("the file URL names another machine", url=url, hint="Use three slashes: file:///path.")
    return path


def _open_signed(url: str, address: Address, options: dict[str, Any], expected: Source | None) -> ByteSource | None:
    """Return the object by its web address, where an access policy checks every redirect; None
    without a policy.
    """
    if not has_access_policy() or not address.key:
        return None
    from insitu.sources.object_store.bucket import bucket_for
    from insitu.sources.object_store.signed_requests import open_signed_source

    return open_signed_source(bucket_for(address, url, options), address, url, options, expected)


def _open_object(url: str, address: Address, options: dict[str, Any], expected: Source | None) -> ObjectSource:
    from insitu.sources.object_store.bucket import bucket_for
    from insitu.sources.object_store.object_source import ObjectSource

    if not address.key:
        raise SourceError("the URL names no object: write scheme://bucket/key", url=redact_url(url))
    bucket = bucket_for(address, url, options)
    return ObjectSource(
        bucket, address.key, url, expected=expected, reopen=partial(_open_object, url, address, options)
    )
