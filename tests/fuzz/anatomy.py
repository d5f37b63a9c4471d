"""Where in an HDF5 file does which structure begin and end, and which of its numbers lead to
another?

The parser is watched while it scans: every range that it asks for is a structure, every run of
bytes whose checksum it wants is one to its last byte; what has a signature is found without it. A
field is taken for an address where it holds the place of a structure.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from unittest import mock

from numcodecs.jenkins import jenkins_lookup3

import insitu
from insitu.errors import InsituError
from insitu.formats.hdf5.structures import checksum, compiled_metadata, message_cache
from insitu.formats.hdf5.structures.file import FileContext
from insitu.sources import MemorySource

__all__ = ["Anatomy", "Matching", "dissected", "repaired"]

SIGNATURES = re.compile(
    b"\x89HDF\r\n\x1a\n|OHDR|OCHK|TREE|SNOD|HEAP|GCOL|BTHD|BTIN|BTLF|FRHP|FHDB|FHIB|FAHD|FADB|EAHD|EAIB|EASB|EADB|"
    b"SMTB|SMLI|FSHD|FSSE|MDCI"
)
DATA = frozenset({"contiguous data", "chunk"})
LARGEST_SPAN = 4096
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Anatomy:
    """The structures of one file."""

    spans: tuple[tuple[int, int], ...]
    """Where each begins and ends, in order of their beginnings."""
    bounds: tuple[int, ...]
    """Every beginning and end."""
    pointers: tuple[int, ...]
    """Where the address of a structure stands."""
    width: int
    """Bytes of an address."""
    base: int
    """Where address 0 is."""


def dissected(data: bytes) -> Anatomy:
    """Look a file over."""
    found: dict[int, int] = {match.start(): match.start() for match in SIGNATURES.finditer(data)}

    def note(start: int, end: int) -> None:
        if 0 <= start < end <= len(data):
            found[start] = max(found.get(start, start), end)

    files: list[FileContext] = []
    requested = FileContext.range

    def ranged(self: FileContext, address: int, length: int, structure: str) -> tuple[int, int]:
        place = requested(self, address, length, structure)
        if structure not in DATA:
            note(place[0], place[0] + length)
        files[:] = [self]
        return place

    def summed(block: bytes) -> int:
        for place in _places(data, block):
            note(place, place + len(block) + 4)
        return jenkins_lookup3(block, 0)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(FileContext, "range", ranged))
        stack.enter_context(mock.patch.object(checksum, "lookup3", summed))
        stack.enter_context(mock.patch.object(compiled_metadata, "metadata", None))  # which nobody can watch
        scanned(data)
    width, base = (files[0].offset_size, files[0].base) if files else (8, 0)
    spans = tuple(_spans(found, len(data)))
    starts = {start - base for start, _ in spans if start > base}
    inside = {place for start, end in spans for place in range(start, end - width + 1)}
    pointers = tuple(
        place for place in sorted(inside) if int.from_bytes(data[place : place + width], "little") in starts
    )
    return Anatomy(spans, tuple(sorted({bound for span in spans for bound in span})), pointers, width, base)


def _spans(found: dict[int, int], size: int) -> Iterator[tuple[int, int]]:
    for start, following in pairwise([*sorted(found), size]):
        end = found[start] if found[start] > start else min(following, start + LARGEST_SPAN)
        yield start, min(end, size)


def repaired(data: bytes) -> bytes:
    """The file with the checksum that each structure ought to have, as far as the parser gets.

    A change that is noticed by the checksum would be noticed by nothing else.
    """
    whole = bytearray(data)
    for _ in range(ROUNDS):
        wrong: dict[int, bytes] = {}

        def summed(block: bytes, wrong: dict[int, bytes] = wrong) -> int:
            right = jenkins_lookup3(block, 0).to_bytes(4, "little")
            for place in _places(whole, block):
                if whole[place + len(block) : place + len(block) + 4] != right:
                    wrong[place + len(block)] = right
            return Matching()

        with (
            mock.patch.object(checksum, "lookup3", summed),
            mock.patch.object(compiled_metadata, "metadata", None),
            forgetful(),
        ):
            scanned(bytes(whole))
        if not wrong:
            break
        for place, right in wrong.items():
            whole[place : place + 4] = right
    return bytes(whole[: len(data)])


def scanned(data: bytes) -> Any:
    """Scan, whatever comes of it."""
    with warnings.catch_warnings(), forgetful():
        warnings.simplefilter("ignore")
        try:
            return insitu.scan(MemorySource(data), errors="warn", decode=False)
        except InsituError:
            return None


@contextmanager
def forgetful() -> Iterator[None]:
    """Begin and end without what was parsed before: a header that is known is not looked at again,
    nor its checksum.
    """
    message_cache._answers.clear()
    yield
    message_cache._answers.clear()


class Matching(int):
    """A checksum that is always right."""

    def __ne__(self, other: object) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def _places(data: bytes | bytearray, block: bytes) -> Iterator[int]:
    at = data.find(block) if block else -1
    while at >= 0:
        yield at
        at = data.find(block, at + 1)
