"""Decoding by libraries: into buffers that grow until the output fits, and of streams behind each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from insitu.codecs.buffer_spec import BufferSpec, Data, DecodeFunction, DecodeStep, Octets
from insitu.codecs.libraries import Function, require_function
from insitu.errors import CodecError

__all__ = ["decode_growing", "decode_into_buffer", "decode_streams", "library_step"]


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


def library_step(codec: str, function: str, form: BufferSpec) -> DecodeStep:
    """Return the step of a compressor that is a function of imagecodecs and nothing else."""
    run = decode_into_buffer(require_function(codec, ("imagecodecs", function)), form.limit)
    return DecodeStep(codec, run, form.compressor_output(), fills=form.exact, uses_library=True)


def decode_streams(
    make: Callable[[], Any], data: Data, limit: int, follows: Callable[[bytes], bool], *, marked: bool = True
) -> bytes:
    """Return what streams that lie one behind the other decode to: at most `limit` bytes.

    Parameters
    ----------
    make
        Returns the decoder of one stream.
    data
        The first stream, and what lies behind it.
    limit
        Most bytes.
    follows
        Returns whether bytes behind a stream are another one.
    marked
        Whether a stream has a mark at its end.
    """
    parts: list[bytes] = []
    room, rest = limit + 1, data
    while True:
        stream = make()
        parts.append(stream.decompress(rest, room))
        room -= len(parts[-1])
        if room <= 0:
            raise CodecError(f"the data decodes to more than the {limit} bytes declared")
        if marked and not stream.eof:
            raise CodecError("the compressed data is truncated")
        if not stream.eof or not follows(rest := stream.unused_data):
            return parts[0] if len(parts) == 1 else b"".join(parts)
