"""Which of the decoded chunks that a worker keeps may a client be given? Those that its own credentials have read.

A worker has one cache, bounded in bytes, for all its routes. A chunk in it is known by who has read it (a digest of the credentials, and how the storage was asked), by
what identifies the object (its URL, size and ETag), by its range and its encoding. Of a remote object whose ETag nobody knows yet, a chunk is believed
for a while without a look at the object, as long as scans are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from insitu.model import Selection, Source, VirtualArray
from insitu.model.selection import Stride
from insitu.reading import ChunkCache
from insitu.server.credentials import Credentials
from insitu.sources import ByteSource
from insitu.sources.protocol import Range

__all__ = ["Dated", "Portion", "frozen", "is_small"]


class Portion(ChunkCache):
    """A worker's cache as one client sees it.

    Parameters
    ----------
    whole
        The cache.
    who
        The client.
    options
        How it asks the storage: the same name may be another object at another endpoint.
    """

    def __init__(self, whole: ChunkCache, who: Credentials, options: Mapping[str, Any]) -> None:
        super().__init__(whole.max_bytes)
        self._whole = whole
        self._whose = (who.digest, frozen(options))

    def get(self, key: Hashable, make: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """A chunk that this client has read before, or reads now."""
        return self._whole.get((self._whose, key), make)

    def __contains__(self, key: Hashable) -> bool:
        return (self._whose, key) in self._whole


class Dated:
    """A remote source that nobody knows the ETag of: its content is believed to be the same for some seconds.

    Parameters
    ----------
    source
        The source.
    about
        What is known of it.
    seconds
        For how long.
    """

    def __init__(self, source: ByteSource, about: Source, seconds: float) -> None:
        self.source = source
        self._about = replace(about, etag=f"in period {time.monotonic() // max(seconds, 1e-3):.0f}")

    @property
    def url(self) -> str:
        """Where the object is."""
        return self.source.url

    def size(self) -> int:
        """Bytes in the object."""
        return self.source.size()

    def read(self, offset: int, length: int) -> bytes:
        """One range."""
        return self.source.read(offset, length)

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Many ranges."""
        return self.source.read_many(ranges)

    def describe(self) -> Source:
        """What tells it from other content, without a request."""
        return self._about

    def close(self) -> None:
        """Close it."""
        self.source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_small(array: VirtualArray, selection: Selection, most: int) -> bool:
    """Whether the chunks that a selection touches decode to no more than so many bytes: keeping those of a long pass would only push out what others read again."""
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


def frozen(options: Any) -> Any:
    """Options as something that can be a key."""
    if isinstance(options, Mapping):
        return tuple(sorted((str(name), frozen(value)) for name, value in options.items()))
    return tuple(frozen(item) for item in options) if isinstance(options, (list, tuple)) else options
