"""What does an element hold that was never written?

Fill value messages, old (IV.A.2.e) and new (IV.A.2.f, versions 1 to 3), of format specification 3.0.
"""

from __future__ import annotations

from dataclasses import dataclass

from insitu.errors import FormatError

__all__ = ["Fill", "parse_fill", "parse_old_fill"]


@dataclass(frozen=True, slots=True)
class Fill:
    """The fill value of a dataset."""

    value: bytes | None
    """One element, as stored; None: zeros."""
    state: str
    """user, default (zeros), undefined (whatever was there; read as zeros), or untold (a value that the model has no word for: only
    datasets without gaps can be taken)."""


def parse_old_fill(body: bytes) -> Fill:
    """Parse an old fill value message: a size and a value."""
    size = int.from_bytes(body[:4], "little")
    return Fill(_value(body, 4, size), "user") if size else Fill(None, "default")


def parse_fill(body: bytes) -> Fill:
    """Parse a fill value message."""
    version = body[0]
    if version in (1, 2):
        defined, at = bool(body[3]), 4
        undefined = not defined
    elif version == 3:
        defined, undefined, at = bool(body[1] & 0x20), bool(body[1] & 0x10), 2
    else:
        raise FormatError(f"fill value message of version {version}", structure="fill value")
    if undefined:
        return Fill(None, "undefined")
    size = int.from_bytes(body[at : at + 4], "little") if defined else 0
    return Fill(_value(body, at + 4, size), "user") if size else Fill(None, "default")


def _value(body: bytes, at: int, size: int) -> bytes:
    if at + size > len(body):
        raise FormatError("the fill value is longer than its message", structure="fill value")
    return body[at : at + size]
