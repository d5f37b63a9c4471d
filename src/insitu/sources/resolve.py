"""Which source reads this URL?

Whatever a user points at: a path, a URL with credentials from the environment or `storage_options`, an open file, bytes,
or a source that is one already.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from insitu.errors import InsituError, NotFoundError, SourceError
from insitu.sources.blocks import Blocks
from insitu.sources.counted import Counted
from insitu.sources.filelike import SCHEME, FileLike, FileLikeSource, find_file, from_file
from insitu.sources.filesystem import FilesystemSource
from insitu.sources.local import LocalSource
from insitu.sources.memory import MemorySource
from insitu.sources.options import azure_settings, gcs_settings, http_settings, options_for, s3_settings
from insitu.sources.protocol import ByteSource
from insitu.sources.redact import displayed, redacted

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["Openable", "is_local", "open_source"]

Openable = str | os.PathLike[str] | bytes | bytearray | memoryview | FileLike | ByteSource
"""What `open_source` takes."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_CHAIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+::")
_OBJECT_STORES = {
    "s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs",
    "az": "azure", "azure": "azure", "adl": "azure", "abfs": "azure", "abfss": "azure",
}  # fmt: skip


def open_source(url: Openable, storage_options: Mapping[str, object] | None = None) -> ByteSource:
    """The source that reads `url`.

    Parameters
    ----------
    url
        A path or `Path`; a URL: `file://`, `http://`, `https://`, `s3://`, `gs://`, `az://`, `abfs://`, `memory://`, or
        whatever fsspec knows (chains included); bytes; an open binary file; or a `ByteSource`, which is returned
        as it is.
    storage_options
        Credentials and the like (`anon`, `key`, `secret`, `token`, `endpoint_url`, `region`, `headers`), or a mapping
        of URL prefix to such options. Files need none and ignore them.

    Examples
    --------
    >>> open_source(b"abc").read(1, 2)
    b'bc'
    """
    if isinstance(url, str):
        return _open_url(url, storage_options)
    if isinstance(url, os.PathLike):
        return LocalSource(url)
    if isinstance(url, bytes | bytearray | memoryview):
        return MemorySource(url)
    if isinstance(url, ByteSource):
        return url
    if isinstance(url, FileLike):
        return from_file(url)
    raise TypeError(f"cannot read bytes from a {type(url).__name__}: give a path, a URL, an open binary file or bytes")


def is_local(source: ByteSource) -> bool:
    """Whether reads cost no round trip, so that neither merging nor reading ahead pays; wrappers are looked through.

    Examples
    --------
    >>> from insitu.sources import Blocks, HttpSource
    >>> is_local(open_source(b"abc")), is_local(Blocks(HttpSource("https://host/x.nc")))
    (True, False)
    """
    while isinstance(source, Blocks | Counted):
        source = source.source
    return isinstance(source, LocalSource | MemorySource | FileLikeSource)


def _open_url(url: str, storage_options: Mapping[str, object] | None) -> ByteSource:
    found = _SCHEME.match(url)
    if found is None:
        if _CHAIN.match(url) and not os.path.exists(url):
            return FilesystemSource(url, options_for(url, storage_options))
        return LocalSource(os.path.expanduser(url))
    scheme = found[1].lower()
    if scheme in ("file", "local"):
        return LocalSource(_path_of(url))
    options = options_for(url, storage_options)
    if scheme in ("http", "https"):
        # Imported when used: files need neither of the two libraries, and a scan of one should start at once.
        from insitu.sources.http import HttpSource

        address, headers = http_settings(url, options)
        return HttpSource(address, headers=headers)
    if scheme in _OBJECT_STORES:
        return _open_object(url, _OBJECT_STORES[scheme], options)
    if scheme == SCHEME:
        return find_file(url)
    if scheme == "memory":
        try:
            return MemorySource.find(url)
        except NotFoundError:
            # fsspec has a memory of its own, under the same scheme.
            try:
                return FilesystemSource(url, options)
            except InsituError:
                raise NotFoundError("no such object in memory", url=url) from None
    return FilesystemSource(url, options)


def _path_of(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise SourceError("a file URL names another machine", url=url, hint="Use three slashes: file:///path.")
    path = url.partition("://")[2].removeprefix(parts.netloc)
    # What looks like a query or a fragment is part of a file's name, so the URL is not parsed for them.
    if os.name == "nt":
        # Imported here only: it loads HTTP and TLS along, 30 ms that a local scan need not spend.
        from urllib.request import url2pathname

        return url2pathname(path)
    return unquote(path)


def _open_object(url: str, kind: str, options: dict[str, Any]) -> ByteSource:
    from insitu.sources.object_store import ObjectSource

    # Not urlsplit: keys may hold "?" and "#".
    bucket, _, key = url.partition("://")[2].partition("/")
    if not bucket or not key:
        raise SourceError("names no object: scheme://bucket/key is needed", url=displayed(url))
    if kind == "azure" and "@" in bucket:
        bucket, _, host = bucket.partition("@")
        options.setdefault("account_name", host.partition(".")[0])
    make_settings = {"s3": s3_settings, "gcs": gcs_settings, "azure": azure_settings}[kind]
    config, client = make_settings(options)
    try:
        store = _store(kind, bucket, _frozen(config), _frozen(client), _environment(kind))
    except Exception as error:
        # obstore has no one class for what it makes of bad configuration (ValueError, TypeError, its own errors).
        said = redacted(str(error).partition("\n\nDebug source")[0])
        raise SourceError(f"the store's options do not fit: {said}", url=displayed(url)) from None
    return ObjectSource(store, key, url)


@lru_cache(64)
def _store(kind: str, bucket: str, config: Any, client: Any, environment: Any) -> ObjectStore:
    """One store per bucket and options: it holds the connections, which the bucket's objects share."""
    from obstore import store as stores

    make: Any = {"s3": stores.S3Store, "gcs": stores.GCSStore, "azure": stores.AzureStore}[kind]
    settings = dict(client)
    if "default_headers" in settings:
        settings["default_headers"] = dict(settings["default_headers"])
    made = make(bucket, config=dict(config), client_options=settings, retry_config={"max_retries": 5})
    return cast("ObjectStore", made)


def _frozen(settings: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (name, _frozen(value) if isinstance(value, Mapping) else value) for name, value in sorted(settings.items())
    )


def _environment(kind: str) -> tuple[tuple[str, str], ...]:
    """The variables that a store reads when it is made: other values need another store."""
    prefix = {"s3": "AWS_", "gcs": "GOOGLE_", "azure": "AZURE_"}[kind]
    return tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith(prefix)))
