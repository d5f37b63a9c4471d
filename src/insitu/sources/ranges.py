"""Clipping of byte ranges to the object.

Ranges come out of files, and files are damaged: lengths of 2^60 bytes and offsets past every end
are common. Clipping them before anything is allocated or sent makes them short reads, as with
`pread`.
"""

from __future__ import annotations

from collections.abc import Iterable

from insitu.errors import SourceError

__all__ = ["clip", "clip_all"]

_BEYOND = 1 << 62
"""No object is this long: a bound that keeps sums of offset and length within 64 bits while the
size is not known.
"""


def clip(url: str, offset: int, length: int, size: int | None = None) -> tuple[int, int]:
    """Return the part of a range that lies within an object of `size` bytes; `(0, 0)` if none does.

    Examples
    --------
    >>> clip("x", 90, 20, 100), clip("x", 200, 20, 100)
    ((90, 10), (0, 0))
    """
    if offset < 0 or length < 0:
        # A negative offset would count from the end of the object, and so read the wrong bytes
        # without a word.
        raise SourceError("offset and length must not be negative", url=url, offset=offset, length=length)
    available = min(length, (_BEYOND if size is None else size) - offset)
    return (offset, available) if available > 0 else (0, 0)


def clip_all(url: str, ranges: Iterable[tuple[int, int]], size: int | None = None) -> list[tuple[int, int]]:
    """Return many ranges, each clipped (see `clip`)."""
    return [clip(url, offset, length, size) for offset, length in ranges]
