"""Pool of open sources, keyed by URL and identity, with a bounded number of idle ones.

Sources are pooled by URL and recorded identity (size, ETag, date). Where two recorded versions of
one object meet in one read, each is opened, and verified, on its own. Opening happens outside of
the lock: a source that opens slowly delays only those who want that source. No source is closed
while a task reads from it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from types import TracebackType
from typing import Any, Self

from insitu.cancellation import LateError, wait_for_event
from insitu.errors import InsituError
from insitu.forking import renew_after_fork
from insitu.lru import LruCache
from insitu.model import Source
from insitu.reading.cache import ChunkCache
from insitu.sources import ByteSource, open_source

__all__ = ["SourcePool"]

MAX_IDLE_SOURCES = 128
"""Idle sources that stay open, at most: file descriptors are few, and an archive may have ten
thousand files.
"""

SourceKey = tuple[str, int | None, str | None, float | None]


class _PoolEntry:
    """A source that is in use, or is being opened by one thread while others wait for it."""

    __slots__ = ("error", "opened", "source", "users")

    def __init__(self, source: ByteSource | None) -> None:
        self.source = source
        self.users = 1
        self.error: BaseException | None = None
        self.opened = threading.Event()
        if source is not None:
            self.opened.set()


class SourcePool:
    """Open sources, shared by tasks. As a context manager it closes them at the end.

    Parameters
    ----------
    storage_options
        How to open sources: see `insitu.sources.open_source`.
    opener
        Opens a source in another way.
    keep
        Number of idle sources that stay open.
    """

    def __init__(
        self,
        storage_options: Mapping[str, Any] | None = None,
        *,
        opener: Callable[[Source], ByteSource] | None = None,
        keep: int = MAX_IDLE_SOURCES,
    ) -> None:
        self._open = opener or (lambda source: open_source(source.url, storage_options, expected=source))
        self.cache: ChunkCache | None = None
        """Cache of chunks decoded from these sources, for reads that are not given a cache of their
        own.
        """
        self._idle: LruCache[SourceKey, ByteSource] = LruCache(keep)
        self._busy: dict[SourceKey, _PoolEntry] = {}
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Reset the lock in a forked child, and forget what other threads of the parent were
        opening.
        """
        self._lock = threading.Lock()
        self._busy = {key: entry for key, entry in self._busy.items() if entry.source is not None}

    @contextmanager
    def acquire(self, source: Source) -> Iterator[ByteSource]:
        """Give an open source for as long as the block lasts.

        It is opened if the pool does not have it.
        """
        key = (source.url, source.size, source.etag, source.modified)
        entry = self._acquire(key, source)
        assert entry.source is not None
        try:
            yield entry.source
        finally:
            self._release(key, entry)

    def _acquire(self, key: SourceKey, source: Source) -> _PoolEntry:
        while True:
            with self._lock:
                entry = self._busy.get(key)
                if entry is None:
                    entry = self._busy[key] = _PoolEntry(self._idle.pop(key))
                    if entry.source is not None:
                        return entry
                    break
                entry.users += 1
            try:
                wait_for_event(entry.opened)
            except BaseException:
                self._release(key, entry)
                raise
            if entry.source is not None:
                return entry
            # The thread that opened it failed, and so would this one; unless only that thread's own
            # time was up.
            if isinstance(entry.error, InsituError) and not isinstance(entry.error, LateError):
                raise copy(entry.error) from entry.error.__cause__
        try:
            entry.source = self._open(source)
        except BaseException as error:
            entry.error = error
            with self._lock:
                del self._busy[key]
            raise
        finally:
            entry.opened.set()
        return entry

    def _release(self, key: SourceKey, entry: _PoolEntry) -> None:
        evicted: list[ByteSource] = []
        with self._lock:
            entry.users -= 1
            if not entry.users and self._busy.get(key) is entry:
                del self._busy[key]
                if entry.source is not None:
                    evicted = self._idle.put(key, entry.source)
        for old in evicted:
            old.close()

    def close(self) -> None:
        """Close all idle sources."""
        for source in self._idle.clear():
            source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
