"""An entry of an archive, and the source that shows its bytes as a file of its own.

An uncompressed entry is a name and a range of bytes. `EntrySource` shows that range as a source.
What a scan finds in it is moved back to where it lies in the archive (`shift_offsets`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from insitu.codecs.registry import OUTSIDE_VALUES
from insitu.errors import UnsupportedError
from insitu.model import Codec, Columns, Encoding, SparseTable, Tile, VirtualArray, VirtualGroup
from insitu.sources.protocol import ByteSource, Range, WrappedSource

__all__ = ["ArchiveEntry", "EntrySource", "shift_offsets"]


class ArchiveEntry(NamedTuple):
    """A file in an archive."""

    name: str
    offset: int
    """Of its bytes in the archive; -1: not known before its local header is read."""
    length: int
    problem: str = ""
    """Why its bytes cannot be read by range; empty: they can."""
    header: int = -1
    """Offset of the local header."""


class EntrySource(WrappedSource):
    """A range of a source, seen as a source of its own."""

    def __init__(self, source: ByteSource, entry: ArchiveEntry) -> None:
        super().__init__(source)
        self.entry = entry

    @property
    def url(self) -> str:
        """URL of the archive and name of the entry."""
        return f"{self.source.url}::{self.entry.name}"

    def size(self) -> int:
        """Bytes in the entry."""
        return self.entry.length

    def read(self, offset: int, length: int) -> bytes:
        """One range."""
        return self.source.read(*self._to_archive_range(offset, length))

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Many ranges."""
        return self.source.read_many([self._to_archive_range(*one) for one in ranges])

    def _to_archive_range(self, offset: int, length: int) -> Range:
        offset = min(offset, self.entry.length)
        return self.entry.offset + offset, max(min(length, self.entry.length - offset), 0)

    def close(self) -> None:
        """Do nothing: the archive belongs to the caller."""


def shift_offsets(tree: VirtualGroup, offset: int, own: str) -> VirtualGroup:
    """Return what was found in an entry with offsets that count from the beginning of the archive,
    whose URL is `own`.
    """

    def shift(name: str, array: VirtualArray) -> VirtualArray:
        return replace(array, tiles=tuple(_shift_tile(tile, offset, own) for tile in array.tiles))

    return tree.map_arrays(shift)


def _shift_tile(tile: Tile, offset: int, own: str) -> Tile:
    encodings = tuple(_shift_encoding(encoding, offset) for encoding in tile.encodings)
    chunks = tile.chunks
    if not isinstance(chunks, (Columns, SparseTable)):
        raise UnsupportedError(f"chunk tables of type {type(chunks).__name__} are not supported in an archive")
    elsewhere = [source.url for source in chunks.sources if source.url != own]
    if any("::" in url for url in elsewhere):
        raise UnsupportedError(
            f"the data lies in another member of the archive, which is not supported: {elsewhere[0]}"
        )
    if elsewhere and len(elsewhere) == len(chunks.sources):
        return replace(tile, encodings=encodings)
    if elsewhere:
        raise UnsupportedError("the data lies partly in an archive and partly outside, which is not supported")
    if (chunks.source < 0).all():
        return replace(tile, encodings=encodings)
    places = np.where(chunks.source >= 0, chunks.offset.astype(np.int64) + offset, chunks.offset)
    return replace(tile, encodings=encodings, chunks=replace(chunks, offset=places))


def _shift_encoding(encoding: Encoding, offset: int) -> Encoding:
    """Shift the addresses that chunks hold (HDF5 values of varying length).

    They count from the beginning of the entry.
    """
    if not any(codec.name in OUTSIDE_VALUES for codec in encoding.codecs):
        return encoding
    return replace(encoding, codecs=tuple(_shift_codec(codec, offset) for codec in encoding.codecs))


def _shift_codec(codec: Codec, offset: int) -> Codec:
    if codec.name not in OUTSIDE_VALUES:
        return codec
    configuration: dict[str, Any] = dict(codec.configuration)
    return Codec(codec.name, {**configuration, "base_address": int(configuration.get("base_address", 0)) + offset})
