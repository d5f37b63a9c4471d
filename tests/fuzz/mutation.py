"""How is a file made worse, and what may become of it?

A few bytes are changed, numbers are set to what tends to hurt, runs are copied elsewhere, the end
is cut off. Whatever comes of it: the right values or others, or an error of ours, soon; nothing
else. Checksums are believed, or hardly a change would get past them.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from unittest import mock

from anatomy import Matching
from finding import Finding

import insitu
from insitu.errors import FormatError, InsituError
from insitu.formats.hdf5.structures import checksum
from insitu.sources import MemorySource

__all__ = ["LARGEST_SEED", "believed", "disagreement", "mutated", "tried"]

LARGEST_SEED = 64 << 10
"""Of larger files hardly a change hits something that counts."""
MOST_ELEMENTS = 1 << 18
NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 60, (1 << 63) - 1, (1 << 64) - 1)


@contextmanager
def believed() -> Iterator[None]:
    """Believe all checksums."""
    with mock.patch.object(checksum, "lookup3", return_value=Matching()):
        yield


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The bytes of a file, made worse."""
    worse = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        if not worse:
            break
        at = chance.randrange(len(worse))
        way = chance.randrange(8)
        if way < 3:
            worse[at] ^= 1 << chance.randrange(8)
        elif way < 5:
            worse[at] = chance.randrange(256)
        elif way == 5:
            width = chance.choice((1, 2, 4, 8))
            number = chance.choice(NUMBERS) & ((1 << 8 * width) - 1)
            worse[at : at + width] = number.to_bytes(width, "little")
        elif way == 6:
            length = chance.choice((4, 8, 16, 64))
            other = chance.randrange(len(worse))
            worse[at : at + length] = worse[other : other + length]
        elif chance.random() < 0.2:
            del worse[at:]
        else:
            worse[at : at + 8] = at.to_bytes(8, "little")  # an address that leads right here
    return bytes(worse)


def tried(data: bytes) -> str:
    """Scan and read a file in memory; what became of it. Anything but an error of ours, with its
    place, is raised.
    """
    source = MemorySource(data)  # alive as long as it is read
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            insitu.scan(source, decode=False)
        except InsituError as problem:
            _placed(problem)
        try:
            group = insitu.scan(source, errors="warn", decode=False)
        except InsituError:
            return "refused"
        outcome = "read"
        for _, array in group.all_arrays():
            if array.size > MOST_ELEMENTS or array.nbytes > 8 * MOST_ELEMENTS:
                continue
            try:
                insitu.read(array, decode=False)
            except InsituError:
                outcome = "in part"
        return outcome


def _placed(problem: InsituError) -> None:
    """An error says in which file, and damage at which byte of it, and in what."""
    wanted = ("url", "offset", "structure") if isinstance(problem, FormatError) else ("url",)
    missing = [name for name in wanted if name not in problem.place]
    if missing:
        raise AssertionError(f"an error without {', '.join(missing)}: {problem}") from problem


def disagreement(findings: Iterable[Finding]) -> str:
    """What a file says to h5py and not to us; "" if nothing. Which dimension of a damaged file is
    which, everybody may guess.
    """
    wrong = [item for item in findings if item.verdict == "wrong"]
    problems = [
        (item.name, part) for item in wrong for part in item.why.split("; ") if not part.startswith("dimension ")
    ]
    return "\n".join(f"{name}: {part}" for name, part in problems)
