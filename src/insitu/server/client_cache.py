"""The cache of decoded chunks as one client sees it: only chunks that its own credentials have
read.

A worker has one cache, bounded in bytes, for all its routes. The key of a chunk holds who has read
it (a digest of the credentials and the storage options), what identifies the object (URL, size,
ETag), the byte range and the encoding. If the ETag of a remote object is unknown, its chunks expire
after `Limits.fresh` seconds, as scans do (`ExpiringSource`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.model import Selection, Source, VirtualArray
from insitu.model.selection import Stride
from insitu.reading import ChunkCache
from insitu.server.authentication import Credentials
from insitu.sources import ByteSource
from insitu.sources.protocol import WrappedSource

__all__ = ["ClientCache", "ExpiringSource", "can_be_cached", "to_hashable"]


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


def can_be_cached(array: VirtualArray, selection: Selection, most: int) -> bool:
    """Return whether the chunks that a selection touches decode to at most so many bytes.

    The chunks of a longer pass are not cached: they would only push out what others read again.
    """
    total = math.prod(selection.result_shape) * array.dtype.itemsize
    for tile in array.tiles:
        if total > most:
            return False
        itemsize = max(encoding.dtype.itemsize for encoding in tile.encodings)
        lengths = []
        for number, selector in enumerate(selection.selectors):
            axis = tile.axis_of(number)
            cells = axis.count
            if isinstance(selector, int):
                cells = 1
            elif not isinstance(selector, Stride):
                cells = min(cells, len(selector))
            elif axis.is_regular:
                reach = abs(selector.step) * max(selector.length - 1, 0)
                cells = min(cells, selector.length, reach // axis.size + 2)
            else:
                cells = min(cells, selector.length)
            stored = axis.size if axis.is_regular else int(axis.show(np.arange(axis.count)).stored.max(initial=1))
            lengths.append(cells * max(stored, 1))
        total += math.prod(lengths) * itemsize
    return total <= most


def to_hashable(options: Any) -> Any:
    """Return options as a hashable value, for keys of caches."""
    if isinstance(options, Mapping):
        return tuple(sorted((str(name), to_hashable(value)) for name, value in options.items()))
    return tuple(to_hashable(item) for item in options) if isinstance(options, (list, tuple)) else options
