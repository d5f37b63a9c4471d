"""Estimates of what a read takes, made before it: memory, decoded bytes, chunks, files, requests.

`estimate_read` is pure arithmetic on shapes, made for servers: a selection of a few bytes may name 2^62
elements, or an array of one-byte chunks. It counts what a plan holds: a row for each touched cell and for
each axis of it, the elements of index arrays, the pieces that a large uncompressed chunk is cut into.
`count_stored_chunks` looks into the tables of chunks, which may be large: only explanations do. `estimate_fetches`
plans one read, and counts what its plan would fetch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from insitu.model import Axis, Selection, Source, VirtualArray, byte_ranges
from insitu.model.axis import AxisSpan, Indices, span_of
from insitu.model.cell_counts import count_table
from insitu.model.tile import SPLIT_BYTES
from insitu.reading.fetch import BATCH_CHUNK_BYTES, MERGED_GAP_BYTES
from insitu.reading.fetch_and_decode import DIRECT_READ_BYTES
from insitu.reading.plan import ReadPlan, plan_few, plan_read
from insitu.reading.request_cost import has_remote_sources, request_bytes
from insitu.reading.task_batches import BATCH_BYTES, cut_batches
from insitu.sources.coalesce import frugal_gap

__all__ = [
    "FetchEstimate",
    "ReadEstimate",
    "StoredPart",
    "count_stored_chunks",
    "estimate_fetches",
    "estimate_read",
    "estimate_requests",
]

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
MOST_CELLS = 4 << 20
"""Cells of a table that are looked at together: 300 MB of columns."""


class ReadEstimate(NamedTuple):
    """Bytes that a read needs, about."""

    plan: int
    """Bytes of its plan."""
    chunk: int
    """Bytes of the largest chunk that is decoded, fetched part of an uncompressed one, or selection
    from one.
    """
    decoded: int
    """Bytes that its chunks decode to; of uncompressed chunks only what is fetched of them counts."""


def estimate_read(array: VirtualArray, selection: Selection) -> ReadEstimate:
    """Return an estimate of the bytes that a read needs, by arithmetic alone.

    Examples
    --------
    >>> from insitu.model import Columns, Encoding, Tile
    >>> tile = Tile((Axis.regular(1 << 40, 4),), (Encoding(np.dtype("f8")),), Columns.of_unwritten((1 << 38,)))
    >>> array = VirtualArray.of(tile, dims=("x",))
    >>> little = estimate_read(array, Selection.of(np.s_[:20], array.shape))
    >>> little.plan < 1 << 14, little.decoded
    (True, 160)
    >>> estimate_read(array, Selection.of(..., array.shape)).plan > 1 << 46
    True
    """
    indices = sum(len(selector) for selector in selection.selectors if isinstance(selector, np.ndarray))
    plan, chunk, decoded = INDEX_BYTES * indices, 0, 0
    wanted = math.prod(selection.result_shape) * max(array.dtype.itemsize, 1)
    if not wanted:
        return ReadEstimate(plan, chunk, decoded)
    for number in array.touched_tiles(selection.selectors).tolist():
        tile, origin = array.tiles[number], array.origins[number].tolist()
        spans = [span_of(tile.axes[axis], selection.selectors[i], origin[i]) for i, axis in enumerate(tile.dimensions)]
        if not all(span.cells for span in spans):
            continue  # it lies between what index arrays want
        itemsize = max(encoding.dtype.itemsize for encoding in tile.encodings)
        by_axis: list[AxisSpan] = [AxisSpan(1, 1, 1, 1, 1, 1)] * len(tile.axes)
        for axis, span in zip(tile.dimensions, spans, strict=True):
            by_axis[axis] = span
        rows, largest = math.prod(span.cells for span in spans), itemsize * math.prod(span.stored for span in spans)
        if all(encoding.raw for encoding in tile.encodings):
            decoded += itemsize * math.prod(span.distinct for span in spans)
            if wanted > 2 * SPLIT_BYTES and len(tile.encodings) == 1 and largest > SPLIT_BYTES:
                by_axis, pieces = _split_spans(by_axis, tile.axes, itemsize)
                plan += PIECE_BYTES * pieces
            rows, largest = _estimate_fetches(by_axis, itemsize)
        else:
            decoded += rows * largest
        plan += CELL_BYTES * rows + ROW_BYTES * sum(span.cells for span in by_axis)
        if any(isinstance(selector, np.ndarray) for selector in selection.selectors):
            largest = max(largest, array.dtype.itemsize * math.prod(span.picked for span in spans))
        chunk = max(chunk, largest)
    return ReadEstimate(plan, chunk, decoded)


def _split_spans(spans: list[AxisSpan], axes: Sequence[Axis], itemsize: int) -> tuple[list[AxisSpan], int]:
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
    cut[number] = first._replace(
        cells=max(touched, first.cells), extent=min(first.extent, piece), stored=min(first.stored, piece)
    )
    if row > SPLIT_BYTES:  # a single row is too large, too
        cut[number + 1 :], more = _split_spans(cut[number + 1 :], axes[number + 1 :], itemsize)
        pieces *= max(more, 1)
    return cut, pieces


def _estimate_fetches(spans: Sequence[AxisSpan], itemsize: int) -> tuple[int, int]:
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
    # How far away the bytes are is not known here: the worst of what `trim_ranges` chooses where a request costs
    # as much as 16 KiB (a local file), 64 KiB or 1 MiB.
    least = [min(ways, key=lambda way: way[0] * (way[1] + request)) for request in (16 << 10, 64 << 10, 1 << 20)]
    return max(pieces for pieces, _ in least), max(size for _, size in least)


class StoredPart(NamedTuple):
    """What is read of one stored array."""

    name: str
    chunks: int
    """Chunks that are fetched and decoded."""
    bytes_fetched: int
    """Their stored bytes."""
    bytes_decoded: int
    """Their bytes once they are decoded, about."""
    files: int
    requests: int
    """Requests that fetch them, about; of a local file, reads."""


def count_stored_chunks(array: VirtualArray, name: str) -> StoredPart:
    """Return what is read of an array of some name, by looking into its tables.

    A chunk that several cells show counts once, if they are among the same `MOST_CELLS`.
    """
    chunks = nbytes = requests = 0
    files: set[int] = set()
    for columns in _range_blocks(array):
        ranges = np.unique(np.concatenate(columns, axis=1), axis=1)  # sorted by source and offset
        chunks += ranges.shape[1]
        nbytes += int(np.maximum(ranges[2], 0).sum())
        requests += estimate_requests(array.sources, *ranges)
        files.update(np.unique(ranges[0]).tolist())
    cells = sum(math.prod(tile.chunks.shape) for tile in array.tiles)
    # Cells without a chunk are left out by their share.
    share = sum(count_table(tile.chunks).stored for tile in array.tiles) / max(cells, 1)
    decoded = round(share * estimate_read(array, Selection.of(..., array.shape)).decoded)
    return StoredPart(name, chunks, nbytes, decoded, len(files), requests)


def _range_blocks(array: VirtualArray) -> Iterator[list[npt.NDArray[np.int64]]]:
    """Yield the byte ranges of an array, about `MOST_CELLS` at a time."""
    block: list[npt.NDArray[np.int64]] = []
    for part in byte_ranges(array):
        block.append(np.stack(part))
        if sum(columns.shape[1] for columns in block) >= MOST_CELLS:
            yield block
            block = []
    if block:
        yield block


def estimate_requests(sources: Sequence[Source], source: Indices, offset: Indices, length: Indices) -> int:
    """Return about how many requests fetch some ranges; those of a local file are reads of it.

    Neighbours are fetched together, up to the bytes of a task.

    Parameters
    ----------
    sources
        What the column `source` refers to.
    source, offset, length
        Different ranges, sorted by source and offset; the length -1 is up to the end of the object.
    """
    if not len(offset):
        return 0
    known = np.maximum(length, 0)
    if has_remote_sources(sources):
        gap = frugal_gap(known, request_bytes(sources))
    else:
        gap = MERGED_GAP_BYTES if known.mean() <= BATCH_CHUNK_BYTES else 0
    begins = np.ones(len(offset), bool)
    begins[1:] = (np.diff(source) != 0) | (offset[1:] > offset[:-1] + known[:-1] + gap) | (length[:-1] < 0)
    firsts = np.flatnonzero(begins)
    nbytes = np.add.reduceat(known, firsts)
    chunks = np.diff(firsts, append=len(offset))
    return int(np.minimum(np.maximum(-(-nbytes // BATCH_BYTES), 1), chunks).sum())


class FetchEstimate(NamedTuple):
    """What a read fetches, as `ReadStatistics` and `insitu.trace` count it when nothing is cached."""

    chunks: int
    """Chunks, and pieces of uncompressed chunks of which parts are wanted."""
    requests: int
    bytes_fetched: int
    """With those between neighbours that one request fetches."""


def estimate_fetches(array: VirtualArray, selection: Selection, *, object_bytes: int = 0) -> FetchEstimate:
    """Return what a read fetches, by its plan. The values of no chunk are read.

    Parameters
    ----------
    array, selection
        The array, and what is read of it.
    object_bytes
        Bytes of an object that is fetched whole and whose size is not in the table: a chunk of Zarr.
    """
    # Memory that nobody writes to: the plan takes views of it.
    output = np.broadcast_to(np.empty((), array.dtype), selection.result_shape)
    if not output.size:
        return FetchEstimate(0, 0, 0)
    few = plan_few(array, selection, output)
    if few is not None:
        return FetchEstimate(len(few.parts), len(few.parts), sum(part.length for part in few.parts))
    plan = plan_read(array, selection)
    if not len(plan.row):
        return FetchEstimate(0, 0, 0)
    batch = np.zeros(len(plan.row), np.int64)
    for begin, _ in cut_batches(plan):
        batch[begin] = 1
    batch[1:] |= np.diff(plan.source) != 0
    group = np.cumsum(batch) - batch[0]
    length = np.where(plan.length < 0, object_bytes, plan.length)
    if has_remote_sources(plan.sources):
        from insitu.sources.range_batch import LONGEST_REQUEST, PART  # not at the top: files need none of it

        sizes = _merge_far_ranges(group, plan.offset, length, request_bytes(plan.sources))
        requests = int(np.where(sizes > LONGEST_REQUEST, -(-sizes // PART), 1).sum())
    else:
        sizes = _merge_ranges(group, plan.offset, length, _local_gaps(plan, group, length))[2]
        requests = len(sizes)
    return FetchEstimate(len(plan.row), requests, int(sizes.sum()))


def _local_gaps(plan: ReadPlan, group: Indices, length: Indices) -> Indices:
    """Return the gaps over which ranges of local files are read as one, by group; -1: not even neighbours are."""
    firsts = np.flatnonzero(np.diff(group, prepend=-1))
    means = np.add.reduceat(length, firsts) / np.diff(firsts, append=len(group))
    gaps = np.where(means <= BATCH_CHUNK_BYTES, MERGED_GAP_BYTES, 0)
    # Large uncompressed ranges are read into the output, each to its place.
    is_raw = np.array(
        [
            all(encoding.raw for encoding in touched.encodings) and touched.tile.packings.identity
            for touched in plan.tiles
        ],
        bool,
    )
    is_direct = np.minimum.reduceat(is_raw[plan.tile] & (length >= DIRECT_READ_BYTES), firsts)
    is_direct &= np.maximum.reduceat(plan.tile, firsts) == np.minimum.reduceat(plan.tile, firsts)
    return np.where(is_direct, -1, gaps)


def _merge_far_ranges(group: Indices, offset: Indices, length: Indices, cost: int) -> Indices:
    """Return the bytes of the requests that fetch ranges from afar: neighbours first become one, then near ones."""
    groups = int(group[-1]) + 1
    group, offset, length = _merge_ranges(group, offset, length, np.zeros(groups, np.int64))
    borders = np.searchsorted(group, np.arange(groups + 1))
    gaps = np.zeros(groups, np.int64)
    for number in np.flatnonzero(np.diff(borders) > 1).tolist():
        gaps[number] = frugal_gap(length[borders[number] : borders[number + 1]], cost)
    return _merge_ranges(group, offset, length, gaps)[2]


def _merge_ranges(group: Indices, offset: Indices, length: Indices, gaps: Indices) -> tuple[Indices, Indices, Indices]:
    """Return group, offset and length of the requests for ranges, sorted by group and offset, where those within the
    gap of their group become one.
    """
    ends = offset + length
    # A range may lie within the one before it, so a request ends where the furthest of its ranges ends. Groups are
    # shifted apart, so that one running maximum serves all.
    apart = int(ends.max()) + 1  # so far that no range reaches into the next group
    if apart * (int(group[-1]) + 1) < 2**62:
        ends = np.maximum.accumulate(ends + group * apart) - group * apart
    begins = np.ones(len(offset), bool)
    begins[1:] = (np.diff(group) != 0) | (offset[1:] > ends[:-1] + gaps[group[1:]])
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:], len(offset)) - 1
    return group[firsts], offset[firsts], ends[lasts] - offset[firsts]
