"""Decode the common packings of GRIB without ecCodes.

Simple, complex with and without differences, IEEE, JPEG 2000, PNG, CCSDS, and constant fields.
Scaling is the same sum in the same order as in ecCodes, so that the bits agree. All other fields
are left to ecCodes, in a subprocess.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import Octets
from insitu.errors import CodecError
from insitu.formats.grib.codecs.complex_packing import COMPLEX, DIFFERENCES, unpack_groups
from insitu.formats.grib.codecs.image_packing import CCSDS, JPEG, PNG, unpack_image
from insitu.formats.grib.codecs.packed_integers import sign_magnitude, unpack_integers
from insitu.formats.grib.codecs.packed_sections import FieldSections

__all__ = ["needs_eccodes", "values_of"]

SIMPLE, IEEE, SPECTRAL_SIMPLE, SPECTRAL_COMPLEX, BIFOURIER, LOGARITHMS = 0, 4, 50, 51, 53, 61
MOST_BITS = 32
SCALES = 400
"""Largest valid powers of two and ten: beyond, values leave the range of a double."""


KNOWN_TEMPLATES = (SIMPLE, COMPLEX, DIFFERENCES, CCSDS, *JPEG, *PNG)
"""Templates of section 5 of GRIB 2 that begin alike."""


class PackingHeader(NamedTuple):
    """How the numbers of a field are packed."""

    template: int
    reference: float
    binary: int
    decimal: int
    bits: int
    numbers: int
    """Number of values; GRIB 1 does not give it: as many as the data holds, and at most one for each point."""


def values_of(parts: FieldSections, count: int) -> NDArray[np.float64] | None:
    """Return the values of a field, NaN where its bitmap has none.

    None if ecCodes has to decode it.

    Parameters
    ----------
    parts
        The sections of the field.
    count
        Points that it must have.

    Raises
    ------
    CodecError
        If it is damaged.
    """
    header = _read_edition2(parts) if parts.edition == 2 else _read_edition1(parts, count)
    valid = None
    if parts.bitmap is not None:
        valid = _bitmap(parts.bitmap, parts.edition, count)
    if header is None:
        _check_size(parts, _count_bits(parts))
        return None
    if header.numbers > count:
        raise CodecError(f"the message holds {header.numbers} values, not {count}")
    values = _numbers(parts, header)
    if values is None or (parts.edition == 2 and parts.points != count) or (valid is None and parts.bitmap is not None):
        return None
    expected = count if valid is None else int(np.count_nonzero(valid))
    # As ecCodes has it: without values everything is missing, and values that the bitmap has no place for are passed
    # over.
    if header.numbers < expected and (header.numbers or valid is None):
        raise CodecError(f"the message holds {header.numbers} values, not {expected}")
    if valid is None:
        return values
    full = np.full(count, np.nan)
    if header.numbers:
        full[valid] = values[:expected]
    return full


def needs_eccodes(edition: int, packing: bytes) -> bool:
    """Return whether ecCodes decodes a packing, as far as the first bytes of its section tell.

    Parameters
    ----------
    edition
        Of GRIB.
    packing
        The beginning of section 5, in GRIB 1 of section 4; empty if it is not known.
    """
    if edition == 1:
        return len(packing) >= 4 and bool(packing[3] & 0xF0)
    return len(packing) >= 11 and int.from_bytes(packing[9:11], "big") not in (IEEE, *KNOWN_TEMPLATES)


def _numbers(parts: FieldSections, header: PackingHeader) -> NDArray[np.float64] | None:
    """Return all values that a message holds; None if ecCodes has to decode them.

    That the data is as long as these values need is checked in any case: ecCodes would read on behind its end.
    """
    count, packing = header.numbers, parts.packing.tobytes()
    if header.template == IEEE:
        return _ieee(parts, count)
    # Not so in complex packing: there it is the width of the groups' references, and the groups
    # hold numbers all the same.
    if (header.bits == 0 and header.template not in (COMPLEX, DIFFERENCES)) or not count:
        # Without scales, as ecCodes has it.
        return np.full(count, header.reference) if np.isfinite(header.reference) else None
    values: NDArray[np.float64] | None = None
    if header.template == SIMPLE:
        _check_size(parts, count * header.bits)
        if header.bits <= MOST_BITS:
            values = unpack_integers(parts.data[: -(-count * header.bits // 8)], header.bits, count)
    elif header.template in (COMPLEX, DIFFERENCES):
        values = unpack_groups(packing, parts.data, count)
    elif header.bits <= MOST_BITS:
        values = unpack_image(header.template, packing, parts.data, header.bits, count)
    if values is None or not np.isfinite(header.reference) or max(abs(header.binary), abs(header.decimal)) > SCALES:
        return None
    # In this order: ecCodes does the same, and the bits must agree.
    with np.errstate(over="ignore", invalid="ignore"):
        values *= _eccodes_power(header.binary, 2)
        values += header.reference
        values *= _eccodes_power(-header.decimal, 10)
    return values


@cache
def _eccodes_power(exponent: int, number: int) -> float:
    """Return a power as ecCodes computes it, which is not always the nearest double."""
    found = 1.0
    for _ in range(abs(exponent)):
        found = found * number if exponent > 0 else found / number
    return found


def _ieee(parts: FieldSections, count: int) -> NDArray[np.float64] | None:
    """Return the numbers of GRIB 2, template 5.4: IEEE floats."""
    size = {1: 4, 2: 8}.get(int(parts.packing[11]))
    if size is None or parts.data.size > size * count:
        return None
    _check_size(parts, 8 * size * count)
    return parts.data.view(f">f{size}").astype(np.float64)


def _read_edition2(parts: FieldSections) -> PackingHeader | None:
    """Return the packing of GRIB 2, section 5: these templates begin alike."""
    packing = parts.packing.tobytes()
    template, count = int.from_bytes(packing[9:11], "big"), int.from_bytes(packing[5:9], "big")
    if template == IEEE and len(packing) >= 12:
        return PackingHeader(template, 0.0, 0, 0, 0, count)
    if template not in KNOWN_TEMPLATES or len(packing) < 20:
        return None
    reference = float(np.frombuffer(packing, ">f4", 1, 11)[0])
    return PackingHeader(
        template, reference, sign_magnitude(packing[15:17]), sign_magnitude(packing[17:19]), packing[19], count
    )


def _read_edition1(parts: FieldSections, count: int) -> PackingHeader | None:
    """Return the packing of GRIB 1: a grid in simple packing, without further flags."""
    packing = parts.packing.tobytes()
    if len(packing) < 11 or packing[3] & 0xF0:
        return None
    reference = int.from_bytes(packing[7:10], "big") * 16.0 ** ((packing[6] & 0x7F) - 70)
    reference = -reference if packing[6] & 0x80 else reference
    decimal = sign_magnitude(parts.product[26:28].tobytes())
    bits = packing[10]
    # The lower half of octet 4: bits at the end that belong to no value.
    numbers = (8 * parts.data.size - (packing[3] & 0x0F)) // bits if bits else count
    return PackingHeader(SIMPLE, reference, sign_magnitude(packing[4:6]), decimal, bits, min(numbers, count))


def _bitmap(bitmap: Octets, edition: int, count: int) -> NDArray[np.bool_] | None:
    """Return which points have a value.

    None if the bitmap is a predefined one, which only its centre knows.
    """
    known = bitmap[5] == 0 if edition == 2 else not bitmap[4:6].any()
    bits = bitmap[6:]
    if not known:
        return None
    if bits.size * 8 < count:
        raise CodecError(f"the bitmap has {bits.size} bytes, too few for {count} points")
    return np.unpackbits(bits, count=count).view(np.bool_)


def _check_size(parts: FieldSections, bits: int) -> None:
    """Raise if the data has fewer bits than its header declares.

    ecCodes would read on behind its end.
    """
    if bits > 8 * parts.data.size:
        raise CodecError(f"the data has {parts.data.size} bytes, but its header declares {-(-bits // 8)}")


def _count_bits(parts: FieldSections) -> int:
    """Return the bits of data that ecCodes reads, of packings that are left to it; 0 if only the data says it."""
    packing, grid = parts.packing.tobytes(), parts.grid.tobytes()
    if parts.edition == 1:
        # Spherical harmonics: the first ones are floats of four bytes, behind the rest of the head.
        if packing[3] & 0xF0 != 0xC0 or parts.data.size < 7 or len(grid) < 8:
            return 0
        order = int.from_bytes(grid[6:8], "big")
        return 8 * 7 + _spectral_bits((order + 1) * (order + 2), int(parts.data[4]), 4, packing[10])
    template, numbers = (int.from_bytes(packing[at : at + size], "big") for at, size in ((9, 2), (5, 4)))
    bits = packing[19] if len(packing) > 19 else 0
    if template == LOGARITHMS:
        return numbers * bits
    if template == SPECTRAL_SIMPLE:
        return (numbers - 1) * bits
    if template in (SPECTRAL_COMPLEX, BIFOURIER) and len(packing) > 34:
        size = 8 if packing[34] == 2 else 4
        if template == BIFOURIER:
            unpacked = int.from_bytes(packing[30:34], "big")
            return 8 * size * unpacked + (numbers - unpacked) * bits // 8 * 8
        return _spectral_bits(numbers, int.from_bytes(packing[24:26], "big"), size, bits)
    return 0


def _spectral_bits(numbers: int, order: int, size: int, bits: int) -> int:
    """Return the bits of spherical harmonics, of which those up to an order are floats.

    ecCodes leaves out the last bits where they do not fill a byte.
    """
    floats = (order + 1) * (order + 2)
    return 8 * size * floats + (numbers - floats) * bits // 8 * 8
