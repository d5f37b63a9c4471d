"""Decoding of chunks whose decoded size is not known, into buffers that grow until it fits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from insitu.codecs.buffer_spec import Data, DecodeFunction, Octets
from insitu.codecs.libraries import Function
from insitu.errors import CodecError

__all__ = ["decode_growing", "decode_into_buffer"]


def decode_growing(decode: Callable[[Octets], Data], first: int, limit: int) -> Data:
    """Decode into ever larger buffers until the output fits.

    Parameters
    ----------
    decode
        Writes into the buffer and returns the part of it that was filled; raises if the buffer is
        too small.
    first
        Size of the first buffer.
    limit
        Size of the largest buffer.

    Raises
    ------
    CodecError
        If the data is damaged, or holds more than `limit` bytes.
    """
    size = min(max(first, 1), limit)
    while True:
        try:
            return decode(np.empty(size, np.uint8))
        except Exception as error:
            # Libraries raise the same exceptions for a buffer that is too small and for damaged
            # data.
            if size >= limit:
                raise CodecError(f"the data is damaged, or decodes to more than {limit} bytes ({error})") from error
        size = min(size * 4, limit)


def decode_into_buffer(decode: Function, limit: int) -> DecodeFunction:
    """Return the decoder of a chunk for a function of imagecodecs that takes the keyword `out`."""

    def run(data: Data, out: Octets | None) -> Data:
        if out is None:
            return decode_growing(lambda room: decode(data, out=room), 4 * len(data), limit)
        filled: Data = decode(data, out=out)
        return out if len(filled) == limit else filled

    return run
