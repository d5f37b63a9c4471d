"""Byte sources: read ranges of bytes from files, web servers, object stores and memory.

| name | what it reads |
|---|---|
| `open_source` | whatever a URL, a path or an open file names |
| `LocalSource`, `MemorySource`, `FileLikeSource` | files, bytes, open files |
| `HttpSource`, `ObjectSource`, `FsspecSource` | web servers; S3, GCS, Azure; all that only fsspec reads |
| `CachedSource`, `CountingSource` | another source, with a cache on disk; with a request counter |
| `WrappedSource` | the base class of both |
| `expand_urls` | the files that globs, prefixes and lists name |
| `trace` | what all sources did: requests, bytes, latency, retries, cache hits |

What is not local is imported on first use: a local scan does not wait for HTTP and cloud libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from insitu.forking import lazy_attributes
from insitu.sources.filelike import FileLikeSource
from insitu.sources.local import LocalSource
from insitu.sources.memory import MemorySource
from insitu.sources.protocol import ByteSource, Range, WrappedSource, read_into, read_tail
from insitu.sources.redaction import redact_url
from insitu.sources.resolve import is_local, open_source, read_all, request_bytes
from insitu.sources.storage_options import detach_secrets
from insitu.sources.tracing import Trace, trace

if TYPE_CHECKING:
    from insitu.sources.cached_source import CachedSource
    from insitu.sources.coalesce import MergedRanges, merge_ranges, worthwhile_gap
    from insitu.sources.counting_source import CountingSource
    from insitu.sources.disk_cache import DiskCache
    from insitu.sources.fsspec_source import FsspecSource
    from insitu.sources.globs import expand_urls
    from insitu.sources.http.http_source import HttpSource
    from insitu.sources.object_store.object_source import ObjectSource
    from insitu.sources.retry_policy import RetryPolicy

__all__ = [
    "ByteSource",
    "CachedSource",
    "CountingSource",
    "DiskCache",
    "FileLikeSource",
    "FsspecSource",
    "HttpSource",
    "LocalSource",
    "MemorySource",
    "MergedRanges",
    "ObjectSource",
    "Range",
    "RetryPolicy",
    "Trace",
    "WrappedSource",
    "detach_secrets",
    "expand_urls",
    "is_local",
    "merge_ranges",
    "open_source",
    "read_all",
    "read_into",
    "read_tail",
    "redact_url",
    "request_bytes",
    "trace",
    "worthwhile_gap",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "CachedSource": "insitu.sources.cached_source",
        "CountingSource": "insitu.sources.counting_source",
        "DiskCache": "insitu.sources.disk_cache",
        "FsspecSource": "insitu.sources.fsspec_source",
        "HttpSource": "insitu.sources.http.http_source",
        "MergedRanges": "insitu.sources.coalesce",
        "ObjectSource": "insitu.sources.object_store.object_source",
        "RetryPolicy": "insitu.sources.retry_policy",
        "expand_urls": "insitu.sources.globs",
        "merge_ranges": "insitu.sources.coalesce",
        "worthwhile_gap": "insitu.sources.coalesce",
    },
)
