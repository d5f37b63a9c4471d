"""Source that remembers what was read of another source, while a remote file is scanned.

A scan reads ahead, because a request costs a round trip. The values that opening a file needs next, labels above all,
often lie in what came with it, and a second scan of the same file, for a group or a variable more, begins with the
same bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from insitu.sources.protocol import ByteSource, Range, WrappedSource, read_tail

__all__ = ["RememberingSource"]

MOST_BYTES = 16 << 20
"""Bytes that are remembered: twice what a scan reads ahead at most. What comes later is not."""


class RememberingSource(WrappedSource):
    r"""A source that reads no range twice, if it lies in one that was read before.

    Examples
    --------
    >>> from insitu.sources import CountingSource, MemorySource
    >>> counted = CountingSource(MemorySource(bytes(range(100))))
    >>> source = RememberingSource(counted)
    >>> source.read(0, 50)[:2], source.read_many([(10, 2), (60, 2)]), counted.ranges
    (b'\x00\x01', [b'\n\x0b', b'<='], [(0, 50), (60, 2)])
    """

    def __init__(self, source: ByteSource) -> None:
        super().__init__(source)
        self._starts: list[int] = []
        self._blocks: list[bytes] = []
        self._room = MOST_BYTES

    def read(self, offset: int, length: int) -> bytes:
        """Return one range."""
        found = self._find(offset, length)
        if found is None:
            found = self.source.read(offset, length)
            self._keep(offset, found)
        return found

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return many ranges: those that are not remembered in one batch."""
        found = [self._find(offset, length) for offset, length in ranges]
        missing = [given for given, data in zip(ranges, found, strict=True) if data is None]
        rest = iter(self.source.read_many(missing) if missing else ())
        read: list[bytes] = []
        for (offset, _), data in zip(ranges, found, strict=True):
            if data is None:
                data = next(rest)
                self._keep(offset, data)
            read.append(data)
        return read

    def tail(self, length: int) -> bytes:
        """Return the last bytes."""
        return read_tail(self.source, length)

    def _find(self, offset: int, length: int) -> bytes | None:
        """Return a range of the block that begins last before it, if it lies in that one."""
        at = bisect_right(self._starts, offset) - 1
        if at < 0:
            return None
        begin = offset - self._starts[at]
        block = self._blocks[at]
        return block[begin : begin + length] if begin + length <= len(block) else None

    def _keep(self, offset: int, block: bytes) -> None:
        if len(block) > self._room:
            return
        self._room -= len(block)
        at = bisect_right(self._starts, offset)
        self._starts.insert(at, offset)
        self._blocks.insert(at, block)
