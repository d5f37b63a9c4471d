"""Cache of how variables were decoded, from file to file.

Files of one archive are alike. What a variable's attributes mean is decided once: the next file
with the same attributes takes the same packing, attributes and encoding, and, if its bytes are the
same too, the same labels. No chunk tables are kept, so a cache is small.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.lru import LruCache
from insitu.model import ArrayDetails, Encoding, Packing, Packings, VirtualArray
from insitu.reading.small_arrays import ChunkBytes

__all__ = ["DecodingCache", "RememberedVariable", "cache_of_thread"]

GROUPS_PER_THREAD = 4
BYTES_PER_GROUP = 1 << 20


@dataclass(slots=True)
class RememberedVariable:
    """A variable of an earlier file, and how it was decoded."""

    given: Mapping[str, Any]
    """Its attributes in the file."""
    shape: tuple[int, ...]
    stored: np.dtype[Any]
    dims: tuple[str, ...]
    encodings: tuple[Encoding, ...]
    details: ArrayDetails
    blocks: ChunkBytes | None
    """Its bytes, if decoding depends on them."""
    dtype: np.dtype[Any]
    """Of the decoded values."""
    attributes: Mapping[str, Any]
    """As decoded."""
    encoding: Mapping[str, Any]
    packings: Packings
    packing: Packing
    """The same, of the values that were read."""
    is_packed: bool
    """Whether the packing changes any value."""
    joined: bool
    """Whether characters were joined to texts."""
    values: npt.NDArray[Any] | None = None
    """Labels."""

    def is_like(self, array: VirtualArray) -> bool:
        """Return whether an array of one tile is stored like this one."""
        return (
            self.stored == array.dtype
            and self.dims == array.dims
            and self.encodings == array.tiles[0].encodings
            and self.details == array.details
        )

    @property
    def weight(self) -> int:
        """Bytes of its values."""
        return sum(map(len, self.blocks or ())) + (0 if self.values is None else self.values.nbytes)


@dataclass(slots=True)
class DecodingCache:
    """Decisions about the variables of one group."""

    max_bytes: int | None = None
    """Most bytes of values that are kept; None: those of one file, whatever they are."""
    repeats_warnings: bool = False
    """Whether every file gives its warnings: what gave one is not decoded like before."""
    variables: dict[str, RememberedVariable] = field(default_factory=dict)
    shared: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Attributes and encodings."""
    names: frozenset[str] = frozenset()
    named: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], frozenset[str]]] = field(default_factory=dict)
    """Name: attributes and encoding as last decoded, and the coordinates that the variable names.
    """
    groups: dict[str, DecodingCache] = field(default_factory=dict)
    """Of the groups below, by path, where files are scanned with all their groups."""

    def of_group(self, path: str) -> DecodingCache:
        """Return the cache of a group; of the root, this one."""
        return self.groups.setdefault(path, DecodingCache(self.max_bytes, self.repeats_warnings)) if path else self

    def remember(self, name: str, variable: RememberedVariable) -> None:
        """Keep how a variable was decoded, unless its values are too many."""
        self.variables.pop(name, None)
        if self.max_bytes is not None and variable.weight:
            used = sum(one.weight for one in self.variables.values() if one.blocks is not None)
            if used + variable.weight > self.max_bytes:
                return
        self.variables[name] = variable


class _ThreadCaches(threading.local):
    """The caches of one thread, by the names of the variables."""

    def __init__(self) -> None:
        self.by_names: LruCache[frozenset[str], DecodingCache] = LruCache(GROUPS_PER_THREAD)


_caches = _ThreadCaches()


def cache_of_thread(names: Iterable[str]) -> DecodingCache:
    """Return what this thread remembers of groups with variables of these names.

    Files are often scanned one by one, in a loop. Only for the usual options of decoding.
    """
    key = frozenset(names)
    cache = _caches.by_names.get(key)
    if cache is None:
        cache = DecodingCache(BYTES_PER_GROUP, repeats_warnings=True)
        _caches.by_names.put(key, cache)
    return cache
