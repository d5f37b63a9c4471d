"""What a job may hold at a time, from the cost of its expression; what needs more than the limits allow is refused
before any of it is read or computed.

An expression of a few bytes may name arrays that broadcast to 2^60 elements, or hundreds of operations on
each of them. The work is bounded by what any machine does within the time that a request has. The memory is
bounded by what is evaluated at a time, which is chosen here: the more operations, the smaller the parts of a
box. The boxes themselves are those of a client without a server, because the last bits of sums depend on them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from insitu.expressions.boxes import CHUNK_BYTES, MOST_ROOMS, BoxMemory, iterate_boxes
from insitu.expressions.chunk_grid import read_itemsize
from insitu.expressions.cost import Cost
from insitu.expressions.evaluate import threads_at_once
from insitu.expressions.nodes import Expression, is_stored
from insitu.model import normalise_axes
from insitu.reading.task_batches import BATCH_BYTES
from insitu.reading.thread_pools import REMOTE_WORKERS, count_cores
from insitu.reducing.expression_values import REDUCED_BYTES, reduction_memory
from insitu.reducing.fold_portions import state_bytes
from insitu.reducing.partials_by_box import BOX_BYTES
from insitu.reducing.reductions import Reduction
from insitu.reducing.slabs import SLAB_BYTES
from insitu.reducing.statistics import STATISTICS
from insitu.server.error_responses import RequestTooLargeError
from insitu.server.jobs import BatchJob
from insitu.server.settings import Limits

__all__ = ["BLOCK_BYTES", "JobMemory", "answer_bytes", "job_memory"]

BLOCK_BYTES = 8 << 20
"""Bytes of values that `/read` holds at a time."""
FOLD_BYTES = 2 * SLAB_BYTES
"""Bytes that a thread holds while it reduces a slab: what it fetched, and the decoded values."""
MEDIAN_COPIES = 8
"""How many copies of the values a median needs: as read, masked, sorted, and their order."""
MEMBERS_COPIES = 8
"""How many copies of its members `is_in` needs: they are sorted together with the values."""
GROUP_BYTES = 256
"""Bytes for the result of a group, in addition to its values."""
ELEMENTS_PER_SECOND = 2e9
"""Elements that a server computes in a second at most, on all its cores: more than can be done in
the time of a request is refused at once.
"""
LEAST_ELEMENTS = 1 << 12
"""Of a box: smaller ones would spend their time in Python."""


class JobMemory(NamedTuple):
    """What a job holds at a time."""

    threads: int
    """Threads that fetch and decode for it."""
    nbytes: int
    boxes: BoxMemory
    """What its evaluation may hold."""


def job_memory(limits: Limits, job: BatchJob, expression: Expression, need: Cost) -> JobMemory:
    """Return about what a job holds at a time; an error if that is more than the limits allow.

    Parameters
    ----------
    limits
        Limits of the worker.
    job
        The job.
    expression
        What it reduces, or what it reads at a time.
    need
        What that takes.
    """
    if need.chunk > limits.chunk:
        raise RequestTooLargeError(
            f"a chunk of {need.chunk} bytes is larger than the limit of this server, {limits.chunk} bytes"
        )
    if need.plan > limits.memory // 2:
        raise RequestTooLargeError(
            "the selection touches more chunks than the memory of this server allows: select less"
        )
    if need.operations > ELEMENTS_PER_SECOND * limits.seconds:
        raise RequestTooLargeError(
            f"the operations of the expression have {need.operations} elements: that is more than can be computed "
            f"within the limit of {limits.seconds:g} s"
        )
    threads, decoding = _decoding_memory(limits, need, FOLD_BYTES if job.methods else BATCH_BYTES)
    nbytes = need.plan + _result_bytes(limits, job, expression)
    block, columns = _whole_values(limits, job, expression, need)
    if is_stored(expression):
        # Chunks are kept for the next block that is read; a reduction takes each once.
        boxes, evaluated = BoxMemory(BLOCK_BYTES, 0 if job.methods else 2 * BLOCK_BYTES, block), 0
    else:
        width = min(threads_at_once(), threads)
        boxes, evaluated = _box_memory(limits, expression, need, width, block, bool(job.methods))
        decoding *= 2  # a box has threads of its own
    nbytes += min(decoding, 2 * need.bytes_decoded + FOLD_BYTES) + min(boxes.chunks, need.bytes_decoded)
    return JobMemory(threads, nbytes + columns + evaluated, boxes)


def _decoding_memory(limits: Limits, need: Cost, far_bytes: int) -> tuple[int, int]:
    """Return how many threads fetch and decode, and the bytes that they hold: as many threads as are of use and as the
    memory allows, but one at least. For remote sources more than cores are of use, within a quarter of the memory; each
    then holds `far_bytes` beside its chunks.
    """
    near = _threads_within(limits.memory, FOLD_BYTES + need.chunk, count_cores() + 1)
    if not need.is_remote:
        return near
    return max(near, _threads_within(limits.memory // 4, far_bytes + 2 * need.chunk, REMOTE_WORKERS))


def _threads_within(memory: int, each: int, most: int) -> tuple[int, int]:
    threads = max(min(memory // each, most), 1)
    return threads, threads * each


def _result_bytes(limits: Limits, job: BatchJob, expression: Expression) -> int:
    """Return the bytes of what becomes of the values: a statistic, or a block that is sent and those before it."""
    if job.methods:
        return answer_bytes(limits, job, expression.shape)
    if 4 * expression.nbytes > limits.memory:
        raise RequestTooLargeError(
            f"elements of {expression.dtype.itemsize} bytes are larger than the memory of this server allows"
        )
    return 4 * expression.nbytes + 4 * BLOCK_BYTES


def answer_bytes(limits: Limits, job: BatchJob, shape: Sequence[int]) -> int:
    """Return the bytes of the result of a job on values of some shape; an error if that is too much."""
    along = normalise_axes(job.axes, len(shape))
    if job.groups is not None:
        along = tuple(axis for axis in along if axis != job.groups.axis)
    rows = elements = math.prod(length for axis, length in enumerate(shape) if axis not in along)
    groups = 0
    if job.groups is not None:
        others = math.prod(n for axis, n in enumerate(shape) if axis not in along and axis != job.groups.axis)
        elements = others * job.groups.count
        groups = GROUP_BYTES * job.groups.count * len(job.methods)
    if isinstance(job.rules.q, (list, tuple)) or getattr(job.rules.q, "size", 1) > 1:
        elements *= max(getattr(job.rules.q, "size", 1), 1)
    sketches = tuple(method for method in job.methods if STATISTICS[method].is_sketch)
    each = 16 * len(job.methods) + state_bytes(Reduction(sketches, np.dtype(np.float64), job.rules))
    # Rows of groups have partials of their own, some boxes at a time.
    nbytes = 3 * elements * each + groups + (0 if job.groups is None else min(3 * rows * each, 2 * BOX_BYTES))
    if nbytes > limits.memory // 2:
        raise RequestTooLargeError(f"a result of {elements} values is larger than the memory of this server allows")
    return nbytes + (0 if job.weights is None else min(3 * math.prod(shape) * each, 2 * BOX_BYTES))


def _whole_values(limits: Limits, job: BatchJob, expression: Expression, need: Cost) -> tuple[int, int]:
    """Return how many bytes of values a median may hold at a time, and what it needs for them, copies and all; an error
    if it needs more.
    """
    itemsize = max(expression.dtype.itemsize, 1)
    if is_stored(expression):
        most = limits.memory // (MEDIAN_COPIES * itemsize)
    else:
        most = limits.memory // (2 * (MEDIAN_COPIES * itemsize + need.bytes_per_element))
    if job.weights is not None or all(STATISTICS.can_stream(method, expression.dtype) for method in job.methods):
        return most * itemsize, 0
    column = math.prod(expression.shape[axis] for axis in normalise_axes(job.axes, expression.ndim))
    if column > most:
        raise RequestTooLargeError(
            "the statistic needs more values at once than the memory of this server allows: reduce fewer axes"
        )
    return most * itemsize, MEDIAN_COPIES * itemsize * min(most, expression.size)


def _box_memory(
    limits: Limits, expression: Expression, need: Cost, width: int, block: int, reduces: bool
) -> tuple[BoxMemory, int]:
    """Return what the evaluation of an operation may hold at a time, and how many bytes that are.

    Parameters
    ----------
    limits, expression, need
        Limits of the worker, what is computed, and what that takes.
    width
        Boxes that are evaluated at a time.
    block
        Bytes of values that a median may hold.
    reduces
        Whether values are added together, box by box; else they are sent.
    """
    members = width * MEMBERS_COPIES * need.members
    if need.plan + members > limits.memory // 2:
        raise RequestTooLargeError("the expression needs more memory than this server allows: select less")
    itemsize = read_itemsize(expression)
    elements = min(REDUCED_BYTES // itemsize, limits.memory // (4 * MOST_ROOMS * width * need.bytes_per_element))
    if elements < LEAST_ELEMENTS:
        raise RequestTooLargeError("the expression has too many operations for the memory of this server")
    nbytes = members + width * need.bytes_per_element * min(MOST_ROOMS * elements, expression.size)
    chunks, part = min(limits.memory // 8, CHUNK_BYTES), elements * itemsize
    # The first box of a reduction is the largest.
    first = next(iterate_boxes(expression, reduction_memory()), ())
    box = math.prod(side.stop - side.start for side in first) * itemsize
    if box > limits.memory // 4:
        if reduces:  # smaller boxes would give other last bits
            raise RequestTooLargeError(
                f"the expression has chunks of {box} bytes, more than the memory of this server allows to put together"
            )
        return BoxMemory(part, chunks, block, cuts_chunks=True, part=part), nbytes
    at_once = max(min(width, limits.memory // 8 // max(box, 1)), 1)
    put_together = at_once * box if box > MOST_ROOMS * part else 0  # else it is evaluated whole
    return BoxMemory(REDUCED_BYTES, chunks, block, part=part, at_once=at_once), nbytes + put_together
