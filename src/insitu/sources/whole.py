"""How is an object read to its end, when nobody told where that is?

Asking for the size first is one request more. So a part is asked for that nearly every document and chunk fits in; whoever is larger has told its size by then.
"""

from __future__ import annotations

from insitu.sources.protocol import ByteSource
from insitu.sources.resolve import is_local

__all__ = ["read_all"]

GUESS = 4 << 20
"""Bytes asked for at first."""


def read_all(source: ByteSource, offset: int = 0) -> bytes:
    """An object from an offset on, in one request where it is not large.

    Parameters
    ----------
    source
        The object.
    offset
        From here on.

    Examples
    --------
    >>> from insitu.sources import MemorySource
    >>> read_all(MemorySource(b"abcdef"), 2)
    b'cdef'
    """
    if is_local(source):  # a file knows its size
        return source.read(offset, max(source.size() - offset, 0))
    data = source.read(offset, GUESS)
    if len(data) < GUESS:
        return data
    return data + source.read(offset + len(data), max(source.size() - offset - len(data), 0))
