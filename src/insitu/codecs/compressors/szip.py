"""Decoder of szip (extended Rice coding), as HDF5 and HDF4 store it.

By libaec (see `aec`). Its szip interface is not used: where scan lines are padded it counts bytes
that a damaged stream never yielded, so that uninitialised memory would be returned as values. What
that interface does besides (padding, byte planes of wide numbers) is done here. HDF5 puts the
decoded size before the data, 4 bytes little-endian.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.compressors.aec import AEC_ANY_BLOCK, AEC_BIG, AEC_PREPROCESS, aec_decoder
from insitu.codecs.configuration import integer_field
from insitu.codecs.libraries import require_function
from insitu.errors import CodecError

__all__ = ["PARAMETERS", "szip", "szip_decoder"]

PARAMETERS = ("options_mask", "pixels_per_block", "bits_per_pixel", "pixels_per_scanline")
NEAREST_NEIGHBOUR, MOST_SIGNIFICANT_FIRST = 32, 16
"""Bits of szip's options (szlib.h)."""
WIDE = (32, 64)
"""Widths (in bits) of numbers whose bytes are coded as planes, one after the other."""
MOST_PIXELS = 1 << 16
AEC_BLOCKS = (8, 16, 32, 64)
"""Block sizes that imagecodecs passes on to libaec; it replaces others by the first of these."""


def szip_decoder(parameters: Mapping[str, int]) -> Callable[[Octets, int], Octets]:
    """Return a function that decodes a stream to a given number of bytes.

    Parameters
    ----------
    parameters
        `options_mask`, `pixels_per_block`, `bits_per_pixel`, `pixels_per_scanline`.

    Raises
    ------
    CodecError
        If the parameters are invalid. The function raises it if the stream is damaged or truncated.
    """
    mask, block, bits, line = (parameters[name] for name in PARAMETERS)
    if not 0 < block <= line <= MOST_PIXELS or not (0 < bits <= 24 or bits in WIDE):
        raise CodecError(
            f"szip parameters are invalid: {bits} bits in blocks of {block} pixels and lines of {line}", codec="szip"
        )
    if block not in AEC_BLOCKS:
        return _small_block_decoder(parameters)
    interval = -(-line // block)
    flags = AEC_ANY_BLOCK
    flags |= AEC_PREPROCESS if mask & NEAREST_NEIGHBOUR else 0
    flags |= AEC_BIG if mask & MOST_SIGNIFICANT_FIRST else 0
    planes = bits // 8 if bits in WIDE else 1
    coded = 8 if bits in WIDE else bits
    pixel = 1 if coded <= 8 else 2 if coded <= 16 else 4
    decode = aec_decoder("szip", coded, flags, block, interval)

    def run(raw: Octets, size: int) -> Octets:
        if size % (planes if planes > 1 else pixel):
            raise CodecError(f"{size} bytes are not a whole number of values of {bits} bits", codec="szip")
        if not size:
            return np.zeros(0, np.uint8)
        padded = interval * block * pixel
        lines = -(-size // (line * pixel))
        needed = size if line % block == 0 else lines * padded
        whole = decode(raw, needed)
        if needed != size:
            whole = whole.reshape(lines, padded)[:, : line * pixel].reshape(-1)[:size]
        return whole if planes == 1 else np.ascontiguousarray(whole.reshape(planes, -1).T).reshape(-1)

    return run


def _small_block_decoder(parameters: Mapping[str, int]) -> Callable[[Octets, int], Octets]:
    """Return a decoder for block sizes that only libaec's szip interface accepts.

    That interface does not return how many bytes it has written. So it writes twice, into buffers
    with different content: bytes that differ afterwards were not written.
    """
    decode = require_function("szip", ("imagecodecs", "szip_decode"))

    def run(raw: Octets, size: int) -> Octets:
        rooms = [np.full(size, filling, np.uint8) for filling in (0x00, 0xA5)]
        for room in rooms:
            found = decode(raw.tobytes(), out=room, **parameters)
            if len(found) != size:
                raise CodecError(f"the stream ends after {len(found)} of {size} bytes", codec="szip")
        if not np.array_equal(rooms[0], rooms[1]):
            raise CodecError(f"the stream ends before the declared {size} bytes", codec="szip")
        return rooms[0]

    return run


def szip(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for HDF5's filter 4, from the parameters of `szip_decoder`."""
    parameters = {name: integer_field(configuration, name) for name in PARAMETERS}
    decode = szip_decoder(parameters)
    limit = form.limit

    def run(data: Data, out: Octets | None) -> Data:
        raw = as_octets(data)
        if raw.size < 4:
            raise CodecError("the data is too short for its length field of 4 bytes")
        size = int.from_bytes(raw[:4].tobytes(), "little")
        if size > limit:
            raise CodecError(f"the data declares {size} bytes, but the chunk has only {limit}")
        return decode(raw[4:], size)

    return DecodeStep("szip", run, form.compressor_output(), uses_library=True)
