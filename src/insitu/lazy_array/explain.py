"""The plan of an evaluation or reduction: blocks, chunks, files, requests, bytes, memory, and where it runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from insitu.lazy_array.boxes import CHUNK_BYTES, BoxMemory, iterate_boxes
from insitu.lazy_array.deferred_values import DeferredValues
from insitu.lazy_array.evaluate import BOX_BYTES, threads_at_once
from insitu.lazy_array.formula_text import formula, stored_arrays
from insitu.lazy_array.reduce_boxes import NEEDS_ALL_VALUES, reduction_memory
from insitu.lazy_array.reduce_on_server import reason_to_compute_here, server_of
from insitu.model import Selection, Tile, byte_ranges
from insitu.model.cell_counts import count_table
from insitu.model.description import format_bytes
from insitu.reading.memory_estimate import estimate_read_memory
from insitu.reading.request_cost import is_far
from insitu.reading.request_estimate import estimate_requests
from insitu.reading.task_batches import BATCH_BYTES
from insitu.reading.thread_pools import REMOTE_WORKERS, count_cores
from insitu.reducing.reduce_chunks import STACK_BYTES, STEP_BYTES
from insitu.reducing.reductions import SKETCHES, STREAMED, Reduction
from insitu.reducing.whole_blocks import BLOCK_BYTES
from insitu.sources.redaction import redact_url

__all__ = ["Explanation", "StoredPart", "explain"]

MOST_CELLS = 4 << 20
"""Cells of a table that are looked at together: 300 MB of columns."""


@dataclass(frozen=True, slots=True)
class StoredPart:
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


@dataclass(frozen=True, slots=True)
class Explanation:
    """How the values of an array, or a reduction of it, come about; its text is for people."""

    formula: str
    reduction: str | None
    """The statistic; None: all values are wanted."""
    shape: tuple[int, ...]
    """Of the result."""
    dtype: np.dtype[np.generic]
    """Of what is read or computed, before a reduction."""
    blocks: int
    """Blocks that are computed one after another, some at a time; 1 if values are only read."""
    block_bytes: int
    """Bytes of the largest."""
    parts: tuple[StoredPart, ...]
    server: str | None
    """The server next to the data where it runs; None: here."""
    memory: int
    """Bytes that are held here at a time, at most, about: the result, and what is fetched, decoded and
    computed for it.
    """
    reason: str | None = None
    """Why it runs here, although a server was named."""

    @property
    def chunks(self) -> int:
        """Chunks that are fetched and decoded."""
        return sum(part.chunks for part in self.parts)

    @property
    def bytes_fetched(self) -> int:
        """Their stored bytes."""
        return sum(part.bytes_fetched for part in self.parts)

    @property
    def bytes_decoded(self) -> int:
        """Their bytes once they are decoded, about."""
        return sum(part.bytes_decoded for part in self.parts)

    @property
    def result_bytes(self) -> int:
        """Bytes of the result, about."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def files(self) -> int:
        """Files that they lie in; one that holds several arrays counts for each."""
        return sum(part.files for part in self.parts)

    @property
    def requests(self) -> int:
        """Requests that fetch them, about; of a local file, reads."""
        return sum(part.requests for part in self.parts)

    def __repr__(self) -> str:
        result = " × ".join(map(str, self.shape)) or "one value"
        lines = [
            self.formula if self.reduction is None else f"{self.reduction} of {self.formula}",
            f"  result: {result}, of {self.dtype} values",
            f"  in {_count(self.blocks, 'block')} of at most {format_bytes(self.block_bytes)}",
            *(
                f"  reads {part.name}: {_count(part.chunks, 'chunk')} of {_count(part.files, 'file')}, "
                f"{format_bytes(part.bytes_fetched)} fetched in {_count(part.requests, 'request')}, "
                f"{format_bytes(part.bytes_decoded)} decoded"
                for part in self.parts
            ),
        ]
        if self.server is None:
            lines.append(f"  runs here: {format_bytes(self.bytes_fetched)} are fetched")
            lines.append(f"  needs about {format_bytes(self.memory)} of memory")
            lines += [f"  not on the server: {self.reason}"] if self.reason else []
        else:
            lines.append(f"  runs on the server {redact_url(self.server)}: only the result travels")
        return "\n".join(lines)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' if number != 1 else ''}"


def explain(array: DeferredValues, reduction: str | None = None, axes: Sequence[int] | None = None) -> Explanation:
    """Return how the values of a virtual array or expression come about, without reading any.

    Parameters
    ----------
    array
        The array.
    reduction
        Name of a statistic that is taken of it; None: its values are wanted.
    axes
        Along which; None: all.
    """
    gone = range(array.ndim) if axes is None else axes
    shape = array.shape if reduction is None else tuple(n for axis, n in enumerate(array.shape) if axis not in gone)
    sizes = _block_sizes(array, reduction)
    parts = tuple(_explain_stored(stored) for stored in stored_arrays(array))
    largest = max(sizes, default=0) * array.dtype.itemsize
    active, reason = server_of(array), reason_to_compute_here(array)
    server = None if active is None or reduction is None or reason is not None else active.url
    memory = (
        math.prod(shape) * array.dtype.itemsize if server else _estimate_memory(array, reduction, shape, sizes, parts)
    )
    text, blocks = formula(array), len(sizes)
    return Explanation(text, reduction, shape, array.dtype, blocks, largest, parts, server, memory, reason)


def _block_sizes(array: DeferredValues, reduction: str | None) -> list[int]:
    """Return the elements of each block; values that are only read are one block."""
    if (reduction is None and not array.steps) or reduction in NEEDS_ALL_VALUES:
        return [array.size]
    memory = BoxMemory(BOX_BYTES) if reduction is None else reduction_memory()
    return [math.prod(part.stop - part.start for part in box) for box in iterate_boxes(array, memory=memory)]


def _explain_stored(array: DeferredValues) -> StoredPart:
    """Return what is read of one array.

    A chunk that several of its cells show counts once, if they are among the same `MOST_CELLS`.
    """
    chunks = nbytes = requests = 0
    files: set[int] = set()
    sources = array.array.sources
    for columns in _range_blocks(array):
        ranges = np.unique(np.concatenate(columns, axis=1), axis=1)  # sorted by source and offset
        chunks += ranges.shape[1]
        nbytes += int(np.maximum(ranges[2], 0).sum())
        requests += estimate_requests(sources, *ranges)
        files.update(np.unique(ranges[0]).tolist())
    decoded = sum(_decoded_bytes(tile) for tile in array.array.tiles)
    return StoredPart(array.access.name or "array", chunks, nbytes, decoded, len(files), requests)


def _range_blocks(array: DeferredValues) -> Iterator[list[npt.NDArray[np.int64]]]:
    """Yield the byte ranges of an array, about `MOST_CELLS` at a time."""
    block: list[npt.NDArray[np.int64]] = []
    for part in byte_ranges(array.array):
        block.append(np.stack(part))
        if sum(columns.shape[1] for columns in block) >= MOST_CELLS:
            yield block
            block = []
    if block:
        yield block


def _estimate_memory(
    array: DeferredValues,
    reduction: str | None,
    shape: Sequence[int],
    sizes: Sequence[int],
    parts: Sequence[StoredPart],
) -> int:
    """Return the bytes that are held at a time, at most, about.

    Parameters
    ----------
    array, reduction
        What is computed.
    shape
        Of the result.
    sizes
        Elements of each block.
    parts
        What is read.
    """
    stored = [part.array for part in stored_arrays(array)]
    needs = [estimate_read_memory(part, Selection.of(..., part.shape)) for part in stored]
    chunk = max((need.chunk for need in needs), default=0)
    far = any(is_far(part.sources) for part in stored)
    threads = REMOTE_WORKERS if far else count_cores() + 1
    # A thread holds what it has fetched, the chunk that it decodes, and what a filter makes of that.
    decoding = threads * (max(BATCH_BYTES, chunk) + 2 * chunk)
    memory = sum(need.plan for need in needs)
    memory += min(decoding, sum(part.bytes_fetched + 2 * part.bytes_decoded for part in parts))
    elements = math.prod(shape)
    if reduction is None:
        memory += elements * array.dtype.itemsize
    elif reduction in STREAMED and array.dtype.kind in STREAMED[reduction].kinds and reduction not in SKETCHES:
        partial = Reduction((reduction,), array.dtype).nothing(())
        # The partial of all data, and one that is merged into it.
        memory += 2 * elements * sum(field.nbytes for field in partial.values())
        memory += min(count_cores() * (STACK_BYTES + 2 * STEP_BYTES), 3 * array.nbytes) if not array.steps else 0
    else:
        # For a median NumPy copies, masks and sorts the values: 20 MB of 3.5 MB, with what decoding holds.
        memory += 5 * min(BLOCK_BYTES, array.nbytes) + elements * array.dtype.itemsize
    if array.steps:
        held = min(threads_at_once(), len(sizes)) * max(sizes, default=0) * array.dtype.itemsize
        memory += held * (1 + len(stored)) + min(CHUNK_BYTES, sum(part.bytes_decoded for part in parts))
    return memory


def _decoded_bytes(tile: Tile) -> int:
    """Return the bytes of all stored chunks of a tile; those of the cells without one are left out by their share."""
    elements = math.prod(int(np.maximum(axis.show(np.arange(axis.count)).stored, 1).sum()) for axis in tile.axes)
    cells = math.prod(tile.chunks.shape)
    stored = count_table(tile.chunks).stored
    return round(elements * max(encoding.dtype.itemsize for encoding in tile.encodings) * stored / max(cells, 1))
