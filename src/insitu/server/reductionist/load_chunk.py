"""Load the chunk of a request: fetch its byte range, decode it, and cache it for later requests."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.codecs.chain import decode
from insitu.errors import TruncatedError
from insitu.model import Encoding, Source
from insitu.reading import ChunkCache
from insitu.reducing.chunk_storage import decode_unknown_size
from insitu.server.authentication import Credentials
from insitu.server.client_source_pools import ClientSourcePools
from insitu.server.error_responses import RequestError
from insitu.server.metrics import Metrics
from insitu.server.reductionist.request import ChunkRequest, invalid_request
from insitu.server.settings import Limits
from insitu.sources import ByteSource
from insitu.sources.address import is_remote

__all__ = ["ChunkLoader"]

Array = npt.NDArray[Any]


class ChunkLoader:
    """Loads and decodes chunks.

    Parameters
    ----------
    source_pools
        Open sources of all clients.
    cache
        Decoded chunks.
    limits
        Limits on the size of a chunk.
    local_copy
        Returns the path or URL from which a URL is read.
    metrics
        Counters of fetched and decoded bytes.
    """

    def __init__(
        self,
        source_pools: ClientSourcePools,
        cache: ChunkCache,
        limits: Limits,
        local_copy: Callable[[str], str],
        metrics: Metrics,
    ) -> None:
        self.source_pools, self.cache, self.limits, self.local_copy, self.metrics = (
            source_pools,
            cache,
            limits,
            local_copy,
            metrics,
        )

    def cost(self, request: ChunkRequest) -> int:
        """Return about how much memory the request takes, from its shape and size."""
        decoded = None if request.shape is None else math.prod(request.shape) * request.dtype.itemsize
        stored = request.size or 0
        if decoded is None:
            decoded = stored if not request.codecs else min(8 * stored, self.limits.chunk)
        if max(decoded, stored) > self.limits.chunk:
            raise RequestError(f"Insufficient memory to process request ({max(decoded, stored)} > {self.limits.chunk})")
        return stored + 2 * decoded

    def load(self, request: ChunkRequest, who: Credentials, options: dict[str, Any]) -> Array:
        """Return the decoded chunk, in native byte order; do not write to it."""
        return self.source_pools.retry_if_stale(who, options, lambda: self._load(request, who, options))

    def _load(self, request: ChunkRequest, who: Credentials, options: dict[str, Any]) -> Array:
        source = Source(request.location.url)
        with self.source_pools.for_client(who, options).acquire(source) as found:
            if not request.cached or not self.cache.max_bytes:
                return self._fetch_and_decode(request, found)
            version: Any
            if is_remote(self.local_copy(request.location.url)):
                version = int(time.monotonic() / max(self.limits.fresh, 1e-3))
            else:
                version = found.describe().etag
            encoding = (request.dtype.str, request.codecs, request.shape, request.order)
            place = (request.location.given, request.offset, request.size)
            key = (who.digest, place, encoding, version)
            return self.cache.get(key, lambda: self._fetch_and_decode(request, found))

    def _fetch_and_decode(self, request: ChunkRequest, source: ByteSource) -> Array:
        data = self._fetch(request, source)
        values = self._decode(request, data)
        self.metrics.add("insitu_bytes_fetched_total", len(data))
        self.metrics.add("insitu_bytes_decoded_total", values.nbytes)
        self.metrics.add("insitu_chunks_total", 1)
        return values

    def _decode(self, request: ChunkRequest, data: bytes) -> Array:
        dtype, shape = request.dtype, request.shape
        if shape is None:
            raw = (
                decode_unknown_size(data, request.codecs, self.limits.chunk)
                if request.codecs
                else np.frombuffer(data, np.uint8)
            )
            if raw.size % dtype.itemsize:
                raise invalid_request(
                    f"raw data size ({raw.size}) must be a multiple of dtype size in bytes ({dtype.itemsize})"
                )
            if not raw.size:
                raise RequestError("failed to create array from shape: there are no elements")
            values = raw.view(dtype)
        else:
            order = tuple(reversed(range(len(shape)))) if request.order == "F" else None
            values = decode(data, Encoding(dtype, request.codecs, order), shape)
        return values.astype(dtype.newbyteorder("="), copy=False)

    def _fetch(self, request: ChunkRequest, source: ByteSource) -> bytes:
        offset, size = request.offset, request.size
        if size is None:
            size = max(source.size() - offset, 0)
            if size > self.limits.chunk:
                raise RequestError(f"Insufficient memory to process request ({size} > {self.limits.chunk})")
            if not request.codecs and request.shape is not None:
                whole = math.prod(request.shape) * request.dtype.itemsize
                if size != whole:
                    raise invalid_request(
                        f"raw data size ({size}) does not equal the product of shape and dtype size in bytes ({whole})"
                    )
        data = source.read(offset, size)
        if len(data) != size:
            raise TruncatedError(
                f"the object ends before the range does: {len(data)} of {size} bytes", offset=offset, length=size
            )
        return data
