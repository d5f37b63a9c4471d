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
from insitu.reading.value_cache import Owner, ValueCache

__all__ = ["ReadContext"]


@dataclass(frozen=True, slots=True)
class ReadContext:
    """How values are read: name for messages, storage options, open sources, caches, servers, counters.

    It travels with the array.

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
    active: Any = None
    """The servers that reduce next to the data: an `insitu.active.client.Active`."""
    values: ValueCache | None = field(default=None, repr=False)
    """Keeps values that were read for the next use."""
    owner: Owner | None = field(default=None, repr=False)
    """The dataset for which they are kept."""
    keep_alive: tuple[Any, ...] = field(default=(), repr=False)
    """Sources in memory that the array needs: a registry holds them weakly, by name, so somebody must keep them
    alive. Other processes do not have them.
    """
    read_limit: int | None = field(default=None, repr=False)
    """Bytes that arithmetic may read at once; None: the option of the process."""

    def of_variable(self, name: str | None) -> ReadContext:
        """Return the same for one variable. `dataclasses.replace` takes twice as long, for each variable."""
        return ReadContext(
            name,
            self.storage_options,
            self.sources,
            self.cache,
            self.tally,
            self.active,
            self.values,
            self.owner,
            self.keep_alive,
            self.read_limit,
        )

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
