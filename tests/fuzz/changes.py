"""Which changes of a file get past its outer walls?

Those that keep the file in shape: they hit structures and not the space between, lengths and counts
where there are some, addresses so that they lead to another structure (round in a circle, if it is
one that leads back), the end of the file at the end of a structure. A change is four small numbers,
so hypothesis can draw it and make it simpler; what they mean depends on the file.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from anatomy import Anatomy, repaired

__all__ = ["WAYS", "Change", "any_changes", "changed"]

LARGE = (
    1 << 60,
    (1 << 32) - 1,
    (1 << 63) - 1,
    (1 << 64) - 1,
    1 << 32,
    1 << 24,
    5_000_000,
    0xFFFF,
    0x8000,
    255,
    128,
    0,
    1,
    2,
)
WAYS = 8
MOST = 1 << 16


class Change(NamedTuple):
    """One change."""

    way: int
    """Below `WAYS`."""
    where: int
    """Which structure, field or bound."""
    at: int
    """Which place in it."""
    what: int
    """Which value."""


def any_changes(chance: random.Random) -> list[Change]:
    """Some changes."""
    count = chance.choice((1, 1, 1, 1, 2, 3))
    return [Change(chance.randrange(WAYS), *(chance.randrange(MOST) for _ in range(3))) for _ in range(count)]


def changed(data: bytes, anatomy: Anatomy, changes: Sequence[Change], *, repair: bool = True) -> bytes:
    """The file with some changes, and with checksums that are right."""
    worse = bytearray(data)
    for change in changes:
        _apply(worse, anatomy, change)
    return repaired(bytes(worse)) if repair else bytes(worse)


def _apply(worse: bytearray, anatomy: Anatomy, change: Change) -> None:
    way, where, at, what = change
    start, end = anatomy.spans[where % len(anatomy.spans)]
    place = start + at % max(end - start, 1)
    if way == 0:
        _cut(worse, anatomy, anatomy.bounds[where % len(anatomy.bounds)] + at % 3 - 1, in_superblock=bool(what & 1))
    elif way == 1:
        _put(worse, place, (_number(worse, place, 1) ^ 1 << what % 8).to_bytes(1, "little"))
    elif way == 2:
        _put(worse, place, bytes([what % 256]))
    elif way in (3, 4):
        _put_number(
            worse, _field(worse, start, end, at), LARGE[what % len(LARGE)], (1, 2, 4, 8)[what // len(LARGE) % 4]
        )
    elif way == 5:  # a little more, or a little less
        width = (1, 2, 4, 8)[what % 4]
        field = _field(worse, start, end, at)
        _put_number(worse, field, _number(worse, field, width) + (1, -1, 2, 8, -8, 64)[what // 4 % 6], width)
    elif anatomy.pointers and way == 6:
        field = anatomy.pointers[at % len(anatomy.pointers)]
        _put_number(worse, field, anatomy.spans[where % len(anatomy.spans)][0] - anatomy.base, anatomy.width)
    elif way == 7:  # one structure in the place of another
        other, length = anatomy.spans[what % len(anatomy.spans)]
        _put(worse, start, bytes(worse[other : min(length, other + end - start)]))


def _cut(worse: bytearray, anatomy: Anatomy, length: int, *, in_superblock: bool) -> None:
    """End the file here; `in_superblock`: which says so, too; else nothing behind it is looked at."""
    if not 0 <= length < len(worse):
        return
    size = len(worse)
    del worse[length:]
    if in_superblock:
        head = worse[anatomy.base : anatomy.base + 128]
        at = head.find((size - anatomy.base).to_bytes(anatomy.width, "little"))
        if at < 0:
            at = head.find(size.to_bytes(anatomy.width, "little"))
        if at >= 0:
            _put_number(worse, anatomy.base + at, length, anatomy.width)


def _field(worse: bytearray, start: int, end: int, at: int) -> int:
    """A place in a structure where a number begins, most likely: behind a zero, and no zero."""
    body = worse[start:end]
    begins = [start + i for i in range(len(body)) if body[i] and (i == 0 or not body[i - 1] or i % 4 == 0)]
    return begins[at % len(begins)] if begins else start


def _number(worse: bytearray, place: int, width: int) -> int:
    return int.from_bytes(worse[place : place + width], "little")


def _put_number(worse: bytearray, place: int, number: int, width: int) -> None:
    _put(worse, place, (number % (1 << 8 * width)).to_bytes(width, "little"))


def _put(worse: bytearray, place: int, block: bytes) -> None:
    """Overwrite, never lengthen."""
    block = block[: max(len(worse) - place, 0)]
    worse[place : place + len(block)] = block
