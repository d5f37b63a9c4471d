"""Chunk shapes of a mosaic whose tiles are chunked differently: few, and none of them empty or
missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from insitu.expressions.chunk_grid import stored_chunks, uniform_chunks
from insitu.expressions.nodes import Stored
from insitu.model import Axis, Codec, Columns, Encoding, Tile, VirtualArray, concatenate


def grid(shape: tuple[int, int], sizes: tuple[int, int]) -> VirtualArray:
    axes = tuple(Axis.regular(length, size) for length, size in zip(shape, sizes, strict=True))
    table = Columns.of_unwritten(tuple(axis.count for axis in axes))
    return VirtualArray.of(Tile(axes, (Encoding(np.dtype("f4"), fill=b"\0" * 4),), table), dims=("time", "x"))


def joined(*sizes: tuple[int, int]) -> VirtualArray:
    return concatenate([grid((6, 12), size) for size in sizes], "time")


def covered(cuts: Sequence[Sequence[int]], array: VirtualArray) -> bool:
    return all(sum(cut) == length and min(cut) > 0 for cut, length in zip(cuts, array.shape, strict=True))


def test_tiles_that_are_cut_alike_are_cut_where_their_chunks_end() -> None:
    array = joined((4, 5), (4, 5))
    assert stored_chunks(Stored(array)) == ((4, 2, 4, 2), (5, 5, 2))


def test_across_the_join_most_tiles_decide() -> None:
    array = joined((6, 5), (6, 4), (6, 4), (6, 7))
    assert len(array.tiles) > 1
    assert stored_chunks(Stored(array)) == ((6, 6, 6, 6), (4, 4, 4))
    assert uniform_chunks(Stored(array))[1] == (4, 4, 4)


def test_along_the_join_each_tile_has_its_own() -> None:
    array = joined((2, 5), (3, 4), (6, 4))
    assert stored_chunks(Stored(array))[0] == (2, 2, 2, 3, 3, 6)
    assert covered(stored_chunks(Stored(array)), array)
    assert covered(uniform_chunks(Stored(array)), array)


def test_tiles_that_overlap_along_a_dimension_keep_all_their_borders() -> None:
    upper = concatenate([grid((4, 12), (4, 12)), grid((8, 12), (8, 12))], "time")
    lower = concatenate([grid((8, 12), (8, 12)), grid((4, 12), (4, 12))], "time")
    array = concatenate([upper, lower], "x")
    if len(array.tiles) > 2:  # else the model made one of them
        assert stored_chunks(Stored(array))[0] == (4, 4, 4)
    assert covered(stored_chunks(Stored(array)), array)


def test_what_is_not_compressed_does_not_decide() -> None:
    array = joined((6, 12), (6, 12), (6, 12), (6, 4))
    packed = Encoding(np.dtype("f4"), (Codec("zlib"),), fill=b"\0" * 4)
    tiles = tuple(replace(t, encodings=(packed,)) if t.axis_of(1).size == 4 else t for t in array.tiles)
    assert stored_chunks(Stored(replace(array, tiles=tiles)))[1] == (4, 4, 4)
    assert uniform_chunks(Stored(replace(array, tiles=tiles)))[1] == (4, 4, 4)


def test_an_array_of_nothing() -> None:
    array = grid((4, 12), (4, 12))[0:0]
    assert stored_chunks(Stored(array))[0] == (0,)
