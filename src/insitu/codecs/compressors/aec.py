"""Decoder of adaptive entropy coding (CCSDS 121.0), which szip and GRIB 2 use, by libaec in imagecodecs.

A stream that yields less than was declared is an error. The bytes that it yielded are counted here: imagecodecs, given
an array of wider numbers, returns as many elements as there are bytes, so that memory that was never written is taken
for values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from insitu.codecs.buffer_spec import Octets
from insitu.codecs.libraries import find, need
from insitu.errors import CodecError

__all__ = ["AEC_ANY_BLOCK", "AEC_BIG", "AEC_PREPROCESS", "AEC_SIGNED", "AEC_THREE_BYTES", "aec_decoder", "has_aec"]

AEC_SIGNED, AEC_THREE_BYTES, AEC_BIG, AEC_PREPROCESS, AEC_ANY_BLOCK = 1, 2, 4, 8, 64
"""Flags of libaec."""


def has_aec() -> bool:
    """Whether the library is there."""
    return find("imagecodecs", "aec_decode") is not None


def aec_decoder(codec: str, bits: int, flags: int, block: int, interval: int) -> Callable[[Octets, int], Octets]:
    """Return a function that decodes a stream to so many bytes.

    Parameters
    ----------
    codec
        For messages.
    bits
        Of a number; it takes 1, 2 or 4 bytes.
    flags
        Those above.
    block
        Numbers of a block.
    interval
        Blocks between two numbers that are not predicted.
    """
    decode = need(codec, ("imagecodecs", "aec_decode"))
    width = 1 if bits <= 8 else 2 if bits <= 16 else 4
    together = block * interval * width
    options: dict[str, Any] = {"bitspersample": bits, "flags": flags, "blocksize": block, "rsi": interval}

    def run(raw: Octets, size: int) -> Octets:
        # The library goes on to the end of what is coded together, and one further, where the last byte is not full.
        room = bytearray((-(-size // together) + 1) * together)
        found: memoryview = decode(raw.tobytes(), out=room, **options)
        if len(found) < size:
            raise CodecError(f"the stream ends after {len(found)} of {size} bytes", codec=codec)
        return np.frombuffer(found, np.uint8)[:size]

    return run
