"""Evaluation of expressions: jobs of `/reduce` and `/read` that combine several arrays.

The tree is built and evaluated by the code that evaluates it in a client (`insitu.lazy_array`), with
the sources, the cache and the limits of the server. NumPy's warnings about floating-point errors
are collected and sent along, for the client to issue.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.active.node_table import Expression
from insitu.active.wire import selection_from_wire
from insitu.active.wire_expression import ERROR_KINDS
from insitu.cancellation import check_deadline
from insitu.errors import InsituError, ModelError, SelectionError, UnsupportedError
from insitu.lazy_array import Access, LazyArray
from insitu.lazy_array.boxes import Box, BoxMemory
from insitu.lazy_array.evaluate import box_reader
from insitu.lazy_array.expression_nodes import build_expression
from insitu.lazy_array.reduce_boxes import ExpressionValues, reduce_by_boxes
from insitu.model import Selection, Stride, VirtualArray, normalise_axes
from insitu.reading import ReadStatistics, SourcePool
from insitu.reducing.grouped_statistics import group_values
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reduce import squeeze_axes
from insitu.reducing.weighted_statistics import weigh_values
from insitu.server.declared_cost import BLOCK_BYTES, RequestMemory
from insitu.server.expression_cost import WorkLimit, expression_cost
from insitu.server.jobs import BatchJob
from insitu.server.settings import Limits

__all__ = ["PreparedExpression", "prepare_expression", "read_expression", "reduce_expression"]

Results = dict[str, npt.NDArray[Any]]
UFUNC_NAMES = {"true_divide": "divide", "astype": "cast"}
"""Names that NumPy's messages have for operations."""


@dataclass(frozen=True, slots=True)
class PreparedExpression:
    """An expression job that is ready to run."""

    job: BatchJob
    arrays: tuple[VirtualArray, ...]
    """What is selected of each array."""
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    """Of the selected result."""
    cost: RequestMemory
    memory: BoxMemory
    kept: bool
    """Whether its decoded chunks go through the cache."""


def prepare_expression(
    limits: Limits, job: BatchJob, arrays: Sequence[VirtualArray], can_be_kept: Callable[[VirtualArray], bool]
) -> PreparedExpression:
    """Return a job with its arrays and its estimated cost; an error if it does not fit together, or
    needs more than the limits allow.

    Parameters
    ----------
    limits
        Limits of the worker.
    job
        The job.
    arrays
        The arrays of its expression.
    can_be_kept
        Returns whether the chunks of an array may go through the cache.
    """
    assert job.expression is not None
    chosen = tuple(
        array[request.resolve_selection(array)] for request, array in zip(job.expression.arrays, arrays, strict=True)
    )
    whole = _build(job.expression, chosen, Access(), WorkLimit(limits), FloatingPointErrors())
    selection = selection_from_wire(job.selection, whole.shape)
    job = replace(job, axes=_axes_by_name(job, chosen, selection), dim=None)
    array = _select(whole, selection)
    if job.methods and not array.size:
        raise ModelError("an expression without elements cannot be reduced")
    normalise_axes(job.axes, array.ndim)
    cost = expression_cost(limits, job, array)
    return PreparedExpression(
        job, chosen, array.dtype, array.shape, cost.held, cost.boxes, all(map(can_be_kept, chosen))
    )


def reduce_expression(
    task: PreparedExpression, limits: Limits, opened: SourcePool, tally: ReadStatistics
) -> tuple[Results, list[list[str]]]:
    """Return the statistics of an expression, or their partials; and NumPy's warnings.

    Parameters
    ----------
    task, limits
        What to compute, and the limits of the worker.
    opened, tally
        Open sources, and the counter of what is read from them.
    """
    warned = FloatingPointErrors()
    array, job = _open(task, limits, opened, tally, warned), task.job
    query = ReductionQuery(job.methods, job.axes, ..., job.rules, job.keepdims)
    values = ExpressionValues(array, task.memory)
    with _report_numpy_errors():
        if job.partial:
            whole = job.in_pieces(array.shape, array.dtype)
            assert whole is not None
            found = whole.fold_piece(values, Selection.of(..., array.shape))
        elif job.weights is not None:
            found = weigh_values(values, job.weights, query)
        elif job.groups is not None:
            found = group_values(values, job.groups, query)
        else:
            found = _reduce(array, job, task.memory)
    return found, warned.messages


def _reduce(array: LazyArray, job: BatchJob, memory: BoxMemory) -> Results:
    along = normalise_axes(job.axes, array.ndim)
    found = reduce_by_boxes(array, job.methods, along, job.rules, memory)
    return found if job.keepdims else {name: squeeze_axes(v, along, array.ndim) for name, v in found.items()}


def read_expression(
    task: PreparedExpression, limits: Limits, opened: SourcePool, tally: ReadStatistics
) -> Iterator[npt.NDArray[Any]]:
    """Yield the values of an expression in C order, block by block."""
    array = _open(task, limits, opened, tally, FloatingPointErrors())
    most = min(BLOCK_BYTES, task.memory.box) // max(array.dtype.itemsize, array.array.dtype.itemsize, 1)
    read = box_reader(array, task.memory)
    for box in _slabs(array.shape, max(most, 1)):
        with _report_numpy_errors():
            values = read(box)
        yield np.asarray(values, array.dtype)


def _slabs(shape: Sequence[int], most: int) -> Iterator[Box]:
    """Yield boxes of at most so many elements that follow each other in C order."""
    if 0 in shape:
        return
    rows = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    axis = next((axis for axis, row in enumerate(rows) if row <= most), None)
    if axis is None:
        yield ()
        return
    step, rest = max(most // rows[axis], 1), tuple(slice(0, length) for length in shape[axis + 1 :])
    for place in np.ndindex(*shape[:axis]):
        check_deadline()
        for begin in range(0, shape[axis], step):
            end = min(begin + step, shape[axis])
            yield (*(slice(i, i + 1) for i in place), slice(begin, end), *rest)


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


def _open(
    task: PreparedExpression,
    limits: Limits,
    opened: SourcePool,
    tally: ReadStatistics,
    warned: FloatingPointErrors,
) -> LazyArray:
    """Return the expression over open sources."""
    assert task.job.expression is not None
    access = Access(sources=opened, tally=tally)
    whole = _build(task.job.expression, task.arrays, access, WorkLimit(limits), warned)
    return _select(whole, selection_from_wire(task.job.selection, whole.shape))


def _build(
    expression: Expression,
    arrays: Sequence[VirtualArray],
    access: Access,
    work: WorkLimit,
    warned: FloatingPointErrors,
) -> LazyArray:
    leaves = [
        LazyArray(array, replace(access, name=request.variable))
        for request, array in zip(expression.arrays, arrays, strict=True)
    ]
    return build_expression(expression, leaves, work.check, warned.settings)


def _select(array: LazyArray, selection: Selection) -> LazyArray:
    keys = tuple(_stride_key(key) if isinstance(key, Stride) else key for key in selection.selectors)
    selected: LazyArray = array.oindex[keys]
    return selected


def _stride_key(stride: Stride) -> slice:
    start, step, length = stride
    stop = start + step * length
    return slice(0, 0) if not length else slice(start, None if stop < 0 else stop, step)


def _axes_by_name(job: BatchJob, arrays: Sequence[VirtualArray], selection: Selection) -> tuple[int, ...] | None:
    """Return the axes of the selected result for the dimensions that a job names."""
    if job.dim is None:
        return job.axes
    names = max((array.dims for array in arrays), key=len)
    if len(names) != len(selection.selectors) or any(a.ndim and a.dims != names[-a.ndim :] for a in arrays):
        raise SelectionError("the arrays of the expression have different dimensions: give axes in place of dim")
    left = [name for name, key in zip(names, selection.selectors, strict=True) if not isinstance(key, int)]
    if unknown := [name for name in job.dim if name not in left]:
        raise SelectionError(f"no dimension {unknown[0]!r}", hint=f"There are: {', '.join(left) or 'none'}")
    return tuple(left.index(name) for name in job.dim)


@contextmanager
def _report_numpy_errors() -> Iterator[None]:
    """Turn what NumPy raises because of values into an error for the client: floating-point errors
    that were to raise, integers to negative powers.
    """
    try:
        yield
    except (FloatingPointError, ValueError) as problem:
        if isinstance(problem, InsituError):
            raise
        raise UnsupportedError(f"the expression cannot be evaluated: {problem}") from None
