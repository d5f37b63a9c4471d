"""The `ByteSource` protocol, its optional abilities, and the base class of wrappers.

A source tells its size, returns one range or many, and describes its present content. Scanners and
readers use only this, so a third party adds a new kind of storage in one file, and caches and
counters are sources around sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from insitu.model import Source

__all__ = [
    "ByteSource",
    "Range",
    "ReadsInto",
    "ReadsRanges",
    "ReadsTail",
    "SourceBase",
    "WrappedSource",
    "copy_to_buffer",
    "read_into",
    "read_tail",
]

Range = tuple[int, int]
"""`(offset, length)` in bytes."""


@runtime_checkable
class ByteSource(Protocol):
    """An object whose bytes can be read by range.

    Ranges follow `pread`: fewer bytes than asked for come only at the end of the object, and none
    at all past it. Whatever else goes wrong is an `insitu.errors.SourceError`. All methods may be
    called from many threads at once.
    """

    @property
    def url(self) -> str:
        """Where the object is; never holds credentials."""

    def size(self) -> int:
        """Return the bytes in the object."""

    def read(self, offset: int, length: int) -> bytes:
        """Return one range."""

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return many ranges, in the order asked, concurrently where that helps."""

    def describe(self) -> Source:
        """Return what identifies the present content; costs nothing after the first read."""

    def close(self) -> None:
        """Release what the source holds open; calling it twice does no harm."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


@runtime_checkable
class ReadsInto(Protocol):
    """A source that can fill a given buffer without a copy."""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer`, in C order, from `offset` on; return the number of bytes written.

        The buffer may be a part of a larger array. If it is not contiguous and fewer bytes came
        than it holds, its content is undefined.
        """


@runtime_checkable
class ReadsRanges(Protocol):
    """A source that can put many ranges into one buffer."""

    def size(self) -> int:
        """Return the number of bytes."""

    def read_ranges_into(self, offset: NDArray[np.int64], length: NDArray[np.int64], target: NDArray[np.uint8]) -> int:
        """Fill `target` with many ranges, one behind the other; return the number of bytes read.

        If fewer bytes came than the ranges have, its content is undefined.
        """


@runtime_checkable
class ReadsTail(Protocol):
    """A source that can return its last bytes without a request for its size."""

    def tail(self, length: int) -> bytes:
        """Return the last `length` bytes, or all if there are fewer; afterwards the size costs
        nothing.
        """


class SourceBase:
    """Base class of byte sources: URL and size, closing by `with`, and a representation.

    A subclass sets `_url` (without credentials) and `_size`, or overrides what tells them.
    """

    _url: str
    _size: int
    keeps_ranges: bool = False
    """Whether ranges are found again as they were read, so that they are better not merged."""

    @property
    def url(self) -> str:
        """Where the object is, without credentials."""
        return self._url

    def size(self) -> int:
        """Return the bytes in the object."""
        return self._size

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


class WrappedSource(SourceBase):
    """Base class of sources around a source: forwards the methods of `ByteSource`.

    A subclass overrides what it changes. `tail` and `read_into` are not forwarded: a wrapper that
    sees other bytes than its inner source (a member of an archive, say) would give wrong ones.

    Parameters
    ----------
    source
        The inner source. It is closed together with the wrapper.
    """

    def __init__(self, source: ByteSource) -> None:
        self.source = source

    @property
    def url(self) -> str:
        """The inner source's URL."""
        return self.source.url

    def size(self) -> int:
        """Return the inner source's size."""
        return self.source.size()

    def read(self, offset: int, length: int) -> bytes:
        """Return one range of the inner source."""
        return self.source.read(offset, length)

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return many ranges of the inner source."""
        return self.source.read_many(ranges)

    def describe(self) -> Source:
        """Return what identifies the inner source's content."""
        return self.source.describe()

    def close(self) -> None:
        """Close the inner source."""
        self.source.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source!r})"


def read_tail(source: ByteSource, length: int) -> bytes:
    """Return the last bytes of any source, in one request where the source can.

    Examples
    --------
    >>> from insitu.sources import MemorySource
    >>> read_tail(MemorySource(b"abcdef"), 2)
    b'ef'
    """
    if isinstance(source, ReadsTail):
        return source.tail(length)
    size = source.size()
    return source.read(max(size - length, 0), min(length, size))


def read_into(source: ByteSource, offset: int, buffer: memoryview) -> int:
    """Fill `buffer` from any source, without a copy where the source can; return the number of
    bytes written.

    Examples
    --------
    >>> from insitu.sources import MemorySource
    >>> target = bytearray(3)
    >>> read_into(MemorySource(b"abcdef"), 2, memoryview(target)), bytes(target)
    (3, b'cde')
    """
    if isinstance(source, ReadsInto):
        return source.read_into(offset, buffer)
    return copy_to_buffer(source.read(offset, buffer.nbytes), buffer)


def copy_to_buffer(data: bytes | memoryview, buffer: memoryview) -> int:
    """Copy bytes into a buffer that may be strided; return how many there were."""
    if not buffer.nbytes:  # Python casts no view of nothing
        return 0
    if buffer.c_contiguous:
        buffer.cast("B")[: len(data)] = data
    elif len(data) == buffer.nbytes:
        target = np.asarray(buffer)
        target[...] = np.frombuffer(data, target.dtype).reshape(target.shape)
    return len(data)
