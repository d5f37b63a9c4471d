"""What is a member of an archive, and how is it seen as a file of its own?

A name and a range of bytes, if it is not compressed. `Part` shows that range of the archive as a source; what a scan finds in it is moved back to where it lies in the archive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from insitu.errors import UnsupportedError
from insitu.model import Codec, Columns, Encoding, Source, Sparse, Tile, VirtualArray, VirtualGroup
from insitu.sources.protocol import ByteSource, Range

__all__ = ["Member", "Part", "moved"]


class Member(NamedTuple):
    """A file in an archive."""

    name: str
    offset: int
    """Of its bytes in the archive."""
    length: int
    hidden: str = ""
    """Why its bytes cannot be read by range, if so."""


class Part:
    """A range of a source, seen as a source of its own. Whoever opened the archive closes it."""

    def __init__(self, source: ByteSource, member: Member) -> None:
        self._source, self._member = source, member

    @property
    def url(self) -> str:
        """The archive's, and the member's name."""
        return f"{self._source.url}::{self._member.name}"

    def size(self) -> int:
        """Bytes in the member."""
        return self._member.length

    def read(self, offset: int, length: int) -> bytes:
        """One range."""
        return self._source.read(*self._placed(offset, length))

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Many ranges."""
        return self._source.read_many([self._placed(*wanted) for wanted in ranges])

    def _placed(self, offset: int, length: int) -> Range:
        offset = min(offset, self._member.length)
        return self._member.offset + offset, max(min(length, self._member.length - offset), 0)

    def describe(self) -> Source:
        """What identifies the archive: a member has nothing of its own."""
        return self._source.describe()

    def close(self) -> None:
        """Nothing: the archive is not ours."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        pass


def moved(tree: VirtualGroup, offset: int) -> VirtualGroup:
    """What was found in a member, with offsets in the archive."""
    return VirtualGroup(
        {name: _array(array, offset) for name, array in tree.arrays.items()},
        {name: moved(group, offset) for name, group in tree.groups.items()},
        tree.attributes,
        tree.details,
        tree.problems,
    )


def _array(array: VirtualArray, offset: int) -> VirtualArray:
    return replace(array, tiles=tuple(_tile(tile, offset) for tile in array.tiles))


def _tile(tile: Tile, offset: int) -> Tile:
    encodings = tuple(_encoding(encoding, offset) for encoding in tile.encodings)
    chunks = tile.chunks
    if isinstance(chunks, Columns):
        if (chunks.source < 0).all():
            return replace(tile, encodings=encodings)
        places = np.where(chunks.source >= 0, chunks.offset.astype(np.int64) + offset, chunks.offset)
        return replace(tile, encodings=encodings, chunks=replace(chunks, offset=places))
    if isinstance(chunks, Sparse):
        places = chunks.offset.astype(np.int64) + offset
        return replace(tile, encodings=encodings, chunks=replace(chunks, offset=places))
    raise UnsupportedError(f"chunks kept as {type(chunks).__name__} cannot be moved into an archive")


def _encoding(encoding: Encoding, offset: int) -> Encoding:
    """Addresses that chunks hold (values of varying length in HDF5) count from the beginning of the member."""
    if not any(codec.name == "hdf5_vlen" for codec in encoding.codecs):
        return encoding
    return replace(encoding, codecs=tuple(_codec(codec, offset) for codec in encoding.codecs))


def _codec(codec: Codec, offset: int) -> Codec:
    if codec.name != "hdf5_vlen":
        return codec
    said: dict[str, Any] = dict(codec.configuration)
    return Codec(codec.name, {**said, "base_address": int(said.get("base_address", 0)) + offset})
