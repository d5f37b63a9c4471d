"""Estimates of what a read takes, made before it: memory, decoded bytes, chunks, files, requests.

`estimate_read` is pure arithmetic on shapes, made for servers: a selection of a few bytes may name 2^62
elements, or an array of one-byte chunks. It counts what a plan holds: a row for each touched cell and for
each axis of it, the elements of index arrays, the pieces that a large uncompressed chunk is cut into.
`estimate_fetches` plans one read, and counts what its plan would fetch: chunks, requests, bytes. That looks into the
tables of chunks, which may be large, so servers do not; `explain` (by `count_stored_chunks`) and `advise` do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from insitu.model import Axis, Selection, Source, Tile, VirtualArray, byte_ranges
from insitu.model.axis import AxisSpan, Indices, span_of
from insitu.model.cell_counts import count_table
from insitu.model.tile import SPLIT_BYTES
from insitu.reading.fetch import BATCH_CHUNK_BYTES, MERGED_GAP_BYTES
from insitu.reading.fetch_and_decode import DIRECT_READ_BYTES
from insitu.reading.plan import ReadPlan, plan_few, plan_read
from insitu.reading.request_cost import NEAR_REQUEST, has_remote_sources, request_bytes
from insitu.reading.task_batches import FetchRanges, cut_batches
from insitu.sources.coalesce import frugal_gap

__all__ = [
    "CutTasks",
    "FetchEstimate",
    "ReadEstimate",
    "StoredPart",
    "count_stored_chunks",
    "estimate_fetches",
    "estimate_read",
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
MOST_PLAN_BYTES = 512 << 20
"""Bytes of a plan that is made to be counted: a million chunks, in about a second."""


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
    """Chunks that are fetched and decoded, and pieces of uncompressed chunks of which parts are wanted."""
    bytes_fetched: int
    """Bytes of the requests: stored chunks, and what lies between neighbours that one request fetches."""
    bytes_decoded: int
    """Their bytes once they are decoded, about."""
    files: int
    requests: int
    """Requests that fetch them; of a local file, reads."""


def count_stored_chunks(
    array: VirtualArray, selection: Selection, name: str, cut: CutTasks | None = None
) -> StoredPart:
    """Return what is read of an array of some name, by looking into its tables; see `estimate_fetches`."""
    found = estimate_fetches(array, selection, cut)
    decoded = round(found.stored_share * estimate_read(array, selection).decoded)
    return StoredPart(name, found.chunks, found.bytes_fetched, decoded, found.files, found.requests)


class FetchEstimate(NamedTuple):
    """What a read fetches, as `ReadStatistics` and `insitu.trace` count it when nothing is cached."""

    chunks: int
    """Chunks, and pieces of uncompressed chunks of which parts are wanted."""
    requests: int
    bytes_fetched: int
    """With those between neighbours that one request fetches."""
    files: int
    stored_share: float
    """The part of the touched cells that have bytes in a file."""


CutTasks = Callable[[ReadPlan], Iterable[tuple[int, int]]]
NOTHING = FetchEstimate(0, 0, 0, 0, 0.0)


def estimate_fetches(array: VirtualArray, selection: Selection, cut: CutTasks | None = None) -> FetchEstimate:
    """Return what a read fetches, by its plan. The values of no chunk are read.

    What would be a plan of more than `MOST_PLAN_BYTES` is counted in blocks of the tables: there an uncompressed chunk
    counts as a whole, and one that several cells show once, if they are in the same block.

    Parameters
    ----------
    array, selection
        The array, and what is read of it.
    cut
        How a reduction cuts the plan into tasks; None: it is a read.
    """
    # Memory that nobody writes to: the plan takes views of it.
    output = np.broadcast_to(np.empty((), array.dtype), selection.result_shape)
    if not output.size:
        return NOTHING
    if estimate_read(array, selection).plan > MOST_PLAN_BYTES:
        return _estimate_in_blocks(array[selection])
    few = None if cut else plan_few(array, selection, output)
    if few is not None:
        return FetchEstimate(len(few.parts), len(few.parts), sum(part.length for part in few.parts), 1, 1.0)
    plan = plan_read(array, selection, request_bytes=NEAR_REQUEST if cut else None)
    if not len(plan.row):
        return NOTHING
    is_direct = np.array([cut is None and _is_read_into_place(part.tile) for part in plan.tiles], bool)[plan.tile]
    tasks = (cut or cut_batches)(plan)
    requests, nbytes = _count_requests(plan, tasks, plan.tile.astype(np.int64), is_direct)
    share = len(plan.row) / (len(plan.row) + sum(map(len, plan.without_bytes)))
    return FetchEstimate(len(plan.row), requests, nbytes, len(plan.sources), share)


def _estimate_in_blocks(array: VirtualArray) -> FetchEstimate:
    """Return what the read of a whole array fetches, without its plan."""
    chunks = requests = nbytes = 0
    sources: dict[Source, int] = {}
    is_direct = all(map(_is_read_into_place, array.tiles))
    for columns in _range_blocks(array, sources):
        source, offset, length = np.unique(np.concatenate(columns, axis=1), axis=1)  # sorted by source and offset
        if not len(source):
            continue
        ranges = _Ranges(tuple(sources), source, offset, length)
        counts = _count_requests(
            ranges, cut_batches(ranges), np.zeros(len(source), np.int64), np.full(len(source), is_direct)
        )
        chunks, requests, nbytes = chunks + len(source), requests + counts[0], nbytes + counts[1]
    cells = sum(math.prod(tile.chunks.shape) for tile in array.tiles)
    share = sum(count_table(tile.chunks).stored for tile in array.tiles) / max(cells, 1)
    return FetchEstimate(chunks, requests, nbytes, len(sources), share)


def _range_blocks(array: VirtualArray, sources: dict[Source, int]) -> Iterator[list[npt.NDArray[np.int64]]]:
    """Yield the byte ranges of an array, about `MOST_CELLS` at a time; see `byte_ranges`."""
    block: list[npt.NDArray[np.int64]] = []
    for part in byte_ranges(array, sources):
        block.append(np.stack(part))
        if sum(columns.shape[1] for columns in block) >= MOST_CELLS:
            yield block
            block = []
    if block:
        yield block


@dataclass(frozen=True, slots=True, eq=False)
class _Ranges:
    """Ranges that are fetched together, without a plan."""

    sources: Sequence[Source]
    source: Indices
    offset: Indices
    length: Indices


def _count_requests(
    ranges: FetchRanges, tasks: Iterable[tuple[int, int]], tile: Indices, is_direct: npt.NDArray[np.bool_]
) -> tuple[int, int]:
    """Return how many requests the tasks make that ranges are cut into, and the bytes that they fetch.

    Parameters
    ----------
    ranges
        The ranges, sorted by source and offset; at least one.
    tasks
        Begin and end of each.
    tile
        The tile of each.
    is_direct
        Whether each may be read straight to its place.
    """
    batch = np.zeros(len(ranges.offset), np.int64)
    for begin, _ in tasks:
        batch[begin] = 1
    batch[1:] |= np.diff(ranges.source) != 0
    group = np.cumsum(batch) - batch[0]
    length = np.maximum(ranges.length, 0)  # the sizes of whole objects are in no table
    if has_remote_sources(ranges.sources):
        from insitu.sources.range_batch import LONGEST_REQUEST, PART  # not at the top: files need none of it

        sizes = _merge_far_ranges(group, ranges.offset, length, request_bytes(ranges.sources))
        requests = int(np.where(sizes > LONGEST_REQUEST, -(-sizes // PART), 1).sum())
    else:
        sizes = _merge_ranges(group, ranges.offset, length, _local_gaps(group, length, tile, is_direct))[2]
        requests = len(sizes)
    return requests, int(sizes.sum())


def _is_read_into_place(tile: Tile) -> bool:
    """Return whether large chunks of a tile are read straight into the output."""
    return all(encoding.raw for encoding in tile.encodings) and tile.packings.identity


def _local_gaps(group: Indices, length: Indices, tile: Indices, is_direct: npt.NDArray[np.bool_]) -> Indices:
    """Return the gaps over which ranges of local files are read as one, by group; -1: not even neighbours are."""
    firsts = np.flatnonzero(np.diff(group, prepend=-1))
    means = np.add.reduceat(length, firsts) / np.diff(firsts, append=len(group))
    gaps = np.where(means <= BATCH_CHUNK_BYTES, MERGED_GAP_BYTES, 0)
    # Large uncompressed ranges are read into the output, each to its place.
    each_alone = np.minimum.reduceat(is_direct & (length >= DIRECT_READ_BYTES), firsts)
    each_alone &= np.maximum.reduceat(tile, firsts) == np.minimum.reduceat(tile, firsts)
    return np.where(each_alone, -1, gaps)


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
