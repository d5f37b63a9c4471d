"""Which sources are open? Each once, a bounded number of them, and none closed while a task reads from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from types import TracebackType
from typing import Any, Self

from insitu.model import Source
from insitu.reading.cache import ChunkCache
from insitu.sources import ByteSource, open_source

__all__ = ["Opened"]

KEPT = 128
"""Idle sources that stay open: file descriptors are few, and an archive may have ten thousand files."""


class Opened:
    """Lends out open sources. A context manager: leaving it closes them."""

    def __init__(
        self,
        storage_options: Mapping[str, Any] | None = None,
        *,
        opener: Callable[[Source], ByteSource] | None = None,
        keep: int = KEPT,
    ) -> None:
        self._open = opener or (lambda source: open_source(source.url, storage_options, expected=source))
        self._keep = keep
        self.cache: ChunkCache | None = None
        """Keeps what is decoded from these sources, where a read is not given a cache of its own."""
        self._lock = Lock()
        self._idle: dict[str, ByteSource] = {}  # the oldest first
        self._busy: dict[str, tuple[ByteSource, int]] = {}

    @contextmanager
    def lease(self, source: Source) -> Iterator[ByteSource]:
        """An open source, for as long as the block lasts."""
        url = source.url
        with self._lock:
            found, users = self._busy.get(url, (None, 0))
            if found is None:
                found = self._idle.pop(url, None) or self._open(source)
            self._busy[url] = (found, users + 1)
        try:
            yield found
        finally:
            surplus = []
            with self._lock:
                found, users = self._busy.pop(url)
                if users > 1:
                    self._busy[url] = (found, users - 1)
                else:
                    self._idle[url] = found
                while len(self._idle) > self._keep:
                    surplus.append(self._idle.pop(next(iter(self._idle))))
            for old in surplus:
                old.close()

    def close(self) -> None:
        """Close all that are idle."""
        with self._lock:
            idle, self._idle = list(self._idle.values()), {}
        for source in idle:
            source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
