"""What is a column of a table of text?

Such a table (XTENSION TABLE; section 7.2) is rows of letters: TBCOLn says where a column begins, TFORMn how wide it is and what it spells: texts (A), integers (I), or floats (F, E, D). Their types are those of astropy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from insitu.errors import FormatError
from insitu.formats.fits.header import Unit
from insitu.model import Codec

__all__ = ["Column", "spelled"]

WIDEST = 1 << 16


@dataclass(frozen=True, slots=True)
class Column:
    """A piece of every row."""

    name: str
    skip: int
    """Bytes of the row before it."""
    nbytes: int
    dtype: np.dtype[Any] | None
    """None: not read; `problem` says why."""
    shape: tuple[int, ...]
    """Of one row's elements."""
    codecs: tuple[Codec, ...]
    attributes: dict[str, Any]
    problem: str = ""


def spelled(unit: Unit, number: int, name: str, skip: int) -> Column:
    """A column of a table of text; `skip` is where the one before ended."""
    form = re.fullmatch(r"\s*([AIFED])(\d+)(?:\.\d+)?(?:E\d+)?\s*", str(unit.cards.get(f"TFORM{number}", "")).upper())
    width = int(form[2]) if form else 0
    begin = unit.whole(f"TBCOL{number}", skip + 1, least=1, most=1 << 31) - 1
    if form is None or not 0 < width <= WIDEST:
        raise FormatError(f"TFORM{number} is {unit.cards.get(f'TFORM{number}')!r}", url=unit.url, offset=unit.offset)
    text = unit.cards.get(f"TUNIT{number}")
    attributes: dict[str, Any] = {"units": text} if text else {}
    if form[1] == "A":
        return Column(name, begin, width, np.dtype(f"S{width}"), (), (Codec("fits_text"),), attributes)
    said: dict[str, Any] = {"width": width}
    null = unit.cards.get(f"TNULL{number}")
    scale, zero = (unit.number_of(f"{word}{number}", default) for word, default in (("TSCAL", 1.0), ("TZERO", 0.0)))
    if form[1] == "I":
        dtype: np.dtype[Any] = np.dtype("i2" if width <= 4 else "i4" if width <= 9 else "i8")
        if null is not None:
            said |= {"null": str(null), "missing": int(np.iinfo(dtype).min)}
            attributes["_FillValue"] = dtype.type(np.iinfo(dtype).min)
    else:
        dtype = np.dtype("f8")
        said |= {"null": str(null)} if null is not None else {}
    if (scale, zero) != (1.0, 0.0):
        attributes |= {"scale_factor": scale, "add_offset": zero}
    return Column(name, begin, width, dtype, (), (Codec("fits_digits", said),), attributes)
