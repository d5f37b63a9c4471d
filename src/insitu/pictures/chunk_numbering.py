"""Numbers and names of the files, codecs and packings of a virtual array, for the colours of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from insitu.model.array import VirtualArray
from insitu.model.axis import Indices
from insitu.model.encoding_texts import encoding_text, packing_text
from insitu.model.packing import Packings
from insitu.model.source import Source

__all__ = ["Numbering"]


@dataclass(frozen=True, slots=True, eq=False)
class Numbering:
    """Numbers of the files, encodings and packings of a whole array, the same for every plane of it."""

    codecs: tuple[str, ...]
    """Types and codecs by number, as texts: encodings that differ only in the fill value are one."""
    packings: Packings
    files: Sequence[Source] | None
    """The files by number; None: numbers are looked up in `pools`."""
    pools: tuple[tuple[int, Sequence[Source]], ...]
    """First number and sources of each pool whose sources are computed or fetched when needed."""
    tiles: tuple[tuple[Indices | int, Indices, Indices], ...]
    """For each tile, the numbers of its sources (or what is added to them), encodings, packings."""

    @classmethod
    def of(cls, array: VirtualArray) -> Numbering:
        """Number the files, encodings and packings of an array."""
        codecs: dict[str, int] = {}
        tables, maps = Packings.pool([tile.packings for tile in array.tiles]) if array.tiles else (None, [])
        pools: dict[int, tuple[int, Sequence[Source]]] = {}
        files: dict[Source, int] = {}
        listed = all(isinstance(tile.chunks.sources, (tuple, list)) for tile in array.tiles)
        total, rows = 0, []
        file_maps: dict[int, Indices] = {}
        alive = []  # pools that are made for each access must not give their identity to another
        for tile, packing in zip(array.tiles, maps, strict=True):
            pool = tile.chunks.sources
            alive.append(pool)
            if listed:
                if id(pool) not in file_maps:
                    numbers = [files.setdefault(source, len(files)) for source in pool]
                    file_maps[id(pool)] = np.array(numbers, np.int64)
                source: Indices | int = file_maps[id(pool)]
            else:
                if id(pool) not in pools:
                    pools[id(pool)] = (total, pool)
                    total += len(pool)
                source = pools[id(pool)][0]
            codec = np.array([codecs.setdefault(encoding_text(e), len(codecs)) for e in tile.encodings], np.int64)
            rows.append((source, codec, packing))
        return cls(
            tuple(codecs),
            Packings.of([]) if tables is None else tables,
            tuple(files) if listed else None,
            tuple(pools.values()),
            tuple(rows),
        )

    def name(self, colour: str, number: int) -> str:
        """Return the name of a file, of a `codec` (with its type) or of a packing."""
        if colour == "codec":
            return self.codecs[number]
        return packing_text(self.packings[number]) if colour == "packing" else self.source(number).url

    def source(self, number: int) -> Source:
        """Return a file by its number."""
        if self.files is not None:
            return self.files[number]
        first, pool = next((first, pool) for first, pool in reversed(self.pools) if first <= number)
        return pool[number - first]
