"""What is a member of an archive, and how is it seen as a file of its own?

A name and a range of bytes, if it is not compressed. `Part` shows that range of the archive as a source; what a scan finds in it is moved back to where it lies in the archive. `Inside` is the archive
itself, of which a scan is to see one member only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from insitu.codecs.registry import OUTSIDE_VALUES
from insitu.errors import UnsupportedError
from insitu.model import Codec, Columns, Encoding, Source, Sparse, Tile, VirtualArray, VirtualGroup
from insitu.sources.protocol import ByteSource, Range

__all__ = ["Member", "Part", "WrappedSource", "moved", "path_of"]


class Member(NamedTuple):
    """A file in an archive."""

    name: str
    offset: int
    """Of its bytes in the archive; -1: behind a header that has not been looked at."""
    length: int
    hidden: str = ""
    """Why its bytes cannot be read by range, if so."""
    header: int = -1
    """Where that header is."""


def path_of(name: str) -> str:
    """A member's name as a path: none of them leads out of the archive.

    Examples
    --------
    >>> path_of("./runs//../jan.nc")
    'runs/jan.nc'
    """
    return "/".join(part for part in name.replace("\\", "/").split("/") if part not in ("", ".", ".."))


class WrappedSource:
    """A source around another. Whoever opened that one closes it."""

    def __init__(self, source: ByteSource) -> None:
        self.source = source

    def describe(self) -> Source:
        """What identifies the archive: a member has nothing of its own."""
        return self.source.describe()

    def close(self) -> None:
        """Nothing: the archive is not ours."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


class Part(WrappedSource):
    """A range of a source, seen as a source of its own."""

    def __init__(self, source: ByteSource, member: Member) -> None:
        super().__init__(source)
        self.member = member

    @property
    def url(self) -> str:
        """The archive's, and the member's name."""
        return f"{self.source.url}::{self.member.name}"

    def size(self) -> int:
        """Bytes in the member."""
        return self.member.length

    def read(self, offset: int, length: int) -> bytes:
        """One range."""
        return self.source.read(*self._placed(offset, length))

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Many ranges."""
        return self.source.read_many([self._placed(*wanted) for wanted in ranges])

    def _placed(self, offset: int, length: int) -> Range:
        offset = min(offset, self.member.length)
        return self.member.offset + offset, max(min(length, self.member.length - offset), 0)


def moved(tree: VirtualGroup, offset: int, own: str) -> VirtualGroup:
    """What was found in a member, with offsets in the archive, whose URL is `own`."""
    return replace(
        tree,
        arrays={name: _array(array, offset, own) for name, array in tree.arrays.items()},
        groups={name: moved(group, offset, own) for name, group in tree.groups.items()},
    )


def _array(array: VirtualArray, offset: int, own: str) -> VirtualArray:
    return replace(array, tiles=tuple(_tile(tile, offset, own) for tile in array.tiles))


def _tile(tile: Tile, offset: int, own: str) -> Tile:
    encodings = tuple(_encoding(encoding, offset) for encoding in tile.encodings)
    chunks = tile.chunks
    if not isinstance(chunks, (Columns, Sparse)):
        raise UnsupportedError(f"chunks kept as {type(chunks).__name__} cannot be moved into an archive")
    elsewhere = [source.url for source in chunks.sources if source.url != own]
    if any("::" in url for url in elsewhere):
        raise UnsupportedError(f"data in another member of the archive is not read: {elsewhere[0]}")
    if elsewhere and len(elsewhere) == len(chunks.sources):
        return replace(tile, encodings=encodings)
    if elsewhere:
        raise UnsupportedError("data partly in an archive and partly elsewhere is not read")
    if isinstance(chunks, Sparse):
        places = chunks.offset.astype(np.int64) + offset
        return replace(tile, encodings=encodings, chunks=replace(chunks, offset=places))
    if (chunks.source < 0).all():
        return replace(tile, encodings=encodings)
    places = np.where(chunks.source >= 0, chunks.offset.astype(np.int64) + offset, chunks.offset)
    return replace(tile, encodings=encodings, chunks=replace(chunks, offset=places))


def _encoding(encoding: Encoding, offset: int) -> Encoding:
    """Addresses that chunks hold (values of varying length in HDF5) count from the beginning of the member."""
    if not any(codec.name in OUTSIDE_VALUES for codec in encoding.codecs):
        return encoding
    return replace(encoding, codecs=tuple(_codec(codec, offset) for codec in encoding.codecs))


def _codec(codec: Codec, offset: int) -> Codec:
    if codec.name not in OUTSIDE_VALUES:
        return codec
    said: dict[str, Any] = dict(codec.configuration)
    return Codec(codec.name, {**said, "base_address": int(said.get("base_address", 0)) + offset})
