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
from insitu.formats.grib.codecs.complex_packing import COMPLEX, DIFFERENCES, unpack_groups
from insitu.formats.grib.codecs.image_packing import CCSDS, JPEG, PNG, unpack_image
from insitu.formats.grib.codecs.packed_integers import sign_magnitude, unpack_integers
from insitu.formats.grib.codecs.packed_sections import FieldSections

__all__ = ["needs_eccodes", "values_of"]

SIMPLE, IEEE = 0, 4
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
    """Number of values; -1: not given."""


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
    told = _read_edition2(parts) if parts.edition == 2 else _read_edition1(parts)
    if told is None or not np.isfinite(told.reference):
        return None
    if parts.edition == 2 and parts.points != count:
        return None
    valid = None
    if parts.bitmap is not None:
        valid = _bitmap(parts.bitmap, parts.edition, count)
        if valid is None:
            return None
    wanted = count if valid is None else int(np.count_nonzero(valid))
    if not wanted or told.numbers not in (-1, wanted):
        return None
    values = _numbers(parts, told, wanted)
    if values is None or valid is None:
        return values
    full = np.full(count, np.nan)
    full[valid] = values
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


def _numbers(parts: FieldSections, told: PackingHeader, wanted: int) -> NDArray[np.float64] | None:
    if told.template == IEEE:
        return _ieee(parts, wanted)
    # Not so in complex packing: there it is the width of the groups' references, and the groups
    # hold numbers all the same.
    if told.bits == 0 and told.template not in (COMPLEX, DIFFERENCES):  # without scales, as ecCodes has it
        return np.full(wanted, told.reference)
    if max(abs(told.binary), abs(told.decimal)) > SCALES or told.bits > MOST_BITS:
        return None
    if told.template == SIMPLE:
        raw = parts.data[: -(-wanted * told.bits // 8)]
        if raw.size * 8 < wanted * told.bits:
            return None
        values: NDArray[np.float64] | None = unpack_integers(raw, told.bits, wanted)
    elif told.template in (COMPLEX, DIFFERENCES):
        values = unpack_groups(parts.packing.tobytes(), parts.data, wanted)
    else:
        values = unpack_image(told.template, parts.packing.tobytes(), parts.data, told.bits, wanted)
    if values is None:
        return None
    # In this order: ecCodes does the same, and the bits must agree.
    with np.errstate(over="ignore", invalid="ignore"):
        values *= _eccodes_power(told.binary, 2)
        values += told.reference
        values *= _eccodes_power(-told.decimal, 10)
    return values


@cache
def _eccodes_power(exponent: int, number: int) -> float:
    """Return a power as ecCodes computes it, which is not always the nearest double."""
    found = 1.0
    for _ in range(abs(exponent)):
        found = found * number if exponent > 0 else found / number
    return found


def _ieee(parts: FieldSections, wanted: int) -> NDArray[np.float64] | None:
    """Return the numbers of GRIB 2, template 5.4: IEEE floats."""
    size = {1: 4, 2: 8}.get(int(parts.packing[11]))
    if size is None or parts.data.size != size * wanted:
        return None
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


def _read_edition1(parts: FieldSections) -> PackingHeader | None:
    """Return the packing of GRIB 1: a grid in simple packing, without further flags."""
    packing = parts.packing.tobytes()
    if len(packing) < 11 or packing[3] & 0xF0:
        return None
    reference = int.from_bytes(packing[7:10], "big") * 16.0 ** ((packing[6] & 0x7F) - 70)
    reference = -reference if packing[6] & 0x80 else reference
    decimal = sign_magnitude(parts.product[26:28].tobytes())
    return PackingHeader(SIMPLE, reference, sign_magnitude(packing[4:6]), decimal, packing[10], -1)


def _bitmap(bitmap: Octets, edition: int, count: int) -> NDArray[np.bool_] | None:
    """Return which points have a value.

    None if the bitmap is a predefined one, which only its centre knows.
    """
    known = bitmap[5] == 0 if edition == 2 else not bitmap[4:6].any()
    bits = bitmap[6:]
    if not known or bits.size * 8 < count:
        return None
    return np.unpackbits(bits, count=count).view(np.bool_)
