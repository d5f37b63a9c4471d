"""Decode complex packing of GRIB 2, with and without spatial differences.

Numbers are in groups, each with a reference, a width and a length. The highest number of a width,
and the one below it, may say that a value is missing. With differences, the first one or two values
stand in front, with the least of the differences, and all others are sums. Everything a header
counts is compared with the bytes that are there before memory is spent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import Octets
from insitu.errors import CodecError
from insitu.formats.grib.codecs.packed_integers import sign_magnitude, unpack_integers, unpack_varying_widths

__all__ = ["COMPLEX", "DIFFERENCES", "unpack_groups"]

COMPLEX, DIFFERENCES = 2, 3
"""Templates 5.2 and 5.3."""
HEAD = {COMPLEX: 47, DIFFERENCES: 49}
"""Bytes of section 5."""
MOST_BITS = 32
MISSING_BITS = 30
"""Most bits with numbers for missing values: beyond, ecCodes and others disagree."""
NO_MISSING, TWO_MISSING = 0, 2


def unpack_groups(packing: bytes, data: Octets, count: int) -> NDArray[np.float64] | None:
    """Return the numbers of a field before scaling, NaN where one is missing.

    None if ecCodes has to decode it.

    Parameters
    ----------
    packing
        Section 5; its number of bits, the width of the references, may be zero.
    data
        Section 7 without its head.
    count
        Of numbers.

    Raises
    ------
    CodecError
        If the groups do not make up the field, or end behind the data.
    """
    template = int.from_bytes(packing[9:11], "big")
    if len(packing) < HEAD[template]:
        raise CodecError(f"section 5 of template {template} has only {len(packing)} bytes")
    bits, missing, groups = packing[19], packing[22], int.from_bytes(packing[31:35], "big")
    order = size = 0
    if template == DIFFERENCES:
        order, size = packing[47], packing[48]
        if order not in (1, 2) or not 0 < size <= 4 or count <= order:
            raise CodecError(f"differences of order {order} with {size} bytes are not valid")
    at = (order + 1) * size if order else 0
    if not groups:  # ecCodes takes it for a field of one value
        return None
    if not 0 < groups <= count or max(bits, packing[36], packing[46]) > MOST_BITS:
        raise CodecError(f"{count} values cannot lie in {groups} groups")

    def take(width: int) -> NDArray[np.int64]:
        nonlocal at
        room = -(-groups * width // 8)
        part = data[at : at + room]
        at += room
        if part.size < room:
            raise CodecError("the groups of a complex packing exceed the data")
        return unpack_integers(part, width, groups).astype(np.int64) if width else np.zeros(groups, np.int64)

    references = take(bits)
    widths = take(packing[36]) + packing[35]
    lengths = take(packing[46]) * packing[41] + int.from_bytes(packing[37:41], "big")
    lengths[-1] = int.from_bytes(packing[42:46], "big")
    # Each one too: many lengths could make up any sum.
    if int(lengths.max()) > count or int(lengths.sum()) != count or int(widths.max()) > MOST_BITS:
        raise CodecError(f"the groups of a complex packing hold {int(lengths.sum())} values, not {count}")
    if int((widths * lengths).sum()) > 8 * (data.size - at):
        raise CodecError("the values of a complex packing exceed the data")
    if missing > TWO_MISSING or (missing and max(bits, int(widths.max())) > MISSING_BITS):
        return None
    numbers = unpack_varying_widths(data[at:], widths, lengths)
    gaps = None
    if missing != NO_MISSING:
        # Where a group has no bits, its reference says that all of it is missing.
        all_missing = (widths == 0) & (references >= (1 << bits) - missing)
        least = np.where(widths == 0, 1, (1 << widths) - missing)
        gaps = (numbers >= np.repeat(least, lengths)) | np.repeat(all_missing, lengths)
    numbers += np.repeat(references, lengths)
    if order:
        extra = [data[place : place + size].tobytes() for place in range(0, (order + 1) * size, size)]
        first, bias = [int.from_bytes(part, "big") for part in extra[:-1]], sign_magnitude(extra[-1])
        if gaps is None:
            _undo_differences(numbers, first, bias)
        else:
            present = numbers[~gaps]
            _undo_differences(present, first, bias)
            numbers[~gaps] = present
    values = numbers.astype(np.float64)
    if gaps is not None:
        values[gaps] = np.nan
    return values


def _undo_differences(numbers: NDArray[np.int64], first: list[int], bias: int) -> None:
    """Undo differences of the first or second order."""
    order = len(first)
    numbers[:order] = first[: numbers.size]
    if numbers.size <= order:
        return
    numbers[order:] += bias
    if order == 2:
        numbers[1] -= numbers[0]
        np.cumsum(numbers[1:], out=numbers[1:])
    np.cumsum(numbers, out=numbers)
