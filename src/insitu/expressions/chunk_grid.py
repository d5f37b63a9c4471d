"""Where the chunks of an expression end: lengths and borders along each dimension."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from insitu.expressions.nodes import (
    Broadcast,
    Constant,
    Expression,
    Moved,
    Operation,
    Stored,
    WindowsOf,
    iterate_nodes,
    without_moves,
)
from insitu.expressions.windows import KEPT, SHOWN
from insitu.model import Axis, Tile, VirtualArray

__all__ = [
    "ChunkLengths",
    "chunk_borders",
    "chunk_sizes",
    "find_main",
    "grid_of",
    "longest_chunks",
    "read_itemsize",
    "split_evenly",
    "stored_chunks",
    "tile_borders",
    "uniform_chunks",
]

ChunkLengths = tuple[tuple[int, ...], ...]
"""For each dimension the lengths of the blocks."""


def chunk_sizes(expression: Expression) -> list[int]:
    """Return the length of most chunks along each dimension: of those of its arrays that have the longest."""
    node = without_moves(expression)
    if not hasattr(node, "_chunk_sizes"):
        for part in iterate_nodes([node]):
            if not isinstance(part, Moved) and not hasattr(part, "_chunk_sizes"):
                object.__setattr__(part, "_chunk_sizes", _find_chunk_sizes(part))
    return list(node._chunk_sizes)  # type: ignore[attr-defined]


def _find_chunk_sizes(node: Expression) -> list[int]:
    """Return the sizes of a node, given those of its operands."""
    match node:
        case Stored():
            return _typical_chunk_sizes(node.array)
        case WindowsOf():
            inner = chunk_sizes(node.of)
            return [_window_size(node, kind, axis, inner) for kind, axis in node.layout]
        case Broadcast(of, shape):
            sizes = zip(chunk_sizes(of), of.shape, shape, strict=True)
            return [size if length == whole else whole for size, length, whole in sizes]
        case Operation():
            found = [1] * node.ndim
            for operand in _arrays_among(node.operands):
                for axis, size in enumerate(chunk_sizes(operand)):
                    if operand.shape[axis] == node.shape[axis]:
                        found[axis] = max(found[axis], size)
            return found
    return list(node.shape)


def _arrays_among(operands: Sequence[Expression]) -> list[Expression]:
    """Return the operands that are not values in memory, which can be cut anywhere."""
    return [operand for operand in operands if not isinstance(operand, Constant)]


def _window_size(node: WindowsOf, kind: str, axis: int, inner: Sequence[int]) -> int:
    if kind == SHOWN:
        return len(node.along[axis].offsets)
    if kind != KEPT:
        return 1
    if axis not in node.along:
        return inner[axis]
    starts = node.along[axis].starts
    distance = int(abs(starts[1] - starts[0])) if len(starts) > 1 else 1
    return max(inner[axis] // max(distance, 1), 1)


def uniform_chunks(expression: Expression) -> ChunkLengths:
    """Return uniform chunks near the stored ones; `stored_chunks` are where chunks really end."""
    return tuple(split_evenly(*of) for of in zip(expression.shape, chunk_sizes(expression), strict=True))


def read_itemsize(expression: Expression) -> int:
    """Return the bytes of an element, of the main stored array or of the result: what is larger."""
    main = find_main(expression)
    return max(expression.dtype.itemsize, 0 if main is None else main.dtype.itemsize, 1)


def find_main(expression: Expression) -> Stored | None:
    """Return the largest stored array of an expression."""
    node = without_moves(expression)
    while not isinstance(node, Stored):
        operands = _arrays_among(node.operands)
        if not operands:
            return None
        node = without_moves(max(operands, key=lambda operand: operand.size))
    return node


def grid_of(expression: Expression) -> VirtualArray:
    """Return an array of the shape of an expression whose chunks are those of its largest array."""
    main = find_main(expression)
    assert main is not None, "it consists of values in memory"
    return main.array if main.shape == expression.shape else main.array.broadcast_to(expression.shape)


@lru_cache(maxsize=256)
def split_evenly(length: int, size: int) -> tuple[int, ...]:
    """Return the lengths of parts of a size, the last of which may be shorter."""
    size = max(min(size, length), 1)
    full, rest = divmod(length, size)
    return (size,) * full + ((rest,) if rest or not length else ())


def _typical_chunk_sizes(array: VirtualArray) -> list[int]:
    """Return the chunk size along each dimension that most elements lie in."""
    if not array.tiles:
        return list(array.shape)
    if len(array.tiles) == 1:
        return [_typical_cell(array.tiles[0].axis_of(dimension)) for dimension in range(array.ndim)]
    sizes = []
    for dimension in range(array.ndim):
        found: Counter[int] = Counter()
        for tile in _tiles_that_decide(array.tiles):
            found[_typical_cell(tile.axis_of(dimension))] += math.prod(tile.shape)
        sizes.append(max(found, key=lambda size: (found[size], -size)))
    return sizes


def _typical_cell(axis: Axis) -> int:
    """Return the length of the cells of an axis, of the longest among the first ones if they differ."""
    return axis.size if axis.is_regular else int(axis.show(np.arange(min(axis.count, 1000))).extent.max(initial=1))


def longest_chunks(array: VirtualArray, dimensions: Sequence[int]) -> list[int]:
    """Return the length of the longest chunk along each of some dimensions."""
    cells = []
    for dimension in dimensions:
        longest = 1
        for tile in array.tiles:
            axis = tile.axis_of(dimension)
            if axis.count:
                longest = max(longest, int(axis.show(np.arange(axis.count)).extent.max()))
        cells.append(longest)
    return cells


def _tiles_that_decide(tiles: Sequence[Tile]) -> Sequence[Tile]:
    """Return the tiles whose chunks matter: uncompressed values can be split anywhere."""
    encoded = [tile for tile in tiles if not all(encoding.raw for encoding in tile.encodings)]
    return encoded or tiles


def stored_chunks(expression: Expression) -> ChunkLengths:
    """Return the lengths of the stored chunks along each dimension: of the array that has the longest there."""
    return tuple(tuple(np.diff(chunk_borders(expression, axis)).tolist()) for axis in range(expression.ndim))


def chunk_borders(expression: Expression, axis: int) -> npt.NDArray[np.int64]:
    """Return where chunks begin along an axis, and its end: those of the array that has the longest there."""
    node = without_moves(expression)
    while isinstance(node, (Broadcast, Operation)):
        whole = [operand for operand in _arrays_among(node.operands) if operand.shape[axis] == node.shape[axis]]
        if not whole:
            break
        node = without_moves(max(whole, key=lambda operand: chunk_sizes(operand)[axis]))
    if isinstance(node, Stored):
        return _borders_along(node.array, axis)
    length = node.shape[axis]
    if not length:
        return np.array([0, 0], np.int64)
    return np.append(np.arange(0, length, max(chunk_sizes(node)[axis], 1)), length).astype(np.int64)


def _borders_along(array: VirtualArray, dimension: int) -> npt.NDArray[np.int64]:
    """Return where the chunks of a stored array begin, and its end.

    Where tiles side by side have different ones, these are those of most tiles.
    """
    length = array.shape[dimension]
    if not length:
        return np.array([0, 0], np.int64)
    cuts: dict[tuple[int, int], Counter[bytes]] = {}
    telling = {id(tile) for tile in _tiles_that_decide(array.tiles)}
    for tile, origin in zip(array.tiles, array.origins[:, dimension].tolist(), strict=True):
        axis = tile.axis_of(dimension)
        begins = np.asarray(origin + axis.begin(np.arange(axis.count)), np.int64)
        weight = math.prod(tile.shape) if id(tile) in telling else 0
        cuts.setdefault((origin, origin + axis.length), Counter())[begins.tobytes()] += weight
    spans = np.array(sorted(cuts), np.int64).reshape(-1, 2)
    ends = [np.array([0, length], np.int64), spans.reshape(-1)]
    apart = bool((spans[1:, 0] >= spans[:-1, 1]).all())
    for kinds in cuts.values():
        # The borders of all kinds together would leave blocks of nothing: some chunks are better
        # read twice.
        chosen = kinds.most_common(1) if apart else kinds.items()
        ends += [np.frombuffer(begins, np.int64) for begins, _ in chosen]
    return np.unique(np.concatenate(ends))


def tile_borders(array: VirtualArray, dimension: int) -> npt.NDArray[np.int64]:
    """Return where the chunks of all tiles begin along a dimension, and its end, in ascending order."""
    # Tiles beside each other often share an axis: of 10,000 files along time, latitudes are looked at once.
    placed = dict.fromkeys(
        (tile.axis_of(dimension), origin)
        for tile, origin in zip(array.tiles, array.origins[:, dimension].tolist(), strict=True)
    )
    begins = [axis.begin(np.arange(axis.count)) + origin for axis, origin in placed]
    return np.unique(np.concatenate([*begins, np.array([0, array.shape[dimension]], np.int64)]))
