"""`ReadContext`: how values are read, as one object that every function on the way passes on.

What is read (array, selection) and what is computed (`insitu.reducing.query`) are other objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from insitu.reading.cache import ChunkCache
from insitu.reading.read_statistics import ReadStatistics
from insitu.reading.source_pool import SourcePool

__all__ = ["ReadContext"]


@dataclass(frozen=True, slots=True)
class ReadContext:
    """How values are read: name for messages, storage options, open sources, cache, counters.

    Examples
    --------
    >>> with ReadContext(name="t2m").open_sources() as context:
    ...     context.pool is context.sources
    True
    """

    name: str | None = None
    """The variable, for messages."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """How to open the sources: see `insitu.sources.open_source`."""
    sources: SourcePool | None = None
    """Open sources; None: they are opened for one call, and closed at its end."""
    cache: ChunkCache | None = None
    """Cache of decoded chunks."""
    tally: ReadStatistics | None = None
    """Counts requests, bytes and seconds."""
    block_bytes: int | None = None
    """Bytes of values that a statistic such as a median may hold at a time; None: the usual."""
    engine: Any = None
    """What runs the portions of a large reduction: see `insitu.engines`; None: this process."""

    @contextmanager
    def open_sources(self) -> Iterator[ReadContext]:
        """Give the context with open sources. Those that are opened here are closed at the end."""
        if self.sources is not None:
            yield self
            return
        with SourcePool(self.storage_options) as sources:
            sources.cache = self.cache
            yield replace(self, sources=sources)

    @property
    def pool(self) -> SourcePool:
        """The open sources, within `open_sources`."""
        assert self.sources is not None, "the sources are not open"
        return self.sources
