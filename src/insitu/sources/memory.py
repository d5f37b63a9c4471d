"""Source for bytes in memory.

A source with a name is found again under `memory://name` while it lives, so that references to it
can be followed in the same process.
"""

from __future__ import annotations

import itertools
import secrets
import weakref
from collections.abc import Callable, Sequence

from insitu.errors import NotFoundError
from insitu.model import Source
from insitu.sources import tracing
from insitu.sources.protocol import Range, SourceBase, copy_to_buffer
from insitu.sources.ranges import clip

__all__ = ["MemorySource"]

Buffer = bytes | bytearray | memoryview

_numbers = itertools.count(1)
_sources_by_url: weakref.WeakValueDictionary[str, MemorySource] = weakref.WeakValueDictionary()


class MemorySource(SourceBase):
    """Bytes in memory as a source. They stay readable after `close`, for others that find it by URL.

    Parameters
    ----------
    data
        The bytes. A `bytearray` or `memoryview` is not copied: leave it alone while the source is
        used.
    name
        The source's URL will be `memory://name`; numbered if left out.

    Examples
    --------
    >>> MemorySource(b"abcdef").read(2, 3)
    b'cde'
    """

    def __init__(self, data: Buffer, name: str | None = None) -> None:
        self._view = memoryview(data).cast("B")
        self._size = self._view.nbytes
        # A random part: a dataset that travels to another process must not find that one's object
        # of the same number.
        self._url = f"memory://{f'{next(_numbers)}-{secrets.token_hex(4)}' if name is None else name}"
        _sources_by_url[self._url] = self

    @staticmethod
    def find(url: str) -> MemorySource:
        """Return the living source of that URL."""
        try:
            return _sources_by_url[url]
        except KeyError:
            raise NotFoundError("there is no such object in the memory of this process", url=url) from None

    def describe(self) -> Source:
        """Return the size: memory has no date."""
        return Source(self._url, self._size)

    def read(self, offset: int, length: int) -> bytes:
        """Return one range."""
        start, length = clip(self._url, offset, length, self._size)
        with tracing.Request("memory") as request:
            request.bytes = length
            return bytes(self._view[start : start + length])

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return many ranges."""
        return [self.read(offset, length) for offset, length in ranges]

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` from `offset` on; return the number of bytes written."""
        start, length = clip(self._url, offset, buffer.nbytes, self._size)
        return copy_to_buffer(self._view[start : start + length], buffer)

    def __reduce__(self) -> tuple[Callable[[bytes, str], MemorySource], tuple[bytes, str]]:
        return _restore, (bytes(self._view), self._url.removeprefix("memory://"))

    def __repr__(self) -> str:
        return f"MemorySource({self._url!r}, {self._size} bytes)"


def _restore(data: bytes, name: str) -> MemorySource:
    """Return the source again after unpickling; where it was pickled, the same object: two of one
    name would hide each other.
    """
    known = _sources_by_url.get(f"memory://{name}")
    return known if known is not None and known._view == data else MemorySource(data, name)
