"""The plan of an evaluation or reduction: blocks, chunks, files, requests, bytes, memory, and where it runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from insitu.active.answer import reason_to_compute_here
from insitu.active.remote_expression import server_of
from insitu.expressions.boxes import CHUNK_BYTES, BoxMemory, iterate_boxes
from insitu.expressions.cost import Cost, cost
from insitu.expressions.evaluate import BOX_BYTES, threads_at_once
from insitu.expressions.formula_text import formula
from insitu.expressions.nodes import Expression, is_stored
from insitu.model.description import count_text, format_bytes
from insitu.reading.estimate import StoredPart
from insitu.reading.task_batches import BATCH_BYTES
from insitu.reading.thread_pools import REMOTE_WORKERS, count_cores
from insitu.reducing.expression_values import reduction_memory
from insitu.reducing.reduce_chunks import STACK_BYTES, STEP_BYTES
from insitu.reducing.reductions import Reduction
from insitu.reducing.slabs import cut_slabs
from insitu.reducing.statistics import STATISTICS
from insitu.reducing.whole_blocks import BLOCK_BYTES
from insitu.sources.redaction import redact_url

__all__ = ["Explanation", "explain"]


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
            f"  in {count_text(self.blocks, 'block')} of at most {format_bytes(self.block_bytes)}",
            *(
                f"  reads {part.name}: {count_text(part.chunks, 'chunk')} of {count_text(part.files, 'file')}, "
                f"{format_bytes(part.bytes_fetched)} fetched in {count_text(part.requests, 'request')}, "
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


def explain(array: Expression, reduction: str | None = None, axes: Sequence[int] | None = None) -> Explanation:
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
    reduced = range(array.ndim) if axes is None else axes
    shape = array.shape if reduction is None else tuple(n for axis, n in enumerate(array.shape) if axis not in reduced)
    sizes = _block_sizes(array, reduction)
    streams = reduction is not None and is_stored(array) and STATISTICS.can_stream(reduction, array.dtype)
    need = cost(array, looks_into_tables=True, cut=cut_slabs if streams else None)
    largest = max(sizes, default=0) * array.dtype.itemsize
    active, reason = server_of(array), reason_to_compute_here(array)
    server = None if active is None or reduction is None or reason is not None else active.url
    memory = (
        math.prod(shape) * array.dtype.itemsize if server else _estimate_memory(array, reduction, shape, sizes, need)
    )
    text, blocks = formula(array), len(sizes)
    return Explanation(text, reduction, shape, array.dtype, blocks, largest, need.parts, server, memory, reason)


def _block_sizes(array: Expression, reduction: str | None) -> list[int]:
    """Return the elements of each block; values that are only read are one block."""
    if is_stored(array) if reduction is None else STATISTICS[reduction].needs_all_values:
        return [array.size]
    memory = BoxMemory(BOX_BYTES) if reduction is None else reduction_memory()
    return [math.prod(part.stop - part.start for part in box) for box in iterate_boxes(array, memory)]


def _estimate_memory(
    array: Expression,
    reduction: str | None,
    shape: Sequence[int],
    sizes: Sequence[int],
    need: Cost,
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
    need
        What it takes.
    """
    threads = REMOTE_WORKERS if need.is_remote else count_cores() + 1
    # A thread holds what it has fetched, the chunk that it decodes, and what a filter makes of that.
    decoding = threads * (max(BATCH_BYTES, need.chunk) + 2 * need.chunk)
    memory = need.plan + min(decoding, sum(part.bytes_fetched + 2 * part.bytes_decoded for part in need.parts))
    elements = math.prod(shape)
    if reduction is None:
        memory += elements * array.dtype.itemsize
    elif STATISTICS.can_stream(reduction, array.dtype) and not STATISTICS[reduction].is_sketch:
        partial = Reduction((reduction,), array.dtype).empty_partial(())
        # The partial of all data, and one that is merged into it.
        memory += 2 * elements * sum(field.nbytes for field in partial.values())
        memory += min(count_cores() * (STACK_BYTES + 2 * STEP_BYTES), 3 * array.nbytes) if is_stored(array) else 0
    else:
        # For a median NumPy copies, masks and sorts the values: 20 MB of 3.5 MB, with what decoding holds.
        memory += 5 * min(BLOCK_BYTES, array.nbytes) + elements * array.dtype.itemsize
    if not is_stored(array):
        block_bytes = min(threads_at_once(), len(sizes)) * max(sizes, default=0) * array.dtype.itemsize
        memory += block_bytes * (1 + len(need.parts)) + min(CHUNK_BYTES, sum(part.bytes_decoded for part in need.parts))
    return memory
