"""Byte spans of an object: a range, all from an offset on, or the last bytes."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ALL_BYTES", "ByteSpan"]


class ByteSpan(NamedTuple):
    """A range of bytes of an object.

    A negative start counts from its end; without a stop it goes to the end.
    """

    start: int = 0
    stop: int | None = None

    def within(self, size: int) -> tuple[int, int]:
        """Return offset and length of the span in an object of a size.

        Examples
        --------
        >>> ByteSpan(-3).within(10), ByteSpan(4, 20).within(10), ByteSpan(12).within(10)
        ((7, 3), (4, 6), (10, 0))
        """
        start = max(size + self.start, 0) if self.start < 0 else min(self.start, size)
        stop = size if self.stop is None else min(self.stop, size)
        return start, max(stop - start, 0)

    def of(self, data: bytes) -> bytes:
        """Return the span of an object that is in memory."""
        start, length = self.within(len(data))
        return data if length == len(data) else data[start : start + length]


ALL_BYTES = ByteSpan()
