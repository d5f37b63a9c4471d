"""The one loop over damaged copies of some bytes: each is read, or refused with an error of ours."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import insitu
from insitu.errors import InsituError, InsituWarning
from insitu.sources import MemorySource

__all__ = [
    "ONE_BIT",
    "count_refused",
    "cut",
    "flip",
    "flip_each",
    "flip_one",
    "peak_of_reading",
    "read_all",
    "written_to",
]

ONE_BIT = tuple(1 << bit for bit in range(8))
LARGEST = 1 << 20
"""Bytes of an array that is read: damage may declare any shape."""


def flip_one(data: bytes, place: int, bits: int) -> bytes:
    """Return the data with some bits of one byte inverted."""
    damaged = bytearray(data)
    damaged[place] ^= bits
    return bytes(damaged)


def flip_each(data: bytes, places: Iterable[int], flips: Sequence[int]) -> Iterator[bytes]:
    """Yield a copy for each place and each pattern of bits."""
    return (flip_one(data, place, bits) for place in places for bits in flips)


def flip(data: bytes, places: Iterable[int], flips: Sequence[int], seed: int = 0) -> Iterator[bytes]:
    """Yield a copy for each place, with one of the patterns of bits."""
    random = Random(seed)
    return (flip_one(data, place, random.choice(flips)) for place in places)


def cut(data: bytes, lengths: Iterable[int]) -> Iterator[bytes]:
    """Yield the first bytes of the data, for each length."""
    return (data[:length] for length in lengths)


def count_refused(damaged: Iterable[bytes], read: Callable[[bytes], Any]) -> int:
    """Read each copy; return how many were refused.

    Any other exception than ours is a defect, and is raised. Warnings of ours are expected.
    """
    refused = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InsituWarning)
        for data in damaged:
            try:
                read(data)
            except InsituError:
                refused += 1
    return refused


def read_all(source: Any, **options: Any) -> dict[str, Any]:
    """Scan a source, or bytes, and read every array of it that is small."""
    if isinstance(source, bytes):
        source = MemorySource(source)  # found again by its URL while it lives
    arrays = insitu.scan(source, decode=False, **options).all_arrays()
    return {name: insitu.read(array, decode=False) for name, array in arrays if array.nbytes < LARGEST}


def written_to(path: Path, read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
    """Return a reader of bytes that writes them to the path first."""

    def write_and_read(data: bytes) -> Any:
        path.write_bytes(data)
        return read(path)

    return write_and_read


def peak_of_reading(data: bytes) -> int:
    """Return the most memory that it takes to scan a file and to read its small arrays, or to refuse it."""
    tracemalloc.start()
    try:
        group = insitu.scan(MemorySource(data), decode=False)
        for path, array in group.all_arrays():
            if array.nbytes <= LARGEST:
                insitu.read(group, path, decode=False)
    except InsituError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak
