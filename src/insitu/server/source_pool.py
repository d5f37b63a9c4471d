"""Which objects are open? Remote ones stay open between requests, each client's own; files are opened anew, so that a new file is seen.

The deadline of a request reaches its threads here: whoever wants to open or lease a source after it is told that time is up.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from insitu.cancellation import Deadline, LateError
from insitu.errors import StaleSourceError
from insitu.model import Source
from insitu.reading import Opened
from insitu.server.client_cache import Dated, frozen
from insitu.server.credentials import Credentials
from insitu.sources import ByteSource, open_source
from insitu.sources.address import is_remote

__all__ = ["Deadline", "LateError", "Leased", "Shelf"]

Answer = TypeVar("Answer")
DRAWERS = 64
"""Clients whose sources stay open."""
AGE = 1800.0
"""Seconds for which they do: signed addresses expire."""


class Leased(Opened):
    """Open sources of one request: `Opened`, with a deadline."""

    def __init__(
        self, options: Mapping[str, Any], deadline: Deadline, local_copy: Callable[[str], str], fresh: float = 0
    ) -> None:
        super().__init__(opener=lambda source: open_near(source, options, local_copy))
        self._deadline, self._local_copy, self._fresh = deadline, local_copy, fresh

    @contextmanager
    def lease(self, source: Source) -> Iterator[ByteSource]:
        """An open source, for as long as the block lasts and time is left."""
        self._deadline.check()
        with super().lease(source) as found:
            if self.cache is not None and source.etag is None and is_remote(self._local_copy(source.url)):
                found = Dated(found, source, self._fresh)
            yield found


def open_near(source: Source, options: Mapping[str, Any], local_copy: Callable[[str], str]) -> ByteSource:
    """A source from where it lies; a copy that lies nearer has another mark and time, but the same size."""
    url = local_copy(source.url)
    expected = source if url == source.url else Source(url, source.size)
    return open_source(url, options, expected=expected)


class Shelf:
    """Open sources of all clients.

    Parameters
    ----------
    local_copy
        Where a URL is read from.
    """

    def __init__(self, local_copy: Callable[[str], str]) -> None:
        self._local_copy = local_copy
        self._lock = threading.Lock()
        self._pools: OrderedDict[Any, _Fresh] = OrderedDict()

    def for_client(self, who: Credentials, options: Mapping[str, Any]) -> Opened:
        """The sources of one client, opened with its options."""
        key = (who.digest, frozen(options))
        old: Opened | None = None
        with self._lock:
            found = self._pools.get(key)
            if found is not None and time.monotonic() - found.since > AGE:
                old = self._pools.pop(key)
                found = None
            if found is None:
                given = dict(options)
                found = self._pools[key] = _Fresh(
                    lambda source: open_near(source, given, self._local_copy), self._local_copy
                )
            self._pools.move_to_end(key)
            if len(self._pools) > DRAWERS:
                old = self._pools.popitem(last=False)[1]
        if old is not None:
            old.close()
        return found

    def forget(self, who: Credentials, options: Mapping[str, Any]) -> None:
        """Open a client's sources anew: one of them has changed."""
        with self._lock:
            old = self._pools.pop((who.digest, frozen(options)), None)
        if old is not None:
            old.close()

    def close(self) -> None:
        """Close all."""
        with self._lock:
            pools, self._pools = list(self._pools.values()), OrderedDict()
        for pool in pools:
            pool.close()

    def retry_if_stale(self, who: Credentials, options: Mapping[str, Any], act: Callable[[], Answer]) -> Answer:
        """Do something once more, with fresh sources, if the first time an object turns out to have changed."""
        try:
            return act()
        except StaleSourceError:
            self.forget(who, options)
            return act()


class _Fresh(Opened):
    """`Opened`, but files of this machine are not kept: a file of the same name may be another one by the next request."""

    def __init__(self, opener: Callable[[Source], ByteSource], local_copy: Callable[[str], str]) -> None:
        super().__init__(opener=opener)
        self.since = time.monotonic()
        self._local_copy = local_copy

    @contextmanager
    def lease(self, source: Source) -> Iterator[ByteSource]:
        if is_remote(self._local_copy(source.url)):
            with super().lease(source) as found:
                yield found
            return
        with self._open(source) as found:
            yield found
