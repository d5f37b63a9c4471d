"""Read the headers of a FITS file: a chain of header-data units (HDUs).

A header is text: cards of 80 characters, `KEYWORD = value / comment`, in blocks of 2880 bytes, up
to one that says END. The data follow, filled up to a whole block. "Definition of the Flexible Image
Transport System", version 4.0, sections 3 and 4. A header tells where the next unit begins, so the
data are never read.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from insitu.errors import FormatError
from insitu.formats.parsing.read_cache import ReadCache

__all__ = ["BLOCK", "HeaderDataUnit", "is_fits", "read_units"]

BLOCK, CARD = 2880, 80
MOST_BLOCKS = 4096
"""Most blocks of one header: 11 MiB, some hundred thousand cards."""
MOST_AXES = 999

_IN_KEYWORD = re.compile("[A-Za-z0-9_-]")
_TEXT = re.compile(r"'((?:[^']|'')*)'")
_PAIR = re.compile(r"\(\s*([^,\s]+)\s*,\s*([^,\s]+)\s*\)")


@dataclass(slots=True)
class HeaderDataUnit:
    """One header-data unit."""

    number: int
    offset: int
    """Of its header."""
    data: int
    """Of its data."""
    cards: dict[str, Any]
    """Keyword → value; the first of a keyword that occurs twice."""
    notes: dict[str, list[str]] = field(default_factory=dict)
    """COMMENT and HISTORY."""
    damaged: set[str] = field(default_factory=set)
    """Keywords whose value cannot be parsed; it is None."""

    @property
    def kind(self) -> str:
        """IMAGE, BINTABLE, TABLE, or whatever an extension calls itself."""
        return "IMAGE" if self.number == 0 else str(self.cards.get("XTENSION", "")).strip()

    @property
    def name(self) -> str:
        """Name of the unit, as astropy shows it."""
        name = str(self.cards.get("EXTNAME", "")).strip().upper()
        return name or ("PRIMARY" if self.number == 0 else f"HDU{self.number}")

    @property
    def axes(self) -> tuple[int, ...]:
        """NAXIS1, NAXIS2, …: the fastest varying first."""
        return tuple(self.whole(f"NAXIS{i + 1}") for i in range(self.whole("NAXIS", most=MOST_AXES)))

    @property
    def nbytes(self) -> int:
        """Bytes of the data, without what fills up the last block (section 3.1, equation 1 and 2)."""
        bits, axes = self.whole("BITPIX", least=-64, most=64), self.axes
        if not axes:
            return 0
        if axes[0] == 0 and self.card("GROUPS") is True:
            axes = axes[1:]  # random groups
        groups, extra = self.whole("GCOUNT", 1), self.whole("PCOUNT", 0)
        return abs(bits) // 8 * groups * (extra + math.prod(axes))

    def whole(self, keyword: str, default: int | None = None, *, least: int = 0, most: int = 2**62) -> int:
        """Return an integer that must exist, or has a default."""
        value = self.cards.get(keyword, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise FormatError(f"{keyword} has the invalid value {value!r}", offset=self.offset, structure="FITS header")
        return value

    def card(self, keyword: str) -> Any:
        """Return a value; None if it is missing or not defined.

        One that cannot be parsed raises: without it, the data would be other ones.
        """
        if keyword in self.damaged:
            raise FormatError(f"the value of {keyword} cannot be parsed", offset=self.offset, structure="FITS header")
        return self.cards.get(keyword)

    def number_of(self, keyword: str, default: float | None = None) -> Any:
        """Return a number, or a default if it is missing or not defined."""
        value = self.card(keyword)
        if value is None:
            return default
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise FormatError(f"{keyword} has the invalid value {value!r}", offset=self.offset, structure="FITS header")
        return value


def is_fits(window: ReadCache) -> bool:
    """Return whether a file begins as FITS does."""
    return window.head.startswith(b"SIMPLE  =")


def read_units(window: ReadCache) -> tuple[list[HeaderDataUnit], str]:
    """Return the units of a file, and why the chain ended early (empty if it did not)."""
    units: list[HeaderDataUnit] = []
    offset = 0
    while offset < window.size:
        if offset and not _bytes(window, offset, 9).startswith(b"XTENSION="):
            break  # special records, or filling: not a unit
        try:
            unit = _unit(window, offset, len(units))
            nbytes = unit.nbytes
        except FormatError as problem:
            if not units:
                raise
            return units, str(problem)
        units.append(unit)
        offset = unit.data + -(-nbytes // BLOCK) * BLOCK
    if not units:
        raise FormatError("the file has no FITS header", offset=0, structure="FITS header")
    return units, ""


def _bytes(window: ReadCache, offset: int, length: int) -> bytes:
    """Return a range, less at the end of the file."""
    ranges = [(offset, min(length, window.size - offset))]
    at_hand = window.peek_many(ranges)
    return (window.fetch([ranges])[0] if at_hand is None else at_hand)[0]


def _unit(window: ReadCache, offset: int, number: int) -> HeaderDataUnit:
    """Read one header."""
    unit = HeaderDataUnit(number, offset, offset, {})
    pending: str | None = None
    for block in range(MOST_BLOCKS):
        at = offset + block * BLOCK
        data = _bytes(window, at, BLOCK) if at < window.size else b""
        if len(data) < CARD:
            raise FormatError("the file is truncated within a header", offset=at, structure="FITS header")
        for start in range(0, len(data) - CARD + 1, CARD):
            card = data[start : start + CARD].decode("latin-1")
            keyword = card[:8].rstrip().upper()  # some writers forget
            if keyword.startswith("END") and not _IN_KEYWORD.match(card, 3):  # as in astropy, whatever follows it
                unit.data = at + BLOCK
                return unit
            if keyword == "CONTINUE" and pending is not None:
                _continue(unit, pending, card[8:])
                continue
            pending = _card(unit, keyword, card) or pending
    raise FormatError("the header has no END card", offset=offset, structure="FITS header")


def _card(unit: HeaderDataUnit, keyword: str, card: str) -> str | None:
    """Add one card; return its keyword if its text may continue in the next."""
    if keyword in ("COMMENT", "HISTORY", ""):
        if keyword and card[8:].strip():
            unit.notes.setdefault(keyword, []).append(card[8:].rstrip())
        return None
    if card[8:10] == "= ":
        text = card[10:]
    elif keyword == "HIERARCH" and "=" in card:  # ESO's longer keywords
        name, _, text = card[8:].partition("=")
        keyword = name.strip()
    else:
        return None
    value = _value(text)
    if keyword not in unit.cards:
        unit.cards[keyword] = value
        if value is None and text.partition("/")[0].strip():
            unit.damaged.add(keyword)
    return keyword if isinstance(value, str) else None


def _continue(unit: HeaderDataUnit, keyword: str, rest: str) -> None:
    """Append to a text that is longer than a card: every part but the last ends in an ampersand."""
    found, before = _TEXT.search(rest), unit.cards.get(keyword)
    if found and isinstance(before, str) and before.endswith("&"):
        unit.cards[keyword] = before[:-1] + found[1].replace("''", "'").rstrip()


def _value(text: str) -> Any:
    """Parse a value, section 4.2.

    Text in quotes, T or F, an integer, a float (its exponent may be a D), a complex number.
    """
    text = text.strip()
    if text.startswith("'"):
        found = _TEXT.match(text)
        return found[1].replace("''", "'").rstrip() if found else None
    text = text.partition("/")[0].strip()
    if text in ("T", "F"):
        return text == "T"
    try:
        if re.fullmatch(r"[-+]?\d+", text):
            return int(text)
        if pair := _PAIR.fullmatch(text):
            return complex(_float(pair[1]), _float(pair[2]))
        return _float(text)
    except ValueError:
        return None


def _float(text: str) -> float:
    if "_" in text:
        raise ValueError(text)
    return float(text.upper().replace("D", "E"))
