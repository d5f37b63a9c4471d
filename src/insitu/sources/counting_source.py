"""A source that counts the requests, batches and bytes of another source.

It is the test double for all code that promises to read little.
"""

from __future__ import annotations

from collections.abc import Sequence

from insitu.forking import fork_safe_lock
from insitu.sources.protocol import ByteSource, Range, WrappedSource, read_into, read_tail

__all__ = ["CountingSource"]


class CountingSource(WrappedSource):
    """A source that counts what its user requests.

    An inner source that merges ranges makes fewer requests than are counted here. `size` and
    `describe` are not counted, though they may cost an inner source its first request.

    Examples
    --------
    >>> from insitu.sources import MemorySource
    >>> source = CountingSource(MemorySource(bytes(100)))
    >>> _ = source.read(0, 10), source.read_many([(20, 5), (90, 20)])
    >>> source.requests, source.batches, source.bytes, source.ranges
    (3, 2, 25, [(0, 10), (20, 5), (90, 20)])
    """

    def __init__(self, source: ByteSource) -> None:
        super().__init__(source)
        self._lock = fork_safe_lock()
        self.reset()

    def reset(self) -> None:
        """Count from zero again."""
        with self._lock:
            self.batches = 0
            """Calls that had to wait for storage: a `read`, or a whole `read_many`."""
            self.bytes = 0
            """Bytes that came."""
            self.ranges: list[Range] = []
            """Every range asked for, in order."""

    @property
    def requests(self) -> int:
        """Number of ranges requested."""
        return len(self.ranges)

    def read(self, offset: int, length: int) -> bytes:
        """Return one range: one request, one batch."""
        data = self.source.read(offset, length)
        self._note([(offset, length)], len(data))
        return data

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return many ranges: as many requests, one batch."""
        found = self.source.read_many(ranges)
        if ranges:
            self._note(ranges, sum(map(len, found)))
        return found

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Read one range into a buffer: one request, one batch."""
        count = read_into(self.source, offset, buffer)
        self._note([(offset, buffer.nbytes)], count)
        return count

    def tail(self, length: int) -> bytes:
        """Return the last bytes: one request, one batch."""
        data = read_tail(self.source, length)
        self._note([(self.source.size() - len(data), length)], len(data))
        return data

    def _note(self, ranges: Sequence[Range], count: int) -> None:
        with self._lock:
            self.batches += 1
            self.bytes += count
            self.ranges.extend(ranges)

    def __repr__(self) -> str:
        return f"Counted({self.source!r}: {self.requests} requests, {self.batches} batches, {self.bytes} bytes)"
