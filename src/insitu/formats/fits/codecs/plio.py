"""Codec of IRAF's pixel lists (FITS's PLIO_1).

A row of small integers as 16-bit words: an instruction of four bits and a count of twelve (FITS
standard 4.0, section 10.4.4; the lists of IRAF's package plio). A few words make a row of thousands
of pixels, so plain Python is fast enough.
"""

from __future__ import annotations

import numpy as np

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.errors import CodecError

__all__ = ["plio"]

ZEROS, SET_HIGH, INCREMENT, DECREMENT, RUN, ZEROS_AND_ONE, STEP_UP_ONE, STEP_DOWN_ONE = 0, 1, 2, 3, 4, 5, 6, 7


def plio(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for a pixel list."""
    dtype, count = form.dtype, form.count
    if dtype is None or dtype.kind not in "iu":
        raise CodecError(f"pixel lists cannot become {dtype}", codec="fits_plio")

    def run(data: Data, out: Octets | None) -> Data:
        raw = as_octets(data)
        if raw.size < 6 or raw.size % 2:
            raise CodecError(f"a pixel list cannot have {raw.size} bytes")
        words = raw.view(">i2").astype(np.int64).tolist()
        values = np.zeros(count, np.int64)
        _walk(words, values)
        return values.astype(dtype)

    return DecodeStep("fits_plio", run, form.compressor_output(4))


def _walk(words: list[int], values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    """Fill in the pixels."""
    # The third word is the length of an old list, else minus the length of the header; then the
    # length is in words four and five.
    if words[2] > 0:
        length, at = words[2], 3
    elif len(words) >= 5:
        length, at = (words[4] << 15) + words[3], words[1]
    else:
        raise CodecError("the pixel list ends within its header")
    if at < 3 or not 0 <= length <= len(words):
        raise CodecError(f"the pixel list has {len(words)} words, {length} are declared")
    place, high, count = 0, 1, values.size
    while at < length and place < count:
        word = words[at] & 0xFFFF
        what, much = word >> 12, word & 0x0FFF
        at += 1
        if what in (ZEROS, RUN, ZEROS_AND_ONE):
            end = min(place + much, count)
            if what == RUN:
                values[place:end] = high
            elif what == ZEROS_AND_ONE and much and place + much <= count:
                values[end - 1] = high
            place = end
        elif what == SET_HIGH:
            if at >= length:
                raise CodecError("the pixel list ends within an instruction")
            high = (words[at] << 12) + much
            at += 1
        elif what in (INCREMENT, DECREMENT):
            high += much if what == INCREMENT else -much
        elif what in (STEP_UP_ONE, STEP_DOWN_ONE):
            high += much if what == STEP_UP_ONE else -much
            values[place] = high
            place += 1
        else:
            raise CodecError(f"{what} is not an instruction of a pixel list")
