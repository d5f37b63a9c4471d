"""Decoders of bzip2 and xz/LZMA streams, by the standard library.

It releases the GIL, and both formats are slow anyway (tens of MB/s). imagecodecs' versions silently
cut off output that does not fit.
"""

from __future__ import annotations

import bz2 as _bz2
import lzma as _lzma
from collections.abc import Callable
from typing import Any

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeFunction, DecodeStep, Octets
from insitu.codecs.configuration import integer_field
from insitu.errors import CodecError

__all__ = ["bz2", "lzma"]


def bz2(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for bzip2, HDF5's filter 307."""
    return DecodeStep(
        "bz2", _stream_decoder(_bz2.BZ2Decompressor, form.limit), form.compressor_output(), uses_library=True
    )


def lzma(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for LZMA, from `format` and `filters` as numcodecs writes them."""
    layout = integer_field(configuration, "format", _lzma.FORMAT_XZ)
    options: dict[str, Any] = {"format": layout}
    if layout == _lzma.FORMAT_RAW:
        options["filters"] = configuration.get("filters")
    return DecodeStep(
        "lzma",
        _stream_decoder(lambda: _lzma.LZMADecompressor(**options), form.limit, layout != _lzma.FORMAT_RAW),
        form.compressor_output(),
        uses_library=True,
    )


def _stream_decoder(make: Callable[[], Any], limit: int, marked: bool = True) -> DecodeFunction:
    """Return a function that decodes streams one after another, at most `limit` bytes and one.

    `marked`: a stream has a mark at its end.
    """

    def run(data: Data, out: Octets | None) -> Data:
        parts: list[bytes] = []
        total = 0
        rest: Any = data
        while True:
            stream = make()
            part = stream.decompress(rest, limit + 1 - total)
            parts.append(part)
            total += len(part)
            if total > limit:
                raise CodecError(f"the data decodes to more than the {limit} bytes declared")
            if not stream.eof:
                if marked:
                    raise CodecError("the compressed data is truncated")
                break
            rest = stream.unused_data
            if not rest or not rest.strip(b"\0"):
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    return run
