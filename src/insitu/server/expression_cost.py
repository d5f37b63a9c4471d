"""Estimates of the memory and work that an expression needs, made before any of it is evaluated.

An expression of a few bytes may name arrays that broadcast to 2^60 elements, or hundreds of
operations on each of them. The work is bounded by what any machine does within the time that a
request has. The memory is bounded by the size of the boxes, which is chosen here: the more
operations, the smaller the boxes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from insitu.lazy_array import LazyArray
from insitu.lazy_array.boxes import CHUNK_BYTES, MOST_ROOMS, BoxMemory
from insitu.lazy_array.deferred_values import DeferredValues
from insitu.lazy_array.evaluate import threads_at_once
from insitu.lazy_array.reduce_boxes import REDUCED_BYTES
from insitu.lazy_array.steps import Apply, Step
from insitu.model import Selection, VirtualArray, normalise_axes
from insitu.model.elementwise import Members
from insitu.reading.memory_estimate import estimate_read_memory
from insitu.server.declared_cost import BLOCK_BYTES, MEDIAN_COPIES, RequestMemory, answer_bytes
from insitu.server.error_responses import RequestTooLargeError
from insitu.server.jobs import BLOCKWISE_METHODS, BatchJob
from insitu.server.settings import Limits

__all__ = ["ExpressionCost", "WorkLimit", "expression_cost"]

ELEMENTS_PER_SECOND = 2e9
"""Elements that a server computes in a second at most, on all its cores: more than can be done in
the time of a request is refused at once.
"""
LEAST_ELEMENTS = 1 << 12
"""Of a box: smaller ones would spend their time in Python."""
MEMBERS_COPIES = 8
"""How many copies of its members `is_in` needs: they are sorted together with the values."""
PARTIAL_BYTES = 128 << 20
"""Partials of weighted and grouped statistics."""


class WorkLimit:
    """The work of an expression while it is built; an error once it is too much.

    Parameters
    ----------
    limits
        Limits of the worker.
    """

    def __init__(self, limits: Limits) -> None:
        self._left = ELEMENTS_PER_SECOND * limits.seconds
        self._seconds = limits.seconds

    def check(self, number: int, shape: tuple[int, ...]) -> None:
        """Add a node of some shape."""
        self._left -= math.prod(shape)
        if self._left < 0:
            raise RequestTooLargeError(
                f"node {number} of the expression has the shape {shape}: that is more than can be computed within "
                f"the limit of {self._seconds:g} s"
            )


@dataclass(frozen=True, slots=True)
class ExpressionCost:
    """What an expression holds while it is evaluated."""

    held: RequestMemory
    boxes: BoxMemory


def expression_cost(limits: Limits, job: BatchJob, array: LazyArray) -> ExpressionCost:
    """Return about how many bytes an expression holds at a time, and the size of its boxes; an error
    if that is more than the limits allow.

    Parameters
    ----------
    limits
        Limits of the worker.
    job, array
        The job, and what is selected of its expression.
    """
    plan, chunk = _estimate_reads(limits, array)
    decoding = RequestMemory.of_decoding(limits, list(_each_array(array)), chunk)
    width, itemsize = min(threads_at_once(), decoding.threads), max(array.dtype.itemsize, array.array.dtype.itemsize, 1)
    members, per_element = _members_bytes(array), _bytes_per_element(array)
    held = plan + 2 * decoding.nbytes + width * MEMBERS_COPIES * members  # a box has threads of its own
    if plan + width * MEMBERS_COPIES * members > limits.memory // 2:
        raise RequestTooLargeError("the expression needs more memory than this server allows: select less")
    elements = min(REDUCED_BYTES // itemsize, limits.memory // (4 * MOST_ROOMS * width * per_element))
    if elements < LEAST_ELEMENTS:
        raise RequestTooLargeError("the expression has too many operations for the memory of this server")
    answer = answer_bytes(limits, job, array.shape) if job.methods else 4 * BLOCK_BYTES
    block = _block_elements(limits, job, array, per_element)
    boxes = width * per_element * min(MOST_ROOMS * elements, array.size)
    partials = PARTIAL_BYTES if job.weights is not None or job.groups is not None else 0
    chunks = min(limits.memory // 8, CHUNK_BYTES)
    memory = BoxMemory(elements * itemsize, chunks, block * max(array.dtype.itemsize, 1), cuts_chunks=True)
    return ExpressionCost(decoding._replace(nbytes=held + boxes + answer + partials + chunks), memory)


def _estimate_reads(limits: Limits, array: LazyArray) -> tuple[int, int]:
    """Return the bytes of the plans of all stored arrays, and of the largest chunk."""
    plan = chunk = 0
    for stored in _each_array(array):
        weight = estimate_read_memory(stored, Selection.of(..., stored.shape))
        plan, chunk = plan + weight.plan, max(chunk, weight.chunk)
        if weight.chunk > limits.chunk:
            raise RequestTooLargeError(
                f"a chunk of {weight.chunk} bytes is larger than the limit of this server, {limits.chunk} bytes"
            )
    if plan > limits.memory // 2:
        raise RequestTooLargeError(
            "the expression touches more chunks than the memory of this server allows: select less"
        )
    return plan, chunk


def _block_elements(limits: Limits, job: BatchJob, array: LazyArray, per_element: int) -> int:
    """Return how many values a median may have at a time; an error if it needs more."""
    most = limits.memory // (2 * (MEDIAN_COPIES * max(array.dtype.itemsize, 1) + per_element))
    if any(method in BLOCKWISE_METHODS for method in job.methods):
        column = math.prod(array.shape[axis] for axis in normalise_axes(job.axes, array.ndim))
        if column > most:
            raise RequestTooLargeError(
                "the statistic needs more values at once than the memory of this server allows: reduce fewer axes"
            )
    return max(most, 1)


def _bytes_per_element(array: LazyArray) -> int:
    """Return how many bytes all intermediate values of one element have together."""
    total = sum(stored.dtype.itemsize for stored in _each_array(array))
    return total + sum(2 * step.dtype(before).itemsize + _extra_bytes(step) for before, step in _each_step(array))


def _extra_bytes(step: Step) -> int:
    """Return the bytes of temporary values of a step, for each element; `is_in` sorts the values."""
    return 64 if isinstance(step, Apply) and step.operation == "is_in" else 8


def _members_bytes(array: LazyArray) -> int:
    arguments = [a for _, step in _each_step(array) if isinstance(step, Apply) for a in step.arguments]
    return sum(members.values.nbytes for members in arguments if isinstance(members, Members))


def _each_array(array: DeferredValues) -> Iterator[VirtualArray]:
    """Yield all stored arrays of an expression, each once; those that were never written, too."""
    steps = (step for _, step in _each_step(array) if isinstance(step, Apply))
    operands = [operand.array for step in steps for operand in step.operands]
    yield from {id(stored): stored for stored in [array.array, *operands]}.values()


def _each_step(array: DeferredValues) -> Iterator[tuple[np.dtype[Any], Step]]:
    """Yield all steps of an expression, each once, with the type of the values before it."""
    seen: set[int] = set()

    def visit(node: DeferredValues) -> Iterator[tuple[np.dtype[Any], Step]]:
        dtype = node.array.dtype
        for step in node.steps:
            if id(step) not in seen:
                seen.add(id(step))
                yield dtype, step
                for operand in step.operands if isinstance(step, Apply) else ():
                    yield from visit(operand)
            dtype = step.dtype(dtype)

    return visit(array)
