"""Jobs of `/reduce` and `/read`: an expression that is prepared, then reduced or read.

The expression is built and evaluated by the code that does it in a client (`insitu.expressions`,
`insitu.reducing`), with the sources, the cache and the limits of the server. NumPy's warnings about
floating-point errors are collected and sent along, for the client to issue.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.active.wire import selection_from_wire
from insitu.active.wire_expression import ERROR_KINDS
from insitu.cancellation import check_deadline
from insitu.errors import InsituError, ModelError, SelectionError, UnsupportedError
from insitu.expressions.boxes import Box
from insitu.expressions.build_expression import build_expression
from insitu.expressions.chunk_grid import read_itemsize
from insitu.expressions.cost import cost
from insitu.expressions.evaluate import box_reader
from insitu.expressions.moves import SelectEach, select_box
from insitu.expressions.nodes import Expression, Stored, is_stored
from insitu.model import Selection, Stride, VirtualArray
from insitu.reading import ChunkCache, ReadContext
from insitu.reducing.expression_values import ExpressionValues
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reduce_expression import fold_expression, open_values, reduce_expression
from insitu.server.job_memory import BLOCK_BYTES, JobMemory, job_memory
from insitu.server.jobs import BatchJob
from insitu.server.settings import Limits

__all__ = ["PreparedJob", "prepare_job", "read_job", "reduce_job"]

Results = dict[str, npt.NDArray[Any]]
UFUNC_NAMES = {"true_divide": "divide", "astype": "cast"}
"""Names that NumPy's messages have for operations."""


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A job that is ready to run."""

    job: BatchJob
    arrays: tuple[VirtualArray, ...]
    """Those that its expression names."""
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    """Of what is selected of the expression."""
    memory: JobMemory
    is_cached: bool
    """Whether its decoded chunks go through the cache."""


def prepare_job(limits: Limits, job: BatchJob, arrays: Sequence[VirtualArray], cache_bytes: int) -> PreparedJob:
    """Return a job with what it holds at a time; an error if it does not fit together, or needs more than the limits
    allow.

    Parameters
    ----------
    limits
        Limits of the worker.
    job
        The job.
    arrays
        The arrays that its expression names.
    cache_bytes
        Bytes, decoded and computed, of a job whose chunks go through the cache. Those of a longer pass would
        only push out what others read again.
    """
    leaves = _leaves(job, arrays, ReadContext())
    expression, selection = _build(job, leaves, FloatingPointErrors())
    job = replace(job, axes=_axes_by_name(job, leaves, selection), dim=None)
    if job.methods and not expression.size and not is_stored(expression):
        raise ModelError("an expression without elements cannot be reduced")
    if job.partial:
        job.folding(ExpressionValues(expression))  # an error now is better than one later
    part, need = expression, cost(expression)
    is_cached = expression.nbytes + need.bytes_decoded <= cache_bytes
    if not job.methods:  # what is read is planned box by box; the first one is the largest
        part = next((select_box(expression, box) for box in _split(expression)), expression)
        need = cost(part)
    memory = job_memory(limits, job, part, need)
    return PreparedJob(job, tuple(arrays), expression.dtype, expression.shape, memory, is_cached)


def reduce_job(task: PreparedJob, context: ReadContext) -> tuple[Results, list[list[str]]]:
    """Return the statistics of a job, or their partials; and NumPy's warnings.

    Parameters
    ----------
    task
        What to compute.
    context
        Open sources, and the counter of what is read from them.
    """
    job, memory, warned = task.job, task.memory.boxes, FloatingPointErrors()
    expression, _ = _build(job, _leaves(job, task.arrays, context), warned)
    query = ReductionQuery(job.methods, job.axes, ..., job.rules, job.keepdims)
    with _report_numpy_errors(expression):
        if job.partial:
            with open_values(expression, memory=memory) as values:
                found = dict(job.folding(values).fold_whole())
        elif job.weights is not None or job.groups is not None:
            found = fold_expression(expression, job.folding, memory=memory)
        else:
            found = reduce_expression(expression, query, memory=memory)
    return found, warned.messages


def read_job(task: PreparedJob, context: ReadContext) -> Iterator[npt.NDArray[Any]]:
    """Yield the values of a job in C order, block by block, so that only a few blocks are held at a time."""
    expression, _ = _build(task.job, _leaves(task.job, task.arrays, context), FloatingPointErrors())
    if isinstance(expression, Stored) and expression.nbytes > BLOCK_BYTES:
        # For chunks that lie in two boxes; the cache of the sources, if there is one, goes before.
        shared = replace(expression.context, cache=ChunkCache(task.memory.boxes.chunks))
        expression = Stored(expression.whole, shared, expression.selection)
    read = box_reader(expression, task.memory.boxes)
    for box in _split(expression):
        with _report_numpy_errors(expression):
            values = read(box)
        yield np.asarray(values, expression.dtype)


def _leaves(job: BatchJob, arrays: Sequence[VirtualArray], context: ReadContext) -> list[Stored]:
    """Return the arrays of a job with what is selected of each; nothing is cut out before its cost is known."""
    return [
        Stored(array, context.of_variable(request.variable), request.resolve_selection(array))
        for request, array in zip(job.arrays, arrays, strict=True)
    ]


def _build(job: BatchJob, leaves: Sequence[Stored], warned: FloatingPointErrors) -> tuple[Expression, Selection]:
    """Return what is selected of the expression of a job, and the selection."""
    whole = build_expression(job.expression, leaves, warned.settings)
    selection = selection_from_wire(job.selection, whole.shape)
    if job.selection is None:
        return whole, selection
    keys = tuple(_stride_key(key) if isinstance(key, Stride) else key for key in selection.selectors)
    return SelectEach(whole.shape, keys).apply(whole), selection


def _stride_key(stride: Stride) -> slice:
    start, step, length = stride
    stop = start + step * length
    return slice(0, 0) if not length else slice(start, None if stop < 0 else stop, step)


def _axes_by_name(job: BatchJob, leaves: Sequence[Stored], selection: Selection) -> tuple[int, ...] | None:
    """Return the axes of the selected result for the dimensions that a job names."""
    if job.dim is None:
        return job.axes
    each = [_dims_left(leaf.whole.dims, leaf.selection) for leaf in leaves]
    names = max(each, key=len)
    if len(names) != len(selection.selectors) or any(dims and dims != names[-len(dims) :] for dims in each):
        raise SelectionError("the arrays of the expression have different dimensions: give axes in place of dim")
    left = _dims_left(names, selection)
    if unknown := [name for name in job.dim if name not in left]:
        raise SelectionError(
            f"no dimension {', '.join(map(repr, unknown))}", hint=f"There are: {', '.join(left) or 'none'}"
        )
    return tuple(left.index(name) for name in job.dim)


def _dims_left(dims: Sequence[str], selection: Selection | None) -> list[str]:
    """Return the dimensions that a selection leaves; None selects all."""
    if selection is None:
        return list(dims)
    return [name for name, key in zip(dims, selection.selectors, strict=True) if not isinstance(key, int)]


def _split(expression: Expression) -> Iterator[Box]:
    """Yield boxes that follow each other in C order, of about `BLOCK_BYTES` of values."""
    shape = expression.shape
    if 0 in shape:
        return
    if not shape:
        yield ()
        return
    rows = [math.prod(shape[axis + 1 :]) * read_itemsize(expression) for axis in range(len(shape))]
    axis = next((axis for axis, row in enumerate(rows) if row <= BLOCK_BYTES), len(shape) - 1)
    step = _align_to_chunks(max(BLOCK_BYTES // rows[axis], 1), expression, axis, rows[axis])
    rest = tuple(slice(0, length) for length in shape[axis + 1 :])
    for place in np.ndindex(*shape[:axis]):
        check_deadline()
        for begin in range(0, shape[axis], step):
            yield (*(slice(i, i + 1) for i in place), slice(begin, min(begin + step, shape[axis])), *rest)


def _align_to_chunks(step: int, expression: Expression, axis: int, row: int) -> int:
    """Return a step that ends at chunk borders of a stored array, if the boxes are not too large: then each chunk is
    decoded once. What is computed keeps chunks from one box to the next.
    """
    if not isinstance(expression, Stored) or expression.selection is None or not expression.whole.tiles:
        return step
    axes = [number for number, key in enumerate(expression.selection.selectors) if not isinstance(key, int)]
    cut = expression.whole.tiles[0].axis_of(axes[axis])
    if not cut.is_regular:
        return step
    if step < cut.size:
        return cut.size if cut.size * row <= 4 * BLOCK_BYTES else step
    return step // cut.size * cut.size


class FloatingPointErrors:
    """Collects floating-point errors of which NumPy was to warn."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], None] = {}

    @property
    def messages(self) -> list[list[str]]:
        """What happened, and in which operation."""
        return [[what, operation] for what, operation in self._seen]

    def settings(self, operation: str, given: Any) -> Any:
        """Return settings of `np.errstate`: warnings are collected, what was not said is ignored."""
        how = {**dict.fromkeys(ERROR_KINDS, "ignore"), **dict(given)}
        called = {kind: "call" if action == "warn" else action for kind, action in how.items()}
        return (*called.items(), ("call", partial(self._add, UFUNC_NAMES.get(operation, operation))))

    def _add(self, operation: str, what: str, flag: int) -> None:
        self._seen[what, operation] = None


@contextmanager
def _report_numpy_errors(expression: Expression) -> Iterator[None]:
    """Turn what NumPy raises because of values into an error for the client: floating-point errors
    that were to raise, integers to negative powers.
    """
    try:
        yield
    except (FloatingPointError, ValueError) as problem:
        if isinstance(problem, InsituError) or is_stored(expression):
            raise
        raise UnsupportedError(f"the expression cannot be evaluated: {problem}") from None
