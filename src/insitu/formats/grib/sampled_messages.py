"""Messages of a GRIB file whose headers were read, and what their lengths tell about others.

The length of a message in simple packing follows from its grid, bits and headers: if the length of
another one fits, it has the same grid. In other packings lengths say little, so only messages much
longer or shorter than all that were read are suspicious.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from insitu.errors import InsituError
from insitu.formats.grib.header_keys import FieldDescription, describe
from insitu.formats.grib.message_search import read_messages_at
from insitu.formats.grib.sections import GribField, GribMessage
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.parsing.scheduler import run

__all__ = ["SampledMessages"]

WITHOUT_BITMAP = 255
MOST_BITS = 32
AT_HAND = 384
"""Bytes that usually hold the header of a message."""


class SampledMessages:
    """The messages whose headers were read.

    Parameters
    ----------
    file
        The GRIB file.
    lengths
        Length of each message, by its offset.
    broken
        Called with each message that cannot be read.
    """

    def __init__(self, file: ReadCache, lengths: dict[int, int], broken: Callable[[int, InsituError], None]) -> None:
        self.file, self.lengths, self.broken = file, lengths, broken
        self.messages: dict[int, GribMessage] = {}
        self.tried: set[int] = set()
        self.descriptions: dict[tuple[int, int], FieldDescription] = {}
        """By offset of the message and number of the field."""

    def read(self, offsets: Iterable[int]) -> None:
        """Read the headers of some messages, in one batch."""
        new = [offset for offset in dict.fromkeys(offsets) if offset not in self.tried]
        self.tried.update(new)
        places = [(offset, self.lengths[offset]) for offset in new]
        for message in run(read_messages_at(places, self.file.size, self.broken), self.file) if places else ():
            self.messages[message.offset] = message
            for field in message.fields:
                try:
                    self.descriptions[field.offset, field.number] = describe(field)
                except InsituError as problem:
                    self.broken(field.offset, problem)

    def in_first_bytes(self) -> list[int]:
        """Return messages whose headers are in the first bytes of the file.

        To read them costs nothing.
        """
        known = len(self.file.head)
        return [offset for offset in self.lengths if offset + AT_HAND <= known or known >= self.file.size]

    def grids(self) -> set[bytes]:
        """Return the grids of the messages that were read."""
        return {field.grid for message in self.messages.values() for field in message.fields}

    def find_unexplained(self, lines: dict[int, int]) -> list[int]:
        """Return one message of each kind of length that the messages read so far do not explain.

        `lines`: the length of section 4 of messages, by offset.
        """
        found: dict[int, int] = {}
        for offset, product in lines.items():
            if offset in self.tried:
                continue
            length = self.lengths[offset]
            if not any(_is_likely_length(message, length, product) for message in self.messages.values()):
                found.setdefault(length.bit_length() // 2, offset)
        return list(found.values())

    def grid_of(self, offset: int, product: int) -> GribField | None:
        """Return a field on the grid that a message has by its length.

        None if the length does not tell.
        """
        length = self.lengths[offset]
        fields = {
            message.fields[0].grid: message.fields[0]
            for message in self.messages.values()
            if _length_explained_by(message, length, product) is not False
        }
        return next(iter(fields.values())) if len(fields) == 1 else None


def _length_explained_by(message: GribMessage, length: int, product: int) -> bool | None:
    """Return whether another message of that length can have the grid of this one.

    None if lengths tell nothing.
    """
    packing = message.packing
    if len(packing) < 20 or packing[9:11] != b"\0\0" or message.bitmap != WITHOUT_BITMAP or len(message.fields) > 1:
        return None
    count, bits = int.from_bytes(packing[5:9], "big"), packing[19]
    rest = length - product - (message.length - len(message.fields[0].product) - -(-count * bits // 8))
    if rest < 0 or not count:
        return rest == 0
    return rest * 8 // count <= MOST_BITS and -(-count * (rest * 8 // count) // 8) == rest


def _is_likely_length(message: GribMessage, length: int, product: int) -> bool:
    explained = _length_explained_by(message, length, product)
    return explained if explained is not None else 2 * length >= message.length and length <= 2 * message.length
