"""Pools of open sources, one for each client and its storage options.

Remote objects stay open between requests. Files of this machine are opened for each request, so
that a replaced file is noticed. The deadline of a request is checked here whenever it opens a
source.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from insitu.cancellation import Deadline
from insitu.errors import StaleSourceError
from insitu.lru import LruCache
from insitu.model import Source
from insitu.reading import SourcePool
from insitu.server.authentication import Credentials
from insitu.server.client_cache import ExpiringSource, to_hashable
from insitu.server.local_copies import LocalCopies
from insitu.sources import ByteSource
from insitu.sources.address import is_remote

__all__ = ["ClientSourcePools", "RequestSources"]

Answer = TypeVar("Answer")
MAX_CLIENTS = 64
"""Number of clients whose sources stay open."""
MAX_AGE_SECONDS = 1800.0
"""Seconds after which the sources of a client are opened anew: signed URLs expire."""


class RequestSources(SourcePool):
    """Open sources of one request, with its deadline."""

    def __init__(self, options: Mapping[str, Any], deadline: Deadline, copies: LocalCopies, fresh: float = 0) -> None:
        super().__init__(opener=lambda source: copies.open(source, options))
        self._deadline, self._copies, self._fresh = deadline, copies, fresh

    @contextmanager
    def acquire(self, source: Source) -> Iterator[ByteSource]:
        """Lend an open source within a `with` block; an error if the deadline has passed."""
        self._deadline.check()
        with super().acquire(source) as found:
            has_etag = source.etag is not None and not source.is_local_file
            if self.cache is not None and not has_etag and is_remote(self._copies.path(source.url)):
                found = ExpiringSource(found, source, self._fresh)
            yield found


class ClientSourcePools:
    """Pools of open sources, one for each client and its storage options.

    Parameters
    ----------
    copies
        Opens local copies of objects.
    """

    def __init__(self, copies: LocalCopies) -> None:
        self._copies = copies
        self._lock = threading.Lock()
        self._pools: LruCache[Any, _ClientSources] = LruCache(MAX_CLIENTS)

    def for_client(self, who: Credentials, options: Mapping[str, Any]) -> SourcePool:
        """Return the pool of a client, whose sources are opened with these options."""
        key = (who.digest, to_hashable(options))
        evicted: list[_ClientSources] = []
        with self._lock:  # one pool for each client, though several requests ask at once
            found = self._pools.get(key)
            if found is None or time.monotonic() - found.since > MAX_AGE_SECONDS:
                given = dict(options)
                found = _ClientSources(lambda source: self._copies.open(source, given), self._copies.path)
                evicted = self._pools.put(key, found)
        for pool in evicted:
            pool.close()
        return found

    def forget(self, who: Credentials, options: Mapping[str, Any]) -> None:
        """Close the pool of a client: one of its sources has changed."""
        old = self._pools.pop((who.digest, to_hashable(options)))
        if old is not None:
            old.close()

    def close(self) -> None:
        """Close all pools."""
        for pool in self._pools.clear():
            pool.close()

    def retry_if_stale(self, who: Credentials, options: Mapping[str, Any], act: Callable[[], Answer]) -> Answer:
        """Call a function; if an object turns out to have changed,
        close the client's pool and call it again.
        """
        try:
            return act()
        except StaleSourceError:
            self.forget(who, options)
            return act()


class _ClientSources(SourcePool):
    """Open sources of one client.

    Local files do not stay open: another file may have the same name later.
    """

    def __init__(self, opener: Callable[[Source], ByteSource], local_copy: Callable[[str], str]) -> None:
        super().__init__(opener=opener)
        self.since = time.monotonic()
        self._local_copy = local_copy

    @contextmanager
    def acquire(self, source: Source) -> Iterator[ByteSource]:
        if is_remote(self._local_copy(source.url)):
            with super().acquire(source) as found:
                yield found
            return
        with self._open(source) as found:
            yield found
