"""Lookup of functions in optional codec libraries (imagecodecs, numcodecs, our C kernels).

Libraries are imported when a codec is first met, never at import. Imagecodecs comes first: its
decoders release the GIL and write into a given buffer. Others replace what it lacks on a platform.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from insitu.codecs.buffer_spec import BufferSpec, Data, DecodeFunction, DecodeStep, Octets
from insitu.errors import CodecError, UnknownCodecError
from insitu.forking import delay_forks, import_before_fork

__all__ = [
    "decode_growing",
    "decode_into_buffer",
    "decode_streams",
    "find_function",
    "isolation",
    "library_step",
    "require_function",
]

Function = Callable[..., Any]


@dataclass(slots=True)
class Isolation:
    """Where libraries run that a damaged chunk can crash (ecCodes): in a process of their own."""

    allows_in_process: bool = True
    """Whether they may run in this process if no other can be started.

    Not in a server, where one damaged message would crash the work of all clients.
    """


isolation = Isolation()
"""The setting of the process."""


def find_function(module: str, name: str) -> Function | None:
    """Return a function of an optional library; None if it is not there.

    Parameters
    ----------
    module
        Module to import.
    name
        The function. Functions that imagecodecs lists but its build lacks count as missing.
    """
    try:
        with delay_forks():  # imagecodecs imports a codec when it is first named, under a lock of its own
            library: Any = import_before_fork(module)
            if module == "imagecodecs" and not getattr(library, name.split("_")[0].upper()).available:
                return None
            function: Function = getattr(library, name)
    except (ImportError, AttributeError):
        return None
    return function


def require_function(codec: str, *candidates: tuple[str, str], install: str = "insitu[codecs]") -> Function:
    """Return the first of several functions that is installed.

    Parameters
    ----------
    codec
        Name for the message.
    candidates
        Modules and names, the best first.
    install
        What pip takes.

    Raises
    ------
    UnknownCodecError
        If none is; the message says what to install.
    """
    for module, name in candidates:
        if (function := find_function(module, name)) is not None:
            return function
    raise UnknownCodecError(
        f"codec {codec!r} needs a library that is not installed",
        codec=codec,
        hint=f"Try `pip install '{install}'`",
    )


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
