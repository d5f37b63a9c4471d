"""Encodings of an array that cannot be decoded here, and why."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

import numpy as np

from insitu.codecs.chain import prepare
from insitu.errors import InsituError, UnknownCodecError
from insitu.model import Axis, Encoding, Tile, VirtualArray

__all__ = ["find_undecodable"]

MAX_SHAPES = 64
"""Shapes of chunks for which an encoding is tried, where a tile joins files that are cut differently."""


def find_undecodable(array: VirtualArray) -> list[InsituError]:
    """Return why chunks of an array cannot be decoded: one error for each encoding that cannot be.

    Decoders are prepared as the reader does it, for the shapes that the chunks have: a codec may
    refuse others. No bytes are read.
    """
    tried: dict[Encoding, InsituError | None] = {}
    for tile in array.tiles:
        for encoding in tile.encodings:
            if encoding not in tried:
                tried[encoding] = _try_prepare(encoding, tile)
    return [problem for problem in tried.values() if problem is not None]


def _try_prepare(encoding: Encoding, tile: Tile) -> InsituError | None:
    """Return why an encoding of a tile cannot be decoded; None if chunks of some shape can be."""
    problem = None
    for shape in islice(_chunk_shapes(tile), MAX_SHAPES):
        try:
            prepare(encoding, shape)
        except UnknownCodecError as unknown:
            return unknown
        except InsituError as refused:
            problem = problem or refused
        else:
            return None
    return problem


def _chunk_shapes(tile: Tile) -> Iterator[tuple[int, ...]]:
    """Yield the shapes that chunks of a tile may have, without axes that they do not have."""
    for stored in product(*map(_stored_lengths, tile.axes)):
        yield tuple(length for length in stored if length)


def _stored_lengths(axis: Axis) -> list[int]:
    cells = np.unique([0, axis.count - 1]) if axis.is_regular and axis.count else np.arange(axis.count)
    return list(dict.fromkeys(axis.stored_lengths(cells).tolist()))
