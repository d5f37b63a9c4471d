"""Does the data of a field hold as much as its header says?

ecCodes takes a header at its word: of one that is damaged it writes beyond its memory. So what it is about to do is counted first: in complex packing, references, widths and lengths of the groups, and the bits of
their values, must be there and make up the number of values; images of JPEG 2000 and PNG must have as many pixels.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.form import Octets
from insitu.errors import CodecError

__all__ = ["sizes_checked"]

COMPLEX, DIFFERENCES = 2, 3
"""Templates 5.2 and 5.3."""
JPEG, PNG = (40, 40000), (41, 40010)
MOST_BITS = 32
Unpack = Callable[[Octets, int, int], NDArray[np.float64]]


def sizes_checked(packing: Octets, data: Octets, points: int, unpack: Unpack) -> None:
    """See whether they fit.

    Parameters
    ----------
    packing
        Section 5.
    data
        Section 7 without its head.
    points
        Of the grid: no more values than that.
    unpack
        Gives so many integers of so many bits.

    Raises
    ------
    CodecError
        If they do not.
    """
    head = packing.tobytes()
    template = int.from_bytes(head[9:11], "big")
    if template in (*JPEG, *PNG):
        _pixels_checked(data[:64].tobytes(), int.from_bytes(head[5:9], "big"), template in PNG)
    if template not in (COMPLEX, DIFFERENCES):
        return
    if len(head) < (47 if template == COMPLEX else 49):
        raise CodecError(f"section 5 of template {template} has {len(head)} bytes")
    values, bits, groups = int.from_bytes(head[5:9], "big"), head[19], int.from_bytes(head[31:35], "big")
    at = 0
    if template == DIFFERENCES:
        order, size = head[47], head[48]
        if order not in (1, 2) or not 0 < size <= 4 or values <= order:
            raise CodecError(f"differences of order {order} with {size} bytes")
        at = (order + 1) * size
    if values > points or groups > values or max(bits, head[36], head[46]) > MOST_BITS or (values and not groups):
        raise CodecError(f"{values} values of {points} points in {groups} groups")
    if not groups:
        return

    def taken(width: int) -> NDArray[Any]:
        nonlocal at
        size = -(-groups * width // 8)
        part = data[at : at + size]
        at += size
        if part.size < size:
            raise CodecError("the groups of a complex packing end behind the data")
        return unpack(part, width, groups) if width else np.zeros(groups)

    taken(bits)
    widths = taken(head[36]) + head[35]
    lengths = taken(head[46]) * head[41] + int.from_bytes(head[37:41], "big")
    lengths[-1] = int.from_bytes(head[42:46], "big")
    if float(lengths.sum()) != values or widths.max() > MOST_BITS:
        raise CodecError(f"the groups of a complex packing hold {lengths.sum():.0f} values, not {values}")
    if float((widths * lengths).sum()) > 8.0 * (data.size - at):
        raise CodecError("the values of a complex packing end behind the data")


def _pixels_checked(image: bytes, values: int, png: bool) -> None:
    """Of an image by its header: IHDR of PNG, SIZ of a code stream of JPEG 2000."""
    if png and image[:8] == b"\x89PNG\r\n\x1a\n":
        width, height = struct.unpack_from(">II", image, 16) if len(image) >= 24 else (0, 0)
    elif not png and image[:4] == b"\xff\x4f\xff\x51":
        right, bottom, left, top = struct.unpack_from(">IIII", image, 8) if len(image) >= 24 else (0, 0, 0, 0)
        width, height = right - left, bottom - top
    else:
        return
    if width * height != values:
        raise CodecError(f"an image of {width} x {height} holds {values} values")
