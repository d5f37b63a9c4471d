"""Parsers of the HTTP headers that tell sizes, ranges and dates; invalid values give None, never an
exception.
"""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from functools import lru_cache

__all__ = ["CONTENT_RANGE", "parse_date", "parse_number"]

DIGITS = 19
"""Of a number of bytes; more are no number of bytes, and Python refuses to parse some thousand."""
_NUMBER = rf"[0-9]{{1,{DIGITS}}}"
CONTENT_RANGE = re.compile(rf"\s*bytes\s+(?:({_NUMBER})\s*-\s*({_NUMBER})|\*)\s*/\s*({_NUMBER}|\*)\s*", re.IGNORECASE)
"""`Content-Range` (RFC 9110, section 14.4): first and last byte, if any are sent, and the size or
`*`.
"""


def parse_number(text: str | None) -> int | None:
    """Return a number of bytes; None if the text is not one.

    Examples
    --------
    >>> parse_number(" 12 "), parse_number("-1"), parse_number("9" * 5000), parse_number(None)
    (12, None, None, None)
    """
    text = "" if text is None else text.strip()
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= DIGITS else None


@lru_cache(64)
def parse_date(text: str | None) -> float | None:
    """Return the seconds since 1970 of an HTTP date; None if the text is not one.

    Examples
    --------
    >>> parse_date("Thu, 01 Jan 1970 00:01:00 GMT"), parse_date("yesterday")
    (60.0, None)
    """
    if text is None:
        return None
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
