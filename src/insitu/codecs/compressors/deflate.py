"""Decoders of deflate streams: zlib, gzip and raw.

By libdeflate (of imagecodecs, or linked into the kernels), which needs the size beforehand and is
about nine times as fast as the standard library (3.0 against 0.33 GB/s on shuffled floats); else by
isal, else by zlib.
"""

from __future__ import annotations

import zlib as _zlib
from typing import Any

import numpy as np

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeFunction, DecodeStep, Octets
from insitu.codecs.growing_buffer import decode_growing, decode_streams
from insitu.codecs.libraries import find_function
from insitu.codecs.linked_libraries import find_decompress

__all__ = ["deflate", "gzip", "zlib"]


def zlib(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for the zlib format (RFC 1950), HDF5's filter 1."""
    return _make_step("zlib", form, _zlib.MAX_WBITS)


def gzip(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for the gzip format (RFC 1952), of one or more members."""
    return _make_step("gzip", form, _zlib.MAX_WBITS + 16)


def deflate(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for a raw stream (RFC 1951)."""
    return _make_step("deflate", form, -_zlib.MAX_WBITS)


def _make_step(name: str, form: BufferSpec, window: int) -> DecodeStep:
    return DecodeStep(name, _make_decoder(form, window), form.compressor_output(), fills=form.exact, uses_library=True)


def _make_decoder(form: BufferSpec, window: int) -> DecodeFunction:
    members = window > _zlib.MAX_WBITS
    fast = find_function("imagecodecs", "gzip_decode" if members else "deflate_decode")
    linked = find_decompress("zlib") if fast is None and window == _zlib.MAX_WBITS else None
    options: dict[str, Any] = {} if members else {"raw": window < 0}
    limit = form.limit

    def into(data: Data, out: Octets | None) -> Data:
        if out is None:
            if fast is None or members:
                return _inflate_stream(data, window, limit)
            return decode_growing(lambda room: fast(data, out=room, **options), 4 * len(data), limit)
        if fast is not None:
            filled: Data = fast(data, out=out, **options)
            if len(filled) == limit:
                return out
            if not members:
                return filled
        elif linked is not None and out.size and linked(data, out):
            return out
        # Libdeflate stops after the first member of a gzip file, or is not installed.
        whole = _inflate_stream(data, window, limit)
        if len(whole) == limit:
            out[:] = np.frombuffer(whole, np.uint8)
            return out
        return whole

    return into


def _inflate_stream(data: Data, window: int, limit: int) -> bytes:
    """Inflate any number of gzip members, or one stream of another format."""
    make = find_function("isal.isal_zlib", "decompressobj") or _zlib.decompressobj
    members = window > _zlib.MAX_WBITS
    # Bytes after a gzip member that do not start another one are padding.
    return decode_streams(lambda: make(wbits=window), data, limit, lambda rest: members and rest[:2] == b"\x1f\x8b")
