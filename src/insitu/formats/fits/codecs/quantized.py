"""Codec of floats that FITS quantised to integers.

Each tile has a scale and a zero of its own (FITS standard 4.0, section 10.2). With subtractive
dithering, a random number was added before rounding, from a fixed sequence (appendix I) that begins
for each tile at a place of its own; it is subtracted again. Integers that mean "no value" become
NaN.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.configuration import float_field, integer_field
from insitu.errors import CodecError

__all__ = ["dequantize"]

RANDOMS = 10000
ZERO = -2147483646
"""Under the second method of dithering: a pixel that was exactly zero."""


@cache
def _sequence() -> NDArray[np.float32]:
    """Return Park and Miller's random numbers, as in the standard."""
    seed = 1
    values = np.empty(RANDOMS, np.float32)
    for number in range(RANDOMS):
        seed = 16807 * seed % 2147483647
        values[number] = seed / 2147483647.0
    return values


@cache
def _random_numbers(seed: int, count: int) -> NDArray[np.float32]:
    """Return as many random numbers as a tile has pixels."""
    sequence = _sequence()
    parts, have = [], 0
    while have < count:
        first = int(sequence[seed] * np.float32(500))
        parts.append(sequence[first:])
        have += RANDOMS - first
        seed = (seed + 1) % RANDOMS
    return np.concatenate(parts)[:count]


def dequantize(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for rounded floats, from `scale`, `zero`, `blank`, `dither` (0, 1 or 2) and `seed`
    (the tile's place in the sequence).
    """
    scale, zero = float_field(configuration, "scale"), float_field(configuration, "zero")
    dither, seed = integer_field(configuration, "dither", 0), integer_field(configuration, "seed", 0)
    blank = None if configuration.get("blank") is None else integer_field(configuration, "blank")
    dtype, shape, count = form.dtype, form.shape, form.count
    if dtype is None or shape is None or dtype.kind != "f" or dither not in (0, 1, 2) or not 0 <= seed < RANDOMS:
        raise CodecError(f"quantised floats cannot become {dtype}", codec="fits_quantized")
    coded = np.dtype(">i4")

    def run(data: Data, out: Octets | None) -> Data:
        numbers = as_octets(data).view(coded)
        if numbers.size != count:
            raise CodecError(f"the tile has {numbers.size} integers for {count} pixels")
        values = numbers.astype(np.float64)
        if dither:
            values = (values - _random_numbers(seed, count).astype(np.float64) + 0.5) * scale + zero
        else:
            values = values * scale + zero
        if dither == 2:
            values[numbers == ZERO] = 0
        if blank is not None:
            values[numbers == blank] = np.nan
        return values.astype(dtype)

    return DecodeStep("fits_quantized", run, BufferSpec.array(coded, shape))
