"""Decode GRIB 2 fields that are packed as an image or a CCSDS stream.

JPEG 2000 (templates 5.40 and 40000), PNG (41 and 40010) and CCSDS (42) by imagecodecs, into memory
of the size that the field must have: what an image declares is compared with it before.
"""

from __future__ import annotations

import struct
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import Octets
from insitu.codecs.compressors.aec import AEC_BIG, AEC_SIGNED, AEC_THREE_BYTES, aec_decoder, has_aec
from insitu.codecs.compressors.images import decode_png
from insitu.codecs.libraries import find_function
from insitu.errors import CodecError, InsituError

__all__ = ["CCSDS", "JPEG", "PNG", "unpack_image"]

CCSDS = 42
JPEG, PNG = (40, 40000), (41, 40010)
GREY, COLOURS, WITH_ALPHA = 0, 2, 6
"""Colour types of PNG: numbers of three and four bytes are stored as colours."""
MOST_DEPTH = 23
"""Most bits of JPEG 2000, less one: no more than 24 bits have been compared with ecCodes."""
_IHDR = struct.Struct(">IIBB")
_SIZ = struct.Struct(">IIII16xHBBB")


def unpack_image(template: int, packing: bytes, data: Octets, bits: int, count: int) -> NDArray[np.float64] | None:
    """Return the numbers of a field before scaling; None if ecCodes has to decode it.

    Parameters
    ----------
    template
        One of those above.
    packing
        Section 5.
    data
        Section 7 without its head.
    bits
        Of each number, not zero.
    count
        Of numbers.

    Raises
    ------
    CodecError
        If the data is damaged, or holds another number of them.
    UnsupportedError
        If a library cannot decode an image of this size.
    """
    try:
        if template == CCSDS:
            return _ccsds(packing, data, bits, count)
        return _png(data.tobytes(), bits, count) if template in PNG else _jpeg(data.tobytes(), count)
    except InsituError:
        raise
    except (RuntimeError, ValueError) as problem:
        raise CodecError(f"the data of the field is damaged: {problem}") from problem


def _png(image: bytes, bits: int, count: int) -> NDArray[np.float64] | None:
    if image[:8] != b"\x89PNG\r\n\x1a\n" or image[12:16] != b"IHDR" or len(image) < 33:
        raise CodecError("the data of the field is not a PNG image")
    width, height, depth, colour = _IHDR.unpack_from(image, 16)
    _check_size(width, height, count)
    size = -(-bits // 8)
    if (colour, depth, size) not in ((GREY, 8, 1), (GREY, 16, 2), (COLOURS, 8, 3), (WITH_ALPHA, 8, 4)):
        raise CodecError(f"a PNG image of colour type {colour} and depth {depth} cannot hold numbers of {bits} bits")
    decode = find_function("imagecodecs", "png_decode")
    if decode is None or b"tRNS" in image:
        return None
    kind = np.dtype(np.uint16 if size == 2 else np.uint8)
    found: NDArray[Any] = np.asarray(decode_png(decode, image, (height, width)))
    if found.dtype != kind or found.size != count * (size if size > 2 else 1):
        return None
    if size <= 2:
        return found.reshape(-1).astype(np.float64)
    places = found.reshape(count, size).astype(np.uint32) << (8 * np.arange(size - 1, -1, -1, dtype=np.uint32))
    return np.asarray(places.sum(axis=1, dtype=np.uint32), np.float64)


def _jpeg(image: bytes, count: int) -> NDArray[np.float64] | None:
    if image[:4] != b"\xff\x4f\xff\x51" or len(image) < 43:
        return None
    right, bottom, left, top, components, depth, across, down = _SIZ.unpack_from(image, 8)
    _check_size(right - left, bottom - top, count)
    decode = find_function("imagecodecs", "jpeg2k_decode")
    # The first bit of the depth: signed. What is subsampled has fewer numbers.
    if decode is None or components != 1 or depth > MOST_DEPTH or across != 1 or down != 1:
        return None
    found = np.asarray(decode(image, numthreads=1))
    if found.size != count or found.dtype.kind != "u":
        return None
    return found.reshape(-1).astype(np.float64)


def _check_size(width: int, height: int, count: int) -> None:
    if width <= 0 or height <= 0 or width * height != count:
        raise CodecError(f"an image of {width} x {height} pixels cannot hold {count} values")


def _ccsds(packing: bytes, data: Octets, bits: int, count: int) -> NDArray[np.float64] | None:
    if len(packing) < 25:
        raise CodecError(f"section 5 of template {CCSDS} has only {len(packing)} bytes")
    flags, block, interval = packing[21], packing[22], int.from_bytes(packing[23:25], "big")
    if not has_aec() or flags & AEC_SIGNED or block not in (8, 16, 32, 64) or not 0 < interval <= 4096:
        return None
    # In machine words, as ecCodes takes them.
    kind = np.dtype({1: np.uint8, 2: np.uint16}.get(-(-bits // 8), np.uint32))
    flags &= ~(AEC_THREE_BYTES | AEC_BIG)
    if sys.byteorder == "big":
        flags |= AEC_BIG
    try:
        found = aec_decoder("grib", bits, flags, block, interval)(data, count * kind.itemsize)
    except RuntimeError:
        return None
    return found.view(kind).astype(np.float64)
