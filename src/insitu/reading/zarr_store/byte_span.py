"""Which bytes of an object are wanted: a range, all from an offset on, or the last ones?"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ALL", "Span"]


class Span(NamedTuple):
    """Bytes of an object. A negative start counts from its end; no stop: to its end."""

    start: int = 0
    stop: int | None = None

    def within(self, size: int) -> tuple[int, int]:
        """Offset and length in an object of this size.

        Examples
        --------
        >>> Span(-3).within(10), Span(4, 20).within(10), Span(12).within(10)
        ((7, 3), (4, 6), (10, 0))
        """
        start = max(size + self.start, 0) if self.start < 0 else min(self.start, size)
        stop = size if self.stop is None else min(self.stop, size)
        return start, max(stop - start, 0)

    def of(self, data: bytes) -> bytes:
        """The bytes of an object that is at hand."""
        start, length = self.within(len(data))
        return data if length == len(data) else data[start : start + length]


ALL = Span()
