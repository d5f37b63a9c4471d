"""Decoder of adaptive entropy coding (CCSDS 121.0) by libaec, used by szip and GRIB 2.

A stream that yields fewer bytes than declared is an error. The bytes are counted here: imagecodecs,
given an array of wider numbers, returns as many elements as there are bytes, so that memory that
was never written would be taken for values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from insitu.codecs.buffer_spec import Octets
from insitu.codecs.libraries import find_function, require_function
from insitu.errors import CodecError

__all__ = ["AEC_ANY_BLOCK", "AEC_BIG", "AEC_PREPROCESS", "AEC_SIGNED", "AEC_THREE_BYTES", "aec_decoder", "has_aec"]

AEC_SIGNED, AEC_THREE_BYTES, AEC_BIG, AEC_PREPROCESS, AEC_ANY_BLOCK = 1, 2, 4, 8, 64
"""Flags of libaec."""


def has_aec() -> bool:
    """Return whether libaec is installed."""
    return find_function("imagecodecs", "aec_decode") is not None


def aec_decoder(codec: str, bits: int, flags: int, block: int, interval: int) -> Callable[[Octets, int], Octets]:
    """Return a function that decodes a stream to a given number of bytes.

    Parameters
    ----------
    codec
        Name for error messages.
    bits
        Bits of a number; it takes 1, 2 or 4 bytes.
    flags
        Flags of libaec, see above.
    block
        Numbers per block.
    interval
        Blocks between two numbers that are not predicted.
    """
    decode = require_function(codec, ("imagecodecs", "aec_decode"))
    width = 1 if bits <= 8 else 2 if bits <= 16 else 4
    together = block * interval * width
    options: dict[str, Any] = {"bitspersample": bits, "flags": flags, "blocksize": block, "rsi": interval}

    def run(raw: Octets, size: int) -> Octets:
        # The library writes whole reference intervals, and one more if the last byte is not full.
        room = bytearray((-(-size // together) + 1) * together)
        found: memoryview = decode(raw.tobytes(), out=room, **options)
        if len(found) < size:
            raise CodecError(f"the stream ends after {len(found)} of {size} bytes", codec=codec)
        return np.frombuffer(found, np.uint8)[:size]

    return run
