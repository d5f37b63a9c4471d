"""Estimates of the memory that a request needs, made before any of it is allocated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from insitu.active.message_decoder import MAX_ITEMS
from insitu.model import Selection, VirtualArray, normalise_axes
from insitu.reading.memory_estimate import estimate_read_memory
from insitu.reading.request_cost import is_far
from insitu.reading.task_batches import BATCH_BYTES
from insitu.reading.thread_pools import REMOTE_WORKERS, count_cores
from insitu.reducing.sketches import sketch_bytes
from insitu.server.error_responses import RequestTooLargeError
from insitu.server.jobs import BLOCKWISE_METHODS, BatchJob, BatchRequest
from insitu.server.settings import Limits

__all__ = [
    "BLOCK_BYTES",
    "FOLD_BYTES",
    "MEDIAN_COPIES",
    "PREPARATION_BYTES",
    "RequestMemory",
    "answer_bytes",
    "block_bytes",
    "body_cost",
    "declared_cost",
    "job_cost",
    "max_items",
]

PREPARATION_BYTES = 1 << 20
"""Bytes that are counted for the preparation of a request, in addition to its body."""
BLOCK_BYTES = 8 << 20
"""Bytes of values that `/read` holds at a time."""
FOLD_BYTES = 20 << 20
"""Bytes that a thread holds while it reduces: what it fetched, and the decoded values."""
ITEM_BYTES = 72
"""Bytes of the smallest decoded item of a body:
an empty list, and the reference to it in another list.
"""
ELEMENT_BYTES = 32
"""Bytes for a number of a column, with temporary copies."""
MEDIAN_COPIES = 8
"""How many copies of the values a median needs: as read, masked, sorted, and their order."""
GROUP_BYTES = 256
"""Bytes for the result of a group, in addition to its values."""


def max_items(limits: Limits) -> int:
    """Return how many items the body of a request may have."""
    return min(MAX_ITEMS, limits.memory // (2 * ITEM_BYTES))


def body_cost(body: bytes, items: int) -> int:
    """Return about how many bytes the body of a request takes once its items are decoded."""
    return PREPARATION_BYTES + len(body) + ITEM_BYTES * items


def declared_cost(batch: BatchRequest, limits: Limits) -> int:
    """Return about how many bytes the columns of a batch take once expanded;
    an error if that is too much.
    """
    cost = ELEMENT_BYTES * batch.declared
    if cost > limits.memory // 2:
        raise RequestTooLargeError(
            f"tables and selections of {batch.declared} numbers are larger than the memory of this server allows"
        )
    return cost


def block_bytes(limits: Limits) -> int:
    """Return the bytes of values that a median may hold at a time."""
    return max(limits.memory // MEDIAN_COPIES, BLOCK_BYTES)


class RequestMemory(NamedTuple):
    """What a request holds at a time."""

    threads: int
    """Threads that fetch and decode for it."""
    nbytes: int

    @classmethod
    def of_decoding(cls, limits: Limits, arrays: Sequence[VirtualArray], chunk: int) -> RequestMemory:
        """Return what threads hold that fetch and decode: as many as are of use and as the memory allows, but one at
        least.

        Parameters
        ----------
        limits
            Limits of the worker.
        arrays
            What is read. For remote sources more threads than cores are of use, within a quarter of the memory.
        chunk
            Bytes of the largest chunk.
        """
        each = FOLD_BYTES + chunk
        near = cls._within(limits.memory, each, count_cores() + 1)
        if not any(is_far(array.tiles[0].chunks.sources) for array in arrays if array.tiles):
            return near
        far = cls._within(limits.memory // 4, BATCH_BYTES + 2 * chunk, REMOTE_WORKERS)
        return far if far.threads > near.threads else near

    @classmethod
    def _within(cls, memory: int, each: int, most: int) -> RequestMemory:
        threads = max(min(memory // each, most), 1)
        return cls(threads, threads * each)


def job_cost(
    limits: Limits, job: BatchJob, array: VirtualArray, selection: Selection, part: Selection | None
) -> RequestMemory:
    """Return about what a job holds at a time; an error if that is more than the limits allow.

    Parameters
    ----------
    limits
        Limits of the worker.
    job, array, selection
        The job, its array, and what is selected of it.
    part
        What is read at a time; None for a reduction.
    """
    weight = estimate_read_memory(array, selection if part is None else part)
    if weight.chunk > limits.chunk:
        raise RequestTooLargeError(
            f"a chunk of {weight.chunk} bytes is larger than the limit of this server, {limits.chunk} bytes"
        )
    if weight.plan > limits.memory // 2:
        raise RequestTooLargeError(
            "the selection touches more chunks than the memory of this server allows: select less"
        )
    decoding = RequestMemory.of_decoding(limits, [array], weight.chunk)
    held = weight.plan + decoding.nbytes
    if part is not None:
        block = math.prod(part.result_shape) * max(array.dtype.itemsize, 1)
        if 4 * block > limits.memory:
            raise RequestTooLargeError(
                f"elements of {array.dtype.itemsize} bytes are larger than the memory of this server allows"
            )
        return decoding._replace(nbytes=held + 4 * block + 6 * BLOCK_BYTES)
    answer = answer_bytes(limits, job, selection.result_shape)
    values = math.prod(selection.result_shape) * max(array.dtype.itemsize, 1)
    if any(method in BLOCKWISE_METHODS for method in job.methods) or array.dtype.kind not in "biufc":
        along = normalise_axes(job.axes, len(selection.result_shape))
        column = math.prod(selection.result_shape[axis] for axis in along) * max(array.dtype.itemsize, 1)
        if MEDIAN_COPIES * column > limits.memory:
            raise RequestTooLargeError(
                "the statistic needs more values at once than the memory of this server allows: reduce fewer axes"
            )
        blocks = MEDIAN_COPIES * min(max(block_bytes(limits), column), values)
        return decoding._replace(nbytes=weight.plan + blocks + answer + FOLD_BYTES)
    return decoding._replace(nbytes=min(held, weight.plan + 2 * values + FOLD_BYTES) + answer)


def answer_bytes(limits: Limits, job: BatchJob, shape: Sequence[int]) -> int:
    """Return the bytes of the result of a job on values of some shape; an error if that is too much."""
    along = normalise_axes(job.axes, len(shape))
    if job.groups is not None:
        along = tuple(axis for axis in along if axis != job.groups.axis)
    kept = math.prod(length for axis, length in enumerate(shape) if axis not in along)
    groups = 0
    if job.groups is not None:
        others = math.prod(n for axis, n in enumerate(shape) if axis not in along and axis != job.groups.axis)
        kept = max(kept, others * job.groups.count)
        groups = GROUP_BYTES * job.groups.count * len(job.methods)
    if isinstance(job.rules.q, (list, tuple)) or getattr(job.rules.q, "size", 1) > 1:
        kept *= max(getattr(job.rules.q, "size", 1), 1)
    nbytes = 3 * kept * (16 * len(job.methods) + sketch_bytes(job.methods, job.rules.edges)) + groups
    if nbytes > limits.memory // 2:
        raise RequestTooLargeError(f"a result of {kept} values is larger than the memory of this server allows")
    return nbytes
