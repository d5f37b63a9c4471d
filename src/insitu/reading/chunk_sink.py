"""`ChunkSink`: base class of receivers of the chunks of a read plan.

`fetch_and_decode` fetches bytes and hands them to a sink, which decides what becomes of them: reading
copies the wanted part to an output, reducing reduces it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from insitu.codecs.chain import Decoder
from insitu.model import Packing
from insitu.reading.tile_plan import ChunkGroup, Position, TilePlan
from insitu.sources import ByteSource
from insitu.sources.protocol import ReadsInto

__all__ = ["ChunkSink"]


class ChunkSink(ABC):
    """Receiver of chunks; by default it takes decoded chunks one by one.

    Methods are called from several threads, for different cells.

    Parameters
    ----------
    grids
        The tiles of the plan: `grid` is a number of one of them.
    """

    takes_many = False
    """Whether `decode_many` may be called with chunks of which the same box is wanted."""
    unpacks_many = False
    """Whether these may be packed."""
    depends_on_order = False
    """Whether chunks of the cache must come in the same groups as others: only then sums of them have
    the same bits.
    """

    def __init__(self, grids: Sequence[TilePlan]) -> None:
        self.grids = grids

    @abstractmethod
    def fill(self, grid: int, position: Position, value: Any, packing: Packing | None) -> None:
        """Take a cell without bytes: every element is `value` (a stored value, if a packing is
        given).
        """

    @abstractmethod
    def chunk(self, grid: int, position: Position, chunk: npt.NDArray[Any], packing: Packing | None) -> None:
        """Take a decoded chunk, with one axis for each axis of the tile; several cells may need it."""

    def decode_one(
        self,
        grid: int,
        position: Position,
        decoder: Decoder,
        data: memoryview,
        source: ByteSource | None,
        packing: Packing | None,
    ) -> None:
        """Take the bytes of a chunk that only one cell needs."""
        chunk = decoder(data, None, source.read_many if source is not None else None)
        self.chunk(grid, position, self.grids[grid].spread(position, chunk), packing)

    def decode_many(
        self, grid: int, group: ChunkGroup, decoder: Decoder, data: Sequence[memoryview], source: ByteSource
    ) -> None:
        """Take the bytes of chunks of which the same box is wanted, each by one cell."""
        raise AssertionError(f"{type(self).__name__} takes chunks one by one")

    def read_into_place(
        self, grid: int, group: ChunkGroup, decoder: Decoder, offset: Sequence[int], source: ReadsInto
    ) -> bool:
        """Read uncompressed chunks from the source straight to their place.

        Return False if they must be fetched first.
        """
        return False
