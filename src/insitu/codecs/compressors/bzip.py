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
from insitu.codecs.growing_buffer import decode_streams

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
    """Return a function that decodes streams one after another; `marked`: a stream has a mark at its end."""

    def run(data: Data, out: Octets | None) -> Data:
        return decode_streams(make, data, limit, lambda rest: bool(rest.strip(b"\0")), marked=marked)

    return run
