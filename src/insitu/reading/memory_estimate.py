"""Estimate of the memory that a read needs, computed before anything is planned.

Pure arithmetic on shapes, made for servers: a selection of a few bytes may name 2^62 elements, or
an array of one-byte chunks. It counts what a plan holds: a row for each touched cell and for each
axis of it, the elements of index arrays, the pieces that a large uncompressed chunk is cut into.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from insitu.model import Axis, Selection, Stride, VirtualArray
from insitu.model.selection import Selector
from insitu.model.tile import SPLIT_BYTES

__all__ = ["ReadMemory", "count_touched_cells", "estimate_decoded_bytes", "estimate_read_memory"]

CELL_BYTES = 350
"""Bytes for a touched cell: columns of the plan, their order, and the rows as Python numbers.

Measured: 200 to 330.
"""
ROW_BYTES = 450
"""Bytes for a cell of one axis: two slices, columns. Measured: 320 to 430."""
INDEX_BYTES = 64
"""Bytes for an element of an index array: itself, its cell, two orders and their parts."""
PIECE_BYTES = 600
"""Bytes for a piece of an uncompressed chunk that is cut."""


class ReadMemory(NamedTuple):
    """Memory of a read, in bytes."""

    plan: int
    """Bytes of its plan."""
    chunk: int
    """Bytes of the largest chunk that is decoded, fetched part of an uncompressed one, or selection
    from one.
    """


def estimate_read_memory(array: VirtualArray, selection: Selection) -> ReadMemory:
    """Return an estimate of the bytes of a read's plan and of its largest chunk.

    Examples
    --------
    >>> from insitu.model import Columns, Encoding, Tile
    >>> tile = Tile((Axis.regular(1 << 40, 1),), (Encoding(np.dtype("i1")),), Columns.of_unwritten((1 << 40,)))
    >>> array = VirtualArray.of(tile, dims=("x",))
    >>> estimate_read_memory(array, Selection.of(np.s_[:10], array.shape)).plan < 1 << 14
    True
    >>> estimate_read_memory(array, Selection.of(..., array.shape)).plan > 1 << 48
    True
    """
    indices = sum(len(selector) for selector in selection.selectors if isinstance(selector, np.ndarray))
    plan, chunk = INDEX_BYTES * indices, 0
    wanted = math.prod(selection.result_shape) * max(array.dtype.itemsize, 1)
    if not wanted:
        return ReadMemory(plan, chunk)
    for number in _touched_tiles(array, selection):
        tile = array.tiles[number]
        spans = [_axis_span(tile.axes[axis], selection.selectors[i]) for i, axis in enumerate(tile.dimensions)]
        itemsize = max(encoding.dtype.itemsize for encoding in tile.encodings)
        by_axis: list[_AxisSpan] = [_AxisSpan(1, 1, 1, 1, 1)] * len(tile.axes)
        for axis, span in zip(tile.dimensions, spans, strict=True):
            by_axis[axis] = span
        rows, held = math.prod(span.cells for span in spans), itemsize * math.prod(span.stored for span in spans)
        if all(encoding.raw for encoding in tile.encodings):
            if wanted > 2 * SPLIT_BYTES and len(tile.encodings) == 1 and held > SPLIT_BYTES:
                by_axis, pieces = _split_spans(by_axis, tile.axes, itemsize)
                plan += PIECE_BYTES * pieces
            rows, held = _estimate_fetches(by_axis, itemsize)
        plan += CELL_BYTES * rows + ROW_BYTES * sum(span.cells for span in by_axis)
        if any(isinstance(selector, np.ndarray) for selector in selection.selectors):
            held = max(held, array.dtype.itemsize * math.prod(span.picked for span in spans))
        chunk = max(chunk, held)
    return ReadMemory(plan, chunk)


def estimate_decoded_bytes(array: VirtualArray, selection: Selection) -> int:
    """Return an estimate of the bytes that the chunks of a selection decode to; of uncompressed chunks
    only what is fetched of them counts.

    Examples
    --------
    >>> from insitu.model import Columns, Encoding, Tile
    >>> tile = Tile((Axis.regular(100, 10),), (Encoding(np.dtype("f8")),), Columns.of_unwritten((10,)))
    >>> array = VirtualArray.of(tile, dims=("x",))
    >>> estimate_decoded_bytes(array, Selection.of(np.s_[:20], array.shape))
    160
    """
    total = 0
    for number in _touched_tiles(array, selection):
        tile, origin = array.tiles[number], array.origins[number]
        is_raw = all(encoding.raw for encoding in tile.encodings)
        elements = max(encoding.dtype.itemsize for encoding in tile.encodings)
        for dimension, axis_number in enumerate(tile.dimensions):
            axis, selector = tile.axes[axis_number], selection.selectors[dimension]
            wanted, cells = _count_elements_and_cells(axis, selector, int(origin[dimension]))
            elements *= wanted if is_raw else cells * max(_longest_chunk(axis), 1)
        total += elements
    return total


def _count_elements_and_cells(axis: Axis, selector: Selector, origin: int) -> tuple[int, int]:
    """Return how many elements of an axis a selector wants, and in how many cells they lie."""
    if isinstance(selector, int):
        return 1, 1
    if isinstance(selector, Stride):
        low, high = sorted((selector.start, selector.start + selector.step * max(selector.length - 1, 0)))
        low, high = max(low - origin, 0), min(high - origin, axis.length - 1)
        if low > high:
            return 0, 0
        first, last = axis.find(np.array([low, high]))
        wanted = (high - low) // abs(selector.step) + 1
        return wanted, min(int(last - first) + 1, wanted)
    inside = np.unique(selector) - origin
    inside = inside[(inside >= 0) & (inside < axis.length)]
    return len(inside), len(np.unique(axis.find(inside)))


class _AxisSpan(NamedTuple):
    """What a selector takes of one axis of a tile."""

    cells: int
    """Number of touched cells."""
    wanted: int
    """Number of wanted elements, in all touched cells."""
    picked: int
    """Largest number of wanted elements of one cell; an index array may repeat elements."""
    extent: int
    """Number of elements of a chunk from the first wanted one to the last."""
    stored: int
    """Number of elements of a chunk."""


def _axis_span(axis: Axis, selector: Selector) -> _AxisSpan:
    stored = max(_longest_chunk(axis), 1)
    cells = count_touched_cells(axis, selector)
    if isinstance(selector, int):
        return _AxisSpan(cells, 1, 1, 1, stored)
    if not isinstance(selector, Stride):
        reach = int(selector.max()) - int(selector.min()) + 1 if len(selector) else 1
        picked = len(selector)
        if axis.is_regular and picked > stored:
            picked = int(np.unique(selector // max(axis.size, 1), return_counts=True)[1].max())
        return _AxisSpan(cells, len(selector), picked, min(stored, reach), stored)
    reach = abs(selector.step) * max(selector.length - 1, 0) + 1
    return _AxisSpan(cells, selector.length, min(stored, selector.length), min(stored, reach), stored)


def _split_spans(spans: list[_AxisSpan], axes: Sequence[Axis], itemsize: int) -> tuple[list[_AxisSpan], int]:
    """Return the spans after large uncompressed chunks are cut along their first axis, and the
    number of pieces (see `Tile.split`).
    """
    number = next((i for i, span in enumerate(spans) if span.stored > 1), None)
    if number is None:
        return spans, 0
    row = itemsize * math.prod(span.stored for span in spans[number + 1 :])
    piece = max(SPLIT_BYTES // row, 1)
    first = spans[number]
    pieces = axes[number].count * -(-first.stored // piece)
    touched = min(first.cells * -(-first.extent // piece), first.wanted)
    cut = [*spans]
    cut[number] = _AxisSpan(
        max(touched, first.cells), first.wanted, first.picked, min(first.extent, piece), min(first.stored, piece)
    )
    if row > SPLIT_BYTES:  # a single row is too large, too
        cut[number + 1 :], more = _split_spans(cut[number + 1 :], axes[number + 1 :], itemsize)
        pieces *= max(more, 1)
    return cut, pieces


def _estimate_fetches(spans: Sequence[_AxisSpan], itemsize: int) -> tuple[int, int]:
    """Return the number of pieces fetched of uncompressed chunks, and the bytes of the largest (see
    `reading.trim_ranges`).
    """
    ways = []
    for depth in range(len(spans)) or [0]:
        pieces, size = 1, itemsize
        for position, span in enumerate(spans):
            pieces *= span.wanted if position < depth else span.cells
            size *= 1 if position < depth else span.extent if position == depth else span.stored
        ways.append((pieces, size))
    least = [min(ways, key=lambda way: way[0] * (way[1] + request)) for request in (16 << 10, 64 << 10, 1 << 20)]
    return max(pieces for pieces, _ in least), max(size for _, size in least)


def count_touched_cells(axis: Axis, selector: Selector) -> int:
    """Return an upper bound of the number of cells of an axis that a selector touches."""
    if isinstance(selector, int):
        return 1
    if not isinstance(selector, Stride):
        return min(axis.count, len(selector))
    cells = min(axis.count, selector.length)
    if axis.is_regular:
        cells = min(cells, abs(selector.step) * max(selector.length - 1, 0) // max(axis.size, 1) + 2)
    return cells


def _longest_chunk(axis: Axis) -> int:
    """Return the number of elements of the longest chunk along an axis."""
    return int(axis.size) if axis.is_regular else int(axis.show(np.arange(axis.count)).stored.max(initial=1))


def _touched_tiles(array: VirtualArray, selection: Selection) -> list[int]:
    """Return the numbers of the tiles that lie within the bounds of a selection."""
    near, far = array.origins, array.upper_corners()
    candidates = np.ones(len(array.tiles), bool)
    for dimension, selector in enumerate(selection.selectors):
        if isinstance(selector, int):
            low = high = selector
        elif isinstance(selector, Stride):
            ends = (selector.start, selector.start + selector.step * max(selector.length - 1, 0))
            low, high = min(ends), max(ends)
        elif len(selector):
            low, high = int(selector.min()), int(selector.max())
        else:
            return []
        candidates &= (near[:, dimension] <= high) & (far[:, dimension] > low)
    return [int(number) for number in np.flatnonzero(candidates)]
