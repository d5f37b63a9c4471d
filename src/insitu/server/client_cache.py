"""The cache of decoded chunks as one client sees it: only chunks that its own credentials have
read.

A worker has one cache, bounded in bytes, for all its routes. The key of a chunk holds who has read
it (a digest of the credentials and the storage options), what identifies the object (URL, size,
ETag), the byte range and the encoding. If the ETag of a remote object is unknown, its chunks expire
after `Limits.fresh` seconds, as scans do (`ExpiringSource`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from insitu.model import Source
from insitu.reading import ChunkCache
from insitu.server.authentication import Credentials
from insitu.sources import ByteSource
from insitu.sources.protocol import WrappedSource

__all__ = ["ClientCache", "ExpiringSource", "to_hashable"]


class ClientCache(ChunkCache):
    """The part of a worker's cache that one client may see.

    Parameters
    ----------
    whole
        The cache of the worker.
    who
        The client.
    options
        Its storage options: the same URL may be another object at another endpoint.
    """

    def __init__(self, whole: ChunkCache, who: Credentials, options: Mapping[str, Any]) -> None:
        super().__init__(whole.max_bytes)
        self._whole = whole
        self._whose = (who.digest, to_hashable(options))

    def get(self, key: Hashable, make: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return a chunk that this client has read before, or make it."""
        return self._whole.get((self._whose, key), make)

    def __contains__(self, key: Hashable) -> bool:
        return (self._whose, key) in self._whole


class ExpiringSource(WrappedSource):
    """A remote source without a known ETag, whose cached chunks expire after some seconds.

    Parameters
    ----------
    source
        The source.
    about
        What is known about its content.
    seconds
        How long its content is assumed to be the same.
    """

    def __init__(self, source: ByteSource, about: Source, seconds: float) -> None:
        super().__init__(source)
        self._about = replace(about, etag=f"in period {time.monotonic() // max(seconds, 1e-3):.0f}")

    def describe(self) -> Source:
        """Return what identifies the content for now, without a request."""
        return self._about


def to_hashable(options: Any) -> Any:
    """Return options as a hashable value, for keys of caches."""
    if isinstance(options, Mapping):
        return tuple(sorted((str(name), to_hashable(value)) for name, value in options.items()))
    return tuple(to_hashable(item) for item in options) if isinstance(options, (list, tuple)) else options
