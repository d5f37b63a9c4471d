"""Which messages of a file have been looked at, and what else may the length of one tell?

A message in simple packing has as many bytes as its grid, its bits and its headers demand: of another one whose length fits, the grid is known. In other packings lengths
say little, so only one that is much longer or shorter than all that were looked at raises suspicion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from insitu.errors import InsituError
from insitu.formats.grib.header_keys import Told, describe
from insitu.formats.grib.message_search import at_places
from insitu.formats.grib.sections import Field, Message
from insitu.formats.parsing.read_cache import Window
from insitu.formats.parsing.scheduler import run

__all__ = ["Looks"]

WITHOUT_BITMAP = 255
MOST_BITS = 32
AT_HAND = 384
"""Bytes of a message that must be in memory for its header to be there, as a rule."""


class Looks:
    """The messages that were looked at.

    Parameters
    ----------
    file
        The GRIB file.
    lengths
        Of each message, by its offset.
    broken
        Is told of each message that cannot be taken.
    """

    def __init__(self, file: Window, lengths: dict[int, int], broken: Callable[[int, InsituError], None]) -> None:
        self.file, self.lengths, self.broken = file, lengths, broken
        self.messages: dict[int, Message] = {}
        self.tried: set[int] = set()
        self.descriptions: dict[tuple[int, int], Told] = {}
        """By offset of the message and number of the field."""

    def read(self, offsets: Iterable[int]) -> None:
        """Look at some, in one batch."""
        new = [offset for offset in dict.fromkeys(offsets) if offset not in self.tried]
        self.tried.update(new)
        places = [(offset, self.lengths[offset]) for offset in new]
        for message in run(at_places(places, self.file.size, self.broken), self.file) if places else ():
            self.messages[message.offset] = message
            for field in message.fields:
                try:
                    self.descriptions[field.offset, field.number] = describe(field)
                except InsituError as problem:
                    self.broken(field.offset, problem)

    def in_first_bytes(self) -> list[int]:
        """Messages whose headers came with the first bytes of the file: to look at them costs nothing."""
        known = len(self.file.head)
        return [offset for offset in self.lengths if offset + AT_HAND <= known or known >= self.file.size]

    def grids(self) -> set[bytes]:
        """The grids that were seen."""
        return {field.grid for message in self.messages.values() for field in message.fields}

    def unexplained(self, lines: dict[int, int]) -> list[int]:
        """Of messages with their length of section 4: one of each kind of length that those looked at do not explain."""
        found: dict[int, int] = {}
        for offset, product in lines.items():
            if offset in self.tried:
                continue
            length = self.lengths[offset]
            if not any(_fits(message, length, product) for message in self.messages.values()):
                found.setdefault(length.bit_length() // 2, offset)
        return list(found.values())

    def grid_of(self, offset: int, product: int) -> Field | None:
        """A field on the grid that a message has by its length; None if that does not tell."""
        length = self.lengths[offset]
        fields = {
            message.fields[0].grid: message.fields[0]
            for message in self.messages.values()
            if _explains(message, length, product) is not False
        }
        return next(iter(fields.values())) if len(fields) == 1 else None


def _explains(message: Message, length: int, product: int) -> bool | None:
    """Whether another message of that length can be on the grid of this one; None: its length tells nothing."""
    packing = message.packing
    if len(packing) < 20 or packing[9:11] != b"\0\0" or message.bitmap != WITHOUT_BITMAP or len(message.fields) > 1:
        return None
    count, bits = int.from_bytes(packing[5:9], "big"), packing[19]
    rest = length - product - (message.length - len(message.fields[0].product) - -(-count * bits // 8))
    if rest < 0 or not count:
        return rest == 0
    return rest * 8 // count <= MOST_BITS and -(-count * (rest * 8 // count) // 8) == rest


def _fits(message: Message, length: int, product: int) -> bool:
    explained = _explains(message, length, product)
    return explained if explained is not None else 2 * length >= message.length and length <= 2 * message.length
