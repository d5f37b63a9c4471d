"""Sources that a saved archive shows twice, as an append of a file that was there already makes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from insitu.model import VirtualGroup
from insitu.references.chunk_places import Called, chunk_places, every_source, join_places
from insitu.references.urls import absolute

__all__ = ["Duplicate", "find_duplicates"]

_MANY = 1 << 20
"""Chunks of an array beyond which not all are looked at."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A source that was added twice."""

    url: str
    reason: str
    """In which array, and where along which dimension."""


def find_duplicates(group: VirtualGroup) -> tuple[Duplicate, ...]:
    """Find sources whose chunks an array shows twice along a dimension. Of very large arrays only the first chunk of each step is looked at."""
    found: dict[str, Duplicate] = {}
    for path, array in group.all_arrays():
        counts = [int(np.prod(tile.chunks.shape, dtype=object)) for tile in array.tiles]
        urls = list(dict.fromkeys(absolute(source.url) for source in every_source([array])))
        if not array.dims or len(urls) >= sum(counts):  # a source for each cell, as in a Zarr store
            continue
        numbers = {url: number for number, url in enumerate(urls)}
        called: Called = {}
        for dim in array.dims:
            corner = sum(counts) > _MANY
            position, key = join_places(chunk_places(array, dim, numbers, called, corner=corner))
            for number, (first, second) in _repeated(position, key).items():
                where = f"{path!r} shows the same steps of it twice along {dim!r}, from {first} and from {second} on"
                found.setdefault(urls[number], Duplicate(urls[number], where))
    return tuple(found.values())


def _repeated(position: npt.NDArray[np.int64], key: npt.NDArray[np.int64]) -> dict[int, tuple[int, int]]:
    """Return the sources all of whose places are shown at several positions, and the first positions of two showings."""
    found: dict[int, tuple[int, int]] = {}
    if not len(key):
        return found
    rows, at = np.unique(key, axis=0, return_inverse=True)
    at = at.reshape(-1)
    low = np.full(len(rows), np.iinfo(np.int64).max)
    high = np.full(len(rows), -1)
    np.minimum.at(low, at, position)
    np.maximum.at(high, at, position)
    starts = np.flatnonzero(np.diff(rows[:, 0], prepend=-1))  # rows are sorted by source
    double = np.logical_and.reduceat(high > low, starts)
    for first in np.flatnonzero(double).tolist():
        of = slice(starts[first], starts[first + 1] if first + 1 < len(starts) else None)
        found[int(rows[starts[first], 0])] = (int(low[of].min()), int(high[of].min()))
    return found
