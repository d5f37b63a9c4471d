"""Unpack GRIB integers of any number of bits.

Those of one width by imagecodecs, or as machine integers where they are such. Those with a width
for each group are unpacked from the eight bytes at the byte where a number begins, shifted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import Octets
from insitu.codecs.libraries import find_function

__all__ = ["sign_magnitude", "unpack_integers", "unpack_varying_widths"]

AT_ONCE = 1 << 16
"""Numbers that are unpacked together: what fits into the processor's cache."""


def sign_magnitude(data: bytes) -> int:
    """Return an integer in sign-and-magnitude form, as GRIB has them."""
    value = int.from_bytes(data, "big")
    limit = 1 << (8 * len(data) - 1)
    return value if value < limit else limit - value


def unpack_integers(raw: Octets, bits: int, count: int) -> NDArray[np.float64]:
    """Return so many integers of so many bits; `raw` holds at least these."""
    if bits in (8, 16, 32):
        return raw.view(f">u{bits // 8}")[:count].astype(np.float64)
    unpack = find_function("imagecodecs", "packints_decode")
    if unpack is None:
        padded = np.unpackbits(raw, count=count * bits).reshape(count, bits)
        return padded @ (2.0 ** np.arange(bits - 1, -1, -1))
    kind = np.dtype(np.uint8 if bits < 8 else np.uint16 if bits < 16 else np.uint32)
    found: NDArray[Any] = unpack(raw.tobytes(), kind, bits)[:count]
    return found.astype(np.float64)


def unpack_varying_widths(raw: Octets, widths: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the integers of consecutive groups, each of its own width up to 32 bits.

    `raw` holds at least these.
    """
    padded = np.concatenate([raw, np.zeros(8, np.uint8)])
    words: NDArray[Any] = np.ndarray((padded.size - 7,), ">u8", padded, strides=(1,))
    numbers = np.cumsum(lengths)
    starts = np.cumsum(widths * lengths) - widths * lengths
    # A number stands at its group's start, and as many widths behind it as numbers of the group
    # come before.
    base = starts - widths * (numbers - lengths)
    found = np.empty(int(numbers[-1]), np.int64)
    group = 0
    for start in range(0, found.size, AT_ONCE):
        stop = min(start + AT_ONCE, found.size)
        last = int(np.searchsorted(numbers, stop))
        part = slice(group, last + 1)
        ends = np.minimum(numbers[part], stop) - start
        share = np.diff(ends, prepend=0)
        width = np.repeat(widths[part], share)
        at = np.arange(start, stop)
        at *= width
        at += np.repeat(base[part], share)
        taken = words[at >> 3].astype(np.uint64)
        at &= 7
        taken <<= at.view(np.uint64)
        # In two steps: a shift by 64 bits is no shift at all.
        taken >>= np.uint64(1)
        taken >>= (63 - width).view(np.uint64)
        found[start:stop] = taken.view(np.int64)
        group = last
    return found
