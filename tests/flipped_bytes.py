"""The one loop over damaged copies of some bytes: each is read, or refused with an error of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from insitu.errors import InsituError

__all__ = ["read_flipped"]


def read_flipped(data: bytes, places: Iterable[int], flips: Sequence[int], read: Callable[[bytes], Any]) -> int:
    """Read copies of the data in which one byte is flipped; return how many were refused.

    Any other exception than ours is a defect, and is raised.
    """
    refused = 0
    for place in places:
        for flip in flips:
            damaged = bytearray(data)
            damaged[place] ^= flip
            try:
                read(bytes(damaged))
            except InsituError:
                refused += 1
    return refused
