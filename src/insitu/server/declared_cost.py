"""Bounds on what a request may declare: estimates of its memory, made before any of it is taken."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from insitu.cancellation import check_deadline
from insitu.model import Selection, VirtualArray
from insitu.reading.memory_estimate import weigh_read
from insitu.reducing.reduce import normalised
from insitu.reducing.sketches import width
from insitu.server.error_responses import TooLargeError
from insitu.server.jobs import BLOCKWISE, Batch, Job, is_json
from insitu.server.settings import Limits

__all__ = ["BLOCK", "PREPARING", "SMALL_BODY", "block_bytes", "body_cost", "declared_cost", "job_cost"]

PREPARING = 1 << 20
"""Counted for a request that is being prepared, beside its body."""
BLOCK = 8 << 20
"""Bytes of values that are read at a time."""
BATCHES = 20 << 20
"""Bytes that a thread holds while it folds: what it fetched and what that decoded to."""
ITEM = 72
"""Bytes of the smallest thing that a body may hold, once it is decoded: an empty list, and its place in another one."""
SMALL_BODY = 1 << 20
"""Bodies up to this size are not looked through: they cannot hold much."""
ELEMENT = 32
"""Bytes for a number of a column: itself, and what is made of it on the way."""
SORTED = 8
"""How often values are held while a median of them is found: themselves, masked, sorted, and their order."""
GROUP = 256
"""Bytes for the answer of a group, beside its values."""


def body_cost(body: bytes, content_type: str, limits: Limits) -> int:
    """Return about how many bytes a request's body takes once it is decoded; an error if that is too much.

    A byte of CBOR may be an empty list, which takes 64 bytes.
    """
    if len(body) <= SMALL_BODY:
        return PREPARING + ITEM * len(body)
    most = limits.memory // (2 * ITEM)
    items = sum(body.count(mark) for mark in (b",", b"[", b"{")) if is_json(content_type) else _cbor_items(body, most)
    if items > most:
        raise TooLargeError(f"the request consists of more than the {most} items that this server takes in")
    return PREPARING + len(body) + ITEM * items


def _cbor_items(body: bytes, most: int) -> int:
    """Count the items of CBOR (RFC 8949, section 3) up to one more than `most`; strings are hopped over."""
    at = items = 0
    end = len(body)
    while at < end and items <= most:
        if not items % 65536:
            check_deadline()
        first = body[at]
        kind, short = first >> 5, first & 31
        at += 1
        items += 1
        length = short
        if 24 <= short <= 27:
            size = 1 << (short - 24)
            length = int.from_bytes(body[at : at + size], "big")
            at += size
        if kind in (2, 3) and short < 28:
            at += length
    return items


def declared_cost(batch: Batch, limits: Limits) -> int:
    """Return about how many bytes the columns of a batch take once they are spelled out; an error if that is too much."""
    cost = ELEMENT * batch.declared
    if cost > limits.memory // 2:
        raise TooLargeError(f"tables and selections of {batch.declared} numbers are more than this server takes in")
    return cost


def block_bytes(limits: Limits) -> int:
    """Return the bytes of values that a median may hold at a time."""
    return max(limits.memory // SORTED, BLOCK)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The answer of a job."""

    values: int
    nbytes: int


def job_cost(limits: Limits, job: Job, array: VirtualArray, selection: Selection, part: Selection | None) -> int:
    """Return about how many bytes a job holds at a time; an error if that is more than this server has.

    Parameters
    ----------
    limits
        What the server has.
    job, array, selection
        What is wanted.
    part
        What is read at a time; None: it is reduced.
    """
    weight = weigh_read(array, selection if part is None else part)
    if weight.chunk > limits.chunk:
        raise TooLargeError(
            f"a chunk of {weight.chunk} bytes is more than the {limits.chunk} that this server decodes or fetches at a time"
        )
    if weight.plan > limits.memory // 2:
        raise TooLargeError("the selection touches more chunks than this server plans at a time: select less")
    held = weight.plan + ((os.cpu_count() or 1) + 1) * (BATCHES + weight.chunk)
    if part is not None:
        block = math.prod(part.result_shape) * max(array.dtype.itemsize, 1)
        if 4 * block > limits.memory:
            raise TooLargeError(f"elements of {array.dtype.itemsize} bytes are more than this server sends")
        return held + 4 * block + 6 * BLOCK
    answer = _answer(job, selection)
    if answer.nbytes > limits.memory // 2:
        raise TooLargeError(f"an answer of {answer.values} values is more than this server holds")
    values = math.prod(selection.result_shape) * max(array.dtype.itemsize, 1)
    if any(method in BLOCKWISE for method in job.methods) or array.dtype.kind not in "biufc":
        along = normalised(job.axes, len(selection.result_shape))
        column = math.prod(selection.result_shape[axis] for axis in along) * max(array.dtype.itemsize, 1)
        if SORTED * column > limits.memory:
            raise TooLargeError("a statistic that needs so many values at once is more than this server holds")
        return weight.plan + SORTED * min(max(block_bytes(limits), column), values) + answer.nbytes + BATCHES
    return min(held, weight.plan + 2 * values + BATCHES) + answer.nbytes


def _answer(job: Job, selection: Selection) -> _Kept:
    shape = selection.result_shape
    along = normalised(job.axes, len(shape))
    if job.groups is not None:
        along = tuple(axis for axis in along if axis != job.groups.axis)
    kept = math.prod(length for axis, length in enumerate(shape) if axis not in along)
    groups = 0
    if job.groups is not None:
        others = math.prod(n for axis, n in enumerate(shape) if axis not in along and axis != job.groups.axis)
        kept = max(kept, others * job.groups.count)
        groups = GROUP * job.groups.count * len(job.methods)
    if isinstance(job.rules.q, (list, tuple)) or getattr(job.rules.q, "size", 1) > 1:
        kept *= max(getattr(job.rules.q, "size", 1), 1)
    return _Kept(kept, 3 * kept * (16 * len(job.methods) + width(job.methods, job.rules.edges)) + groups)
